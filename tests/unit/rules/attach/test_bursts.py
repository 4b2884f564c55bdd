"""Bursts beside a kubelet that lowers a CPU limit: never above the quota that comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.attach.bursts import bounded
from plimsoll.rules.attach.policy import AttachPolicy, Switches
from plimsoll.rules.attach.values import BURST_V1, BURST_V2, Target, decided
from tests.unit.rules.attach.nodes import attached, node, resources

POD = "/kubepods/burstable/poduid-b"
LIMITED = resources(cpu=("100m", "500m"))  # quota 50000
OTHER = resources(cpu=("100m", "300m"))  # quota 30000


def bursts(percent: int, asked: dict[str, int], version: int = 2) -> dict[str, int]:
    policy = AttachPolicy(Switches(cpu_burst_percent=percent))
    targets = bounded(decided([attached("b", LIMITED, OTHER)], policy, node(version)).targets, asked)
    return {target.path.removeprefix(POD) or "pod": int(value) for target in targets for value in target.files.values()}


@pytest.mark.parametrize(
    ("percent", "asked", "expected"),
    [
        pytest.param(100, {}, (80000, 50000, 30000), id="nothing asked"),
        pytest.param(100, {"b0": 50000, "b1": 30000}, (80000, 50000, 30000), id="as the spec says"),
        pytest.param(100, {"b0": 90000}, (80000, 50000, 30000), id="raised: the new spec comes"),
        pytest.param(100, {"b0": 20000}, (50000, 20000, 30000), id="one lowered, 80000 - 30000 in the pod"),
        pytest.param(100, {"b0": 20000, "b1": 1000}, (21000, 20000, 1000), id="both lowered"),
        pytest.param(20, {"b0": 20000}, (16000, 10000, 6000), id="below the new quotas anyway"),
        pytest.param(50, {"b0": 20000}, (40000, 20000, 15000), id="the container only"),
        pytest.param(100, {"another": 1000}, (80000, 50000, 30000), id="another container"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_bursts_follow_what_the_runtime_is_asked_for(
    percent: int, asked: dict[str, int], expected: tuple[int, int, int], version: int
) -> None:
    assert tuple(bursts(percent, asked, version).values()) == expected


def test_other_files_stay() -> None:
    target = Target(
        "/p/c", "container", "c", {"memory.low": "4096", BURST_V2: "500", BURST_V1: "400"}, "c", quota_us=900
    )
    (found,) = bounded([target], {"c": 450})
    assert found.files == {"memory.low": "4096", BURST_V2: "450", BURST_V1: "400"}


quotas = st.integers(1000, 60000)


@given(st.integers(1, 100), quotas, quotas)
def test_no_burst_is_above_a_quota_that_comes(percent: int, first: int, second: int) -> None:
    """The kubelet sums the quotas of the containers for the pod."""
    found = bursts(percent, {"b0": first, "b1": second})
    now = min(first, 50000), min(second, 30000)
    assert found["/b0"] <= now[0] and found["/b1"] <= now[1] and found["pod"] <= sum(now)
