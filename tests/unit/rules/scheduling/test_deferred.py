"""Preemption for deferred resizes (row R4 of 1.37)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.scheduling.deferred import DISABLED, FITS_ALREADY, NO_NODE, is_deferred, preemption_for_resize
from plimsoll.rules.scheduling.fit import NodeLoad, node_load, waiting_load
from plimsoll.rules.scheduling.preemption import NEVER, NO_VICTIMS

Json = dict[str, Any]
PROFILE = profile_named("1.37")
PENDING = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


def pod(name: str, cpu: str, priority: int = 0, *, has: str = "", **more: Any) -> Pod:
    """`has`: what it is allocated while its resize to `cpu` is deferred."""
    resources = {"requests": {"cpu": cpu}}
    status: Json = {"phase": "Running"}
    if has:
        shown = {"name": "c", "allocatedResources": {"cpu": has}, "resources": {"requests": {"cpu": has}}}
        status = {**status, "conditions": [PENDING], "containerStatuses": [shown]}
    spec = {"nodeName": "n1", "priority": priority, "containers": [{"name": "c", "resources": resources}], **more}
    return from_document(
        {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec, "status": status}, Pod
    )


def node(*residents: Pod, cpu: str = "2", pods: str = "10", **spec: Any) -> NodeLoad:
    status = {"allocatable": {"cpu": cpu, "pods": pods}}
    return node_load(
        from_document({"metadata": {"name": "n1"}, "spec": spec, "status": status}, Node), residents, PROFILE
    )


GROWING = pod("growing", "1500m", 10, has="500m")
LOW, LOWER, EQUAL = pod("low", "500m", 5), pod("lower", "500m", 1), pod("equal", "500m", 10)
DISABLING = {"podPreemptionPolicy": {"disableResizePreemption": ["example.com/scaler"]}}
PORT = {"containers": [{"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "1500m"}}}]}
AFFINITY = {"nodeSelector": {"zone": "elsewhere"}}
TAINTED = {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]}

CASES = [
    # 1500m of 2000m for itself: 500m for others
    pytest.param(GROWING, node(GROWING, LOW), (), FITS_ALREADY, id="fits: the node will do it"),
    pytest.param(GROWING, node(GROWING, LOW, LOWER), ("lower",), "", id="the least important victim that is enough"),
    pytest.param(GROWING, node(GROWING, LOW, LOWER, cpu="1500m"), ("low", "lower"), "", id="all lower ones"),
    pytest.param(GROWING, node(GROWING, EQUAL, LOW, cpu="2"), ("low",), "", id="never one of its own priority"),
    pytest.param(GROWING, node(GROWING, EQUAL, cpu="1800m"), (), NO_VICTIMS, id="only equals"),
    pytest.param(GROWING, node(GROWING, LOW, LOWER, **DISABLING), (), DISABLED, id="disabled on this node"),
    pytest.param(GROWING, node(GROWING, LOW, LOWER, **TAINTED), ("lower",), "", id="taints and cordons do not count"),
    pytest.param(GROWING, None, (), NO_NODE, id="node not known"),
    pytest.param(
        pod("growing", "1500m", 10, has="500m", preemptionPolicy="Never"), node(GROWING, LOW, LOWER), (), NEVER,
        id="its policy",
    ),
    pytest.param(
        pod("growing", "1500m", 10, has="500m", **AFFINITY), node(GROWING, LOW, LOWER), ("lower",), "",
        id="its node was chosen: affinity does not count",
    ),
    pytest.param(
        pod("growing", "1500m", 10, has="500m", **PORT), node(GROWING, LOW, LOWER), ("lower",), "",
        id="its own ports are not taken",
    ),
    pytest.param(GROWING, node(GROWING, LOW, pods="2"), (), FITS_ALREADY, id="it is one of the node's pods already"),
]  # fmt: skip


@pytest.mark.parametrize(("growing", "on", "victims", "why_none"), CASES)
def test_victims_for_a_deferred_resize(
    growing: Pod, on: NodeLoad | None, victims: tuple[str, ...], why_none: str
) -> None:
    outcome = preemption_for_resize(growing, on, PROFILE)
    chosen = outcome.candidate
    assert (tuple(victim.metadata.name for victim in chosen.victims) if chosen else ()) == victims
    assert (chosen is None) == (not victims)
    if chosen is None:
        texts = {outcome.ineligible, *(reason for each in outcome.verdicts.values() for reason in each.reasons)}
        assert why_none in texts


def test_larger_than_its_node_is_not_helped_by_preemption() -> None:
    growing = pod("growing", "3", 10, has="500m")
    assert preemption_for_resize(growing, node(growing, LOW, LOWER), PROFILE).candidate is None


def test_pods_that_wait_for_the_node_count() -> None:
    """One of higher priority that is nominated to the node has its place; one of lower priority has not."""
    for priority, expected in ((20, ("lower",)), (5, ())):
        rival = waiting_load(pod("rival", "500m", priority))
        outcome = preemption_for_resize(GROWING, node(GROWING, LOWER), PROFILE, [rival])
        found = outcome.candidate.victims if outcome.candidate is not None else ()
        assert tuple(victim.metadata.name for victim in found) == expected


@pytest.mark.parametrize(
    ("conditions", "node_name", "expected"),
    [
        pytest.param([PENDING], "n1", True, id="deferred"),
        pytest.param([{**PENDING, "reason": "Infeasible"}], "n1", False, id="infeasible"),
        pytest.param([{"type": "PodResizeInProgress", "reason": "Deferred"}], "n1", False, id="in progress"),
        pytest.param([PENDING], "", False, id="without a node"),
        pytest.param([], "n1", False, id="no resize"),
    ],
)
def test_which_pods_have_a_deferred_resize(conditions: list[Json], node_name: str, expected: bool) -> None:
    document = {"metadata": {"name": "p"}, "spec": {"nodeName": node_name}, "status": {"conditions": conditions}}
    assert is_deferred(from_document(document, Pod)) == expected
