"""cgroupstats: how many tasks of a v1 cgroup sleep, run, are stopped or wait, from the kernel's TASKSTATS family.

The request goes over generic netlink with an open fd of the cgroup's directory, in any v1 hierarchy. The kernel counts
the cgroup's own tasks, without its descendants, and returns EINVAL for a cgroup2 directory. No privilege is needed.

A message is a netlink header, a generic header, and attributes (length, type, value, padded to four bytes).
See https://docs.kernel.org/accounting/cgroupstats.html
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

from plimsoll.rules.cgroups.view import TaskStates

_GENERIC = 16  # NETLINK_GENERIC; also the family GENL_ID_CTRL, which resolves the others
_FAMILY = "TASKSTATS"
_ERROR_MESSAGE = 2
_REQUEST = 1
_TIMEOUT_S = 5.0

_GET_FAMILY = 3
_FAMILY_ID = 1
_FAMILY_NAME = 2

_CGROUPSTATS_GET = 4
_CGROUPSTATS_FD = 1
_CGROUPSTATS_RESULT = 1

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_GENERIC_HEADER = struct.Struct("=BBH")  # command, version, reserved
_ATTRIBUTE = struct.Struct("=HH")  # length with this header, type
_COUNTS = struct.Struct("=5Q")  # struct cgroupstats: sleeping, running, stopped, uninterruptible, io_wait


class Taskstats:
    """A netlink socket with the resolved family number; reuse it for many cgroups."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _GENERIC)
        try:
            self._socket.settimeout(_TIMEOUT_S)
            self._socket.bind((0, 0))
            self._sequence = 0
            self._family = self._resolve()
        except OSError:
            self._socket.close()
            raise

    def counts(self, directory: int) -> TaskStates:
        """The tasks of the v1 cgroup behind this directory fd."""
        reply = self._request(self._family, _CGROUPSTATS_GET, _CGROUPSTATS_FD, struct.pack("=I", directory))
        counts = dict(attributes(reply)).get(_CGROUPSTATS_RESULT)
        if counts is None:
            raise OSError(errno.EBADMSG, "the kernel's reply has no cgroupstats")
        return TaskStates(*_COUNTS.unpack_from(counts))

    def close(self) -> None:
        self._socket.close()

    def _resolve(self) -> int:
        try:
            reply = self._request(_GENERIC, _GET_FAMILY, _FAMILY_NAME, f"{_FAMILY}\0".encode())
        except FileNotFoundError as error:
            raise OSError(errno.EOPNOTSUPP, "this kernel has no taskstats (CONFIG_TASKSTATS)") from error
        (number,) = struct.unpack_from("=H", dict(attributes(reply))[_FAMILY_ID])
        return int(number)

    def _request(self, family: int, command: int, attribute: int, value: bytes) -> bytes:
        self._sequence += 1
        self._socket.send(request(family, command, attribute, value, self._sequence))
        while True:
            data = self._socket.recv(8192)
            length, kind, _, sequence, _ = _HEADER.unpack_from(data)
            if sequence != self._sequence:  # a late reply to a request that timed out
                continue
            if kind == _ERROR_MESSAGE:
                (number,) = struct.unpack_from("=i", data, _HEADER.size)
                raise OSError(-number, os.strerror(-number), _FAMILY)
            return data[_HEADER.size + _GENERIC_HEADER.size : length]


def request(family: int, command: int, attribute: int, value: bytes, sequence: int) -> bytes:
    body = _GENERIC_HEADER.pack(command, 1, 0) + _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), attribute)
    body += value + b"\0" * (-len(value) % 4)
    return _HEADER.pack(_HEADER.size + len(body), family, _REQUEST, sequence, 0) + body


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[at + _ATTRIBUTE.size : at + length]
        at += length + (-length % 4)
