"""Our messages against the reference: no field but those of the reference, each with its number and type."""

from __future__ import annotations

import inspect
import re
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from plimsoll.codec.protobuf.structs import Unsigned
from plimsoll.runtime.cri import exec_messages, image_messages
from plimsoll.runtime.cri import messages as m
from tests.unit.runtime.cri.spec_messages import FIELDS

OURS = {
    name: kind
    for name, kind in {**vars(m), **vars(image_messages), **vars(exec_messages)}.items()
    if inspect.isclass(kind) and issubclass(kind, m.Message) and kind is not m.Message
}
# One struct of ours for several messages of the same form, or for a part of one.
STANDS_FOR = {
    "SandboxRequest": ("StopPodSandboxRequest", "RemovePodSandboxRequest", "PodSandboxStatusRequest"),
    "ContainerRequest": ("StartContainerRequest", "RemoveContainerRequest", "ReopenContainerLogRequest"),
    "ImageRequest": ("PullImageRequest", "RemoveImageRequest"),
    "StreamingResponse": ("ExecResponse", "AttachResponse"),
    "ContainerState": ("Container",),
    "PodSandboxState": ("PodSandbox",),
    "CriMount": ("Mount",),
    "CriDevice": ("Device",),
    "CriImage": ("Image",),
    "Empty": (),
    "Int64Value": (),
    "UInt64Value": (),
}
CASES = [(ours, theirs) for ours in OURS for theirs in STANDS_FOR.get(ours, (ours,))]
NUMBERS = {"int32": int, "int64": int, "uint32": int, "uint64": Unsigned, "bool": bool, "string": str, "bytes": bytes}
ENUMS = {
    "NamespaceMode", "PodSandboxState", "ContainerState", "ContainerEventType", "CgroupDriver", "ProfileType", "Signal",
    "MountPropagation", "SupplementalGroupsPolicy", "Protocol",
}  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), CASES)
def test_every_field_is_one_of_the_reference(ours: str, theirs: str) -> None:
    reference = {
        found[2]: (int(found[1]), found[3])
        for found in (re.match(r"(\d+) (\w+) (.+)", part.strip()) for part in FIELDS[theirs].split(";"))
        if found
    }
    for name, hint in get_type_hints(OURS[ours], include_extras=True).items():
        kind, number = get_args(hint)
        assert name in reference, f"{theirs} has no {name}"
        assert (number, _matches(kind, reference[name][1])) == (reference[name][0], True), f"{theirs}.{name}"


def _matches(kind: Any, declared: str) -> bool:
    if get_origin(kind) is UnionType:
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is dict:
        return declared.replace(" ", "") == "map<string,string>"
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return declared.startswith("[]") and (item is bytes or _matches(item, declared.removeprefix("[]")))
    if declared in NUMBERS:
        return kind is NUMBERS[declared]
    if declared in ENUMS:
        return kind is int
    return bool(kind.__name__ in (declared, f"Cri{declared}"))


def test_signals_have_the_numbers_of_the_reference() -> None:
    assert (m.SIGNALS["SIGKILL"], m.SIGNALS["SIGTERM"]) == (13, 23)
