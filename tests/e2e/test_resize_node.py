"""In-place resizes by the real agent on this machine's own kernel (cgroup v1), requested with real kubectl (03)."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.rules.quantity import QUANTITIES
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import pod
from tests.e2e.real_node import NODE, RealNode, pod_of, reasons, running, status_of
from tests.e2e.resize_kill import AT_ONCE, BESIDE, IN_USE, RECLAIMED, ResizeKill, missing
from tests.e2e.resized_pods import (
    MIB,
    PROFILES,
    Document,
    ask,
    files,
    mebi,
    milli,
    patch_of,
    pending,
    profile_param,
    resize_node,
    resources,
    row,
    settled,
    shell,
)
from tests.e2e.waiting import until

KILLS = 4
OLDER = pytest.mark.parametrize("node", [profile_param("documents")], indirect=True, scope="module")


@pytest.fixture(scope="module", params=PROFILES)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    with resize_node(request.param, tmp_path_factory, exercised) as made:
        yield made


# --- several containers ---

THREE = {"a": ("100m", "32Mi"), "b": ("200m", "32Mi"), "c": ("300m", "64Mi")}


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"a": ("200m", "64Mi"), "b": ("300m", "64Mi"), "c": ("400m", "96Mi")}, id="all up"),
        pytest.param({"a": ("50m", "16Mi"), "b": ("100m", "24Mi"), "c": ("200m", "32Mi")}, id="all down"),
        pytest.param({"a": ("400m", "16Mi"), "b": ("100m", "96Mi"), "c": ("300m", "64Mi")}, id="mixed"),
    ],
)
def test_three_containers_at_once(node: RealNode, kube: Kubectl, wanted: dict[str, tuple[str, str]]) -> None:
    kube("create", "-f", "-", stdin=pod("three", *(shell(name, resources(*size)) for name, size in THREE.items())))
    before = {each["name"]: each["containerID"] for each in running(kube, "three")["containerStatuses"]}
    ask(node, kube, "three", patch_of(**{name: resources(*size) for name, size in wanted.items()}))
    for name, size in wanted.items():
        after = settled(kube, "three", name, resources(*size))
        assert (after["containerID"], after["restartCount"]) == (before[name], 0)
        found = files(node, kube, "three", name)
        assert found["cpu.cfs_quota_us"] == milli(size[0]) * 100
        assert found["memory.limit_in_bytes"] == mebi(size[1]) * MIB
    whole = files(node, kube, "three")
    assert whole["cpu.cfs_quota_us"] == sum(milli(cpu) for cpu, _ in wanted.values()) * 100
    assert whole["memory.limit_in_bytes"] == sum(mebi(memory) for _, memory in wanted.values()) * MIB


# --- containers that fail ---


def test_a_crash_loop_starts_over_with_other_resources(node: RealNode, kube: Kubectl) -> None:
    """The third start waits 20 s; with another size it is a first start again, and comes at once (03 §10)."""
    kube("create", "-f", "-", stdin=pod("crash", shell("c", resources("100m", "32Mi"), "sleep 0.2; exit 3")))

    def waits() -> bool:
        found = status_of(kube, "crash", "c")
        reason = found.get("state", {}).get("waiting", {}).get("reason")
        return found.get("restartCount", 0) >= 2 and reason == "CrashLoopBackOff"

    until(waits)
    before = status_of(kube, "crash", "c")["restartCount"]
    ask(node, kube, "crash", patch_of(c=resources("200m", "48Mi")))
    until(lambda: status_of(kube, "crash", "c")["restartCount"] > before)  # of at least 20 s

    def accepted() -> bool:
        found, whole = status_of(kube, "crash", "c"), status_of(kube, "crash")
        reported = {each["type"] for each in whole["conditions"]} & {"PodResizePending", "PodResizeInProgress"}
        return found.get("resources") == resources("200m", "48Mi") and not reported and not whole.get("resize")

    until(accepted)
    until(lambda: {"ResizeStarted", "ResizeCompleted"} <= set(reasons(kube, "crash")))
    whole = files(node, kube, "crash")
    assert (whole["cpu.cfs_quota_us"], whole["memory.limit_in_bytes"]) == (20_000, 48 * MIB)


def test_an_out_of_memory_loop_ends_with_enough_memory(node: RealNode, kube: Kubectl) -> None:
    hog = "exec python3 -c 'import time; taken = bytearray(80 << 20); time.sleep(1000)'"
    kube("create", "-f", "-", stdin=pod("hungry", shell("c", resources("500m", "40Mi"), hog)))
    until(
        lambda: (status_of(kube, "hungry", "c").get("lastState", {}).get("terminated", {})).get("reason") == "OOMKilled"
    )
    ask(node, kube, "hungry", patch_of(c=resources("500m", "160Mi")))
    after = settled(kube, "hungry", "c", resources("500m", "160Mi"))
    for where in ("", "c"):
        assert files(node, kube, "hungry", where)["memory.limit_in_bytes"] == 160 * MIB
    time.sleep(1.0)  # long enough for it to be killed once more, if it were to be
    found = status_of(kube, "hungry", "c")
    assert (found["containerID"], found["restartCount"]) == (after["containerID"], after["restartCount"])


# --- memory that is in use ---

# Takes 80 MiB until a file exists, then 10.
LETS_GO = (
    "exec python3 -uc 'import os, time\n"
    "taken = bytearray(80 << 20)\n"
    'print("holding")\n'
    'while not os.path.exists("/tmp/let-go"): time.sleep(0.05)\n'
    "del taken\n"
    "time.sleep(1000)'"
)


def test_a_limit_below_the_usage_waits_and_kills_nothing(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("full", shell("c", resources("500m", "160Mi"), LETS_GO)))
    before = running(kube, "full")["containerStatuses"][0]
    until(lambda: "holding" in kube("logs", "full").out)
    ask(node, kube, "full", patch_of(c=resources("500m", "48Mi")))

    def refused() -> Document:
        reported = [each for each in status_of(kube, "full")["conditions"] if each["type"] == "PodResizeInProgress"]
        return reported[0] if reported and reported[0].get("reason") == "Error" else {}

    condition = until(refused)
    text = (
        r'cannot decrease memory limits: attempting to set container "c" memory limit \(50331648\) '
        r"below current usage \((\d+)\): .* are still in use after [0-9.]+ s, not less than 48.0 MiB; "
        r"the limit is [0-9.]+ MiB until then"
    )
    said = re.fullmatch(text, condition["message"])
    assert said is not None, condition["message"]
    used = int(said[1])
    assert used > 80 * MIB
    # Near the use; the pod's own limit follows when its containers have theirs.
    assert used < files(node, kube, "full", "c")["memory.limit_in_bytes"] < used * 9 // 8
    assert files(node, kube, "full", "")["memory.limit_in_bytes"] == 160 * MIB
    found = status_of(kube, "full", "c")
    assert (found["containerID"], found["restartCount"]) == (before["containerID"], 0)
    assert found["allocatedResources"]["memory"] == "48Mi"
    assert used < QUANTITIES[found["resources"]["limits"]["memory"]].value < 160 * MIB
    kube("exec", "full", "--", "touch", "/tmp/let-go")
    after = settled(kube, "full", "c", resources("500m", "48Mi"))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    for where in ("", "c"):
        assert files(node, kube, "full", where)["memory.limit_in_bytes"] == 48 * MIB


def test_what_was_not_reached_can_be_taken_back(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("back", shell("c", resources("500m", "160Mi"), LETS_GO)))
    before = running(kube, "back")["containerStatuses"][0]
    until(lambda: "holding" in kube("logs", "back").out)
    ask(node, kube, "back", patch_of(c=resources("500m", "48Mi")))
    until(lambda: any(each.get("reason") == "Error" for each in status_of(kube, "back")["conditions"]))
    ask(node, kube, "back", patch_of(c=resources("500m", "160Mi")))
    after = settled(kube, "back", "c", resources("500m", "160Mi"))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    for where in ("", "c"):
        assert files(node, kube, "back", where)["memory.limit_in_bytes"] == 160 * MIB


def test_a_refused_write_is_reported_and_retried(node: RealNode, kube: Kubectl) -> None:
    """kubepods has a quota: on v1 the kernel allows no cgroup below it a larger one."""
    kube("create", "-f", "-", stdin=pod("bound", shell("c", resources("500m", "32Mi"))))
    running(kube, "bound")
    quota = Path(f"/sys/fs/cgroup/cpu{node.cgroup_root}/kubepods/cpu.cfs_quota_us")
    quota.write_text("100000")
    try:
        ask(node, kube, "bound", patch_of(c=resources("2", "32Mi")))
        until(lambda: any(each.get("reason") == "Error" for each in status_of(kube, "bound")["conditions"]))
        for where in ("", "c"):
            found = files(node, kube, "bound", where)
            assert (found["cpu.cfs_quota_us"], found["cpu.shares"]) == (50_000, 512)
        assert status_of(kube, "bound", "c")["resources"]["limits"]["cpu"] == "500m"
        until(lambda: "ResizeError" in reasons(kube, "bound"))
    finally:
        quota.write_text("-1")
    after = settled(kube, "bound", "c", resources("2", "32Mi"))
    assert after["restartCount"] == 0
    for where in ("", "c"):
        found = files(node, kube, "bound", where)
        assert (found["cpu.cfs_quota_us"], found["cpu.shares"]) == (200_000, 2048)


# --- headroom ---


def test_room_goes_to_who_waits_longest(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("filler", shell("c", {"requests": {"cpu": "4"}})))
    for name in ("first", "second", "third"):
        kube("create", "-f", "-", stdin=pod(name, shell("c", {"requests": {"cpu": "1"}})))
    for name in ("filler", "first", "second", "third"):
        running(kube, name)
    for name in ("first", "second", "third"):
        ask(node, kube, name, patch_of(c={"requests": {"cpu": "3"}}))
        wait_until_deferred(kube, name)
        time.sleep(1.1)  # conditions count in whole seconds
    kube("delete", "pod", "filler")
    for name in ("first", "second"):
        settled(kube, name, "c", {"requests": {"cpu": "3"}})
    assert pending(kube, "third")["reason"] == "Deferred"
    ask(node, kube, "third", patch_of(c={"requests": {"cpu": "1"}}))
    settled(kube, "third", "c", {"requests": {"cpu": "1"}})


def wait_until_deferred(kube: Kubectl, name: str) -> None:
    until(lambda: pending(kube, name).get("reason") == "Deferred")


def test_a_new_pod_counts_what_a_resize_was_promised(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("grown", shell("c", {"requests": {"cpu": "1"}})))
    running(kube, "grown")
    ask(node, kube, "grown", patch_of(c={"requests": {"cpu": "6"}}))
    settled(kube, "grown", "c", {"requests": {"cpu": "6"}})
    kube("create", "-f", "-", stdin=pod("late", shell("c", {"requests": {"cpu": "3"}}), nodeName=NODE))
    until(lambda: status_of(kube, "late").get("phase") == "Failed")
    assert (status_of(kube, "late")["reason"], status_of(kube, "late")["message"]) == (
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 3000, used: 6000, capacity: 8000",
    )


@OLDER
def test_larger_than_the_node_is_done_when_the_node_grows(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("huge", shell("c", resources("1", "32Mi"))))
    before = running(kube, "huge")["containerStatuses"][0]
    ask(node, kube, "huge", patch_of(c=resources("100", "32Mi")))
    until(lambda: status_of(kube, "huge").get("resize") == "Infeasible")
    assert pending(kube, "huge")["message"] == (
        "Node didn't have enough capacity: cpu, requested: 100000, capacity: 8000"
    )
    assert row(kube, "huge") == ("100", "1", "1", "Infeasible")
    assert files(node, kube, "huge", "c")["cpu.cfs_quota_us"] == 100_000
    node.kill_node()
    node.start_node("--capacity", "cpu=128,memory=2Gi,pods=110")
    after = settled(kube, "huge", "c", resources("100", "32Mi"))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert files(node, kube, "huge", "c")["cpu.cfs_quota_us"] == 10_000_000
    kube("delete", "pod", "huge")
    node.kill_node()
    node.start_node()


@OLDER
def test_without_the_gate_of_the_server_resources_are_immutable(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("fixed", shell("c", resources("100m", "32Mi"))))
    running(kube, "fixed")
    node.kill_api()
    node.start_api("--feature-gates", "InPlacePodVerticalScaling=false")
    try:
        said = until(lambda: kube.refused("patch", "pod", "fixed", "-p", patch_of(c=resources("200m", "32Mi"))))
        assert "spec: Forbidden: pod updates may not change fields other than" in said
        assert files(node, kube, "fixed", "c")["cpu.cfs_quota_us"] == 10_000
    finally:
        node.kill_api()
        node.start_api()
    ask(node, kube, "fixed", patch_of(c=resources("200m", "32Mi")))
    settled(kube, "fixed", "c", resources("200m", "32Mi"))


# --- what else follows ---


def test_the_oom_score_follows_the_memory_request(node: RealNode, kube: Kubectl) -> None:
    size = resources("100m", "200Mi", memory_limit="800Mi", cpu_limit="-")
    kube("create", "-f", "-", stdin=pod("scored", shell("c", size)))
    running(kube, "scored")
    assert scores(node, kube, "scored") == {1000 - 1000 * 200 // 2048}
    ask(node, kube, "scored", patch_of(c=resources("100m", "600Mi", memory_limit="800Mi", cpu_limit="-")))
    settled(kube, "scored", "c", resources("100m", "600Mi", memory_limit="800Mi", cpu_limit="-"))
    until(lambda: scores(node, kube, "scored") == {1000 - 1000 * 600 // 2048})


def test_the_oom_score_follows_what_was_actuated_before_a_refusal(node: RealNode, kube: Kubectl) -> None:
    """Both shrink, the second one first; the first holds too much for it."""

    def size(request: str, limit: str) -> Document:
        return resources("100m", request, memory_limit=limit, cpu_limit="-")

    both = (shell("a", size("200Mi", "300Mi"), LETS_GO), shell("b", size("200Mi", "300Mi")))
    kube("create", "-f", "-", stdin=pod("partly", *both))
    running(kube, "partly")
    until(lambda: "holding" in kube("logs", "partly", "-c", "a").out)
    large, small = 1000 - 1000 * 200 // 2048, 1000 - 1000 * 40 // 2048
    assert (scores(node, kube, "partly", "a"), scores(node, kube, "partly", "b")) == ({large}, {large})
    ask(node, kube, "partly", patch_of(a=size("40Mi", "48Mi"), b=size("40Mi", "100Mi")))
    until(lambda: any(each.get("reason") == "Error" for each in status_of(kube, "partly")["conditions"]))
    assert files(node, kube, "partly", "b")["memory.limit_in_bytes"] == 100 * MIB
    until(lambda: scores(node, kube, "partly", "b") == {small})
    assert scores(node, kube, "partly", "a") == {large}
    kube("exec", "partly", "-c", "a", "--", "touch", "/tmp/let-go")
    settled(kube, "partly", "a", size("40Mi", "48Mi"))
    until(lambda: scores(node, kube, "partly", "a") == {small} == scores(node, kube, "partly", "b"))


def scores(node: RealNode, kube: Kubectl, name: str, which: str = "c") -> set[int]:
    """oom_score_adj of every process of its container."""
    uid = pod_of(kube, name)["metadata"]["uid"]
    container = status_of(kube, name, which)["containerID"].removeprefix("plimsoll://")
    top = Path(f"/sys/fs/cgroup/memory{node.cgroup_root}/kubepods/burstable/pod{uid}/{container}")
    found = set()
    for pid in (top / "cgroup.procs").read_text().split():
        try:
            found.add(int(Path(f"/proc/{pid}/oom_score_adj").read_text()))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


def test_an_agent_killed_at_a_step_of_a_resize_brings_it_to_its_end(node: RealNode) -> None:
    """Some of the steps; all of them in `./dev prove resize_kill`."""
    if why := missing():
        pytest.skip(why)
    kills = ResizeKill(node)
    try:
        for call, step in (("write", 1), ("pwrite64", 1), ("write", 4), ("sendto", 2)):
            assert kills.at(AT_ONCE, call, step), f"no {call} {step}"
        for way in (RECLAIMED, IN_USE):
            assert kills.at(way, BESIDE, 1), f"{way}: no {BESIDE}"
    finally:
        kills.close()
    assert not kills.faults
    assert kills.killed[RECLAIMED][BESIDE] == kills.killed[IN_USE][BESIDE] == 1


def test_a_sidecar_is_resized_in_place(node: RealNode, kube: Kubectl) -> None:
    side = shell("side", resources("100m", "32Mi"), restartPolicy="Always")
    kube("create", "-f", "-", stdin=pod("served", shell("c", resources("100m", "32Mi")), initContainers=[side]))
    running(kube, "served")
    patch = json.dumps({"spec": {"initContainers": [{"name": "side", "resources": resources("300m", "64Mi")}]}})
    kube("patch", "pod", "served", "--subresource", "resize", "-p", patch)
    until(lambda: status_of(kube, "served", "side").get("resources") == resources("300m", "64Mi"))
    assert files(node, kube, "served", "side")["cpu.cfs_quota_us"] == 30_000
    assert files(node, kube, "served")["cpu.cfs_quota_us"] == 40_000
    assert status_of(kube, "served", "side")["restartCount"] == 0


def test_no_resize_is_lost_when_the_agent_is_killed(node: RealNode, kube: Kubectl) -> None:
    """Killed at random moments of a resize. Afterwards allocated, actuated and the kernel's values are equal."""
    kube("create", "-f", "-", stdin=pod("kept", shell("c", resources("100m", "32Mi"))))
    before = running(kube, "kept")["containerStatuses"][0]
    dice = random.Random(6)
    for number in range(KILLS):
        size = resources(f"{200 + 100 * number}m", f"{48 + 16 * (number % 3)}Mi")
        ask(node, kube, "kept", patch_of(c=size))
        time.sleep(dice.uniform(0.0, 0.03))  # the moment of the kill, not a wait for anything
        node.kill_node()
        node.start_node()
        after = settled(kube, "kept", "c", size)
        assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
        for where in ("", "c"):
            found = files(node, kube, "kept", where)
            assert found["cpu.cfs_quota_us"] == milli(size["limits"]["cpu"]) * 100
            assert found["memory.limit_in_bytes"] == mebi(size["limits"]["memory"]) * MIB
