"""What the server and its write process (`write_process`) send each other: frames of MessagePack on a socket.

The server sends a `Task`. The process asks for what the handler reads (`Get`, `List`, `Count`, `Newest`) and for the
change (`Commit`), each answered before the next, and ends the task with an `Answer`, a `Refusal`, `Stopped` or a
`Fault`.
"""

from __future__ import annotations

import struct

import msgspec

from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.users import User
from plimsoll.rules.admission.pod_security import PodSecurity
from plimsoll.rules.admission.service_addresses import ServiceRanges
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.records import Decision, Record

LENGTH = struct.Struct("!I")  # before each frame


class Settings(msgspec.Struct, frozen=True, tag=True):
    """Of the server; sent once."""

    profile: str
    gates: dict[str, bool] | None
    limits: Limits
    services: ServiceRanges
    root_ca: str
    pod_security: PodSecurity


class Task(msgspec.Struct, frozen=True, tag=True):
    """A request that has been authorized."""

    method: str
    path: str
    query: bytes
    user: User
    body: bytes
    content_type: str
    user_agent: str
    now_s: float
    may_create: bool


# --- from the process ---


class Get(msgspec.Struct, frozen=True, tag=True):
    key: str


class List(msgspec.Struct, frozen=True, tag=True):
    prefix: str


class Count(msgspec.Struct, frozen=True, tag=True):
    prefix: str


class Newest(msgspec.Struct, frozen=True, tag=True):
    """The records that a change of these keys is decided on; they are durable."""

    keys: list[str]


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Make the change, if the keys still have these versions (0: there is none)."""

    keys: list[str]
    versions: list[int]
    decisions: list[Decision]


class Answer(msgspec.Struct, frozen=True, tag=True):
    code: int
    body: bytes
    is_ready: bool
    headers: tuple[tuple[bytes, bytes], ...]
    warnings: list[str]
    annotations: dict[str, str]
    resident_bytes: int


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """A StatusError."""

    code: int
    reason: str
    message: str
    details: JsonObject | None
    retry_after_s: int
    warnings: list[str]
    annotations: dict[str, str]


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """After `Stop`."""


class Fault(msgspec.Struct, frozen=True, tag=True):
    """A defect; the process has logged it."""


# --- from the server ---


class Found(msgspec.Struct, frozen=True, tag=True):
    records: list[Record | None]


class Listed(msgspec.Struct, frozen=True, tag=True):
    version: int
    records: list[Record]


class Counted(msgspec.Struct, frozen=True, tag=True):
    count: int


class Written(msgspec.Struct, frozen=True, tag=True):
    """The versions that the change has got; 0 for a key that was only read."""

    versions: list[int]


class Stop(msgspec.Struct, frozen=True, tag=True):
    """The store has failed: the server knows why."""


Question = Get | List | Count | Newest | Commit | Answer | Refusal | Stopped | Fault
Reply = Settings | Task | Found | Listed | Counted | Written | Stop

_encode = msgspec.msgpack.Encoder().encode
read_question = msgspec.msgpack.Decoder(Question).decode
read_reply = msgspec.msgpack.Decoder(Reply).decode


def frame(message: Question | Reply) -> bytes:
    data = _encode(message)
    return LENGTH.pack(len(data)) + data
