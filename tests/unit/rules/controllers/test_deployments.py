"""ReplicaSets, Deployments and Jobs: tables, and rollouts to their end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.controllers.deployments import (
    bounds,
    deployment_conditions,
    deployment_status,
    replica_set_of,
    rollout,
    template_hash,
)
from plimsoll.rules.controllers.jobs import job_status, job_step
from plimsoll.rules.controllers.replicasets import replica_status, scaling

Json = dict[str, Any]


def _pod(
    name: str, phase: str = "Running", *, ready: bool = True, node: str = "n", created: str = "1", **metadata: Any
) -> Json:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "creationTimestamp": created, **metadata},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    }


def _owner(replicas: int | None, **metadata: Any) -> Json:
    spec = {"template": {"metadata": {"labels": {"a": "b"}}}, **({} if replicas is None else {"replicas": replicas})}
    return {"metadata": {"name": "rs", "generation": 3, **metadata}, "spec": spec}


def test_missing_evicted_and_deleted_pods_are_replaced() -> None:
    pods = [_pod("a"), _pod("b", "Failed"), _pod("c", deletionTimestamp="x")]
    assert scaling(_owner(3), pods).create == 2
    assert scaling(_owner(None), []).create == 1
    assert scaling(_owner(5, deletionTimestamp="x"), pods).create == 0
    assert scaling(_owner(10_000), []).create == 500


def test_which_pods_to_delete() -> None:
    pods = [
        _pod("old", created="1"),
        _pod("young", created="2"),
        _pod("unready", ready=False, created="0"),
        _pod("pending", "Pending", ready=False),
        _pod("homeless", "Pending", ready=False, node=""),
    ]
    names = [pod["metadata"]["name"] for pod in scaling(_owner(0), pods).delete]
    assert names == ["homeless", "pending", "unready", "young", "old"]


def test_replica_status_counts() -> None:
    pods = [_pod("a", labels={"a": "b", "x": "y"}), _pod("b", ready=False), _pod("c", "Failed")]
    assert replica_status(_owner(2), pods) == {
        "replicas": 2,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "observedGeneration": 3,
    }


def _deployment(replicas: int, surge: Any = "25%", unavailable: Any = "25%", kind: str = "RollingUpdate") -> Json:
    strategy = {"type": kind, "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    return {
        "metadata": {"name": "d", "namespace": "x", "uid": "u", "generation": 2},
        "spec": {
            "replicas": replicas,
            "strategy": strategy,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        (_deployment(4), (5, 3)),
        (_deployment(3), (4, 3)),
        (_deployment(10, 3, "30%"), (13, 7)),
        (_deployment(2, 0, 0), (2, 1)),
        (_deployment(2, kind="Recreate"), (2, 0)),
    ],
)
def test_bounds(deployment: Json, expected: tuple[int, int]) -> None:
    assert bounds(deployment) == expected


def test_replica_set_carries_the_templates_hash() -> None:
    made = replica_set_of(_deployment(2), {"uid": "u"})
    mark = template_hash(_deployment(2)["spec"]["template"])
    assert made["metadata"]["name"] == f"d-{mark}"
    assert made["spec"]["selector"]["matchLabels"] == {"a": "b", "pod-template-hash": mark}
    assert made["spec"]["template"]["metadata"]["labels"] == {"a": "b", "pod-template-hash": mark}


def _set(name: str, replicas: int, available: int, created: str) -> Json:
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "availableReplicas": available, "readyReplicas": available},
    }


@given(
    st.integers(0, 12),
    st.integers(0, 3),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=3),
    st.sampled_from(["RollingUpdate", "Recreate"]),
)
def test_a_rollout_ends_and_keeps_its_bounds(
    wanted: int, surge: int, unavailable: int, before: list[tuple[int, int]], kind: str
) -> None:
    deployment = _deployment(wanted, surge, unavailable, kind)
    most, least = bounds(deployment)
    new = _set("new", 0, 0, "9")
    old = [_set(f"old{i}", size, min(size, available), str(i)) for i, (size, available) in enumerate(before)]
    working = sum(each["status"]["availableReplicas"] for each in old)
    for _ in range(200):
        changes = rollout(deployment, new, old)
        sets = {each["metadata"]["name"]: each for each in (new, *old)}
        total_before = sum(each["spec"]["replicas"] for each in sets.values())
        for name, size in changes.items():
            each = sets[name]
            grew = size - each["spec"]["replicas"]
            each["spec"]["replicas"] = each["status"]["replicas"] = size
            if grew < 0:  # unavailable ones first
                each["status"]["availableReplicas"] = min(each["status"]["availableReplicas"], size)
        total = sum(each["spec"]["replicas"] for each in sets.values())
        assert total <= max(most, total_before)
        now_working = sum(each["status"]["availableReplicas"] for each in sets.values())
        assert now_working >= min(least, working) or kind == "Recreate"
        if not changes and new["status"]["availableReplicas"] == new["spec"]["replicas"]:
            break
        new["status"]["availableReplicas"] = new["spec"]["replicas"]  # new pods become available
        working = sum(each["status"]["availableReplicas"] for each in sets.values())
    assert new["spec"]["replicas"] == wanted
    assert all(each["spec"]["replicas"] == 0 for each in old)
    assert deployment_status(deployment, new, old)["availableReplicas"] == wanted


def _job(**spec: Any) -> Json:
    return {"metadata": {"name": "j"}, "spec": spec, "status": {}}


@pytest.mark.parametrize(
    ("spec", "phases", "create", "deleted", "finished"),
    [
        ({"completions": 3, "parallelism": 2}, [], 2, 0, ""),
        ({"completions": 3, "parallelism": 2}, ["Succeeded", "Succeeded"], 1, 0, ""),
        ({"completions": 1}, ["Succeeded", "Running"], 0, 1, "Complete"),
        ({"completions": 1}, ["Failed"], 1, 0, ""),
        ({"completions": 1, "backoffLimit": 0}, ["Failed", "Running"], 0, 1, "Failed"),
        ({"parallelism": 3}, ["Succeeded", "Running"], 0, 0, ""),
        ({"parallelism": 3}, ["Succeeded"], 0, 0, "Complete"),
        ({"completions": 5, "parallelism": 1}, ["Running", "Running"], 0, 1, ""),
        ({"completions": 5, "parallelism": 2, "suspend": True}, ["Running"], 0, 1, ""),
    ],
)
def test_job_steps(spec: Json, phases: list[str], create: int, deleted: int, finished: str) -> None:
    step = job_step(_job(**spec), [_pod(f"p{i}", phase) for i, phase in enumerate(phases)])
    assert (step.create, len(step.delete), step.finished) == (create, deleted, finished)


def test_a_finished_job_does_not_change() -> None:
    job = _job(completions=1)
    pods = [_pod("p", "Succeeded")]
    job["status"] = job_status(job, pods, job_step(job, pods), "now")
    assert job["status"]["completionTime"] == "now" and "active" not in job["status"]
    assert job_step(job, []) == job_step(job, pods)
    assert job_step(job, []).create == 0


def test_conditions_keep_their_times_until_they_change() -> None:
    def conditions(deployment: Json, available: int, now: str) -> list[Json]:
        status = {"replicas": 4, "updatedReplicas": 4, "availableReplicas": available}
        return deployment_conditions(deployment, status, "d-x", now)

    deployment = _owner(4)
    first = conditions(deployment, 0, "t1")
    assert [(each["type"], each["status"], each["reason"]) for each in first] == [
        ("Available", "False", "MinimumReplicasUnavailable"),
        ("Progressing", "True", "ReplicaSetUpdated"),
    ]
    deployment["status"] = {"conditions": first}
    assert conditions(deployment, 2, "t2") == first, "three of four must be there"
    available = conditions(deployment, 3, "t3")
    assert available[0]["status"] == "True" and available[0]["lastTransitionTime"] == "t3"
    assert available[1] == first[1]
    deployment["status"] = {"conditions": available}
    done = conditions(deployment, 4, "t4")
    assert done[0] == available[0]
    assert done[1] == {
        "type": "Progressing",
        "status": "True",
        "reason": "NewReplicaSetAvailable",
        "message": 'ReplicaSet "d-x" has successfully progressed.',
        "lastUpdateTime": "t4",
        "lastTransitionTime": "t1",
    }
