"""The unit of the API server under real systemd: it starts, answers, and stops, in its sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

UNIT = "plimsoll-api.service"
UNITS = Path("/run/systemd/system")
SOURCE = Path(__file__).resolve().parents[3] / "deploy" / "systemd" / UNIT
KUBECONFIG = Path("/var/lib/plimsoll-api/admin.kubeconfig")
START_S = 120.0


def systemctl(*words: str) -> str:
    done = subprocess.run(
        ["systemctl", "--no-pager", *words], capture_output=True, text=True, check=False, timeout=START_S
    )
    return done.stdout + done.stderr


def shown_to_the_service(*programs: str) -> str:
    """What must be off for a checkout or an interpreter at a place that the sandbox hides."""
    settings = ""
    if any(program.startswith(("/root/", "/home/")) for program in programs):
        settings += "ProtectHome=no\nPrivateUsers=no\n"
    if any(program.startswith(("/tmp/", "/var/tmp/")) for program in programs):
        settings += "PrivateTmp=no\n"
    return settings and settings + "DynamicUser=no\n"  # which implies PrivateTmp=


def test_the_api_server_starts_in_its_sandbox() -> None:
    program = Path(sys.executable).with_name("plimsoll")
    text = SOURCE.read_text().replace("/usr/local/bin/plimsoll api", f"{program} api --listen 127.0.0.1:0")
    (UNITS / UNIT).write_text(text)
    if settings := shown_to_the_service(str(program), os.path.realpath(sys.executable)):
        (UNITS / f"{UNIT}.d").mkdir(exist_ok=True)
        (UNITS / f"{UNIT}.d" / "test.conf").write_text(f"[Service]\n{settings}")
    try:
        systemctl("daemon-reload")
        began = systemctl("start", "--job-mode=ignore-dependencies", UNIT)  # the guest has no network
        end = time.monotonic() + START_S
        while not KUBECONFIG.exists():
            shown = systemctl("status", UNIT)
            assert "inactive" not in shown and "failed" not in shown and time.monotonic() < end, began + shown
            time.sleep(0.1)
        assert systemctl("is-active", UNIT).strip() == "active"
        assert "NoNewPrivileges=yes" in systemctl("show", UNIT, "-p", "NoNewPrivileges")
        (pid,) = systemctl("show", UNIT, "-p", "MainPID", "--value").split()
        status = Path(f"/proc/{pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "Seccomp:\t2" in status
        systemctl("stop", UNIT)
        assert systemctl("is-active", UNIT).strip() == "inactive"
    finally:
        systemctl("stop", UNIT)
        shutil.rmtree(UNITS / f"{UNIT}.d", ignore_errors=True)
        (UNITS / UNIT).unlink()
        systemctl("daemon-reload")
