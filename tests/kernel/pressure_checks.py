"""What must hold under pressure, on whichever kernel there is: the same checks run here on cgroup v1 and in guests on v2.

Each is given a world with a node of 512 MiB that evicts below 100 MiB and whose conditions linger for three seconds.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from plimsoll.cgroups.drivers.detect import this_host
from tests.kernel.pressure_world import (
    EATER,
    MIB,
    NODE,
    SLOW,
    Document,
    PressureWorld,
    container,
    eater,
    memory,
    pod,
)

Check = Callable[[PressureWorld], None]
LINGERS_S = 3.0
SETTINGS: Document = {"evictionHard": {"memory.available": "100Mi"}, "evictionPressureTransitionPeriod": "3s"}
PACE = 100.0 / SLOW  # MiB/s
SLOWLY = 20.0 / SLOW  # slow enough to be looked at on the way
MEMORY_TAINT = "node.kubernetes.io/memory-pressure:NoSchedule"


def gold(mib: int = 100) -> Document:
    """A Guaranteed pod that uses almost all it may."""
    limits = {"resources": {"limits": {"memory": f"{mib + 24}Mi", "cpu": "500m"}}}
    return pod("gold", container("c", eater(mib), **limits))


def untouched(world: PressureWorld, *names: str) -> None:
    for name in names:
        status = world.status(name)
        assert status["phase"] == "Running", (name, status)
        assert [each["restartCount"] for each in status["containerStatuses"]] == [0] * len(status["containerStatuses"])


def calm(world: PressureWorld) -> None:
    """Until no condition lingers any more. The API hears of one a moment after the node acts by it."""
    world.until(lambda: not world.page("pressure").get("conditions"), 20)
    world.until(lambda: world.condition("MemoryPressure") == "False" and MEMORY_TAINT not in world.taints(), 20)


# --- eviction for memory ---


def best_effort_goes_first_and_guaranteed_stays(world: PressureWorld) -> None:
    """A BestEffort pod grows beside a Burstable one above its request that is smaller, and a Guaranteed one."""
    world.create(gold(), pod("silver", container("c", eater(40), **memory("20Mi"))))
    world.full("gold")
    world.full("silver")
    world.create(pod("hog", container("c", eater(500, PACE))))
    world.until(lambda: world.is_evicted("hog"), 40)
    untouched(world, "gold", "silver")
    said = world.status("hog")
    assert said["message"].startswith("The node was low on resource: memory. Threshold quantity: 100Mi, available: ")
    assert said["message"].endswith("request is 0, has larger consumption of memory. ")
    (target,) = [each for each in said["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"], target["message"]) == (
        "True",
        "TerminationByKubelet",
        said["message"],
    )
    (event,) = world.until(lambda: world.events("Evicted", "hog"))
    assert event["metadata"]["annotations"]["starved_resource"] == "memory"
    (why,) = world.until(lambda: world.events("EvictionDecision", "hog"))
    assert "before default/silver" in why["message"]
    assert world.events("EvictionThresholdMet", NODE)
    uid = world.pod("hog")["metadata"]["uid"]
    world.until(lambda: not [each for each in world.pod_cgroups() if uid in each.name])


def the_condition_lingers_and_best_effort_is_refused_meanwhile(world: PressureWorld) -> None:
    """A busy machine may be too slow to ask in time; then it is asked again."""
    for number in range(5):
        if _is_refused_meanwhile(world, number):
            break
    else:
        raise AssertionError("five times the condition was over before a pod could be created")
    world.create(pod("later", container("c", eater(1))))
    world.running("later")


def _is_refused_meanwhile(world: PressureWorld, number: int) -> bool:
    hog, refused, burstable, tolerates = (f"{name}{number}" for name in ("hog", "refused", "burstable", "tolerates"))
    world.create(pod(hog, container("c", eater(500, PACE), **memory("10Mi"))))
    world.until(lambda: world.is_evicted(hog), 40)
    evicted_s = time.monotonic()
    world.until(lambda: world.condition("MemoryPressure") == "True" and MEMORY_TAINT in world.taints(), 10)
    world.create(
        pod(refused, container("c", eater(1))),
        pod(burstable, container("c", eater(1), **memory("10Mi"))),
        pod(tolerates, container("c", eater(1)), tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
    )  # fmt: skip
    created_s = time.monotonic()
    phase = world.until(lambda: next(iter({world.status(refused).get("phase")} & {"Failed", "Running"}), ""))
    world.running(burstable, tolerates)
    calm(world)
    assert time.monotonic() - evicted_s > LINGERS_S * 0.8
    if phase == "Running":
        assert created_s - evicted_s > LINGERS_S * 0.8, "it was taken although the condition was there"
        return False
    said = world.status(refused)
    assert (said["reason"], said["message"]) == (
        "Evicted",
        "Pod was rejected: The node had condition: [MemoryPressure]. ",
    )
    return True


def priority_beats_excess(world: PressureWorld) -> None:
    world.ask.answer(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "important"},
            "value": 1000,
        },
    )
    world.create(pod("poor", container("c", eater(120), **memory("10Mi"))))
    world.full("poor")
    world.create(pod("rich", container("c", eater(315, PACE), **memory("10Mi")), priorityClassName="important"))
    world.until(lambda: world.is_evicted("poor"), 40)
    world.full("rich")
    untouched(world, "rich")
    assert world.page("pressure")["decisions"][-1]["victim"]["before"] == "lower priority"


def who_keeps_to_its_request_stays_while_another_exceeds_its_own(world: PressureWorld) -> None:
    """The large pod causes the shortage within its request; a small one that exceeds its own goes for it."""
    world.create(pod("over", container("c", eater(100), **memory("10Mi"))))
    world.full("over")
    world.create(pod("within", container("c", eater(330, PACE), **memory("380Mi"))))
    world.until(lambda: world.is_evicted("over"), 40)
    world.full("within")
    untouched(world, "within")


# Until somebody sends it a signal.
WAITS = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(1, b"waits %f\\n" % time.monotonic())
signal.sigwait({signal.SIGUSR1})
"""


def what_an_eviction_frees_goes_to_a_deferred_resize_and_a_pending_pod(world: PressureWorld) -> None:
    """412 MiB are allocatable. Beside the large pod there is room for neither of the two, without it for both."""
    command = eater(500, PACE)
    command[4] = WAITS + command[4]
    world.create(
        pod("hog", container("c", command, **memory("250Mi"))),
        pod("grows", container("c", eater(5), **memory("50Mi", "60Mi"))),
    )
    world.running("hog", "grows")
    world.said("hog", "waits")
    larger = {"spec": {"containers": [{"name": "c", **memory("170Mi", "180Mi")}]}}
    resize = "" if world.profile == "1.27" else "/resize"
    world.ask("PATCH", f"/api/v1/namespaces/default/pods/grows{resize}", larger)
    waiting = pod("waiting", container("c", eater(1), **memory("130Mi")))
    del waiting["spec"]["nodeName"]
    world.create(waiting)
    world.until(lambda: world.status("grows").get("resize") == "Deferred")
    world.until(lambda: _is_unschedulable(world, "waiting"))
    (process,) = (world.cgroup("hog", "c") / "cgroup.procs").read_text().split()
    os.kill(int(process), signal.SIGUSR1)
    world.until(lambda: world.is_evicted("hog"), 40)
    world.running("waiting")
    world.until(lambda: not world.status("grows").get("resize"))
    assert world.container("grows")["allocatedResources"] == {"memory": "170Mi"}
    limit = "memory.limit_in_bytes" if this_host().version == 1 else "memory.max"
    assert int((world.cgroup("grows", "c") / limit).read_text()) == 180 * MIB
    untouched(world, "grows", "waiting")


def _is_unschedulable(world: PressureWorld, name: str) -> bool:
    found = world.status(name).get("conditions", [])
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in found)


def all_containers_end_and_a_replacement_comes(world: PressureWorld, directory: Path) -> None:
    """The first pod of a ReplicaSet eats everything, whoever comes after it little."""
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
    world.ask(
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
        world.until(lambda: len(world.pods()) >= 2, 60)
        first = next(each for each in world.pods() if each["status"].get("reason") == "Evicted")
        states = [each["state"] for each in first["status"]["containerStatuses"]]
        assert all("terminated" in each for each in states), states
        second = next(each["metadata"]["name"] for each in world.pods() if each["metadata"]["uid"] != first["metadata"]["uid"])  # fmt: skip
        world.running(second)
        untouched(world, second)
    finally:
        world.ask("DELETE", "/apis/apps/v1/namespaces/default/replicasets/set")


PYTHON_EATER = '/usr/bin/python3 -S -I -c "$EATER"'


# --- a container's own limit ---


def a_container_over_its_limit_is_restarted_alone(world: PressureWorld) -> None:
    world.create(pod("web", container("hog", eater(300, PACE), **LIMIT), container("calm", eater(5), **LIMIT)))
    world.until(lambda: world.container("web", "hog").get("restartCount", 0) >= 1, 40)
    hit = world.container("web", "hog")
    assert hit["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert hit["lastState"]["terminated"]["exitCode"] == 137
    assert world.container("web", "calm")["restartCount"] == 0
    assert world.status("web")["phase"] == "Running"
    assert world.condition("MemoryPressure") == "False"


# --- the story of a kill ---

LIMIT: Document = {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}}


def fellow(seconds: str = "1000") -> Document:
    """A second container, so that the pod's own limit is above that of the first."""
    return container("fellow", ["sleep", seconds], resources={"limits": {"memory": "16Mi", "cpu": "100m"}})


TOLD_S = 1.0


def first_end(world: PressureWorld, name: str) -> float:
    """When the first of a pod's processes has ended, by the clock of this kernel. They must have begun slowly."""
    uid = world.until(lambda: world.pod(name).get("metadata", {}).get("uid"))
    poll, pids = select.poll(), set[int]()
    with ExitStack() as stack:

        def followed() -> set[int]:
            for file in world.cgroup_files(uid, "cgroup.procs"):
                for pid in set(map(int, file.read_text().split())) - pids:
                    fd = os.pidfd_open(pid)
                    stack.callback(os.close, fd)
                    poll.register(fd, select.POLLIN)
                    pids.add(pid)
            return pids

        world.running(name)
        world.until(followed)
        assert poll.poll(60_000 * SLOW), f"{name}: nobody has ended\n{world.told()}"
        return time.monotonic()


def told_soon(world: PressureWorld, name: str, ended_s: float) -> Document:
    """The event, which is there a second after the end of the process at the latest."""
    (event, *_) = world.until(lambda: world.events("OOMKilling", name))
    took_s = time.monotonic() - ended_s
    print(f"{name}: told after {took_s:.2f} s")
    assert took_s < TOLD_S
    return event


def found_again(world: PressureWorld, name: str) -> None:
    """By the next agent: the same record, and nothing is told twice."""
    kills, events = (world.kills_of(name), world.events("OOMKilling", name))
    assert kills
    world.kill_node()
    world.start_again()
    assert world.kills_of(name) == kills
    assert [each["message"] for each in world.events("OOMKilling", name)] == [each["message"] for each in events]


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


def a_killed_child_is_told_and_the_container_goes_on(world: PressureWorld) -> None:
    """memory.oom.group is off in this profile, so only one process dies: Kubernetes itself would not say a word."""
    world.create(pod("parent", container("c", ["/usr/bin/python3", "-S", "-I", "-c", CHILD], **LIMIT), fellow()))
    event = told_soon(world, "parent", world.said("parent", "died"))
    assert "out of memory at the container's memory limit (64Mi)" in event["message"]
    assert "the container continues" in event["message"]
    assert event["involvedObject"]["fieldPath"] == "spec.containers{c}"
    (kill,) = world.kills_of("parent")
    assert (kill["level"], kill["container"], kill["containerLives"]) == ("container", "c", True)
    assert kill["source"] in ("kernel log", "counters")
    if kill["source"] == "kernel log":
        assert (kill["process"], kill["limitBytes"]) == ("python3", 64 * MIB)
        assert len(kill["candidates"]) >= 2
        assert kill["stat"]
    untouched(world, "parent")
    found_again(world, "parent")
    untouched(world, "parent")


def a_killed_first_process_is_told_with_its_container(world: PressureWorld) -> None:
    world.create(pod("single", container("c", eater(300, SLOWLY), **LIMIT), fellow(), restartPolicy="Never"))
    event = told_soon(world, "single", first_end(world, "single"))
    assert "the container ended with it" in event["message"], event["message"]
    assert "the container's memory limit (64Mi)" in event["message"]
    (kill,) = world.kills_of("single")
    assert (kill["level"], kill["containerLives"]) == ("container", False)
    found_again(world, "single")


def a_kill_at_the_pods_limit_is_told_as_such(world: PressureWorld) -> None:
    world.create(
        pod(
            "both",
            container("a", eater(40)),
            container("b", eater(40, SLOWLY / 4)),
            restartPolicy="Never",
            resources={"limits": {"memory": "64Mi", "cpu": "1"}},
        )
    )
    event = told_soon(world, "both", first_end(world, "both"))
    assert "out of memory at the pod's memory limit (64Mi)" in event["message"]
    assert world.kills_of("both")[0]["level"] == "pod"
    found_again(world, "both")


def a_kill_at_the_limit_of_all_pods_is_told_as_such(world: PressureWorld) -> None:
    """Nobody is evicted here: the threshold is far below what a look could see in time."""
    world.create(pod("flood", container("c", eater(700, PACE), **memory("10Mi")), restartPolicy="Never"))
    event = told_soon(world, "flood", first_end(world, "flood"))
    assert "the limit of all pods together (node allocatable)" in event["message"]
    assert world.kills_of("flood")[0]["level"] == "pods"
    found_again(world, "flood")


def kills_are_found_again_after_a_restart_and_told_if_nobody_looked(world: PressureWorld) -> None:
    late = CHILD.replace("time.sleep(0.5)", "time.sleep(4)")
    world.create(pod("unseen", container("c", ["/usr/bin/python3", "-S", "-I", "-c", late], **LIMIT), fellow()))
    world.running("unseen")
    before = world.kills()
    world.kill_node()
    world.said("unseen", "died")
    world.start_again()
    (event,) = world.until(lambda: world.events("OOMKilling", "unseen"))
    assert "while no agent was running" in event["message"]
    found = world.kills()
    assert found[: len(before)] == before
    (kill,) = world.kills_of("unseen")
    assert (kill["whileAway"], kill["container"], kill["level"]) == (True, "c", "container")
    untouched(world, "unseen")
    world.kill_node()
    world.start_again()
    assert world.kills() == found
    assert len(world.events("OOMKilling", "unseen")) == 1


MEMORY_CHECKS: tuple[Check, ...] = (
    best_effort_goes_first_and_guaranteed_stays,
    the_condition_lingers_and_best_effort_is_refused_meanwhile,
    what_an_eviction_frees_goes_to_a_deferred_resize_and_a_pending_pod,
    priority_beats_excess,
    who_keeps_to_its_request_stays_while_another_exceeds_its_own,
    a_container_over_its_limit_is_restarted_alone,
    a_killed_child_is_told_and_the_container_goes_on,
    a_killed_first_process_is_told_with_its_container,
    a_kill_at_the_pods_limit_is_told_as_such,
    kills_are_found_again_after_a_restart_and_told_if_nobody_looked,
)
