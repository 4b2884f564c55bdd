"""Why a kubelet does not create its CPU manager, in its order and its words (CM-4, CM-5, CM-7, CM-8)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.cpumanager.creation import StaticSetting, static_plan
from plimsoll.rules.cpumanager.topology import CpuTopology, LogicalCpu
from plimsoll.rules.profile import profile_named

TWO_SOCKETS = CpuTopology({cpu: LogicalCpu(cpu, cpu // 2, 0) for cpu in range(4)})  # on one NUMA node
SETTING = StaticSetting({}, (), 1)
UNKNOWN, SOCKET = {"x": "true"}, {"align-by-socket": "true"}
PHYSICAL = "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: "
CASES: list[Any] = [
    pytest.param({"count": 0, "options": UNKNOWN}, "[cpumanager] unable to determine reserved CPU resources for static policy", id="CM-4"),
    pytest.param({"count": 9, "options": UNKNOWN}, 'new static policy error: unknown CPU Manager Policy option: "x"', id="CM-7"),
    pytest.param({"count": 9, "options": SOCKET, "topology_policy": "single-numa-node"}, "new static policy error: Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option", id="CM-8, policy"),
    pytest.param({"count": 9, "options": SOCKET}, "new static policy error: Align by socket is not compatible with hardware where number of sockets are more than number of NUMA", id="CM-8, sockets"),
    pytest.param({"count": 5}, "new static policy error: [cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 5)", id="CM-5, too many"),
    pytest.param({"count": 1, "explicit": (3, 4)}, "new static policy error: [cpumanager] unable to reserve the required amount of CPUs (size of 3-4 did not equal 1)", id="CM-5, other number"),
    pytest.param({"count": 2, "explicit": (3, 4)}, f"new static policy error: {PHYSICAL}4", id="CM-6, offline"),
]  # fmt: skip


@pytest.mark.parametrize("profile", ["documents", "1.32", "1.36", "1.37"])
@pytest.mark.parametrize(("changed", "text"), CASES)
def test_refusals(changed: dict[str, Any], text: str, profile: str) -> None:
    setting = msgspec.structs.replace(SETTING, **changed)
    with pytest.raises(InvalidConfigError) as caught:
        static_plan(TWO_SOCKETS, setting, lambda _: True, profile_named(profile))
    assert caught.value.reason == text


def test_all_cpus_may_be_reserved() -> None:
    plan = static_plan(TWO_SOCKETS, StaticSetting({}, (), 4), lambda _: True, profile_named("1.36"))
    assert plan.reserved == {0, 1, 2, 3}
