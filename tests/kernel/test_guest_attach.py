"""`plimsoll attach` on cgroup v2, in guests: cgroupfs and systemd, runc and crun."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from plimsoll.runtime.cri.private_containerd.daemon import PROGRAMS
from tests.kernel import uml
from tests.kernel.attach_bench import crun_release, skip_reason
from tests.kernel.guest import Guest, GuestMissingError, required
from tests.kernel.kinds import inner_tests, pytest_argv

CASES = [
    pytest.param(False, "runc", id="cgroupfs-runc", marks=pytest.mark.long),
    pytest.param(True, "runc", id="systemd-runc", marks=pytest.mark.long),
    pytest.param(False, "crun", id="cgroupfs-crun", marks=pytest.mark.long),
    pytest.param(True, "crun", id="systemd-crun", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("systemd", "handler"), CASES)
def test_attach_in_a_guest(
    systemd: bool, handler: str, exercised: Callable[[str, str], None], subtests: pytest.Subtests
) -> None:
    guest = Guest("uml", systemd=systemd, memory_mib=768, disk_mib=768)
    if reason := skip_reason():
        pytest.skip(reason)
    if not shutil.which(handler):
        pytest.skip(f"attach in {guest.name}: needs the Debian package {handler}")
    if handler == "crun" and crun_release() < (1, 9):
        pytest.skip(f"attach in {guest.name}: containerd 2 needs crun 1.9 or newer on PATH")
    try:
        required(PROGRAMS)
        argv = pytest_argv("tests/kernel/in_guest/test_attach.py")
        done = uml.run(guest, argv, 400.0, {"PLIMSOLL_CRI_HANDLER": handler, "PATH": os.environ["PATH"]})
    except GuestMissingError as problem:
        pytest.skip(f"attach in {guest.name}: {problem}")
    tests = inner_tests(done)
    for test in tests:
        with subtests.test(msg=f"{guest.name}, {handler}: {test.name}"):
            if test.outcome == "failed":
                pytest.fail(f"in {guest.name}: {test.name}\n{test.text}", pytrace=False)
    assert tests and done.status in (0, 1), done.report()
    exercised("runtime", f"attach with {handler}, {done.described('uml')}")
    for line in done.files.get("measured", b"").decode().splitlines():
        exercised("attach", f"{handler}, {guest.name}: {line}")
