"""The agent's own place: done where it may be, said where not."""

from __future__ import annotations

import os

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.errors import PlimsollError
from plimsoll.linux.processes import oom_score_adj
from plimsoll.node.resources.kubelet_cgroups import EACH_MINUTE_S, SELDOM_S, OwnPlace
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import PROFILE_1_27

CONFIG = default_config(PROFILE_1_27)


async def test_the_score_it_has_is_fine() -> None:
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=oom_score_adj(os.getpid()) or 0)
    assert await OwnPlace(config, SimulatedKernel(2)).take() == []


async def test_a_score_that_cannot_be_had_is_said() -> None:
    before = oom_score_adj(os.getpid())
    notes = await OwnPlace(msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=-2000), SimulatedKernel(2)).take()
    assert notes == [f"the agent's oom_score_adj: want -2000, have {before} (the kernel accepts −1000 to 1000)"]


class TakenForReal(SimulatedKernel):
    """The kernel in memory, taken for this machine's."""

    simulated = False


async def test_a_cgroup_that_cannot_be_made_is_said() -> None:
    score = oom_score_adj(os.getpid()) or 0
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=score, kubelet_cgroups="/no/such/parent")
    (note,) = await OwnPlace(config, TakenForReal(2)).take()
    assert note.startswith("kubeletCgroups /no/such/parent: the agent stays where it is")


async def test_processes_of_the_system_are_moved_on_demand_only() -> None:
    config = msgspec.structs.replace(CONFIG, system_cgroups="/system")
    with pytest.raises(PlimsollError, match="say --allow-move-system-processes if that is meant"):
        OwnPlace(config, TakenForReal(2))
    OwnPlace(config, TakenForReal(2), may_move_system=True)


class EnoughError(Exception):
    pass


@pytest.mark.parametrize(("cgroup", "pause_s"), [("", SELDOM_S), ("/no/such/parent", EACH_MINUTE_S)])
async def test_it_is_done_again_and_troubles_are_told_once(cgroup: str, pause_s: float) -> None:
    """004-72: every five minutes, or each minute where a cgroup is named."""
    score = oom_score_adj(os.getpid()) or 0
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=score, kubelet_cgroups=cgroup)
    told: list[str] = []
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        await OwnPlace(config, TakenForReal(2)).keep(told.append, sleep)
    assert pauses == [pause_s] * 3
    assert len(told) == (1 if cgroup else 0)
