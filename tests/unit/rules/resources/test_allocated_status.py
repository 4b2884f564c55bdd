"""A pending resize: what the cgroups hold, what the scheduler counts (spec 01 §6.1, E-14; 05 A1)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.cgroups.desired import desired_tree, workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.node.node_config import Machine, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.allocated_status import (
    actuated_level,
    actuated_resources,
    allocated_from_status,
    is_resize_pending,
)

Json = dict[str, Any]
ALLOCATED = {"cpu": "1", "memory": "1Gi"}
ACTUAL = {"requests": ALLOCATED, "limits": {"cpu": "2", "memory": "2Gi"}}


def document(wanted_cpu: str, **status: Any) -> Json:
    resources = {"requests": {"cpu": wanted_cpu, "memory": "1Gi"}, "limits": {"cpu": "6", "memory": "4Gi"}}
    statuses = [{"name": "c", "allocatedResources": ALLOCATED, "resources": ACTUAL}]
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        "status": {"containerStatuses": statuses, **status},
    }


def condition(reason: str) -> list[Json]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason}]


PENDING = [
    ("nothing differs", document("1"), False),
    ("allocated differs from the spec", document("3"), True),
    ("Deferred", document("1", conditions=condition("Deferred")), True),
    ("documents Infeasible", document("1", resize="Infeasible"), True),
    ("documents InProgress: accepted, so allocated is the spec", document("1", resize="InProgress"), False),
]


@pytest.mark.parametrize(("source", "pending"), [row[1:] for row in PENDING], ids=[row[0] for row in PENDING])
def test_pending(source: Json, pending: bool) -> None:
    pod = from_document(source, Pod)
    assert is_resize_pending(pod) is pending
    assert (allocated_from_status(pod) is pod) is not pending


def test_a_pod_without_status_is_its_spec() -> None:
    pod = from_document({"spec": document("3")["spec"]}, Pod)
    assert allocated_from_status(pod) is pod


# E-13 and 05 A1: Infeasible counts what is allocated, Deferred the larger of both.
COUNTED = [
    ("1.36 Infeasible", "1.36", {"conditions": condition("Infeasible")}, 1000),
    ("1.36 Deferred", "1.36", {"conditions": condition("Deferred")}, 3000),
    ("documents Infeasible", "documents", {"resize": "Infeasible"}, 1000),
    ("documents Proposed", "documents", {"resize": "Proposed"}, 3000),
]


@pytest.mark.parametrize(("profile", "status", "milli"), [row[1:] for row in COUNTED], ids=[row[0] for row in COUNTED])
def test_cgroups_follow_what_is_allocated(profile: str, status: Json, milli: int) -> None:
    chosen = profile_named(profile)
    setting = resolved(Machine(8, 8 << 30, {}), reading(None, chosen).config, chosen)
    work = workload(from_document(document("3", **status), Pod), setting)
    assert work.counted["cpu"].milli == milli
    pods = desired_tree([work], setting).children[0]
    burstable = pods.children[0]
    pod = burstable.children[0]
    assert (pod.value("cpu.max"), pod.value("memory.max")) == ("200000 100000", 2 << 30)  # the actual limits
    assert pod.value("cpu.weight") == 39  # 1000m
    assert burstable.value("cpu.weight") == 118  # 3000m: the class follows the desired spec (02 §8)
    assert pod.children[0].oom_score_adj == 875  # 1Gi of 8Gi


# A new name in a request is not allocated: (spec, status, allocated)
BLOCK = {"requests": {"cpu": "100"}, "limits": {"cpu": "100"}}
REQUESTS = [
    (
        "a memory limit is added",
        {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}},
        {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
        ({"cpu": "1"}, None),
    ),
    (
        "a container that asked for nothing",
        {"resources": {"requests": {"cpu": "1"}}},
        {"resources": {}},
        (None, None),
    ),
    (
        "what cannot be resized stays",
        {"resources": {"requests": {"cpu": "3", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}},
        {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
        ({"cpu": "1", "example.com/gpu": "1"}, {"example.com/gpu": "1"}),
    ),
    (
        "an older agent that tells requests alone",
        {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}},
        {"allocatedResources": {"cpu": "1"}},
        ({"cpu": "1"}, {"cpu": "3"}),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "status", "allocated"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
def test_a_new_name_in_a_request_is_not_allocated(
    spec: Json, status: Json, allocated: tuple[Json | None, Json | None]
) -> None:
    pod = from_document(
        {
            "spec": {"containers": [{"name": "c", **spec}]},
            "status": {"resize": "Deferred", "containerStatuses": [{"name": "c", **status}]},
        },
        Pod,
    )
    assert texts(allocated_from_status(pod).spec.containers[0].resources) == allocated


def texts(resources: Resources | None) -> tuple[Json | None, Json | None]:
    assert resources is not None
    lists = (resources.requests, resources.limits)
    requests, limits = (each and {name: str(amount) for name, amount in each.items()} for each in lists)
    return requests, limits


def test_a_guaranteed_pod_stays_one_while_an_older_limit_still_stands() -> None:
    """Shrunk from 2 to 1, which is not through, then asked to grow."""
    source = document("5", qosClass="Guaranteed", resize="Deferred")
    assert texts(allocated_from_status(from_document(source, Pod)).spec.containers[0].resources) == (
        ALLOCATED,
        ALLOCATED,
    )


def with_level(**status: Any) -> Pod:
    shown = [{"name": "c", "resources": {}}]
    return from_document(
        {
            "spec": {"resources": BLOCK, "containers": [{"name": "c", "resources": {}}]},
            "status": {"resize": "Infeasible", "containerStatuses": shown, **status},
        },
        Pod,
    )


def test_pod_level_is_allocated_too() -> None:
    actual = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    pod = with_level(allocatedResources={"cpu": "1", "memory": "1Gi"}, resources=actual)
    assert texts(allocated_from_status(pod).spec.resources) == ({"cpu": "1"}, {"cpu": "2"})


def test_a_new_pod_level_is_not_allocated() -> None:
    assert allocated_from_status(with_level()).spec.resources is None


def test_a_pod_level_that_differs_is_pending() -> None:
    pod = with_level(allocatedResources={"cpu": "1"}, resources={"requests": {"cpu": "1"}}, resize="")
    assert is_resize_pending(pod)


# --- actuated resources ---

ACTUATED = [
    ("as allocated", {"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}, ({"cpu": "1"}, {"cpu": "1500m"})),
    ("rounded by systemd", {"requests": {"cpu": "999m"}, "limits": {"cpu": "1509m"}}, ({"cpu": "1"}, {"cpu": "1500m"})),
    ("not yet actuated", {"requests": {"cpu": "500m"}, "limits": {"cpu": "700m"}}, ({"cpu": "500m"}, {"cpu": "700m"})),
    ("a limit that is new", {"requests": {"cpu": "1"}}, ({"cpu": "1"}, {})),
]


@pytest.mark.parametrize(("actual", "actuated"), [row[1:] for row in ACTUATED], ids=[row[0] for row in ACTUATED])
@pytest.mark.parametrize("kind", ["container", "pod"])
def test_actuated(kind: str, actual: Json, actuated: tuple[Json, Json]) -> None:
    allocated = {"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}
    state = {"running": {}}
    spec: Json = {"containers": [{"name": "c", "resources": allocated}, {"name": "d", "resources": allocated}]}
    status: Json = {
        "containerStatuses": [
            {"name": "c", "resources": actual, "state": state},
            {"name": "d", "resources": actual, "state": {"terminated": {}}},
        ]
    }
    if kind == "pod":
        spec, status = {"resources": allocated, "containers": []}, {"resources": actual}
    pod = from_document({"spec": spec, "status": status}, Pod)
    if kind == "pod":
        assert texts(actuated_level(pod)) == actuated
    else:
        assert {name: texts(each) for name, each in actuated_resources(pod).items()} == {"c": actuated}
