"""A backup with keys: after a restore on an empty machine the old kubeconfigs and tokens work, kubectl included."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx

from tests.e2e.api_process import ApiProcess
from tests.e2e.kubectl import installed
from tests.e2e.raw_http import admin_tls

PLIMSOLL = str(Path(sys.executable).with_name("plimsoll"))
MAPS = "/api/v1/namespaces/default/configmaps"


def plimsoll(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=120)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_keys_tokens_and_objects_come_back(tmp_path: Path) -> None:
    listen, secret, file = f"127.0.0.1:{free_port()}", tmp_path / "passphrase", tmp_path / "backup"
    secret.write_text("a passphrase of the operator\n")
    first, second = tmp_path / "first", tmp_path / "second"
    server = ApiProcess(first, tmp_path / "first.log", "--listen", listen).ready()
    try:
        with httpx.Client(base_url=server.url, verify=admin_tls(server.kubeconfig)) as admin:
            assert admin.post(MAPS, json={"metadata": {"name": "m"}, "data": {"x": "y"}}).status_code == 201
        made = plimsoll("api", "--state-dir", first, "token", "create", "--user", "eve")
        assert made.returncode == 0, made.stderr
        token = made.stdout.split("token:")[1].split()[0].strip('"')
        kubeconfig = tmp_path / "admin.kubeconfig"
        shutil.copy(server.kubeconfig, kubeconfig)
        done = plimsoll("api", "--state-dir", first, "backup", file, "--passphrase-file", secret)
        assert done.returncode == 0, done.stderr
    finally:
        server.stop()
    assert file.stat().st_mode & 0o777 == 0o600
    for name in ("pki/ca.key", "tokens.json"):
        assert (first / name).read_bytes()[:40] not in file.read_bytes()
    ca = (first / "pki" / "ca.crt").read_bytes()
    shutil.rmtree(first)

    ApiProcess(second, tmp_path / "other.log").ready().stop()  # another cluster, which is replaced
    assert (second / "pki" / "ca.crt").read_bytes() != ca
    wrong = tmp_path / "wrong"
    wrong.write_text("not the passphrase\n")
    before = {path: path.read_bytes() for path in second.rglob("*") if path.is_file()}
    for words, message in ((("--passphrase-file", wrong), "passphrase is wrong"), ((), "is encrypted: give")):
        refused = plimsoll("api", "--state-dir", second, "restore", file, *words)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
    assert {path: path.read_bytes() for path in second.rglob("*") if path.is_file()} == before
    done = plimsoll("api", "--state-dir", second, "restore", file, "--passphrase-file", secret)
    assert done.returncode == 0, done.stderr
    assert (second / "pki" / "ca.crt").read_bytes() == ca

    server = ApiProcess(second, tmp_path / "second.log", "--listen", listen).ready()
    try:
        with httpx.Client(base_url=server.url, verify=admin_tls(kubeconfig)) as admin:
            assert admin.get(f"{MAPS}/m").json()["data"] == {"x": "y"}
        eve = {"Authorization": f"Bearer {token}"}
        trust = ssl.create_default_context(cafile=str(second / "pki" / "ca.crt"))
        with httpx.Client(base_url=server.url, verify=trust, headers=eve) as viewer:
            assert viewer.get(f"{MAPS}/m").status_code == 200
        for binary in installed()[:1]:
            shown = subprocess.run(
                [binary.path, "--kubeconfig", str(kubeconfig), "get", "configmap", "m", "-o", "jsonpath={.data.x}"],
                check=False, capture_output=True, text=True, timeout=120, env={"HOME": str(tmp_path)},
            )  # fmt: skip
            assert (shown.returncode, shown.stdout) == (0, "y"), shown.stderr
    finally:
        server.stop()


def test_a_backup_without_a_passphrase_has_no_credentials(tmp_path: Path) -> None:
    server = ApiProcess(tmp_path / "state", tmp_path / "log").ready()
    server.stop()
    done = plimsoll("api", "--state-dir", tmp_path / "state", "backup", tmp_path / "backup")
    assert done.returncode == 0
    assert "without keys and tokens; give --passphrase-file" in done.stderr
    assert b"PRIVATE KEY" not in (tmp_path / "backup").read_bytes()
    refused = plimsoll(
        "api", "--state-dir", tmp_path / "state", "restore", tmp_path / "backup", "--passphrase-file", tmp_path / "log"
    )
    assert (refused.returncode, "is not encrypted" in refused.stderr) == (2, True)
