"""Tests on real kernels. Those in `in_guest/` run inside a guest, where test_guests.py starts pytest a second time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

import pytest

from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, Hierarchies, check_required, this_host
from tests.kernel.guest import GUEST_VARIABLE, GuestMissingError, Result
from tests.kernel.kinds import KINDS, run_in

# They write cgroups of the machine they run on, as its root; only a guest is there for that.
collect_ignore = [] if GUEST_VARIABLE in os.environ else ["in_guest"]


@pytest.fixture(scope="session")
def host_v1() -> Hierarchies:
    """This machine's cgroup v1; skips with the reason where it cannot be used."""
    if os.geteuid() != 0:
        pytest.skip("host cgroup v1: not root")
    try:
        found = this_host()
        check_required(found)
    except CgroupsUnusableError as problem:
        pytest.skip(f"host cgroup v1: {problem}")
    if found.version != 1 or found.read_only:
        pytest.skip(f"host cgroup v1: this host has cgroup v{found.version}{', read-only' if found.read_only else ''}")
    return found


class InGuest(Protocol):
    def __call__(
        self,
        kind: str,
        argv: list[str],
        timeout_s: float = 120.0,
        *,
        cpus: int | None = None,
        memory_mib: int | None = None,
        claims: bool = True,
    ) -> Result: ...


@pytest.fixture(scope="session")
def in_guest(exercised: Callable[[str, str], None]) -> InGuest:
    """`run_in` for tests: skips with the reason where there is no such guest here, and says what was exercised.

    A test of the guest itself, which drives no cgroups in it, `claims` nothing.
    """

    def run(
        kind: str,
        argv: list[str],
        timeout_s: float = 120.0,
        *,
        cpus: int | None = None,
        memory_mib: int | None = None,
        claims: bool = True,
    ) -> Result:
        try:
            done = run_in(kind, argv, timeout_s, cpus=cpus, memory_mib=memory_mib)
        except GuestMissingError as problem:
            pytest.skip(f"{kind}: {problem}")
        if done.facts and claims:
            exercised("kernel", done.described(KINDS[kind].machine))
        return done

    return run
