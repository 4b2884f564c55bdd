"""Many pods at once against each pod alone: the same plans, whatever stands beside whom."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.errors import InvalidNameError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.explain.batch import block_plans
from plimsoll.rules.explain.plan import PodPlan, placement, pod_plan
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.node_policy import NodePolicy
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, quantity_texts, valid_pods

NODE = NodePolicy(8 << 30, 8 << 30)
PLACE = placement(("kubepods",), "cgroupfs")


def alone(pods: list[Pod], policy: NodePolicy, place: Any) -> list[PodPlan] | str:
    """The plans, or what the first pod at fault raises."""
    try:
        return [pod_plan(pod, policy, place) for pod in pods]
    except (InvalidObjectError, InvalidNameError, InvalidQuantityError) as error:
        return f"{type(error).__name__}: {error}"


def together(pods: list[Pod], policy: NodePolicy, place: Any) -> list[PodPlan] | str:
    try:
        return block_plans(pods, policy, place)
    except (InvalidObjectError, InvalidNameError, InvalidQuantityError) as error:
        return f"{type(error).__name__}: {error}"


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(valid_pods(), max_size=4), node_settings())
def test_valid_pods(documents: list[Json], setting: NodeConfig) -> None:
    pods = [lean(document) for document in documents]
    place = placement(setting.pods_root, setting.driver)
    assert together(pods, setting.policy, place) == alone(pods, setting.policy, place)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(valid_pods(), min_size=1, max_size=3), st.data())
def test_pods_that_no_server_would_take(documents: list[Json], data: st.DataObject) -> None:
    """Any quantity anywhere: negative, giant, finer than a milli-unit; any resource name; containers taken away."""
    documents = copy.deepcopy(documents)
    for document in documents:
        containers = document["spec"]["containers"] + document["spec"].get("initContainers", [])
        container = data.draw(st.sampled_from(containers))
        block = container.setdefault("resources", {}).setdefault(data.draw(st.sampled_from(("requests", "limits"))), {})
        block[data.draw(st.sampled_from(("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "x.y/z")))] = data.draw(
            quantity_texts()
        )
    if data.draw(st.integers(0, 4)) == 0:
        documents[0]["spec"]["containers"] = []
    pods = [lean(document) for document in documents]
    assert together(pods, NODE, PLACE) == alone(pods, NODE, PLACE)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(valid_pods(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_order_and_neighbours_do_not_matter(documents: list[Json], shuffler: Any) -> None:
    pods = [lean(document) for document in documents]
    plans = dict(zip(map(id, pods), block_plans(pods, NODE, PLACE), strict=True))
    shuffler.shuffle(pods)
    assert block_plans(pods, NODE, PLACE) == [plans[id(pod)] for pod in pods]


EDGES = [
    ("no pods", []),
    ("pod level without containers", [{"spec": {"resources": {"requests": {"memory": "1Gi"}}}}]),
    ("a pod without anything", [{}]),
    ("a pod without containers beside another", [{}, {"spec": {"containers": [{"name": "c"}]}}, {}]),
    ("init containers only", [{"spec": {"initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}]}}]),
    (
        "a negative amount",
        [{"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "-1", "memory": "-1"}}}]}}],
    ),
    ("an empty name", [{"metadata": {"uid": "u"}, "spec": {"containers": [{}]}}]),
    ("a bad uid in the middle", [{}, {"metadata": {"uid": "a_b"}}, {}]),
]


@pytest.mark.parametrize("documents", [row[1] for row in EDGES], ids=[row[0] for row in EDGES])
@pytest.mark.parametrize("version", [1, 2])
def test_edges(documents: list[Json], version: Any) -> None:
    pods, policy = [lean(document) for document in documents], NodePolicy(8 << 30, 8 << 30, cgroup_version=version)
    assert together(pods, policy, PLACE) == alone(pods, policy, PLACE)
