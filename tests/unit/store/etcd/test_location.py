"""The address of a store in etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.errors import InvalidConfigError
from plimsoll.store.etcd.location import Location, location


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("etcd://h1:2379,h2:23790", Location((("h1", 2379), ("h2", 23790)))),
        ("etcd://10.0.0.1", Location((("10.0.0.1", 2379),))),
        ("etcd://[::1]:2380?prefix=/a/b/", Location((("::1", 2380),), "/a/b")),
        ("etcd://h?compact=off", Location((("h", 2379),), compact_s=0)),
        ("etcd://h?compact=2m&tls=true", Location((("h", 2379),), compact_s=120, tls=True)),
        (
            "etcd://h?ca=/ca&cert=/c&key=/k&user=u&password-file=/p",
            Location((("h", 2379),), "/plimsoll", Path("/ca"), Path("/c"), Path("/k"), "u", Path("/p")),
        ),
    ],
)
def test_valid(text: str, expected: Location) -> None:
    assert location(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://h:1", "expected etcd://HOST:PORT"),
        ("etcd://", "expected etcd://HOST:PORT"),
        ("etcd://h/plimsoll", "expected etcd://HOST:PORT"),
        ("etcd://name:secret@h", "password-file=FILE"),
        ("etcd://h:x", "'h:x' is not HOST:PORT"),
        ("etcd://h:99999", "'h:99999' is not HOST:PORT"),
        ("etcd://h,,k", "'' is not HOST:PORT"),
        ("etcd://h?user=a", "belong together"),
        ("etcd://h?password-file=/p", "belong together"),
        ("etcd://h?key=/k", "needs cert=FILE"),
        ("etcd://h?prefix=plimsoll", "prefix has to be a path"),
        ("etcd://h?prefix=/", "prefix has to be a path"),
        ("etcd://h?colour=red", "unknown option 'colour'"),
        ("etcd://h?compact=never", "invalid duration"),
        ("etcd://h?compact=0s", "a second or more"),
    ],
)
def test_invalid(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        location(text)
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.crt"
    wrong.write_text("no certificate")
    for text in (f"etcd://h?ca={wrong}", f"etcd://h?ca={tmp_path}/none"):
        with pytest.raises(InvalidConfigError, match="ca="):
            location(text).context()
    with pytest.raises(InvalidConfigError, match="password-file"):
        location(f"etcd://h?user=u&password-file={tmp_path}/none").password()


@pytest.mark.parametrize(
    "reason",
    [
        "h:2379: the connection was closed",
        "h:2379: the connection broke: [Errno 32] Broken pipe",
        "h:2379: Connection reset by peer",
    ],
)
def test_a_connection_that_is_cut_off_may_be_due_to_tls(reason: str) -> None:
    """A server without TLS, or with it, may close or reset the connection: whichever the kernel tells first."""
    assert "add ca=FILE" in location("etcd://h").tls_advice(reason)
    assert "may serve without TLS" in location("etcd://h?tls=true").tls_advice(reason)


def test_a_refused_connection_is_not_due_to_tls() -> None:
    reason = "h:2379: Connection refused"
    assert [location(each).tls_advice(reason) for each in ("etcd://h", "etcd://h?tls=true")] == ["", ""]
