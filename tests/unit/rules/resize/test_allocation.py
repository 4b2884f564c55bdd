"""Allocated resources of a pod: what is recorded, and what counts as resized (spec 03 §6)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.resize.allocation import (
    Allocation,
    allocated_pod,
    allocation_of,
    is_allocated,
    resizable_containers,
    restarts_for,
)
from tests.unit.rules.resize.resized_pods import ONE, container, pod, setting, verdict


def test_the_allocated_pod_is_the_spec_with_the_recorded_parts() -> None:
    old = pod(container("a", "1"), container("b", "1"), priority=1)
    new = pod(container("a", "2"), container("b", "2"), priority=7)
    allocated = allocated_pod(new, allocation_of(old))
    assert [str((each.resources.requests or {})["cpu"]) for each in allocated.spec.containers] == ["1", "1"]
    assert allocated.spec.priority == 7


def test_nothing_to_overwrite_costs_no_copy() -> None:
    assert allocated_pod(ONE, allocation_of(ONE)) is ONE
    assert allocated_pod(ONE, Allocation()) is ONE


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        pytest.param({"cpu": "1"}, {"cpu": "1000m"}, True, id="by value"),
        pytest.param({}, None, True, id="absent and empty"),
        pytest.param({"cpu": "1"}, {"cpu": "1", "memory": "1"}, False, id="one more name"),
        pytest.param({"example.com/gpu": "1"}, {"example.com/gpu": "2"}, False, id="every name counts"),
    ],
)
def test_desired_equals_allocated(left: Any, right: Any, same: bool) -> None:
    old = pod({"name": "c", "resources": {"requests": left}})
    new = pod({"name": "c", "resources": {"requests": right}})
    assert is_allocated(new, allocation_of(old)) is same


def test_an_empty_pod_level_block_is_not_an_absent_one() -> None:
    assert not is_allocated(pod(container(), resources={}), allocation_of(pod(container())))


INITIAL = [container("plain", "1"), container("side", "1", restartPolicy="Always")]
GROWN = [container("plain", "2"), container("side", "2", restartPolicy="Always")]


def test_what_is_resizable() -> None:
    both = pod(container("main"), initContainers=INITIAL)
    assert [each.name for each in resizable_containers(both)] == ["plain", "side", "main"]
    off = Gates(init_containers=False)
    assert [each.name for each in resizable_containers(both, off)] == ["side", "main"]
    assert set(allocation_of(both, off).containers) == {"side", "main"}


def test_parts_without_a_record_come_from_the_spec() -> None:
    off = Gates(init_containers=False, pod_level_resize=False)
    old = pod(container(), initContainers=INITIAL[:1])
    new = pod(container(), initContainers=GROWN[:1], resources={"requests": {"cpu": "9"}})
    assert verdict(old, new, setting(gates=off)).decision == "NoChange"
    assert verdict(old, new).decision != "NoChange"


@pytest.mark.parametrize(
    ("policies", "name", "expected"),
    [
        ([], "memory", False),
        ([("memory", "RestartContainer")], "memory", True),
        ([("memory", "RestartContainer")], "cpu", False),
        ([("cpu", "NotRequired"), ("cpu", "RestartContainer")], "cpu", False),
    ],
)
def test_the_first_policy_for_a_resource_decides(policies: list[tuple[str, str]], name: str, expected: bool) -> None:
    entries = [{"resourceName": resource, "restartPolicy": policy} for resource, policy in policies]
    (only,) = pod(container(resizePolicy=entries)).spec.containers
    assert restarts_for(only, name) is expected
