"""The agent's own place: done where it may be, said where not."""

from __future__ import annotations

import os

import msgspec

from plimsoll.cgroups.simulated import SimulatedKernel
from plimsoll.linux.processes import oom_score_adj
from plimsoll.node.own_place import take_place
from plimsoll.rules.config_reading import default_config
from plimsoll.rules.profile import PROFILE_1_27

CONFIG = default_config(PROFILE_1_27)


async def test_the_score_it_has_is_fine() -> None:
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=oom_score_adj(os.getpid()) or 0)
    assert await take_place(config, SimulatedKernel(2)) == []


async def test_a_score_that_cannot_be_had_is_said() -> None:
    before = oom_score_adj(os.getpid())
    notes = await take_place(msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=-2000), SimulatedKernel(2))
    assert notes == [f"the agent's oom_score_adj: want -2000, have {before} (the kernel takes −1000 to 1000)"]


class TakenForReal(SimulatedKernel):
    """The kernel in memory, taken for this machine's."""

    simulated = False


async def test_a_cgroup_that_cannot_be_made_is_said() -> None:
    score = oom_score_adj(os.getpid()) or 0
    config = msgspec.structs.replace(CONFIG, kubelet_oom_score_adj=score, kubelet_cgroups="/no/such/parent")
    (note,) = await take_place(config, TakenForReal(2))
    assert note.startswith("kubeletCgroups /no/such/parent: the agent stays where it is")
