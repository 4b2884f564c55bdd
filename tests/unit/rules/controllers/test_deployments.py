"""Deployments: tables, and rollouts to their end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.controllers.deployment_status import deployment_status, rollout_status
from plimsoll.rules.controllers.deployment_steps import DeploymentStep, collided, deployment_step, failed_creation
from plimsoll.rules.controllers.deployments import (
    DESIRED,
    HISTORY,
    MAXIMUM,
    REVISION,
    bounds,
    new_and_old,
    proportional,
    replica_set_of,
    rollout,
    surplus_sets,
    synced_annotations,
)
from plimsoll.rules.controllers.revisions import name_hash
from tests.unit.rules.controllers.documents import NOW_S, REFERENCE, Json, ago, names


def _deployment(
    replicas: int, surge: Any = "25%", unavailable: Any = "25%", kind: str = "RollingUpdate", image: str = "i"
) -> Json:
    strategy = {"type": kind, "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    return {
        "metadata": {"name": "d", "namespace": "x", "uid": "u", "generation": 2},
        "spec": {
            "replicas": replicas,
            "strategy": strategy,
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
        "status": {},
    }


def _set(name: str, size: int, available: int, age_s: float, image: str = "old", **annotations: str) -> Json:
    made = replica_set_of(_deployment(size, image=image), REFERENCE)
    made["metadata"] |= {"name": name, "creationTimestamp": ago(age_s)}
    made["metadata"]["annotations"] |= annotations
    made["spec"]["replicas"] = size
    made["status"] = {"replicas": size, "availableReplicas": available, "readyReplicas": available}
    return made


def _step(deployment: Json, sets: list[Json], **options: Any) -> DeploymentStep:
    return deployment_step(deployment, sets, NOW_S, reference=REFERENCE, **options)


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        (_deployment(4), (5, 3)),
        (_deployment(3), (4, 3)),
        (_deployment(10, 3, "30%"), (13, 7)),
        (_deployment(2, 0, 0), (2, 1)),
        (_deployment(2, 1, 5), (3, 0)),
        (_deployment(2, kind="Recreate"), (2, 2)),
    ],
)
def test_bounds(deployment: Json, expected: tuple[int, int]) -> None:
    assert bounds(deployment) == expected


def test_replica_set_has_the_templates_hash() -> None:
    deployment = _deployment(2)
    deployment["metadata"]["annotations"] = {"mine": "1", "kubectl.kubernetes.io/last-applied-configuration": "x"}
    made = replica_set_of(deployment, REFERENCE, [_set("old", 2, 2, 9, **{REVISION: "4"})])
    digest = made["metadata"]["labels"]["pod-template-hash"]
    assert made["metadata"]["name"] == f"d-{digest}" and set(digest) <= set("456789bcdf")
    assert made["spec"]["selector"]["matchLabels"] == {"a": "b", "pod-template-hash": digest}
    assert made["spec"]["template"]["metadata"]["labels"] == {"a": "b", "pod-template-hash": digest}
    assert made["metadata"]["annotations"] == {"mine": "1", REVISION: "5", DESIRED: "2", MAXIMUM: "3"}
    assert made["spec"]["replicas"] == 1, "maxSurge is 1"
    deployment["status"]["collisionCount"] = 1
    assert replica_set_of(deployment, REFERENCE)["metadata"]["name"] != made["metadata"]["name"]
    assert name_hash({"a": 1, "b": 2}) == name_hash({"b": 2, "a": 1})


def test_the_oldest_replica_set_with_the_template_is_the_new_one() -> None:
    deployment = _deployment(1, image="i")
    sets = [_set("c", 1, 1, 1, "i"), _set("b", 1, 1, 2, "i"), _set("a", 1, 1, 3, "old")]
    new, old = new_and_old(deployment, sets)
    assert new is not None and new["metadata"]["name"] == "b"
    assert names(old) == ["a", "c"]


# --- sizes ---


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
    new = _set("new", 0, 0, 1)
    old = [_set(f"old{i}", size, min(size, available), 9 - i) for i, (size, available) in enumerate(before)]
    working = sum(each["status"]["availableReplicas"] for each in old)
    for _ in range(200):
        changes = rollout(deployment, new, old)
        sets = {each["metadata"]["name"]: each for each in (new, *old)}
        total_before = sum(each["spec"]["replicas"] for each in sets.values())
        for name, size in changes.items():
            each = sets[name]
            each["spec"]["replicas"] = each["status"]["replicas"] = size
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
    status = deployment_status(deployment, new, old, [], NOW_S)
    assert status.get("availableReplicas", 0) == wanted


@given(st.integers(1, 12), st.integers(0, 3), st.integers(0, 3))
def test_a_template_that_never_works_removes_at_most_max_unavailable(wanted: int, surge: int, unavailable: int) -> None:
    deployment = _deployment(wanted, surge, unavailable)
    _, least = bounds(deployment)
    new, old = _set("new", 0, 0, 1), [_set("old", wanted, wanted, 2)]
    for _ in range(50):
        for name, size in rollout(deployment, new, old).items():
            each = new if name == "new" else old[0]
            each["spec"]["replicas"] = size  # the status of the ReplicaSet follows later
        assert old[0]["spec"]["replicas"] >= least


@pytest.mark.parametrize(
    ("replicas", "sizes", "expected"),
    [
        pytest.param(30, [(8, 13), (5, 13)], [20, 13], id="8 and 5 of 13 in 33"),
        pytest.param(5, [(8, 13), (5, 13)], [5, 3], id="8 and 5 of 13 in 8"),
        pytest.param(0, [(8, 13), (5, 13)], [0, 0], id="to zero"),
        pytest.param(20, [(10, 13)], [20], id="one active"),
        pytest.param(4, [(0, 13), (0, 13)], [0, 4], id="none active: the newest"),
    ],
)
def test_proportional_scaling(replicas: int, sizes: list[tuple[int, int]], expected: list[int]) -> None:
    deployment = _deployment(replicas, 3, 2)
    annotation = [{MAXIMUM: str(most), DESIRED: str(most - 3)} for _, most in sizes]
    sets = [_set(f"s{i}", size, 0, 9 - i, **annotation[i]) for i, (size, _) in enumerate(sizes)]
    wanted, _ = proportional(deployment, sets[-1], sets[:-1])
    assert [wanted.get(f"s{i}", size) for i, (size, _) in enumerate(sizes)] == expected


# --- steps ---


def test_recreate_waits_for_old_pods() -> None:
    deployment, old = _deployment(2, kind="Recreate"), _set("old", 2, 2, 9)
    step = _step(deployment, [old])
    assert step.create is None and [(each.name, each.patch["spec"]) for each in step.changes] == [
        ("old", {"replicas": 0})
    ]
    old["spec"]["replicas"] = 0
    assert _step(deployment, [old], runs_old=True).create is None
    assert _step(deployment, [old]).create is not None


def test_a_paused_deployment_scales_but_does_not_roll_out() -> None:
    deployment, old = _deployment(5), _set("old", 2, 2, 9)
    deployment["spec"]["paused"] = True
    step = _step(deployment, [old])
    assert step.create is None and step.status is not None
    assert [each.event for each in step.changes] == ["Scaled up replica set old from 2 to 5"]
    progressing = next(each for each in step.status["conditions"] if each["type"] == "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("Unknown", "DeploymentPaused")


def test_a_rollback_gets_the_next_revision() -> None:
    new, old = _set("a", 0, 0, 9, "i", **{REVISION: "1"}), _set("b", 2, 2, 1, "bad", **{REVISION: "2"})
    assert synced_annotations(_deployment(2), new, [old]) == {REVISION: "3", HISTORY: "1"}
    new["metadata"]["annotations"] |= {REVISION: "3", HISTORY: "1"}
    assert synced_annotations(_deployment(2), new, [old]) == {}
    assert _step(_deployment(2), [new, old]).revision == "3"
    new["metadata"]["annotations"] |= {REVISION: "1", HISTORY: ",".join(["100"] * 500)}
    assert len(synced_annotations(_deployment(2), new, [old])[HISTORY]) <= 2000


@pytest.mark.parametrize(("limit", "removed"), [(0, ["a", "c"]), (1, ["a"]), (2, ["a"]), (3, []), (2**31 - 1, [])])
def test_old_replica_sets_beyond_the_limit(limit: int, removed: list[str]) -> None:
    deployment = _deployment(1)
    deployment["spec"]["revisionHistoryLimit"] = limit
    old = [
        _set("a", 0, 0, 9, **{REVISION: "1"}),
        _set("b", 1, 1, 8, **{REVISION: "2"}),  # it still has a pod
        _set("c", 0, 0, 7, **{REVISION: "3"}),
    ]
    assert names(surplus_sets(deployment, old)) == removed


def test_a_name_that_is_taken_and_a_refusal() -> None:
    deployment = _deployment(1)
    assert collided(deployment)["collisionCount"] == 1
    message, status = failed_creation(deployment, "d-x", "no", NOW_S)
    assert message == 'Failed to create new replica set "d-x": no'
    assert status["conditions"][0]["reason"] == "ReplicaSetCreateError"


# --- status ---


def _conditions(deployment: Json, available: int, now_s: float) -> list[Json]:
    new = _set("d-x", 4, available, 9)
    status = rollout_status(deployment, new, [], deployment["status"].get("conditions") or [], now_s)
    deployment["status"] = status
    conditions: list[Json] = status["conditions"]
    return sorted(conditions, key=lambda each: str(each["type"]))


def test_conditions_keep_their_times_until_they_change() -> None:
    deployment = _deployment(4)
    first = _conditions(deployment, 0, NOW_S)
    assert [(each["type"], each["status"], each["reason"]) for each in first] == [
        ("Available", "False", "MinimumReplicasUnavailable"),
        ("Progressing", "True", "ReplicaSetUpdated"),
    ]
    assert _conditions(deployment, 0, NOW_S + 1) == first, "nothing has changed"
    more = _conditions(deployment, 3, NOW_S + 2)
    assert (more[0]["status"], more[0]["lastTransitionTime"]) == ("True", ago(-2))
    assert (more[1]["lastTransitionTime"], more[1]["lastUpdateTime"]) == (ago(0), ago(-2))
    done = _conditions(deployment, 4, NOW_S + 3)
    assert done[1] == {
        "type": "Progressing",
        "status": "True",
        "reason": "NewReplicaSetAvailable",
        "message": 'ReplicaSet "d-x" has successfully progressed.',
        "lastUpdateTime": ago(-3),
        "lastTransitionTime": ago(0),
    }
    assert _conditions(deployment, 3, NOW_S + 4)[1] == done[1], "a pod that fails later is no rollout"


def test_the_deadline_passes_without_progress() -> None:
    deployment = _deployment(4)
    _conditions(deployment, 1, NOW_S)
    assert _conditions(deployment, 1, NOW_S + 599)[1]["status"] == "True"
    late = _conditions(deployment, 1, NOW_S + 601)[1]
    assert (late["status"], late["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert _conditions(deployment, 1, NOW_S + 999)[1] == late
    assert _conditions(deployment, 2, NOW_S + 1000)[1]["reason"] == "ReplicaSetUpdated"
    step = _step(_deployment(4), [_set("d-x", 4, 1, 9, "i", **{REVISION: "1"})])
    assert step.requeue_s == 601


def test_a_replica_failure_is_passed_on() -> None:
    deployment, new = _deployment(1), _set("d-x", 1, 0, 9)
    new["status"]["conditions"] = [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    ]
    status = rollout_status(deployment, new, [], [], NOW_S)
    failure = next(each for each in status["conditions"] if each["type"] == "ReplicaFailure")
    assert (failure["reason"], failure["message"]) == ("FailedCreate", "exceeded quota")
    del new["status"]["conditions"]
    after = rollout_status(deployment, new, [], status["conditions"], NOW_S)
    assert all(each["type"] != "ReplicaFailure" for each in after["conditions"])
