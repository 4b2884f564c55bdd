"""`plimsoll audit` on cgroup v2: clean as made, every bend is found, and protection without its ancestors is not effective."""

from __future__ import annotations

from tests.kernel.audit_checks import MIB, audited_machine, check_clean_and_bent, check_processes_and_strays


def test_a_tree_as_a_kubelet_makes_it() -> None:
    with audited_machine() as (machine, runner):
        check_clean_and_bent(machine, runner)
        check_processes_and_strays(machine, runner)


def test_protection_needs_every_ancestor() -> None:
    """MemoryQoS of 1.34 protects requests by memory.min; without it in kubepods, nothing below is protected (A02)."""
    with audited_machine(featureGates={"MemoryQoS": True}) as (machine, runner):
        assert machine.found("A01", "A02") == []
        runner.run(machine.driver.write(machine.path("pods"), "memory.min", "0"))
        found = [each for each in machine.found("A02") if each.subject == "shop/db / app"]
        assert [(each.observed, each.effective) for each in found] == [(str(48 * MIB), "0")]


def test_what_this_kernel_lacks_is_found() -> None:
    """User-mode Linux has neither cpuset nor PSI."""
    with audited_machine() as (machine, _):
        fields = {each.field for each in machine.found("A18")}
        assert {"cgroup controllers", "PSI"} <= fields
