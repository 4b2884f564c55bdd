"""The real agent with the real API server and kubectl, on this machine's own kernel (cgroup v1)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import limits, pod, shell
from tests.e2e.real_node import (
    CAPACITY,
    NODE,
    Document,
    RealNode,
    cgroup_of,
    pod_of,
    real_node,
    reasons,
    running,
    status_of,
)
from tests.e2e.waiting import until

MIB = 1 << 20
HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
KILLS = 5

pytestmark = pytest.mark.xdist_group("agent")  # one node for all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("agent") / "cluster") as made:
        exercised("node agent", "this machine, cgroup v1, embedded runtime")
        yield made


def test_a_pod_runs_in_its_cgroups_with_its_limits_and_goes(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("plain", shell("c", HANDLES_TERM, **limits("64Mi", "250m"))))
    status = running(kube, "plain")
    assert (status["phase"], status["qosClass"], status["containerStatuses"][0]["restartCount"]) == (
        "Running",
        "Guaranteed",
        0,
    )
    uid = pod_of(kube, "plain")["metadata"]["uid"]
    top = f"kubepods/pod{uid}"
    container_id = status["containerStatuses"][0]["containerID"].removeprefix("plimsoll://")
    assert [each for each in node.memory_cgroups() if each.startswith(top)] == [top, f"{top}/{container_id}"]
    memory = Path(f"/sys/fs/cgroup/memory{node.cgroup_root}/{top}/{container_id}")
    assert int((memory / "memory.limit_in_bytes").read_text()) == 64 * MIB
    assert (
        int(Path(f"/sys/fs/cgroup/cpu{node.cgroup_root}/{top}/{container_id}/cpu.cfs_quota_us").read_text()) == 25_000
    )
    places = set()
    for pid in (memory / "cgroup.procs").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # its script starts a short sleep all the time
            places |= {cgroup_of(int(pid), controller) for controller in ("memory", "cpu", "pids")}
    assert places == {f"{node.cgroup_root}/{top}/{container_id}"}
    assert "up" in until(lambda: kube("logs", "plain").out)
    assert kube("exec", "plain", "--", "sh", "-c", "echo $((6*7))").out.strip() == "42"
    kube("delete", "pod", "plain")
    assert not [each for each in node.memory_cgroups() if uid in each]
    until(lambda: {"ImageIgnored", "Created", "Started", "Killing"} <= set(reasons(kube, "plain")))


def test_a_pod_with_the_longest_name_runs_and_has_events(kube: Kubectl) -> None:
    name = "long." + "p" * 248
    kube("create", "-f", "-", stdin=pod(name, shell("c", HANDLES_TERM)))
    running(kube, name)
    assert "up" in until(lambda: kube("logs", name).out)
    until(lambda: "Started" in reasons(kube, name))
    kube("delete", "pod", name)


def test_status_of_a_node_is_that_of_its_agent(node: RealNode) -> None:
    """Without options it is not compared with what a node of this machine has by default."""
    words = [str(Path(sys.executable).with_name("plimsoll")), "node", "status", "--state-dir", str(node.state)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert f"{node.cgroup_root}/kubepods: set up" in done.stdout, done.stdout + done.stderr
    assert f"declared capacity: {CAPACITY}" in done.stdout
    assert "differs" not in done.stdout
    assert done.returncode == 0


def runtime_class(name: str, handler: str, memory: str = "") -> str:
    overhead = {"overhead": {"podFixed": {"memory": memory}}} if memory else {}
    head = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
    return json.dumps({**head, "handler": handler, **overhead})


def test_overhead_of_a_runtime_class_is_in_the_cgroup_of_its_pod(node: RealNode, kube: Kubectl) -> None:
    """64Mi of the container, 16Mi for the sandbox: the pod may use 80Mi, the container still 64Mi."""
    name = f"light-{kube.namespace}"
    kube("create", "-f", "-", stdin=runtime_class(name, "runc", "16Mi"))
    assert [row[:2] for row in kube("get", "runtimeclass", name).table] == [[name, "runc"]]
    kube("create", "-f", "-", stdin=pod("over", shell("c", HANDLES_TERM, **limits("64Mi")), runtimeClassName=name))
    status = running(kube, "over")
    assert pod_of(kube, "over")["spec"]["overhead"] == {"memory": "16Mi"}
    container_id = status["containerStatuses"][0]["containerID"].removeprefix("plimsoll://")
    top = Path(f"/sys/fs/cgroup/memory{node.cgroup_root}/kubepods/pod{pod_of(kube, 'over')['metadata']['uid']}")
    assert int((top / "memory.limit_in_bytes").read_text()) == 80 * MIB
    assert int((top / container_id / "memory.limit_in_bytes").read_text()) == 64 * MIB
    kube("delete", "pod", "over")
    kube("delete", "runtimeclass", name)


def test_a_handler_that_the_runtime_does_not_have(kube: Kubectl) -> None:
    name = f"gvisor-{kube.namespace}"
    kube("create", "-f", "-", stdin=runtime_class(name, "runsc"))
    kube("create", "-f", "-", stdin=pod("strange", shell("c", HANDLES_TERM), runtimeClassName=name))
    until(lambda: "FailedCreatePodSandBox" in reasons(kube, "strange"))
    assert status_of(kube, "strange")["phase"] == "Pending"
    text = 'Failed to create pod sandbox: no runtime for "runsc" is configured'
    assert text in kube("describe", "pod", "strange").out
    kube("delete", "pod", "strange")
    kube("delete", "runtimeclass", name)


def test_an_out_of_memory_kill_restarts_that_container_alone(kube: Kubectl) -> None:
    hog = "sleep 0.3; exec python3 -c 'bytearray(200 << 20)'"
    kube(
        "create", "-f", "-", stdin=pod("hungry", shell("hog", hog, **limits("32Mi", "1")), shell("calm", "sleep 1000"))
    )
    hit = until(lambda: _hit(kube))
    assert hit["lastState"]["terminated"]["exitCode"] == 137
    assert status_of(kube, "hungry", "calm")["restartCount"] == 0
    assert status_of(kube, "hungry")["phase"] == "Running"


def _hit(kube: Kubectl) -> Document:
    found = status_of(kube, "hungry", "hog")
    return found if found.get("lastState", {}).get("terminated", {}).get("reason") == "OOMKilled" else {}


def test_a_kill_without_out_of_memory_is_an_error(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("killed", shell("c", HANDLES_TERM), restartPolicy="Never"))
    running(kube, "killed")
    uid = pod_of(kube, "killed")["metadata"]["uid"]
    container = next(each for each in node.memory_cgroups() if uid in each and each.count("/") == 3)
    shell_pid = until(lambda: _trapping(Path(f"/sys/fs/cgroup/memory{node.cgroup_root}/{container}/cgroup.procs")))
    os.kill(shell_pid, signal.SIGKILL)
    ended = until(lambda: status_of(kube, "killed", "c").get("state", {}).get("terminated"))
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")


def _trapping(procs: Path) -> int | None:
    """The container's own shell, not the sleep that it waits for."""
    for pid in procs.read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"trap" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return None


def test_crashes_wait_longer_each_time(kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("crash", shell("c", "exit 3")))

    def waiting() -> Document:
        found = status_of(kube, "crash", "c")
        state = found.get("state", {}).get("waiting", {})
        return found if state.get("reason") == "CrashLoopBackOff" and found["restartCount"] >= 2 else {}

    found = until(waiting)
    assert found["lastState"]["terminated"]["exitCode"] == 3
    assert "back-off 2s restarting failed container=c pod=crash_default(" in found["state"]["waiting"]["message"]
    assert status_of(kube, "crash")["phase"] == "Running"
    until(lambda: "BackOff" in reasons(kube, "crash"))


def test_a_failed_liveness_probe_restarts_the_container(kube: Kubectl) -> None:
    script = "touch /tmp/healthy; sleep 2.5; rm /tmp/healthy; sleep 1000"
    probe = {
        "exec": {"command": ["test", "-f", "/tmp/healthy"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "initialDelaySeconds": 1,
        "timeoutSeconds": 10,
    }
    kube(
        "create",
        "-f",
        "-",
        stdin=pod(
            "sick", shell("c", script, livenessProbe=probe, readinessProbe=probe), terminationGracePeriodSeconds=1
        ),
    )
    running(kube, "sick")
    restarted = until(lambda: _restarted(kube, "sick"))
    assert restarted["lastState"]["terminated"]["exitCode"] == 137
    said = kube("describe", "pod", "sick").out
    assert "Container c failed liveness probe, will be restarted" in said
    assert "Liveness probe failed" in said


def _restarted(kube: Kubectl, name: str, *, ready: bool = False) -> Document:
    found = status_of(kube, name, "c")
    return found if found.get("restartCount") and (found["ready"] or not ready) else {}


def test_containers_of_a_pod_talk_over_localhost_and_are_probed_there(kube: Kubectl) -> None:
    web: Document = {"name": "web", "image": "nginx", "ports": [{"name": "http", "containerPort": 80}]}
    web |= {"readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}}
    web |= {"livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1}}
    client = "python3 -c 'import urllib.request,time\nfor _ in range(100):\n  try:\n    print(urllib.request.urlopen(\"http://localhost\").status, flush=True); break\n  except OSError: time.sleep(0.1)\n'; sleep 1000"
    kube("create", "-f", "-", stdin=pod("talk", web, shell("client", client)))
    running(kube, "talk")
    until(lambda: "200" in kube("logs", "talk", "-c", "client").out)


def test_what_a_container_writes_to_its_own_files_is_bounded(node: RealNode, kube: Kubectl) -> None:
    """/etc/hosts and the termination log are not on the node's disk, and end at 1 MiB together; /dev/shm at 64 MiB."""
    files = "/etc/hosts /dev/termination-log /dev/shm/f"
    script = f"for f in {files}; do head -c 80000000 /dev/zero | tr '\\0' x > $f; stat -c %s $f; done; exit 3"
    kube("create", "-f", "-", stdin=pod("greedy", shell("c", script, **limits("128Mi")), restartPolicy="Never"))
    until(lambda: status_of(kube, "greedy").get("phase") == "Failed")
    hosts, message, shared = (int(line) for line in kube("logs", "greedy").out.splitlines() if line.isdigit())
    assert 0 < hosts + message <= MIB and shared == 64 * MIB
    ended = status_of(kube, "greedy", "c")["state"]["terminated"]
    assert ended["exitCode"] == 3 and len(ended.get("message", "")) <= 4096
    state = node.state / "node" / "pods" / pod_of(kube, "greedy")["metadata"]["uid"]
    on_disk = sum(each.stat().st_size for each in state.rglob("*") if each.is_file() and "/files/" not in str(each))
    assert on_disk < MIB
    kube("delete", "pod", "greedy", "--now")
    until(lambda: not state.exists())


def test_init_containers_come_first_and_a_sidecar_ends_last(kube: Kubectl) -> None:
    mount = {"volumeMounts": [{"name": "w", "mountPath": "/w"}]}
    inits = [
        shell("first", "echo 1 >> /w/f", **mount),
        shell("side", "trap 'exit 0' TERM; while :; do sleep 0.05; done", restartPolicy="Always"),
        shell("second", "echo 2 >> /w/f", **mount),
    ]
    main = shell("main", "cat /w/f > /dev/termination-log", **mount)
    kube(
        "create",
        "-f",
        "-",
        stdin=pod("inits", main, initContainers=inits, restartPolicy="Never", volumes=[{"name": "w", "emptyDir": {}}]),
    )
    until(lambda: status_of(kube, "inits").get("phase") == "Succeeded")
    assert status_of(kube, "inits", "main")["state"]["terminated"]["message"] == "1\n2\n"
    assert [
        status_of(kube, "inits", name)["state"]["terminated"]["exitCode"] for name in ("first", "side", "second")
    ] == [0, 0, 0]


def test_a_deadline_ends_the_pod(kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("late", shell("c", HANDLES_TERM), activeDeadlineSeconds=1))
    until(lambda: status_of(kube, "late").get("reason") == "DeadlineExceeded")
    assert status_of(kube, "late")["phase"] == "Failed"


def test_what_does_not_fit_is_refused(kube: Kubectl) -> None:
    big = {"resources": {"requests": {"cpu": "100"}}}
    kube("create", "-f", "-", stdin=pod("big", shell("c", "sleep 1", **big), nodeName=NODE))
    until(lambda: status_of(kube, "big").get("phase") == "Failed")
    status = status_of(kube, "big")
    assert status["reason"] == "OutOfcpu"
    assert (
        status["message"]
        == "Pod was rejected: Node didn't have enough resource: cpu, requested: 100000, used: 0, capacity: 8000"
    )
    until(lambda: "OutOfcpu" in reasons(kube, "big"))


def test_an_unknown_image_says_what_to_do(kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("odd", {"name": "c", "image": "example.com/nothing:1"}))
    until(
        lambda: (
            status_of(kube, "odd", "c").get("state", {}).get("waiting", {}).get("reason")
            in ("ErrImagePull", "ImagePullBackOff")
        )
    )
    until(lambda: "Failed" in reasons(kube, "odd"))


def test_pre_stop_runs_within_the_grace_and_the_exit_code_is_the_programs_own(kube: Kubectl) -> None:
    script = "trap 'cat /tmp/hook > /dev/termination-log; exit 5' TERM; while :; do sleep 0.05; done"
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo ran > /tmp/hook"]}}}}
    kube("create", "-f", "-", stdin=pod("polite", shell("c", script, **hook), terminationGracePeriodSeconds=10))
    running(kube, "polite")
    terminated = "{.status.containerStatuses[0].state.terminated}"
    with kube.background("get", "pod", "polite", "-w", "-o", f"jsonpath={terminated}{{'\\n'}}") as watched:
        watched.wait_for(lambda lines: len(lines) > 0)
        kube("delete", "pod", "polite")
        (last,) = {each for each in watched.wait_for(lambda lines: any("exitCode" in each for each in lines)) if each}
    ended = json.loads(last)
    assert (ended["exitCode"], ended["message"], ended["reason"]) == (5, "ran\n", "Error")


def test_no_pod_of_a_killed_agent_is_lost_doubled_or_restarted(node: RealNode, kube: Kubectl) -> None:
    """Killed at random moments while pods come and go. The counts of the issue are `./dev prove`'s."""
    dice = random.Random(5)
    for number in range(3):
        kube("create", "-f", "-", stdin=pod(f"stay{number}", shell("c", HANDLES_TERM)))
    before = {name: running(kube, name)["containerStatuses"][0]["containerID"] for name in ("stay0", "stay1", "stay2")}
    kube("create", "-f", "-", stdin=pod("ends", shell("c", "sleep 1.5; exit 9"), restartPolicy="Never"))
    for number in range(KILLS):
        kube("create", "-f", "-", stdin=pod(f"come{number}", shell("c", HANDLES_TERM)))
        if number:
            kube("delete", "pod", f"come{number - 1}", "--wait=false")
        time.sleep(dice.uniform(0.0, 0.6))  # the moment of the kill, not a wait for anything
        node.kill_node()
        node.start_node()
    running(kube, f"come{KILLS - 1}")
    until(
        lambda: (
            [each["metadata"]["name"] for each in json.loads(kube("get", "pods", "-o", "json").out)["items"]]
            == [f"come{KILLS - 1}", "ends", "stay0", "stay1", "stay2"]
        )
    )
    for name, container_id in before.items():
        found = status_of(kube, name, "c")
        assert (found["containerID"], found["restartCount"]) == (container_id, 0), name
    ended = until(lambda: status_of(kube, "ends", "c").get("state", {}).get("terminated"))
    assert (ended["exitCode"], ended["reason"]) == (9, "Error")
    pods = json.loads(kube("get", "pods", "-o", "json").out)["items"]
    assert all(each["restartCount"] == 0 for one in pods for each in one["status"]["containerStatuses"])
    wanted = {one["metadata"]["uid"] for one in pods if one["status"]["phase"] == "Running"}

    def in_cgroups() -> set[str]:
        parts = (part for path in node.memory_cgroups() for part in path.split("/"))
        return {part.removeprefix("pod") for part in parts if part.startswith("pod")}

    until(lambda: in_cgroups() == wanted)


def test_pods_deleted_while_the_agent_is_away_are_ended(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("orphan", shell("c", HANDLES_TERM)))
    running(kube, "orphan")
    uid = pod_of(kube, "orphan")["metadata"]["uid"]
    node.kill_node()
    kube("delete", "pod", "orphan", "--grace-period=0", "--force")
    assert any(uid in each for each in node.memory_cgroups())
    node.start_node()
    until(lambda: not any(uid in each for each in node.memory_cgroups()))


def test_pods_run_on_while_the_api_server_is_away(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("steady", shell("c", HANDLES_TERM)))
    kube("create", "-f", "-", stdin=pod("brief", shell("c", "sleep 6; exit 6"), restartPolicy="Never"))
    before = running(kube, "steady")["containerStatuses"][0]["containerID"]
    until(lambda: status_of(kube, "brief", "c").get("state", {}).get("running"))
    node.kill_api()
    node.kill_node()
    node.start_node(wait=False)
    node.start_api()
    ended = until(lambda: status_of(kube, "brief", "c").get("state", {}).get("terminated"))
    assert ended["exitCode"] == 6
    assert status_of(kube, "steady", "c")["containerID"] == before
    until(lambda: kube.run("exec", "steady", "--", "true").code == 0)  # the node has another port now


def test_a_killed_supervisor_ends_its_containers_and_they_are_started_again(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("again", shell("c", HANDLES_TERM)))
    kube("create", "-f", "-", stdin=pod("never", shell("c", HANDLES_TERM), restartPolicy="Never"))
    running(kube, "again")
    running(kube, "never")
    os.kill(node.supervisor_pid(), signal.SIGKILL)
    restarted = until(lambda: _restarted(kube, "again", ready=True))
    assert restarted["lastState"]["terminated"]["exitCode"] == 137
    assert restarted["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    until(lambda: status_of(kube, "never").get("phase") == "Failed")
    assert status_of(kube, "never", "c")["state"]["terminated"]["exitCode"] == 137
