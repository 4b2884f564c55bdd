"""The agent's own cgroup and OOM score: set where permitted, reported otherwise."""

from __future__ import annotations

import os

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.errors import PlimsollError
from plimsoll.linux.processes import oom_score_adj
from plimsoll.node.resources.kubelet_cgroups import NAMED_CGROUP_S, SCORE_ONLY_S, OwnPlace
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import PROFILE_DOCUMENTS

CONFIG = default_config(PROFILE_DOCUMENTS)


async def test_the_present_score_is_accepted() -> None:
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=oom_score_adj(os.getpid()) or 0)
    assert await OwnPlace(config, SimulatedKernel(2)).take() == []


async def test_a_score_that_cannot_be_set_is_reported() -> None:
    before = oom_score_adj(os.getpid())
    notes = await OwnPlace(msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=-2000), SimulatedKernel(2)).take()
    assert notes == [f"the agent's oom_score_adj: want -2000, have {before} (the kernel accepts −1000 to 1000)"]


class TakenForReal(SimulatedKernel):
    """The simulated kernel, taken for this machine's."""

    simulated = False


async def test_a_cgroup_that_cannot_be_created_is_reported() -> None:
    score = oom_score_adj(os.getpid()) or 0
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=score, kubelet_cgroups="/no/such/parent")
    (note,) = await OwnPlace(config, TakenForReal(2)).take()
    assert note.startswith("kubeletCgroups /no/such/parent: the agent stays where it is")


async def test_system_processes_are_moved_on_demand_only() -> None:
    config = msgspec.structs.replace(CONFIG, system_cgroups="/system")
    with pytest.raises(PlimsollError, match="to allow it, use --allow-move-system-processes"):
        OwnPlace(config, TakenForReal(2))
    OwnPlace(config, TakenForReal(2), may_move_system=True)


class EnoughError(Exception):
    pass


@pytest.mark.parametrize(("cgroup", "pause_s"), [("", SCORE_ONLY_S), ("/no/such/parent", NAMED_CGROUP_S)])
async def test_it_is_repeated_and_failures_are_reported_once(cgroup: str, pause_s: float) -> None:
    """004-72: every five minutes, or each minute where a cgroup is named."""
    score = oom_score_adj(os.getpid()) or 0
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=score, kubelet_cgroups=cgroup)
    reported: list[str] = []
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        await OwnPlace(config, TakenForReal(2)).keep(reported.append, sleep)
    assert pauses == [pause_s] * 3
    assert len(reported) == (1 if cgroup else 0)
