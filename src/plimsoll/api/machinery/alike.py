"""Pods that differ in nothing but their names: what a create makes of the first, it makes of all.

Replicas, and the pods of a load test, are created from the same document. What is stored of it, after defaults, owners
of fields, admission and validation, follows from the document, from the options and the user of the request, and from
stored objects of a few kinds that seldom change. To find that out takes most of the time of a request, so it is kept.
The next such pod gets a name, a UID and times of its own. The name of its volume with a token is that of the first:
it only has to be unique within a pod. All names are DNS labels: others are warned about, and too long for some volumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from plimsoll.codec.schema.decode import Decoded, DecodeError, decode
from plimsoll.codec.schema.schema import SchemaKind
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.cache import Counted

# The kinds of stored objects that admission of a pod reads. Webhooks and policies are not among them: what these find
# is not kept.
READ = ("limitranges", "namespaces", "priorityclasses", "runtimeclasses", "serviceaccounts")
_KEPT = 64  # documents of at most `bodies.AT_ONCE_BYTES`
_encode = msgspec.json.Encoder().encode

Key = tuple[object, ...]


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_NAMED = msgspec.json.Decoder(_Named)


def decoded_alike(kind: SchemaKind, body: bytes) -> Decoded:
    """As `decode`, of bodies that differ in nothing but the name of the object only once. Do not change the document:
    the parts of the next one are the same. Raises DecodeError."""
    try:
        name = _NAMED.decode(body).metadata.name
        before, quoted, after = body.partition(f'"{name}"'.encode())
        is_name = before.rstrip().removesuffix(b":").rstrip().endswith(b'"name"')
        if name and quoted and is_name:
            nameless = _nameless(kind, before, after)
            metadata = nameless.document["metadata"]
            if "name" not in metadata:  # else what was cut out is another text
                return Decoded({**nameless.document, "metadata": {"name": name, **metadata}}, nameless.problems)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, DecodeError):
        pass  # the error is about this body
    return decode(kind, body)


@lru_cache(_KEPT)
def _nameless(kind: SchemaKind, before: bytes, after: bytes) -> Decoded:
    return decode(kind, before + b'""' + after)


class Outcome(msgspec.Struct, frozen=True):
    """Of one pod. `annotations`: of the audit event."""

    pod: JsonObject
    warnings: list[str]
    annotations: dict[str, str]

    def named(self, name: str, uid: str, now: str) -> JsonObject:
        """The same for another pod."""
        metadata = {**self.pod["metadata"], "name": name, "uid": uid, "creationTimestamp": now}
        if owners := metadata.get("managedFields"):
            metadata["managedFields"] = [{**each, "time": now} for each in owners]
        return {**self.pod, "metadata": metadata}


class AlikePods:
    def __init__(self, read: Sequence[Counted]) -> None:
        """`read`: the changes of each kind in `READ`."""
        self._read = read
        self._outcomes: dict[Key, Outcome] = {}  # the last used at the end

    def key(self, document: JsonObject, *request: str) -> Key:
        """Equal for pods with the same outcome: all that it follows from. `request`: its options and its user."""
        metadata = {**(document.get("metadata") or {}), "name": ""}
        return (_encode({**document, "metadata": metadata}), *request, *(each.end for each in self._read))

    def find(self, key: Key) -> Outcome | None:
        outcome = self._outcomes.pop(key, None)
        if outcome is not None:
            self._outcomes[key] = outcome
        return outcome

    def keep(self, key: Key, pod: JsonObject, warnings: list[str], annotations: dict[str, str]) -> None:
        """Metadata is copied, since it gets the pod's version."""
        if len(self._outcomes) >= _KEPT:
            del self._outcomes[next(iter(self._outcomes))]
        self._outcomes[key] = Outcome({**pod, "metadata": {**pod["metadata"]}}, warnings, {**annotations})
