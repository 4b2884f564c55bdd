"""What must hold under pressure, on whichever kernel there is: the same checks run here on cgroup v1 and in guests on v2.

Each gets a node of 512 MiB that evicts below 100 MiB and whose conditions linger for three seconds.
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from plimsoll.cgroups.drivers.detect import this_host
from tests.e2e.waiting import SLOW
from tests.kernel.pressure_node import (
    EATER,
    MIB,
    NODE,
    Document,
    PressureNode,
    container,
    eater,
    memory,
    pod,
)

Check = Callable[[PressureNode], None]
LINGERS_S = 3.0
SETTINGS: Document = {"evictionHard": {"memory.available": "100Mi"}, "evictionPressureTransitionPeriod": "3s"}
PACE = 100.0 / SLOW  # MiB/s
SLOWLY = 20.0 / SLOW  # slow enough to be observed on the way
MEMORY_TAINT = "node.kubernetes.io/memory-pressure:NoSchedule"


def gold(mib: int = 100) -> Document:
    """A Guaranteed pod that uses almost all it may."""
    limits = {"resources": {"limits": {"memory": f"{mib + 24}Mi", "cpu": "500m"}}}
    return pod("gold", container("c", eater(mib), **limits))


def untouched(node: PressureNode, *names: str) -> None:
    for name in names:
        status = node.status(name)
        assert status["phase"] == "Running", (name, status)
        assert [each["restartCount"] for each in status["containerStatuses"]] == [0] * len(status["containerStatuses"])


def calm(node: PressureNode) -> None:
    """Until no condition lingers. The API shows a condition a moment after the node acts on it."""
    node.until(lambda: not node.page("pressure").get("conditions"))
    node.until(lambda: node.condition("MemoryPressure") == "False" and MEMORY_TAINT not in node.taints())


# --- eviction for memory ---


def best_effort_goes_first_and_guaranteed_stays(node: PressureNode) -> None:
    """A BestEffort pod grows beside a Burstable one above its request that is smaller, and a Guaranteed one."""
    node.create(gold(), pod("silver", container("c", eater(40), **memory("20Mi"))))
    node.full("gold")
    node.full("silver")
    node.create(pod("hog", container("c", eater(500, PACE))))
    node.until(lambda: node.is_evicted("hog"))
    untouched(node, "gold", "silver")
    said = node.status("hog")
    assert said["message"].startswith("The node was low on resource: memory. Threshold quantity: 100Mi, available: ")
    assert said["message"].endswith("request is 0, has larger consumption of memory. ")
    (target,) = [each for each in said["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"], target["message"]) == (
        "True",
        "TerminationByKubelet",
        said["message"],
    )
    (event,) = node.until(lambda: node.events("Evicted", "hog"))
    assert event["metadata"]["annotations"]["starved_resource"] == "memory"
    (why,) = node.until(lambda: node.events("EvictionDecision", "hog"))
    assert "before default/silver" in why["message"]
    assert node.events("EvictionThresholdMet", NODE)
    uid = node.pod("hog")["metadata"]["uid"]
    node.until(lambda: not [each for each in node.pod_cgroups() if uid in each.name])


def the_condition_lingers_and_best_effort_is_refused_meanwhile(node: PressureNode) -> None:
    """A busy machine may be too slow to read it in time; then it is read again."""
    for number in range(5):
        if _is_refused_meanwhile(node, number):
            break
    else:
        raise AssertionError("five times the condition was over before a pod could be created")
    node.create(pod("later", container("c", eater(1))))
    node.running("later")


def _is_refused_meanwhile(node: PressureNode, number: int) -> bool:
    hog, refused, burstable, tolerates = (f"{name}{number}" for name in ("hog", "refused", "burstable", "tolerates"))
    node.create(pod(hog, container("c", eater(500, PACE), **memory("10Mi"))))
    node.until(lambda: node.is_evicted(hog))
    evicted_s = time.monotonic()
    node.until(lambda: node.condition("MemoryPressure") == "True" and MEMORY_TAINT in node.taints())
    node.create(
        pod(refused, container("c", eater(1))),
        pod(burstable, container("c", eater(1), **memory("10Mi"))),
        pod(tolerates, container("c", eater(1)), tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
    )  # fmt: skip
    created_s = time.monotonic()
    phase = node.until(lambda: next(iter({node.status(refused).get("phase")} & {"Failed", "Running"}), ""))
    node.running(burstable, tolerates)
    calm(node)
    assert time.monotonic() - evicted_s > LINGERS_S * 0.8
    if phase == "Running":
        assert created_s - evicted_s > LINGERS_S * 0.8, "it was taken although the condition was there"
        return False
    said = node.status(refused)
    assert (said["reason"], said["message"]) == (
        "Evicted",
        "Pod was rejected: The node had condition: [MemoryPressure]. ",
    )
    return True


def priority_beats_excess(node: PressureNode) -> None:
    node.ask.answer(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "important"},
            "value": 1000,
        },
    )
    node.create(pod("poor", container("c", eater(120), **memory("10Mi"))))
    node.full("poor")
    node.create(pod("rich", container("c", eater(315, PACE), **memory("10Mi")), priorityClassName="important"))
    node.until(lambda: node.is_evicted("poor"))
    node.full("rich")
    untouched(node, "rich")
    assert node.page("pressure")["decisions"][-1]["victim"]["before"] == "lower priority"


def who_keeps_to_its_request_stays_while_another_exceeds_its_own(node: PressureNode) -> None:
    """The large pod causes the shortage within its request; a small one that exceeds its own is evicted for it."""
    node.create(pod("over", container("c", eater(100), **memory("10Mi"))))
    node.full("over")
    node.create(pod("within", container("c", eater(330, PACE), **memory("380Mi"))))
    node.until(lambda: node.is_evicted("over"))
    node.full("within")
    untouched(node, "within")


# Until it gets a signal.
WAITS = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(1, b"waits %f\\n" % time.monotonic())
signal.sigwait({signal.SIGUSR1})
"""


def what_an_eviction_frees_goes_to_a_deferred_resize_and_a_pending_pod(node: PressureNode) -> None:
    """412 MiB are allocatable. Beside the large pod there is room for neither of the two, without it for both."""
    command = eater(500, PACE)
    command[4] = WAITS + command[4]
    node.create(
        pod("hog", container("c", command, **memory("250Mi"))),
        pod("grows", container("c", eater(5), **memory("50Mi", "60Mi"))),
    )
    node.running("hog", "grows")
    node.said("hog", "waits")
    larger = {"spec": {"containers": [{"name": "c", **memory("170Mi", "180Mi")}]}}
    resize = "" if node.profile == "documents" else "/resize"
    node.ask("PATCH", f"/api/v1/namespaces/default/pods/grows{resize}", larger)
    waiting = pod("waiting", container("c", eater(1), **memory("130Mi")))
    del waiting["spec"]["nodeName"]
    node.create(waiting)
    node.until(lambda: node.status("grows").get("resize") == "Deferred")
    node.until(lambda: _is_unschedulable(node, "waiting"))
    (process,) = (node.cgroup("hog", "c") / "cgroup.procs").read_text().split()
    os.kill(int(process), signal.SIGUSR1)
    node.until(lambda: node.is_evicted("hog"))
    node.running("waiting")
    node.until(lambda: not node.status("grows").get("resize"))
    assert node.container("grows")["allocatedResources"] == {"memory": "170Mi"}
    limit = "memory.limit_in_bytes" if this_host().version == 1 else "memory.max"
    assert int((node.cgroup("grows", "c") / limit).read_text()) == 180 * MIB
    untouched(node, "grows", "waiting")


def _is_unschedulable(node: PressureNode, name: str) -> bool:
    found = node.status(name).get("conditions", [])
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in found)


def all_containers_end_and_a_replacement_comes(node: PressureNode, directory: Path) -> None:
    """The first pod of a ReplicaSet eats everything, its replacements little."""
    first = '[ "$(cat /shared/once/pod)" = "$(hostname)" ]'  # also where the kernel was faster and it starts again
    script = f"mkdir /shared/once 2>/dev/null && hostname >/shared/once/pod; if {first}; then exec {PYTHON_EATER} 500 {PACE}; else exec {PYTHON_EATER} 5 0; fi"
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    template = pod(
        "",
        container("c", ["/bin/sh", "-c", script], env=[{"name": "EATER", "value": EATER}], **mount),
        container("calm", eater(5)),
        volumes=[{"name": "shared", "hostPath": {"path": str(directory), "type": "Directory"}}],
    )
    labels = {"app": "eater"}
    node.ask(
        "POST",
        "/apis/apps/v1/namespaces/default/replicasets",
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "set"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        **template["spec"],
                        "tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}],
                    },
                },
            },
        },
    )
    try:
        node.until(lambda: len(node.pods()) >= 2)
        first = next(each for each in node.pods() if each["status"].get("reason") == "Evicted")
        states = [each["state"] for each in first["status"]["containerStatuses"]]
        assert all("terminated" in each for each in states), states
        second = next(each["metadata"]["name"] for each in node.pods() if each["metadata"]["uid"] != first["metadata"]["uid"])  # fmt: skip
        node.running(second)
        untouched(node, second)
    finally:
        node.ask("DELETE", "/apis/apps/v1/namespaces/default/replicasets/set")


PYTHON_EATER = '/usr/bin/python3 -S -I -c "$EATER"'


# --- a container's own limit ---


def a_container_over_its_limit_is_restarted_alone(node: PressureNode) -> None:
    node.create(pod("web", container("hog", eater(300, PACE), **LIMIT), container("calm", eater(5), **LIMIT)))
    node.until(lambda: node.container("web", "hog").get("restartCount", 0) >= 1)
    hit = node.container("web", "hog")
    assert hit["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert hit["lastState"]["terminated"]["exitCode"] == 137
    assert node.container("web", "calm")["restartCount"] == 0
    assert node.status("web")["phase"] == "Running"
    assert node.condition("MemoryPressure") == "False"


# --- the story of a kill ---

LIMIT: Document = {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}}


def fellow(seconds: str = "1000") -> Document:
    """A second container, so that the pod's own limit is above that of the first."""
    return container("fellow", ["sleep", seconds], resources={"limits": {"memory": "16Mi", "cpu": "100m"}})


REPORTED_S = 5.0  # a second where nothing else runs


def first_end(node: PressureNode, name: str) -> float:
    """When the first of a pod's processes has ended, by the clock of this kernel. They must have begun slowly."""
    uid = node.until(lambda: node.pod(name).get("metadata", {}).get("uid"))
    poll, pids = select.poll(), set[int]()
    with ExitStack() as stack:

        def followed() -> set[int]:
            for file in node.cgroup_files(uid, "cgroup.procs"):
                for pid in set(map(int, file.read_text().split())) - pids:
                    fd = os.pidfd_open(pid)
                    stack.callback(os.close, fd)
                    poll.register(fd, select.POLLIN)
                    pids.add(pid)
            return pids

        node.running(name)
        node.until(followed)
        assert poll.poll(60_000 * SLOW), f"{name}: no process has ended\n{node.diagnosis()}"
        return time.monotonic()


def reported_soon(node: PressureNode, name: str, ended_s: float) -> Document:
    """The event, which follows the end of the process at once."""
    (event, *_) = node.until(lambda: node.events("OOMKilling", name))
    took_s = time.monotonic() - ended_s
    print(f"{name}: reported after {took_s:.2f} s")
    assert took_s < REPORTED_S
    return event


def found_again(node: PressureNode, name: str) -> None:
    """By the next agent: the same record, and nothing is reported twice."""
    kills, events = (node.kills_of(name), node.events("OOMKilling", name))
    assert kills
    node.kill_node()
    node.start_again()
    assert node.kills_of(name) == kills
    assert [each["message"] for each in node.events("OOMKilling", name)] == [each["message"] for each in events]


CHILD = (
    "import os, time\n"
    "time.sleep(0.5)\n"
    "child = os.fork()\n"
    "if not child:\n"
    "    open('/proc/self/oom_score_adj', 'w').write('1000')\n"
    "    have = bytearray(b'x') * (300 << 20)\n"
    "os.waitpid(child, 0)\n"
    "os.write(1, b'died %f\\n' % time.monotonic())\n"
    "time.sleep(1000)\n"
)


def a_killed_child_is_reported_and_the_container_goes_on(node: PressureNode) -> None:
    """memory.oom.group is off in this profile, so only one process dies: Kubernetes itself would report nothing."""
    node.create(pod("parent", container("c", ["/usr/bin/python3", "-S", "-I", "-c", CHILD], **LIMIT), fellow()))
    event = reported_soon(node, "parent", node.said("parent", "died"))
    assert "out of memory at the container's memory limit (64Mi)" in event["message"]
    assert "the container continues" in event["message"]
    assert event["involvedObject"]["fieldPath"] == "spec.containers{c}"
    (kill,) = node.kills_of("parent")
    assert (kill["level"], kill["container"], kill["containerLives"]) == ("container", "c", True)
    assert kill["source"] in ("kernel log", "counters")
    if kill["source"] == "kernel log":
        assert (kill["process"], kill["limitBytes"]) == ("python3", 64 * MIB)
        assert len(kill["candidates"]) >= 2
        assert kill["stat"]
    untouched(node, "parent")
    found_again(node, "parent")
    untouched(node, "parent")


def a_killed_first_process_is_reported_with_its_container(node: PressureNode) -> None:
    node.create(pod("single", container("c", eater(300, SLOWLY), **LIMIT), fellow(), restartPolicy="Never"))
    event = reported_soon(node, "single", first_end(node, "single"))
    assert "the container ended with it" in event["message"], event["message"]
    assert "the container's memory limit (64Mi)" in event["message"]
    (kill,) = node.kills_of("single")
    assert (kill["level"], kill["containerLives"]) == ("container", False)
    found_again(node, "single")


def a_kill_at_the_pods_limit_is_reported_as_such(node: PressureNode) -> None:
    node.create(
        pod(
            "both",
            container("a", eater(40)),
            container("b", eater(40, SLOWLY / 4)),
            restartPolicy="Never",
            resources={"limits": {"memory": "64Mi", "cpu": "1"}},
        )
    )
    event = reported_soon(node, "both", first_end(node, "both"))
    assert "out of memory at the pod's memory limit (64Mi)" in event["message"]
    assert node.kills_of("both")[0]["level"] == "pod"
    found_again(node, "both")


def a_kill_at_the_limit_of_all_pods_is_reported_as_such(node: PressureNode) -> None:
    """No pod is evicted here: the threshold is far below what a poll could see in time."""
    node.create(pod("flood", container("c", eater(700, PACE), **memory("10Mi")), restartPolicy="Never"))
    event = reported_soon(node, "flood", first_end(node, "flood"))
    assert "the limit of all pods together (node allocatable)" in event["message"]
    assert node.kills_of("flood")[0]["level"] == "pods"
    found_again(node, "flood")


def kills_are_found_after_a_restart_and_reported_if_they_were_missed(node: PressureNode) -> None:
    """The container waits for a file, so that the kill comes after the end of the agent."""
    late = CHILD.replace("time.sleep(0.5)", "while not os.path.exists('/shared/go'): time.sleep(0.05)")
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    with tempfile.TemporaryDirectory(prefix="plimsoll-unseen-") as shared:
        volumes = [{"name": "shared", "hostPath": {"path": shared, "type": "Directory"}}]
        hungry = container("c", ["/usr/bin/python3", "-S", "-I", "-c", late], **LIMIT, **mount)
        node.create(pod("unseen", hungry, fellow(), volumes=volumes))
        node.running("unseen")
        before = node.kills()
        node.kill_node()
        (Path(shared) / "go").touch()
        node.said("unseen", "died")
        node.start_again()
    (event,) = node.until(lambda: node.events("OOMKilling", "unseen"))
    assert "while no agent was running" in event["message"]
    found = node.kills()
    assert found[: len(before)] == before
    (kill,) = node.kills_of("unseen")
    assert (kill["whileAway"], kill["container"], kill["level"]) == (True, "c", "container")
    untouched(node, "unseen")
    node.kill_node()
    node.start_again()
    assert node.kills() == found
    assert len(node.events("OOMKilling", "unseen")) == 1


MEMORY_CHECKS: tuple[Check, ...] = (
    best_effort_goes_first_and_guaranteed_stays,
    the_condition_lingers_and_best_effort_is_refused_meanwhile,
    what_an_eviction_frees_goes_to_a_deferred_resize_and_a_pending_pod,
    priority_beats_excess,
    who_keeps_to_its_request_stays_while_another_exceeds_its_own,
    a_container_over_its_limit_is_restarted_alone,
    a_killed_child_is_reported_and_the_container_goes_on,
    a_killed_first_process_is_reported_with_its_container,
    a_kill_at_the_pods_limit_is_reported_as_such,
    kills_are_found_after_a_restart_and_reported_if_they_were_missed,
)
