"""Plimsoll beside a real kubelet: on the machine (cgroup v1, in namespaces of its own), and on cgroup v2 in guests.

The kubelet and its control plane are not part of the project: see `tests/kernel/real_kubelet.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.runtime.cri.private_containerd.daemon import hugetlb_unmounted
from tests.kernel import uml
from tests.kernel.attach_bench import skip_reason
from tests.kernel.guest import Guest, GuestMissingError
from tests.kernel.kinds import inner_tests, pytest_argv
from tests.kernel.real_kubelet import OWN_PLACE, kubelet_program

INNER = "tests/kernel/in_guest/test_kubelet.py"
PASSED_ON = ("PATH", "KUBELET", "KUBE_APISERVER", "ETCD")
pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _programs() -> None:
    kubelet_program()
    if reason := skip_reason():
        pytest.skip(reason)


def test_on_this_machine(exercised: Callable[[str, str], None]) -> None:
    if this_host().version != 1:
        pytest.skip("a real kubelet on cgroup v1: this host has v2")
    if hugetlb_unmounted():
        pytest.skip("a real kubelet on cgroup v1: hugetlb has a hierarchy here that is not below /sys/fs/cgroup")
    words = [*OWN_PLACE, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", INNER]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    exercised("runtime", f"real kubelet, Linux {os.uname().release}, host, cgroup v1, cgroupfs")


@pytest.mark.parametrize("systemd", [False, True], ids=["cgroupfs", "systemd"])
def test_in_a_guest(systemd: bool, exercised: Callable[[str, str], None], subtests: pytest.Subtests) -> None:
    guest = Guest("uml", systemd=systemd, memory_mib=1280, disk_mib=1024)
    try:
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        done = uml.run(guest, pytest_argv(INNER), 1800.0, passed_on)
    except GuestMissingError as problem:
        pytest.skip(f"a real kubelet in {guest.name}: {problem}")
    tests = inner_tests(done)
    for test in tests:
        with subtests.test(msg=f"{guest.name}: {test.name}"):
            if test.outcome == "failed":
                pytest.fail(f"in {guest.name}: {test.name}\n{test.text}", pytrace=False)
    assert tests and done.status in (0, 1), done.report()
    exercised("runtime", f"real kubelet, {done.described('uml')}")
