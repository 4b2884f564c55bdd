"""The audit in a container as the DaemonSet runs it: the steps of the Containerfile, then runc on this machine.

There is no registry here, so this machine's own /usr and Python stand for the base image, mounted read-only. The user,
the capabilities, the root file system and the mounts are those of deploy/audit/base.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import Hierarchies
from tests.e2e.test_wheel import install_into, run
from tests.kernel.audit_checks import audited_machine
from tests.project_files import ROOT

pytestmark = pytest.mark.long
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
USER = 65532
RUN_S = 300.0


def built(place: Path) -> Path:
    """/opt/plimsoll, by the commands of the Containerfile: a virtual environment, locked packages, the package."""
    text = CONTAINERFILE.read_text()
    assert re.search(r"--require-hashes -r requirements/runtime\.txt", text)
    assert f"USER {USER}:{USER}" in text
    opt = place / "opt" / "plimsoll"
    run(sys.executable, "-m", "venv", "--without-pip", "--copies", opt, cwd=place)
    install_into(opt / "bin" / "python", "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place, cwd=ROOT)
    (wheel,) = place.glob("*.whl")
    install_into(opt / "bin" / "python", "--no-deps", wheel)
    return opt


def bundle(place: Path, opt: Path, arguments: list[str]) -> None:
    bases = [path for path in ("/usr", "/lib", "/lib64", "/bin", sys.base_prefix) if os.path.exists(path)]
    mounts: list[dict[str, Any]] = [
        {"destination": path, "type": "none", "source": os.path.realpath(path), "options": ["rbind", "ro"]}
        for path in bases
    ]
    mounts += [
        {"destination": str(opt), "type": "none", "source": str(opt), "options": ["rbind", "ro"]},
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys/fs/cgroup", "type": "none", "source": "/sys/fs/cgroup", "options": ["rbind", "ro"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    ]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": USER, "gid": USER},
            "args": [str(opt / "bin" / "plimsoll"), *arguments],
            "env": ["PATH=/usr/bin:/bin", "HOME=/nonexistent", "NO_COLOR=1"],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
            "cgroupsPath": f"/plimsoll-test-{secrets.token_hex(4)}",
        },
    }
    (place / "rootfs").mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(config))


def test_the_image_audits_this_machine(
    host_v1: Hierarchies, exercised: Callable[[str, str], None], tmp_path: Path
) -> None:
    """As user 65532 without capabilities it reads the cgroups and the kernel of this machine."""
    runc = shutil.which("runc")
    if runc is None:
        pytest.skip("runc is not installed")
    exercised("runtime", "runc, the audit in its container")
    opt = built(tmp_path)
    for path in (tmp_path, *tmp_path.parents):
        if path != Path("/") and path.stat().st_uid == os.geteuid() and str(path).startswith("/tmp/pytest"):
            path.chmod(0o755)
    with audited_machine() as (machine, runner):
        runner.run(machine.driver.write(machine.path("pod", "web"), "memory.limit_in_bytes", str(40 << 20)))
        arguments = {
            "tree": ["tree", machine.root, "-o", "json"],
            "audit": ["audit", "--no-processes", "--rule", "A18"],
        }
        done = {}
        for name, words in arguments.items():
            bundle(tmp_path / name, opt, words)
            done[name] = subprocess.run(
                [runc, "run", "--bundle", str(tmp_path / name), f"plimsoll-{secrets.token_hex(4)}"],
                capture_output=True,
                text=True,
                check=False,
                timeout=RUN_S,
            )
        assert done["tree"].returncode == 0, done["tree"].stderr
        assert str(40 << 20) in done["tree"].stdout
        assert (done["audit"].returncode, "1 clean" in done["audit"].stdout) == (0, True), done["audit"]
