"""Litestream copies the SQLite store while the server writes; what it restores is the same cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.api_process import ApiProcess
from tests.e2e.raw_http import admin_tls
from tests.e2e.waiting import DEADLINE_S, until

MAPS = "/api/v1/namespaces/default/configmaps"
MAPS_WRITTEN, BYTES, WRITERS = (
    120,
    60_000,
    4,
)  # more than Litestream leaves in the log before it moves it to the database


def litestream() -> str:
    own = Path(sys.executable).with_name("litestream")
    found = str(own) if own.exists() else shutil.which("litestream")
    if found is None:
        pytest.skip("litestream is not installed")
    return found


def listed(server: ApiProcess, kubeconfig: Path) -> dict[str, object]:
    with httpx.Client(base_url=server.url, verify=admin_tls(kubeconfig), timeout=DEADLINE_S) as admin:
        paths = (
            MAPS,
            "/api/v1/namespaces",
            "/api/v1/serviceaccounts",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        )
        return {path: admin.get(path).json()["items"] for path in paths}


def write(server: ApiProcess, name: str) -> int:
    """Its resourceVersion."""
    with httpx.Client(base_url=server.url, verify=admin_tls(server.kubeconfig), timeout=DEADLINE_S) as admin:
        made = admin.post(MAPS, json={"metadata": {"name": name}, "data": {"x": "y" * BYTES}})
        assert made.status_code == 201, made.text
        return int(made.json()["metadata"]["resourceVersion"])


def test_a_restored_copy_is_the_same_cluster(tmp_path: Path) -> None:
    program, replica = litestream(), tmp_path / "replica"
    first, second = tmp_path / "first", tmp_path / "second"
    server = ApiProcess(first, tmp_path / "first.log", "--no-scheduler").ready()
    command = [program, "replicate", "-log-level", "warn", str(first / "store" / "objects.db"), f"file://{replica}"]
    with (tmp_path / "litestream.log").open("wb") as log:
        copier = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: any(replica.rglob("*.ltx")), (tmp_path / "litestream.log").read_text)
        with ThreadPoolExecutor(WRITERS) as pool:
            versions = [*pool.map(lambda number: write(server, f"m{number}"), range(MAPS_WRITTEN))]
        before = listed(server, server.kubeconfig)
        server.kill()  # and so without a clean end of its database
        copier.terminate()  # after a last copy
        assert copier.wait(DEADLINE_S) == 0, (tmp_path / "litestream.log").read_text()
    finally:
        copier.kill()
        copier.wait()
        server.kill()
    for directory in (second, second / "store"):
        directory.mkdir(mode=0o700)
    shutil.copytree(first / "pki", second / "pki")
    words = [program, "restore", "-o", str(second / "store" / "objects.db"), f"file://{replica}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    restored = ApiProcess(second, tmp_path / "second.log", "--no-scheduler").ready()
    try:
        assert listed(restored, restored.kubeconfig) == before
        assert write(restored, "new") > max(versions)
    finally:
        restored.stop()
    assert "Traceback" not in (tmp_path / "second.log").read_text()
