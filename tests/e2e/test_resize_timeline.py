"""The resizes of document 003 by the real agent on this machine's own kernel, step by step (03 §5)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.files import cpu_weight
from tests.e2e.blocked_api import BlockedApi, BlockedRequest, blocked_api
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import pod
from tests.e2e.real_node import RealNode, pod_of, reasons, running, status_of
from tests.e2e.resized_pods import MIB, PROFILES, ask, files, pending, resize_node, resources, row, settled, shell
from tests.e2e.waiting import until

DOCUMENTS = Path(__file__).resolve().parents[2] / "examples" / "documents"


@pytest.fixture(scope="module", params=PROFILES)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    with resize_node(request.param, tmp_path_factory, exercised) as made:
        yield made


# --- document 003 ---


def test_the_demo_pod_of_the_document(node: RealNode, kube: Kubectl) -> None:
    # Its bash ignores TERM: 30 s of grace would pass before the restart, with nothing to see.
    demo = (
        (DOCUMENTS / "003-demo.yaml").read_text().replace("\nspec:\n", "\nspec:\n  terminationGracePeriodSeconds: 2\n")
    )
    kube("apply", "-f", "-", stdin=demo)
    before = running(kube, "demo")["containerStatuses"][0]
    ask(node, kube, "demo", (DOCUMENTS / "003-patch-cpu-2.json").read_text())
    after = settled(kube, "demo", "demo", resources("2", "200Mi"))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    for where in ("", "demo"):
        found = files(node, kube, "demo", where)
        assert (found["cpu.cfs_quota_us"], found["cpu.cfs_period_us"], found["cpu.shares"]) == (200_000, 100_000, 2048)
        assert found["memory.limit_in_bytes"] == 200 * MIB
    until(lambda: {"ResizeStarted", "ResizeCompleted"} <= set(reasons(kube, "demo")))

    ask(node, kube, "demo", (DOCUMENTS / "003-patch-memory-500mi.json").read_text())
    after = settled(kube, "demo", "demo", resources("2", "500Mi"))
    assert after["restartCount"] == 1
    assert after["containerID"] != before["containerID"]
    assert kube("get", "pod", "demo", "--no-headers").out.split()[3] == "1"
    for where in ("", "demo"):
        assert files(node, kube, "demo", where)["memory.limit_in_bytes"] == 524_288_000
    assert "Mem:" in kube.on_a_terminal("exec", "-it", "demo", "--", "free")
    until(lambda: "Killing" in reasons(kube, "demo"))
    killed = [
        each["message"]
        for each in json.loads(kube("get", "events", "-o", "json").out)["items"]
        if each["reason"] == "Killing" and each["involvedObject"]["name"] == "demo"
    ]
    assert killed == ["Container demo resize requires restart"]

    way = () if node.profile == "documents" else ("--subresource", "resize")
    said = kube.refused("patch", "pod", "demo", *way, "-p", (DOCUMENTS / "003-patch-qos-change.json").read_text())
    assert said == (
        'The Pod "demo" is invalid: metadata: Invalid value: "Burstable": Pod QoS is immutable'
        if node.profile == "documents"
        else 'The Pod "demo" is invalid: spec: Invalid value: "Guaranteed": '
        "Pod QOS Class may not change as a result of resizing"
    )


# --- the timeline of document 003 (03 §5) ---


def is_status(asked: BlockedRequest) -> bool:
    return asked.method == "PATCH" and asked.path.endswith("/pods/timeline/status")


def timeline_patch(number: int) -> str:
    return (DOCUMENTS / f"003-patch-timeline-{number}.json").read_text()


@pytest.fixture
def blocked(node: RealNode, kube: Kubectl) -> Iterator[BlockedApi]:
    """The same node, its agent restarted behind a proxy that can block its requests; restored before `kube`."""
    direct, through = node.node_kubeconfig, node.directory / "blocked.kubeconfig"
    with blocked_api(direct, node.api_state / "pki", through) as api:
        node.kill_node()
        node.node_kubeconfig = through
        node.start_node()
        yield api
        api.release()
        node.kill_node()
    node.node_kubeconfig = direct
    node.start_node()


def test_the_timeline_of_the_document(node: RealNode, blocked: BlockedApi, kube: Kubectl) -> None:
    """Every row is read from the store while the agent's next request is blocked."""
    kube("create", "-f", "-", stdin=pod("filler", shell("c", {"requests": {"cpu": "6100m"}})))
    running(kube, "filler")
    blocked.block(is_status)
    kube("apply", "-f", str(DOCUMENTS / "003-timeline.yaml"))
    seen = ("1", "1", "-", "-") if node.profile == "documents" else ("1", "-", "-", "-")
    first = blocked.next()
    assert row(kube, "timeline") == seen  # T=1
    assert first.pass_on() == 200
    blocked.release()
    running(kube, "timeline")
    assert row(kube, "timeline") == ("1", "1", "1", "-")  # T=2

    older = node.profile == "documents"

    def shown(spec: str, allocated: str, actual: str, word: str) -> tuple[str, str, str, str]:
        return spec, allocated, actual, word if older else "-"

    blocked.block(is_status)
    ask(node, kube, "timeline", timeline_patch(1))
    accepted = blocked.next()
    assert row(kube, "timeline") == shown("1500m", "1", "1", "Proposed")  # T=3
    version = pod_of(kube, "timeline")["metadata"]["resourceVersion"]
    assert accepted.body["metadata"].get("resourceVersion") == (version if older else None)
    assert accepted.pass_on() == 200
    assert row(kube, "timeline") == shown("1500m", "1500m", "1", "InProgress")  # T=4
    assert conditions(kube, "timeline") == [("PodResizeInProgress", "", 2 if not older else 0)]

    completed = blocked.next()
    ask(node, kube, "timeline", timeline_patch(2))
    assert row(kube, "timeline") == shown("2", "1500m", "1", "Proposed")  # T=5
    assert completed.pass_on() == (409 if older else 200)
    if older:
        assert row(kube, "timeline") == shown("2", "1500m", "1", "Proposed")  # T=6
    deferred = blocked.next()
    if older:
        assert deferred.body["metadata"]["resourceVersion"] == pod_of(kube, "timeline")["metadata"]["resourceVersion"]
    assert deferred.pass_on() == 200
    assert row(kube, "timeline") == shown("2", "1500m", "1500m", "Deferred")  # T=7
    assert conditions(kube, "timeline") == [("PodResizePending", "Deferred", 3 if not older else 0)]
    text = "Node didn't have enough resource: cpu, requested: 2000, used: 6100, capacity: 8000"
    assert pending(kube, "timeline")["message"] == text

    ask(node, kube, "timeline", timeline_patch(3))
    accepted = blocked.next()
    assert row(kube, "timeline") == shown("1600m", "1500m", "1500m", "Proposed")  # T=8
    assert accepted.pass_on() == 200
    assert row(kube, "timeline") == shown("1600m", "1600m", "1500m", "InProgress")  # T=9
    assert conditions(kube, "timeline") == [("PodResizeInProgress", "", 4 if not older else 0)]
    assert blocked.next().pass_on() == 200
    assert row(kube, "timeline") == ("1600m", "1600m", "1600m", "-")  # T=10
    assert conditions(kube, "timeline") == []
    assert_share_of_1600m(node, kube)

    if not older:
        refused = kube.refused("patch", "pod", "timeline", "--subresource", "resize", "-p", timeline_patch(4))
        assert "node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: 8000" in refused
        return
    ask(node, kube, "timeline", timeline_patch(4))
    last = blocked.next()
    assert row(kube, "timeline") == shown("100", "1600m", "1600m", "Proposed")  # T=11
    assert last.pass_on() == 200
    assert row(kube, "timeline") == shown("100", "1600m", "1600m", "Infeasible")  # T=12
    assert status_of(kube, "timeline", "app")["restartCount"] == 0
    assert_share_of_1600m(node, kube)
    blocked.release()
    reported = {"ResizeStarted": 2, "ResizeCompleted": 2, "ResizeDeferred": 1, "ResizeInfeasible": 1}
    until(lambda: Counter(each for each in reasons(kube, "timeline") if each.startswith("Resize")) == reported)


def assert_share_of_1600m(node: RealNode, kube: Kubectl) -> None:
    """On v1 its shares; on v2, in a guest, the weight that the profile's runtimes make of them."""
    if this_host().version == 1:
        assert files(node, kube, "timeline", "app")["cpu.shares"] == 1638
        return
    ident = status_of(kube, "timeline", "app")["containerID"].removeprefix("plimsoll://")
    (path,) = [each for each in node.memory_cgroups() if each.endswith(ident)]
    found = int((node.memory_root / path / "cpu.weight").read_text())
    assert found == cpu_weight(1638, profile_named(node.profile).container_weight)


def conditions(kube: Kubectl, name: str) -> list[tuple[str, str, int]]:
    """Those of a resize: type, reason, observedGeneration."""
    return [
        (each["type"], each.get("reason", ""), each.get("observedGeneration", 0))
        for each in status_of(kube, name).get("conditions", ())
        if each["type"].startswith("PodResize")
    ]
