"""Parts of CRI messages that do not depend on others: the base, wrapped numbers, devices."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plimsoll.codec.protobuf.structs import Unsigned


class Message(msgspec.Struct, frozen=True, gc=False):
    pass


class Empty(Message, frozen=True):
    """Every request and answer without fields."""


class Int64Value(Message, frozen=True):
    value: Annotated[int, 1] = 0


class UInt64Value(Message, frozen=True):
    value: Annotated[Unsigned, 1] = Unsigned(0)


class CriDevice(Message, frozen=True):
    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    permissions: Annotated[str, 3] = ""


class CDIDevice(Message, frozen=True):
    name: Annotated[str, 1] = ""
