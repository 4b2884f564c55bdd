"""`plimsoll attach` in guests: on cgroup v2 with cgroupfs and systemd, runc and crun; on cgroup v1 with crun.

A v1 machine that has left a controller on cgroup v2, as most have, is the host's case; the v1 guest has none there.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from plimsoll.runtime.cri.private_containerd.daemon import PROGRAMS
from tests.kernel import uml
from tests.kernel.attach_bench import skip_reason
from tests.kernel.containerd import crun_problem
from tests.kernel.guest import Guest, GuestMissingError, Result, required
from tests.kernel.kinds import inner_tests, pytest_argv

LIMIT_S = 900.0  # for a guest that hangs
CASES = [
    pytest.param(False, "runc", id="cgroupfs-runc", marks=pytest.mark.long),
    pytest.param(True, "runc", id="systemd-runc", marks=pytest.mark.long),
    pytest.param(False, "crun", id="cgroupfs-crun", marks=pytest.mark.long),
    pytest.param(True, "crun", id="systemd-crun", marks=pytest.mark.long),
]


def run_in(guest: Guest, handler: str, tests: str, **environment: str) -> Result:
    if reason := skip_reason():
        pytest.skip(reason)
    if handler == "crun" and (reason := crun_problem()):
        pytest.skip(f"attach in {guest.name}: {reason}")
    try:
        required(PROGRAMS)
        return uml.run(
            guest, pytest_argv("-m", "long or not long", tests), LIMIT_S, {"PATH": os.environ["PATH"], **environment}
        )
    except GuestMissingError as problem:
        pytest.skip(f"attach in {guest.name}: {problem}")


@pytest.mark.parametrize(("systemd", "handler"), CASES)
def test_attach_in_a_guest(
    systemd: bool, handler: str, exercised: Callable[[str, str], None], subtests: pytest.Subtests
) -> None:
    guest = Guest("uml", systemd=systemd, memory_mib=768, disk_mib=768)
    done = run_in(guest, handler, "tests/kernel/in_guest/test_attach.py", PLIMSOLL_CRI_HANDLER=handler)
    tests = inner_tests(done)
    for test in tests:
        with subtests.test(msg=f"{guest.name}, {handler}: {test.name}"):
            if test.outcome == "failed":
                pytest.fail(f"in {guest.name}: {test.name}\n{test.text}", pytrace=False)
    assert tests and done.status in (0, 1), done.report()
    exercised("runtime", f"attach with {handler}, {done.described('uml')}")
    for line in done.files.get("measured", b"").decode().splitlines():
        exercised("attach", f"{handler}, {guest.name}: {line}")


@pytest.mark.long
def test_attach_with_crun_on_cgroup_v1(exercised: Callable[[str, str], None]) -> None:
    """The test of the host, where no controller is on cgroup v2. An overlay cannot be containerd's: it is on the disk."""
    guest = Guest("uml", cgroup=1, memory_mib=768, disk_mib=768)
    test = "test_values_at_create_on_update_after_restarts_and_after_detach[crun]"
    done = run_in(guest, "crun", f"tests/kernel/test_host_attach.py::{test}", TMPDIR="/scratch")
    assert [(each.name.rpartition("::")[2], each.outcome) for each in inner_tests(done)] == [(test, "passed")], (
        done.report()
    )
    exercised("runtime", f"attach with crun, {done.described('uml')}")
