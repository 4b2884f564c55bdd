"""StatefulSets, DaemonSets and their revisions."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.controllers.daemonsets import DaemonStep, daemon_pod, daemon_step, fits, node_of
from plimsoll.rules.controllers.revisions import revision_step, surplus_revisions
from plimsoll.rules.controllers.statefulsets import StatefulStep, stateful_step
from plimsoll.rules.model.objects import Metadata, Node, NodeSpec, Pod, PodSpec, Taint, Toleration
from tests.unit.rules.controllers.documents import NOW_S, REFERENCE, Json, names, pod

OLD, NEW = ({"metadata": {"name": name}, "data": {}} for name in ("old", "new"))
HASH = "controller-revision-hash"


def _set(replicas: int, **spec: Any) -> Json:
    strategy = spec.pop("updateStrategy", {"type": "RollingUpdate"})
    whole = {"replicas": replicas, "template": {}, "updateStrategy": strategy, **spec}
    return {"metadata": {"name": "s", "uid": "s", "generation": 1}, "spec": whole}


def _stateful(owner: Json, pods: list[Json], current: Json = NEW) -> StatefulStep:
    return stateful_step(owner, pods, current, NEW, NOW_S, REFERENCE)


def _pod(ordinal: int, revision: str = "new", phase: str = "Running", **more: Any) -> Json:
    return pod(f"s-{ordinal}", phase, labels={HASH: revision}, **more)


UNREADY = {"ready": False}
LEAVING = {"deletionTimestamp": "x"}


@pytest.mark.parametrize(
    ("owner", "pods", "created", "deleted"),
    [
        pytest.param(_set(3), [], ["s-0"], [], id="the first one"),
        pytest.param(_set(3), [_pod(0)], ["s-1"], [], id="the next one"),
        pytest.param(_set(3), [_pod(0, **UNREADY)], [], [], id="not before the first is ready"),
        pytest.param(_set(3), [_pod(0, **LEAVING), _pod(1)], [], [], id="not while one stops"),
        pytest.param(_set(3, minReadySeconds=500), [_pod(0)], [], [], id="not before it is available"),
        pytest.param(_set(3), [_pod(0), _pod(2)], ["s-1"], [], id="a gap"),
        pytest.param(_set(2, ordinals={"start": 4}), [], ["s-4"], [], id="from 4"),
        pytest.param(_set(3, podManagementPolicy="Parallel"), [_pod(1)], ["s-0", "s-2"], [], id="all at once"),
        pytest.param(_set(2), [_pod(0), _pod(1, phase="Failed")], [], ["s-1"], id="one that failed"),
        pytest.param(_set(1), [_pod(0), _pod(1), _pod(2)], [], ["s-2"], id="the last one first"),
        pytest.param(_set(1), [_pod(0), _pod(1), _pod(2, **LEAVING)], [], [], id="one after the other"),
        pytest.param(_set(0), [_pod(0, **UNREADY), _pod(1, **UNREADY)], [], [], id="not before the first is healthy"),
        pytest.param(_set(0), [_pod(0), _pod(1, **UNREADY)], [], ["s-1"], id="the first unhealthy one"),
        pytest.param(_set(1), [_pod(0, **UNREADY), _pod(1)], [], [], id="not while one that stays is unhealthy"),
        pytest.param(_set(0), [_pod(0), _pod(1)], [], ["s-1"], id="to zero"),
        pytest.param(_set(0, podManagementPolicy="Parallel"), [_pod(0), _pod(1)], [], ["s-0", "s-1"], id="in parallel"),
        pytest.param(_set(2), [_pod(0, "old"), _pod(1, "old")], [], ["s-1"], id="an update"),
        pytest.param(_set(2), [_pod(0, "old"), _pod(1)], [], ["s-0"], id="an update, the next"),
        pytest.param(_set(2, podManagementPolicy="Parallel"), [_pod(0, "old"), _pod(1, **UNREADY)], [], [], id="waits"),
        pytest.param(
            _set(2, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}),
            [_pod(0, "old"), _pod(1)],
            [],
            [],
            id="below the partition",
        ),
        pytest.param(
            _set(3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}),
            [_pod(0, "old"), _pod(1, "old"), _pod(2, "old")],
            [],
            ["s-1", "s-2"],
            id="two at once",
        ),
        pytest.param(_set(1, updateStrategy={"type": "OnDelete"}), [_pod(0, "old")], [], [], id="on delete"),
    ],
)
def test_stateful_steps(owner: Json, pods: list[Json], created: list[str], deleted: list[str]) -> None:
    step = _stateful(owner, pods, OLD)
    assert (names(step.create), sorted(names(step.delete))) == (created, deleted)


def test_the_status_of_an_update() -> None:
    pods = [_pod(0, "old"), _pod(1, **UNREADY)]
    status = _stateful(_set(2), pods, OLD).status
    assert (status["currentReplicas"], status["updatedReplicas"], status["readyReplicas"]) == (1, 1, 1)
    assert (status["currentRevision"], status["updateRevision"]) == ("old", "new")
    done = _stateful(_set(2), [_pod(0), _pod(1)], OLD).status
    assert (done["currentRevision"], done["currentReplicas"]) == ("new", 2)


# --- revisions ---


def _owner(image: str, **status: Any) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"image": image}]}}
    metadata = {"name": "d", "uid": "d", "generation": 1}
    return {"metadata": metadata, "spec": {"template": template, "revisionHistoryLimit": 1}, "status": status}


def _stored(image: str, number: int) -> Json:
    made = revision_step(_owner(image), [], REFERENCE).create
    assert made is not None
    return {**made, "revision": number}


def test_revisions_are_reused() -> None:
    history = [_stored("a", 1), _stored("b", 2)]
    assert revision_step(_owner("b"), history, REFERENCE).current is history[1]
    again = revision_step(_owner("a"), history, REFERENCE)
    assert (again.renumber, again.number) == (history[0], 3)
    fresh = revision_step(_owner("c"), history, REFERENCE)
    assert fresh.create is not None and fresh.create["revision"] == 3
    taken = revision_step(_owner("c", collisionCount=1), history, REFERENCE)
    assert taken.create is not None and taken.create["metadata"]["name"] != fresh.create["metadata"]["name"]
    three = [*history, _stored("c", 3)]
    assert surplus_revisions(_owner("c"), three, {three[2]["metadata"]["name"]}) == [history[0]]


# --- DaemonSets ---

RUN = (True, True)


def _daemon(owner: Json, pods: list[Json], nodes: dict[str, tuple[bool, bool]]) -> DaemonStep:
    return daemon_step(owner, pods, nodes, "new", NOW_S, REFERENCE)


def _on(node: str, revision: str = "new", name: str = "", **more: Any) -> Json:
    return pod(name or f"{node}-{revision}", node=node, labels={HASH: revision}, **more)


def _rolling(**bounds: Any) -> Json:
    owner = _owner("a")
    owner["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": bounds}
    return owner


@pytest.mark.parametrize(
    ("owner", "pods", "nodes", "created", "deleted"),
    [
        pytest.param(_rolling(), [], {"a": RUN, "b": (False, True)}, ["a"], [], id="where it fits"),
        pytest.param(_rolling(), [_on("a")], {"a": (False, True)}, [], [], id="may stay"),
        pytest.param(_rolling(), [_on("a")], {"a": (False, False)}, [], ["a-new"], id="may not stay"),
        pytest.param(_rolling(), [_on("z")], {"a": (False, True)}, [], ["z-new"], id="no such node"),
        pytest.param(_rolling(), [_on("a", **LEAVING)], {"a": RUN}, [], [], id="one stops first"),
        pytest.param(
            _rolling(),
            [_on("a", age_s=9), _on("a", name="second", age_s=5)],
            {"a": RUN},
            [],
            ["second"],
            id="two on a node",
        ),
        pytest.param(
            _rolling(maxUnavailable=1),
            [_on("a", "old"), _on("b", "old")],
            {"a": RUN, "b": RUN},
            [],
            ["a-old"],
            id="one",
        ),
        pytest.param(
            _rolling(maxUnavailable=1), [_on("a", **UNREADY), _on("b", "old")], {"a": RUN, "b": RUN}, [], [], id="waits"
        ),
        pytest.param(
            _rolling(maxUnavailable=1),
            [_on("a", "old"), _on("b", "old", **UNREADY)],
            {"a": RUN, "b": RUN},
            [],
            ["b-old"],
            id="the one that is missing anyway",
        ),
        pytest.param(
            _rolling(maxSurge=1, maxUnavailable=0),
            [_on("a", "old"), _on("b", "old")],
            {"a": RUN, "b": RUN},
            ["a"],
            [],
            id="a new one beside the old one",
        ),
        pytest.param(
            _rolling(maxSurge=1, maxUnavailable=0),
            [_on("a", "old"), _on("a"), _on("b", "old")],
            {"a": RUN, "b": RUN},
            [],
            ["a-old"],
            id="the old one when the new one is available",
        ),
    ],
)
def test_daemon_steps(
    owner: Json, pods: list[Json], nodes: dict[str, tuple[bool, bool]], created: list[str], deleted: list[str]
) -> None:
    step = _daemon(owner, pods, nodes)
    assert ([node_of(each) for each in step.create], names(step.delete)) == (created, deleted)


def test_pods_that_end_are_replaced_later_and_counted() -> None:
    step = _daemon(_rolling(), [pod("a", "Failed", ready=False, node="a", labels={HASH: "new"})], {"a": RUN})
    assert step.create == () and [(node, each["metadata"]["name"]) for node, each in step.failed] == [("a", "a")]
    step = _daemon(_rolling(), [_on("a"), _on("b")], {"a": RUN, "b": (False, True), "c": RUN})
    assert step.status == {
        "currentNumberScheduled": 1,
        "numberMisscheduled": 1,
        "desiredNumberScheduled": 2,
        "numberReady": 1,
        "observedGeneration": 1,
        "updatedNumberScheduled": 1,
        "numberAvailable": 1,
        "numberUnavailable": 1,
    }


def test_a_daemon_pod_is_pinned_and_tolerates_an_unfit_node() -> None:
    owner = _owner("a")
    owner["spec"]["template"]["spec"]["hostNetwork"] = True
    made = daemon_pod(owner, "n1", "h", REFERENCE)
    assert node_of(made) == "n1"
    assert len(made["spec"]["tolerations"]) == 7


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        (None, (True, True)),
        (Taint("k", "", "NoSchedule"), (False, True)),
        (Taint("k", "", "NoExecute"), (False, False)),
        (Taint("k", "", "PreferNoSchedule"), (True, True)),
        (Taint("ok", "", "NoExecute"), (True, True)),
    ],
)
def test_which_nodes_fit(taint: Taint | None, expected: tuple[bool, bool]) -> None:
    node = Node(Metadata(name="n", labels={"disk": "ssd"}), NodeSpec(taints=() if taint is None else (taint,)))
    spec = PodSpec(tolerations=(Toleration("ok", "Exists"),), node_selector={"disk": "ssd"})
    assert fits(Pod(spec=spec), node) == expected
    assert fits(Pod(spec=PodSpec(node_selector={"disk": "hdd"})), node) == (False, False)
