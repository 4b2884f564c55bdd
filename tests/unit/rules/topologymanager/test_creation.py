"""Why a kubelet does not create its topology manager, in its order and its words (TM-2)."""

from __future__ import annotations

import pytest

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.profile import profile_named
from plimsoll.rules.topologymanager.admission import TopologySetting
from plimsoll.rules.topologymanager.creation import topology_setting
from plimsoll.rules.topologymanager.merge import NumaLayout, TopologyPolicy

TEN = NumaLayout(tuple(range(10)))  # no distances are known
CLOSEST = {"prefer-closest-numa-nodes": "true"}


def setting(policy: TopologyPolicy, options: dict[str, str]) -> TopologySetting:
    return topology_setting(policy, "pod", options, TEN, lambda _: True, profile_named("1.36"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({**CLOSEST, "x": "true"}, 'unknown Topology Manager Policy option: "x"'),
        (CLOSEST, "cannot discover NUMA topology: error getting NUMA distances from cadvisor"),
        ({}, "unsupported on machines with more than 8 NUMA Nodes"),
        ({"max-allowable-numa-nodes": "9"}, "unsupported on machines with more than 9 NUMA Nodes"),
    ],
)
def test_refusals(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        setting("restricted", options)
    assert caught.value.reason == text
    assert setting("none", options) == TopologySetting(layout=TEN)  # reads neither options nor scope


def test_more_nodes_may_be_allowed() -> None:
    assert setting("restricted", {"max-allowable-numa-nodes": "10"}).scope == "pod"
