"""The audit log: what is in it is tested with the server; here its files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.machinery.audit import Audit, AuditFile
from plimsoll.api.machinery.exchange import Exchange
from plimsoll.api.machinery.request_info import request_info


def test_files_are_bounded_and_for_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    file = AuditFile(path, max_bytes=100, backups=2)
    for number in range(100):
        file.write(b"%029d\n" % number)
    file.close()
    found = {each.name: each.read_bytes().split() for each in tmp_path.iterdir()}
    assert set(found) == {"audit", "audit.1", "audit.2"}
    assert [int(line) for name in ("audit.2", "audit.1", "audit") for line in found[name]] == list(range(93, 100))
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    again = AuditFile(path, max_bytes=100, backups=2)
    again.write(b"%029d\n" % 100)
    again.close()
    assert path.read_bytes().split()[-1] == b"%029d" % 100


def exchange(method: str, path: str, code: int) -> Exchange:
    async def unused(*_: Any) -> Any:
        raise AssertionError

    scope = {"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}
    made = Exchange(scope, unused, unused)
    made.info, made.code = request_info(method, path, {}), code
    return made


@pytest.mark.parametrize(
    ("method", "path", "code", "is_noted"),
    [
        ("GET", "/api/v1/namespaces/default/pods/p", 200, False),
        ("GET", "/api/v1/namespaces/default/pods/p", 403, True),
        ("GET", "/api/v1/namespaces/default/pods/p/exec", 101, True),
        ("GET", "/api/v1/nodes/n/proxy/metrics", 200, True),
        ("DELETE", "/api/v1/namespaces/default/pods/p", 200, True),
    ],
)
def test_reads_are_left_out_unless_they_fail_or_act(
    tmp_path: Path, method: str, path: str, code: int, is_noted: bool
) -> None:
    file = AuditFile(tmp_path / "audit")
    Audit(file).note(exchange(method, path, code), 0.0, 0.0)
    file.close()
    assert bool((tmp_path / "audit").read_bytes()) is is_noted


def test_a_log_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = AuditFile(Path("/dev/full"))
    audit = Audit(full)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            audit.note(exchange("DELETE", "/api/v1/namespaces/default/pods/p", 200), 0.0, 0.0)
    assert [record.message for record in caplog.records] == [
        "the audit log cannot be written: [Errno 28] No space left on device"
    ]
