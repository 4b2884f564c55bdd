"""`plimsoll audit` on the machine itself, cgroup v1: clean as made, and every bend is found."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.cgroups.drivers.detect import Hierarchies
from tests.kernel.audit_checks import audited_machine, check_clean_and_bent, check_processes_and_strays


def test_a_tree_as_a_kubelet_makes_it(host_v1: Hierarchies, exercised: Callable[[str, str], None]) -> None:
    exercised("kernel", "host, cgroup v1, audit")
    with audited_machine() as (machine, runner):
        check_clean_and_bent(machine, runner)
        check_processes_and_strays(machine, runner)
