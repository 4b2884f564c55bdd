"""A pod's document → `RunPod`, and a `RunStatus` → the status document that is reported.

The document was validated when it was stored, so it is decoded straight into the structs. Nulls (an API may print
`lastProbeTime: null`, and a manifest may contain any) mean absent; if the decoder refuses one, nulls are removed and
the document is decoded again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import quantity_text
from plimsoll.errors import FieldError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.pod_status import RunStatus
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.quantity import QUANTITIES, Quantity

# Fields that Kubernetes prints even if they are zero.
_ALWAYS_PRINTED = {"ready": False, "restartCount": 0, "image": "", "imageID": "", "lastState": {}, "state": {}}
_CONTAINER_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@cache
def _decoder() -> Callable[[bytes | str], RunPod]:
    return msgspec.json.Decoder(RunPod, dec_hook=_quantity).decode


def _quantity(kind: type, value: Any) -> Any:
    if kind is not Quantity:  # `object`: a part that is not decoded
        return value
    text = quantity_text(value)
    return QUANTITIES["" if text is None else text]


def run_pod_from_json(data: bytes | str) -> RunPod:
    """One pod; raises InvalidObjectError."""
    try:
        return _decoder()(data)
    except (msgspec.ValidationError, InvalidQuantityError):
        return _without_nulls_decoded(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidObjectError([FieldError("FieldValueInvalid", "", f"not JSON: {error}")]) from None


def run_pod(document: JsonObject) -> RunPod:
    """The same from a document of JSON types."""
    try:
        return msgspec.convert(document, RunPod, dec_hook=_quantity)
    except (msgspec.ValidationError, InvalidQuantityError):
        return _without_nulls_decoded(document)


def _without_nulls_decoded(document: Any) -> RunPod:
    try:
        return msgspec.convert(_without_nulls(document), RunPod, dec_hook=_quantity)
    except InvalidQuantityError as error:
        raise InvalidObjectError([FieldError("FieldValueInvalid", "", str(error))]) from None
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at `$")
        raise InvalidObjectError([FieldError("FieldValueInvalid", path.strip(".`"), sentence)]) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value


def status_document(status: RunStatus) -> JsonObject:
    """The status that a kubelet would send: absent members omitted, members that are always printed included."""
    # Through JSON: lists, not tuples, so that it can be compared with an API server's answer.
    document: JsonObject = msgspec.json.decode(msgspec.json.encode(status, enc_hook=str))
    for kind in _CONTAINER_LISTS:
        for container in document.get(kind, ()):
            for field, zero in _ALWAYS_PRINTED.items():
                container.setdefault(field, zero if not isinstance(zero, dict) else {})
            _complete_state(container["state"])
            _complete_state(container["lastState"])
    for condition in document.get("conditions", ()):
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    return document


def _complete_state(state: JsonObject) -> None:
    terminated = state.get("terminated")
    if terminated is not None:
        terminated.setdefault("exitCode", 0)
        terminated.setdefault("startedAt", None)
        terminated.setdefault("finishedAt", None)
