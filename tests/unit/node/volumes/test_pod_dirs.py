"""A pod's files: logs, termination messages, small files that containers may write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.errors import InvalidNameError
from plimsoll.node.volumes.pod_dirs import (
    container_log,
    log_directory,
    make_message_file,
    message_file,
    pods_on_disk,
    termination_message,
    wants_log_as_message,
    write_file,
)
from plimsoll.rules.model.objects import Metadata


def test_where_logs_are() -> None:
    metadata = Metadata("web-0.x", "ns", "u-1")
    assert log_directory(Path("/logs"), metadata) == Path("/logs/ns_web-0.x_u-1")
    assert container_log("c", 3) == "c/3.log"


def test_the_longest_names_have_logs(tmp_path: Path) -> None:
    """A namespace of 63, a name of 253 and a uid of 36 characters; a file name has at most 255."""
    uids = [f"0f5c2b1e-0000-4000-8000-00000000000{number}" for number in range(2)]
    made = [log_directory(tmp_path, Metadata("p" * 253, "n" * 63, uid)) for uid in uids]
    for path, uid in zip(made, uids, strict=True):
        path.mkdir()
        assert path.name == "n" * 63 + "_" + "p" * (255 - 63 - 36 - 2) + "_" + uid


@pytest.mark.parametrize(
    "metadata",
    [Metadata("../x", "ns", "u"), Metadata("p", "a/b", "u"), Metadata("p", "ns", ".."), Metadata("", "ns", "u")],
)
def test_names_that_would_be_other_paths(metadata: Metadata) -> None:
    with pytest.raises(InvalidNameError):
        log_directory(Path("/logs"), metadata)
    with pytest.raises(InvalidNameError):
        container_log("../c", 0)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(b"", "", id="nothing"),
        pytest.param("grüße\n".encode(), "grüße\n", id="text"),
        pytest.param(b"x" * 5000 + b"end", "x" * 4093 + "end", id="the last 4096 bytes"),
        pytest.param(b"\xff", "\ufffd", id="no text"),
    ],
)
def test_messages(tmp_path: Path, written: bytes, read: str) -> None:
    path = make_message_file(tmp_path, "u", "c", 0)
    assert path.stat().st_mode & 0o777 == 0o666
    path.write_bytes(written)
    assert termination_message(tmp_path, "u", "c", 0) == read
    assert make_message_file(tmp_path, "u", "c", 0) == path
    assert path.read_bytes() == written, "asked for again, it stays"


def test_no_message() -> None:
    assert termination_message(Path("/nonexistent"), "u", "c", 0) == ""


def test_messages_of_the_last_two_attempts_are_kept(tmp_path: Path) -> None:
    for attempt in range(4):
        make_message_file(tmp_path, "u", "c", attempt).write_text(f"attempt {attempt}")
        make_message_file(tmp_path, "u", "other", 0)
    assert sorted(os.listdir(message_file(tmp_path, "u", "c", 0).parent)) == ["2", "3"]
    assert termination_message(tmp_path, "u", "c", 2) == "attempt 2"
    assert os.listdir(message_file(tmp_path, "u", "other", 0).parent) == ["0"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    path = make_message_file(tmp_path, "u", "c", 0)
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert "root:" not in termination_message(tmp_path, "u", "c", 0)
    with pytest.raises(OSError):
        make_message_file(tmp_path, "u", "c", 0)


@pytest.mark.parametrize(
    ("policy", "exit_code", "message", "expected"),
    [
        ("FallbackToLogsOnError", 1, "", True),
        ("FallbackToLogsOnError", 0, "", False),
        ("FallbackToLogsOnError", 1, "said", False),
        ("File", 1, "", False),
    ],
)
def test_when_the_log_is_the_message(policy: str, exit_code: int, message: str, expected: bool) -> None:
    assert wants_log_as_message(policy, exit_code, message) is expected


def test_files_are_replaced_only_when_they_differ(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "hosts"
    write_file(path, "a\n")
    inode = path.stat().st_ino
    write_file(path, "a\n")
    assert path.stat().st_ino == inode
    path.write_text("a container wrote here")
    write_file(path, "a\n")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a\n", 0o644)
    assert os.listdir(path.parent) == ["hosts"]


def test_foreign_names_are_no_pods(tmp_path: Path) -> None:
    assert pods_on_disk(tmp_path) == []
    for name in ("u-1", ".hidden", "a..b"):
        (tmp_path / "pods" / name).mkdir(parents=True)
    assert pods_on_disk(tmp_path) == ["u-1"]
