"""NodePolicy: the answers that everything below asks for, and the period of 02 §4.3."""

from __future__ import annotations

import pytest

from plimsoll.rules.resources.node_policy import NodePolicy

ROWS = [
    ("default", NodePolicy(1), 100_000),
    ("configured", NodePolicy(1, period_us=50_000), 50_000),
    ("gate off: computed with the default", NodePolicy(1, period_us=50_000, custom_period=False), 100_000),
]


@pytest.mark.parametrize(("policy", "period"), [row[1:] for row in ROWS], ids=[f"02 §4.3 {row[0]}" for row in ROWS])
def test_the_period_of_quotas(policy: NodePolicy, period: int) -> None:
    assert policy.quota_period_us == period


def test_defaults_are_those_of_an_ordinary_node() -> None:
    policy = NodePolicy(1)
    assert (policy.cgroup_version, policy.cfs_quota, policy.period_us, policy.throttling_factor) == (
        2,
        True,
        100_000,
        0.9,
    )
    assert (policy.memory_qos, policy.limited_swap, policy.static_cpus, policy.pod_pids_limit) == (
        False,
        False,
        False,
        -1,
    )
    with pytest.raises(AttributeError):
        policy.memory_qos = True  # type: ignore[misc]
