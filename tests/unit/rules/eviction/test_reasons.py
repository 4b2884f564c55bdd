"""Why a pod is evicted, in words (spec 04 §6, §7)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.config.thresholds import parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation
from plimsoll.rules.eviction.decision import eviction_message, limit_finding
from plimsoll.rules.eviction.usage import ContainerUsage, FsUsage, PodUsage
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.quantity import QUANTITIES

MI, GI = 2**20, 2**30


def pod(**spec: Any) -> Pod:
    spec = {"containers": [{"name": "c"}], **spec}
    return from_document({"metadata": {"name": "p", "uid": "u"}, "spec": spec}, Pod)


def container(name: str, **resources: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "resources": resources}


# --- §6 ---

LIMITED = [container("c", limits={"ephemeral-storage": "1Gi"}), container("d", limits={"ephemeral-storage": "0"})]


def storage(rootfs: int, logs: int, total: int | None = None) -> PodUsage:
    return PodUsage(
        containers=(ContainerUsage("c", rootfs=FsUsage(rootfs), logs=FsUsage(logs)),), ephemeral_storage_bytes=total
    )


@pytest.mark.parametrize(
    ("spec", "usage", "layout", "found"),
    [
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]},
            PodUsage(volumes={"v": FsUsage(MI + 1)}),
            "single",
            ("emptydirfs.limit", 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '),
            id="an emptyDir above its limit",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi", "medium": "Memory"}}]},
            PodUsage(volumes={"v": FsUsage(MI + 1)}),
            "single",
            ("emptydirfs.limit", 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '),
            id="in memory as well",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]},
            PodUsage(volumes={"v": FsUsage(MI)}),
            "single",
            None,
            id="at its limit",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "0"}}]},
            PodUsage(volumes={"v": FsUsage(MI)}),
            "single",
            None,
            id="a limit of zero is none",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1"}}]}, PodUsage(), "single", None, id="no figure"
        ),
        pytest.param(
            {"containers": LIMITED, "overhead": {"ephemeral-storage": "1Gi"}},
            storage(0, 0, 2 * GI + 1),
            "single",
            (
                "ephemeralpodfs.limit",
                "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
            ),
            id="the pod above its effective limit, overhead included",
        ),
        pytest.param(
            {"containers": [container("c", limits={"ephemeral-storage": "0"})]},
            storage(0, 0, 1),
            "single",
            ("ephemeralpodfs.limit", "Pod ephemeral local storage usage exceeds the total limit of containers 0. "),
            id="a pod limit of zero is one",
        ),
        pytest.param({"containers": LIMITED}, storage(0, 0), "single", None, id="a missing total is zero"),
        pytest.param(
            {"containers": LIMITED},
            storage(GI, 1),
            "single",
            ("ephemeralcontainerfs.limit", 'Container c exceeded its local ephemeral storage limit "1Gi". '),
            id="a container's logs and writable layer",
        ),
        pytest.param(
            {"containers": LIMITED}, storage(GI, 1), "dedicated", None, id="logs alone with a dedicated imagefs"
        ),
        pytest.param({"containers": LIMITED}, storage(GI, 1), "split", None, id="logs alone with a split one"),
        pytest.param({"containers": LIMITED}, None, "single", None, id="no statistics"),
        pytest.param(
            {"containers": LIMITED, "priority": 2_000_000_000},
            storage(GI, 1),
            "single",
            None,
            id="critical pods are spared",
        ),
    ],
)
def test_a_storage_limit(
    spec: dict[str, Any], usage: PodUsage | None, layout: Any, found: tuple[str, str] | None
) -> None:
    finding = limit_finding(pod(**spec), usage, layout)
    assert (None if finding is None else (finding.signal, finding.message)) == found


def test_the_first_match_wins() -> None:
    everything = pod(containers=LIMITED, volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1"}}])
    usage = PodUsage(None, None, storage(GI, GI).containers, {"v": FsUsage(2)}, 9 * GI)
    finding = limit_finding(everything, usage)
    assert finding is not None and finding.signal == "emptydirfs.limit"


# --- §7 ---

HARD = parsed_thresholds({"memory.available": "100Mi", "nodefs.available": "10%"}, enforce_node_allocatable=["pods"])
SEEN = {
    "memory.available": Observation(QUANTITIES["52Mi"], QUANTITIES["8Gi"]),
    "allocatableMemory.available": Observation(QUANTITIES["7Mi"], QUANTITIES["7Gi"]),
    "nodefs.available": Observation(QUANTITIES["1Gi"], QUANTITIES["100Gi"]),
}
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. "


def test_the_message_of_the_specification() -> None:
    two = pod(
        containers=[container("app", requests={"memory": "100Mi"}), container("modest", requests={"memory": "1Gi"})],
        initContainers=[container("init")],
    )
    usage = PodUsage(
        GI,
        containers=(
            ContainerUsage("init", 5 * MI),
            ContainerUsage("modest", GI),
            ContainerUsage("app", 300 * MI),
            ContainerUsage("debugger", GI),
            ContainerUsage("unknown"),
        ),
    )
    found = eviction_message(two, usage, "memory", HARD, SEEN)
    assert found.text == (
        LOW + "Container init was using 5Mi, request is 0, has larger consumption of memory. "
        "Container app was using 300Mi, request is 100Mi, has larger consumption of memory. "
    )
    assert found.annotations == {
        "offending_containers": "init,app",
        "offending_containers_usage": "5Mi,300Mi",
        "starved_resource": "memory",
    }


def test_pod_level_comes_first_whether_or_not_it_exceeds() -> None:
    level = pod(resources={"requests": {"memory": "2Gi"}})
    usage = PodUsage(GI, containers=(ContainerUsage("c", MI),))
    found = eviction_message(level, usage, "memory", HARD, SEEN)
    assert found.text == (
        LOW + "Pod p was using 1Gi, request is 2Gi, has larger consumption of memory. "
        "Container c was using 1Mi, request is 0, has larger consumption of memory. "
    )
    assert found.annotations["offending_pod"] == "p"
    assert found.annotations["offending_pod_usage"] == "1Gi"
    without = eviction_message(level, usage, "memory", HARD, SEEN, gates=Gates(pod_level=False))
    assert "Pod p" not in without.text


def test_disk_needs_both_figures() -> None:
    usage = PodUsage(
        containers=(
            ContainerUsage("c", rootfs=FsUsage(MI), logs=FsUsage(MI)),
            ContainerUsage("d", rootfs=FsUsage(GI)),
        )
    )
    found = eviction_message(pod(containers=[{"name": "c"}, {"name": "d"}]), usage, "ephemeral-storage", HARD, SEEN)
    assert found.text == (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 10737418400, available: 1Gi. "
        "Container c was using 2Mi, request is 0, has larger consumption of ephemeral-storage. "
    )


@pytest.mark.parametrize("resource", ["inodes", "pids"])
def test_for_inodes_and_processes_no_container_is_named(resource: str) -> None:
    usage = PodUsage(GI, 9, (ContainerUsage("c", GI, FsUsage(GI, 9), FsUsage(GI, 9)),))
    found = eviction_message(pod(), usage, resource, HARD, SEEN)
    assert found.text == f"The node was low on resource: {resource}. "
    assert found.annotations == {
        "offending_containers": "",
        "offending_containers_usage": "",
        "starved_resource": resource,
    }


def test_without_statistics_there_are_two_sentences_and_no_annotations() -> None:
    found = eviction_message(pod(), None, "memory", HARD, SEEN)
    assert (found.text, found.annotations) == (LOW, {})


def test_the_threshold_is_the_first_that_was_observed() -> None:
    only_pods = {"allocatableMemory.available": SEEN["allocatableMemory.available"]}
    assert eviction_message(pod(), None, "memory", HARD, only_pods).text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 7Mi. "
    )
