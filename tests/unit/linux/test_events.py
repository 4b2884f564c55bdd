"""The bytes that inotify and taskstats exchange, and the windows that PSI accepts."""

from __future__ import annotations

import struct

import pytest

from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.linux.inotify import IN_DELETE, IN_MODIFY, InotifyEvent, parse_events
from plimsoll.linux.psi import trigger, unprivileged_window_us
from plimsoll.linux.taskstats import attributes, request


def test_inotify_records_with_and_without_names() -> None:
    data = struct.pack("iIII", 1, IN_MODIFY, 0, 0) + struct.pack("iIII", 2, IN_DELETE, 0, 16) + b"web".ljust(16, b"\0")
    assert parse_events(data) == [InotifyEvent(1, IN_MODIFY, ""), InotifyEvent(2, IN_DELETE, "web")]
    assert parse_events(b"") == []


def test_a_netlink_request_and_its_attribute_read_back() -> None:
    data = request(31, 4, 1, b"abcde", 7)
    assert struct.unpack_from("=IHHII", data) == (len(data), 31, 1, 7, 0)
    assert len(data) % 4 == 0
    assert dict(attributes(data[20:])) == {1: b"abcde"}


@pytest.mark.parametrize("data", [b"", b"\1", struct.pack("=HH", 0, 1)], ids=["nothing", "a byte", "no length"])
def test_broken_attributes_end_the_list(data: bytes) -> None:
    assert list(attributes(data)) == []


@pytest.mark.parametrize(
    ("asked_us", "taken_us"),
    [(500_000, 2_000_000), (2_000_000, 2_000_000), (2_000_001, 4_000_000), (10_000_000, 10_000_000), (11_000_000, 10_000_000)],
)  # fmt: skip
def test_windows_without_the_capability(asked_us: int, taken_us: int) -> None:
    assert unprivileged_window_us(asked_us) == taken_us


def test_a_stall_longer_than_its_window_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(CgroupError, match="cannot be longer than its window"):
        trigger("memory", "some", 600_000, 500_000)
