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


def test_the_api_server_starts_in_its_sandbox() -> None:
    program = Path(sys.executable).with_name("plimsoll")
    text = SOURCE.read_text().replace("/usr/local/bin/plimsoll api", f"{program} api --listen 127.0.0.1:0")
    (UNITS / UNIT).write_text(text)
    interpreter = os.path.realpath(sys.executable)
    if interpreter.startswith(("/root/", "/home/")):  # a user of its own cannot read it there
        (UNITS / f"{UNIT}.d").mkdir(exist_ok=True)
        (UNITS / f"{UNIT}.d" / "test.conf").write_text("[Service]\nDynamicUser=no\nProtectHome=no\nPrivateUsers=no\n")
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
