"""A server whose disk fails: exit codes of a failed start, a full disk, a log that was cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.api_process import ApiProcess
from tests.e2e.raw_http import admin_tls

ROOT = Path(__file__).resolve().parents[2]
PLIMSOLL = str(Path(sys.executable).with_name("plimsoll"))


@pytest.mark.parametrize("command", ["api", "up"])
def test_a_start_that_fails_exits_with_an_error(tmp_path: Path, command: str) -> None:
    state = tmp_path / "state"
    (state / "store").mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    (state / "store" / "objects.db").write_bytes(b"junk" * 1000)
    options = ["--simulate", "--no-demo", "--cgroup-root", "/plimsoll-test-start"] if command == "up" else []
    done = subprocess.run(
        [PLIMSOLL, command, "--state-dir", str(state), "--listen", "127.0.0.1:0", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "is damaged: file is not a database" in done.stderr
    assert "Traceback" not in done.stderr
    assert (state / "store" / "objects.db").read_bytes() == b"junk" * 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts a file system")
def test_a_full_disk_leaves_reads_deletions_and_restarts(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.e2e.full_disk"]
    done = subprocess.run([*command, str(tmp_path)], check=False, capture_output=True, text=True, cwd=ROOT, timeout=300)
    logs = "\n".join(file.read_text()[-2000:] for file in tmp_path.glob("*.log"))
    assert done.returncode == 0, f"{done.stderr}\n{logs}"
    seen = json.loads(done.stdout)
    code, text = seen.pop("readyz")
    assert code == 500
    assert "[-]etcd failed: the disk is full: only deletions are accepted until it has room again" in text
    assert "readyz check failed" in text
    assert seen == {
        "creates": [True, 503],
        "full": [200, 200, 404, 200],
        "ready when there is room": True,
        "create when there is room": 201,
        "started on a full disk": [200, 200, 404],
        "its readyz": 500,
        "started without any room": [200, 503, 200],
        "and its readyz": 500,
        "started with room": 201,
    }


def test_a_log_that_was_cut_off_is_said_at_the_start_and_in_readyz(tmp_path: Path) -> None:
    server = ApiProcess(tmp_path / "state", tmp_path / "first.log", "--no-scheduler").ready()
    with httpx.Client(base_url=server.url, verify=admin_tls(server.kubeconfig)) as client:
        body = {"metadata": {"name": "m"}, "data": {"x": "y"}}
        assert client.post("/api/v1/namespaces/default/configmaps", json=body).status_code == 201
        assert client.get("/readyz").status_code == 200
    server.kill()
    os.truncate(tmp_path / "state" / "store" / "objects.db-wal", 0)
    server = ApiProcess(tmp_path / "state", tmp_path / "second.log", "--no-scheduler").ready()
    try:
        with httpx.Client(base_url=server.url, verify=admin_tls(server.kubeconfig)) as client:
            found = client.get("/readyz?verbose")
            assert (found.status_code, "[-]etcd failed: the changes after version" in found.text) == (500, True)
            assert "were committed and are lost" in (tmp_path / "second.log").read_text()
            assert client.get("/api/v1/namespaces").status_code == 200
    finally:
        server.kill()
