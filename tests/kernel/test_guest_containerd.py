"""containerd on cgroup v2, in guests: with cgroupfs and with systemd as the driver, with runc and once with crun."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from plimsoll.runtime.cri.private_containerd.daemon import PROGRAMS
from tests.kernel import uml
from tests.kernel.guest import Guest, GuestMissingError, required
from tests.kernel.kinds import inner_tests, pytest_argv

CASES = [
    pytest.param(False, "runc", id="cgroupfs-runc", marks=pytest.mark.long),
    pytest.param(True, "runc", id="systemd-runc", marks=pytest.mark.long),
    pytest.param(False, "crun", id="cgroupfs-crun", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("systemd", "handler"), CASES)
def test_containerd_in_a_guest(
    systemd: bool, handler: str, exercised: Callable[[str, str], None], subtests: pytest.Subtests
) -> None:
    guest = Guest("uml", systemd=systemd, memory_mib=768, disk_mib=512)
    if not shutil.which(handler):
        pytest.skip(f"containerd in {guest.name}: needs the Debian package {handler}")
    try:
        required(PROGRAMS)
        argv = pytest_argv("tests/kernel/in_guest/test_containerd.py", "tests/kernel/in_guest/test_agent_containerd.py")
        done = uml.run(guest, argv, 900.0, {"PLIMSOLL_CRI_HANDLER": handler})
    except GuestMissingError as problem:
        pytest.skip(f"containerd in {guest.name}: {problem}")
    tests = inner_tests(done)
    for test in tests:
        with subtests.test(msg=f"{guest.name}, {handler}: {test.name}"):
            if test.outcome == "failed":
                pytest.fail(f"in {guest.name}: {test.name}\n{test.text}", pytrace=False)
    assert tests and done.status in (0, 1), done.report()
    exercised("runtime", f"containerd and {handler}, {done.described('uml')}")
