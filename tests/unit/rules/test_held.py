"""A pending resize: what the cgroups hold, what the scheduler counts (spec 01 §6.1, E-14; 05 A1)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean import from_document
from plimsoll.rules.config_reading import reading
from plimsoll.rules.desired import desired_tree, workload
from plimsoll.rules.held import held_pod, is_resize_pending
from plimsoll.rules.objects import Pod
from plimsoll.rules.profile import PROFILES
from plimsoll.rules.setting import Machine, resolved

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
    ("1.27 Infeasible", document("1", resize="Infeasible"), True),
    ("1.27 InProgress: accepted, so allocated is the spec", document("1", resize="InProgress"), False),
]


@pytest.mark.parametrize(("given", "pending"), [row[1:] for row in PENDING], ids=[row[0] for row in PENDING])
def test_pending(given: Json, pending: bool) -> None:
    pod = from_document(given, Pod)
    assert is_resize_pending(pod) is pending
    assert (held_pod(pod) is pod) is not pending


def test_a_pod_without_status_is_its_spec() -> None:
    pod = from_document({"spec": document("3")["spec"]}, Pod)
    assert held_pod(pod) is pod


# E-13 and 05 A1: Infeasible counts what is held, Deferred the larger of both.
COUNTED = [
    ("1.36 Infeasible", "1.36", {"conditions": condition("Infeasible")}, 1000),
    ("1.36 Deferred", "1.36", {"conditions": condition("Deferred")}, 3000),
    ("1.27 Infeasible", "1.27", {"resize": "Infeasible"}, 1000),
    ("1.27 Proposed", "1.27", {"resize": "Proposed"}, 3000),
]


@pytest.mark.parametrize(("profile", "status", "milli"), [row[1:] for row in COUNTED], ids=[row[0] for row in COUNTED])
def test_cgroups_follow_what_is_allocated(profile: str, status: Json, milli: int) -> None:
    chosen = PROFILES[profile]
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
