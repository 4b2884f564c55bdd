"""Guests of user-mode Linux: a kernel that is a process. Starts in 3 seconds (with systemd in 6), anywhere, as any user.

It has cgroup v1 and v2 with cpu, memory, pids and io; one CPU; neither cpuset nor hugetlb nor PSI: for these see
qemu.py. By hand: `python -m tests.kernel.uml --systemd -- systemctl list-units`.

$PLIMSOLL_UML_KERNEL names another kernel than Debian's, such as `PREFIX/bin/linux.uml`; its modules are below
`PREFIX/lib/uml/modules`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kernel.guest import (
    BUSYBOX,
    Guest,
    Result,
    by_hand,
    end,
    job_directory,
    required,
    result,
    scratch_disk,
    start,
    wait,
)

KERNEL = os.environ.get("PLIMSOLL_UML_KERNEL", "/usr/bin/linux.uml")
MODULES = Path(KERNEL).parent.parent / "lib/uml/modules"
PROGRAMS = {KERNEL: "user-mode-linux", BUSYBOX: "busybox-static", "setpriv": "util-linux"}
SYSTEMD_PROGRAMS = {"/lib/systemd/systemd": "systemd", "dbus-daemon": "dbus"}


def run(
    guest: Guest, argv: Sequence[str], timeout_s: float = 120.0, environment: Mapping[str, str] | None = None
) -> Result:
    """Start the guest, run the command in it, end the guest. Raises GuestMissingError where that can't be done here."""
    required(PROGRAMS | (SYSTEMD_PROGRAMS if guest.systemd else {}))
    with job_directory(guest, argv, environment) as job:
        options = [f"JOB={job}", f"INIT={'systemd' if guest.systemd else 'plain'}", f"CGROUP={guest.cgroup}"]
        options.append(f"MODULES={MODULES}")
        if guest.cgroup == 1:  # systemd mounts its own hierarchies
            options += ["systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=1"]
        if image := scratch_disk(job, guest):
            options += [f"ubd0={image}", "DISK=/dev/ubda"]
        kernel = [
            KERNEL,
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f"init={job}/uml-init.sh",
            f"mem={guest.memory_mib}M",
        ]
        kernel += [
            "con=null",
            "con0=null,fd:1",
            "quiet",
            "panic=-1",
            "selinux=0",
            f"umid={job.name}",
            f"uml_dir={job}/",
        ]
        started = time.monotonic()
        process = start([*kernel, *options], job / "console")
        try:
            in_time = wait(process, timeout_s)
        finally:
            end(process)
        return result(job, in_time=in_time, seconds=time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(by_hand("uml", run, __doc__))
