"""What the five documents say about a node, on a real one: their own manifests, kubectl, this machine's cgroup v1.

Each test names the rows of docs/documents.md that it shows. The node has eight CPUs and 2 GiB; profile `documents`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.quantity import QUANTITIES
from tests.e2e.containerd_node import containerd_node
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, RealNode, kubectl_for, pod_of, real_node, reasons, running, status_of
from tests.e2e.waiting import until

MIB = 1 << 20
DOCUMENTS = Path(__file__).resolve().parents[2] / "examples" / "documents"
CLASS = {"Guaranteed": "", "Burstable": "burstable/", "BestEffort": "besteffort/"}
UNLIMITED = 1 << 62
Document = dict[str, Any]

pytestmark = pytest.mark.xdist_group("node of the documents")  # one node for all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("documents") / "cluster") as made:
        exercised("the documents' pods", "this machine, cgroup v1, embedded runtime")
        yield made


# --- requests and reads ---


def apply(kube: Kubectl, *names: str) -> None:
    kube("apply", *(word for name in names for word in ("-f", str(DOCUMENTS / f"{name}.yaml"))))


def pod(name: str, *containers: Document, **spec: object) -> str:
    spec = {"terminationGracePeriodSeconds": 1, **spec, "containers": list(containers)}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def shell(name: str, script: str, requests: Document | None = None, **more: object) -> Document:
    return {
        "name": name,
        "image": "busybox",
        "command": ["sh", "-c", script],
        "resources": {"requests": requests},
        **more,
    }


def pods_path(node: RealNode) -> str:
    return f"{node.cgroup_root}/kubepods"


def cgroups(node: RealNode, found: Document) -> tuple[str, str]:
    """Of a pod and of its first container: kubepods, the class (none for Guaranteed), the pod, the container."""
    path = f"{pods_path(node)}/{CLASS[found['status']['qosClass']]}pod{found['metadata']['uid']}"
    return path, f"{path}/{found['status']['containerStatuses'][0]['containerID'].rpartition('/')[2]}"


def cat(path: str, file: str) -> int:
    return int(Path(f"/sys/fs/cgroup/{file.partition('.')[0]}{path}/{file}").read_text())


def cpu_and_memory(path: str) -> tuple[int, int, int]:
    limit = cat(path, "memory.limit_in_bytes")
    return cat(path, "cpu.shares"), cat(path, "cpu.cfs_quota_us"), -1 if limit > UNLIMITED else limit


def processes(path: str) -> list[int]:
    return [int(each) for each in Path(f"/sys/fs/cgroup/memory{path}/cgroup.procs").read_text().split()]


def scores(pid: int) -> tuple[int, int]:
    """oom_score_adj and what the kernel makes of it."""
    adjustment, score = (Path(f"/proc/{pid}/{file}").read_text() for file in ("oom_score_adj", "oom_score"))
    return int(adjustment), int(score)


# --- documents 000, 002, 004: pods in their cgroups ---


def test_the_pods_of_the_documents_run_in_their_cgroups(node: RealNode, kube: Kubectl) -> None:
    """000-05, 000-30, 002-34, 004-42, 004-44, 004-48, 004-68: every figure of the listings, read as `cat` would."""
    top = pods_path(node)
    assert cat(top, "cpu.shares") == 8 * 1024 and cat(top, "memory.limit_in_bytes") == 2048 * MIB
    assert (cat(f"{top}/burstable", "cpu.shares"), cat(f"{top}/besteffort", "cpu.shares")) == (2, 2)
    apply(kube, "000-example", "002-qos-demo", "002-besteffort", "004-busybox", "003-demo")
    wanted = {
        "example": ((256, 50_000, 64 * MIB), 1000 - 1000 * 64 // 2048),
        "qos-demo": ((256, 50_000, 2048 * MIB), 500),
        "busybox": ((256, 50_000, 400 * MIB), 1000 - 1000 * 300 // 2048),
        "besteffort": ((2, -1, -1), 1000),
        "demo": ((1024, 100_000, 200 * MIB), -997),
    }
    kube("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")
    pods = {each["metadata"]["name"]: each for each in json.loads(kube("get", "pods", "-o", "json").out)["items"]}
    seen = {}
    for name, (figures, adjustment) in wanted.items():
        whole, own = cgroups(node, pods[name])
        assert cpu_and_memory(whole) == cpu_and_memory(own) == figures, name
        seen[name] = scores(processes(own)[0])
        if adjustment > 0:  # a lower one than the agent's own needs a capability
            assert seen[name][0] == adjustment, name
    assert seen["besteffort"][1] > seen["example"][1] > seen["qos-demo"][1] > 0
    # The classes follow the pods: three times 250m, and nothing again when they are gone.
    assert cat(f"{top}/burstable", "cpu.shares") == 768
    assert cat(f"{top}/besteffort", "cpu.shares") == 2
    kube("delete", "pods", "--all", "--grace-period=1")
    assert cat(f"{top}/burstable", "cpu.shares") == 2


def test_the_node_reports_its_disk(node: RealNode, kube: Kubectl) -> None:
    """004-74: ephemeral storage is the file system of the node's folder."""
    status = json.loads(kube("get", "node", NODE, "-o", "json").out)["status"]
    disk = os.statvfs(node.state)
    assert QUANTITIES[status["capacity"]["ephemeral-storage"]] == QUANTITIES[str(disk.f_blocks * disk.f_frsize)]
    assert QUANTITIES[status["allocatable"]["ephemeral-storage"]] < QUANTITIES[status["capacity"]["ephemeral-storage"]]


# --- document 003: the practice ---


def test_inside_the_container_the_machine_is_seen(kube: Kubectl) -> None:
    """003-65, 003-73, 003-74: `free` and `nproc` show the node, whatever the limits are."""
    apply(kube, "003-demo")
    (found,) = running(kube, "demo")["containerStatuses"]
    assert found["allocatedResources"] == {"cpu": "1", "memory": "200Mi"}
    assert found["resources"] == {"limits": found["allocatedResources"], "requests": found["allocatedResources"]}
    total_kib = int(Path("/proc/meminfo").read_text().split()[1])
    shown = kube("exec", "demo", "--", "free").out.splitlines()[1].split()
    assert (shown[0], int(shown[1])) == ("Mem:", total_kib)
    assert int(kube("exec", "demo", "--", "nproc").out) == len(os.sched_getaffinity(0))
    assert kube.on_a_terminal("exec", "-it", "demo", "--", "nproc").strip() == str(len(os.sched_getaffinity(0)))


def test_a_new_agent_keeps_what_is_allocated(node: RealNode, kube: Kubectl) -> None:
    """003-33, 003-38, 003-71: what is too large waits, also for the next agent, and the service runs on."""
    apply(kube, "003-timeline")
    before = running(kube, "timeline")["containerStatuses"][0]
    kube("patch", "pod", "timeline", "-p", (DOCUMENTS / "003-patch-timeline-4.json").read_text())
    until(lambda: status_of(kube, "timeline").get("resize") == "Infeasible")
    kube("create", "-f", "-", stdin=pod("more", shell("c", "sleep 1000", {"cpu": "6"})))
    running(kube, "more")
    node.kill_node()
    node.start_node()
    # All are admitted again with what they had: with the requested 100 CPUs no other pod would fit.
    kube("create", "-f", "-", stdin=pod("another", shell("c", "sleep 1000", {"cpu": "1"})))
    running(kube, "another")
    until(lambda: status_of(kube, "timeline").get("resize") == "Infeasible")
    found = pod_of(kube, "timeline")
    (after,) = found["status"]["containerStatuses"]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert after["allocatedResources"] == {"cpu": "1"}
    assert cat(cgroups(node, found)[1], "cpu.shares") == 1024
    assert status_of(kube, "more", "c")["restartCount"] == 0


def test_the_gate_of_the_node(node: RealNode, kube: Kubectl) -> None:
    """003-01, 003-61: an agent with the gate off allocates nothing new, and says so."""
    apply(kube, "003-demo")
    running(kube, "demo")
    _, own = cgroups(node, pod_of(kube, "demo"))
    node.kill_node()
    node.start_node("--feature-gates", "InPlacePodVerticalScaling=false")
    kube("patch", "pod", "demo", "-p", (DOCUMENTS / "003-patch-cpu-2.json").read_text())
    until(lambda: status_of(kube, "demo").get("resize") == "Infeasible")
    assert cat(own, "cpu.cfs_quota_us") == 100_000
    until(lambda: "ResizeInfeasible" in reasons(kube, "demo"))
    node.kill_node()
    node.start_node("--feature-gates", "InPlacePodVerticalScaling=true")
    # The status of an agent with the gate off has no resources.
    until(lambda: status_of(kube, "demo", "demo").get("resources", {}).get("requests", {}).get("cpu") == "2")
    assert cat(own, "cpu.cfs_quota_us") == 200_000


# --- documents 000 and 002: a container runtime ---


def test_a_runtime_gets_what_the_documents_say(tmp_path: Path) -> None:
    """000-06, 000-30, 002-60, 002-61, 004-37: containerd's two containers of a pod, pause and nginx, in its cgroup."""
    with containerd_node(tmp_path / "cluster") as (node, daemon), kubectl_for(node, tmp_path) as kube:
        apply(kube, "000-example")
        (found,) = running(kube, "example")["containerStatuses"]
        assert re.fullmatch("containerd://[0-9a-f]{64}", found["containerID"])
        own_id = found["containerID"].removeprefix("containerd://")
        listed = daemon.ctr("--namespace", "k8s.io", "containers", "list", "--quiet").stdout.split()
        path, own = cgroups(node, pod_of(kube, "example"))
        below = [each.name for each in Path(f"/sys/fs/cgroup/memory{path}").iterdir() if each.is_dir()]
        assert sorted(below) == sorted(listed) and len(below) == 2 and own_id in below
        assert cpu_and_memory(own) == cpu_and_memory(path) == (256, 50_000, 64 * MIB)
        assert cat(own, "cpu.cfs_period_us") == 100_000
        assert scores(processes(own)[0])[0] == 1000 - 1000 * 64 // 2048


# --- document 002: whom the kernel kills ---

# No pod is evicted here: the limit of all pods together is reached first, and the kernel chooses.
SMALL = ("--capacity", "cpu=2,memory=256Mi", "--eviction-hard", "nodefs.available<1Mi")
EATER = "import sys, time\nhave = bytearray(int(sys.argv[1]) << 20)\nprint('full', flush=True)\ntime.sleep(1000)\n"


def eater(name: str, mib: int, requests: Document | None = None) -> str:
    command = ["python3", "-S", "-I", "-c", EATER, str(mib)]
    container: Document = {"name": "c", "image": "busybox", "command": command, "resources": {"requests": requests}}
    return pod(name, container, restartPolicy="Never")


def test_whom_the_kernel_kills_first(tmp_path: Path) -> None:
    """002-33, 002-39, 002-49: the score is the share of memory plus oom_score_adj; the class alone decides nothing."""
    with real_node(tmp_path / "cluster", options=SMALL) as node, kubectl_for(node, tmp_path) as kube:
        for calm, calm_mib, calm_requests, hungry, hungry_requests in (
            ("burstable", 20, {"memory": "16Mi"}, "besteffort", None),  # 938 + 8 % of the memory, 1000 + 90 %
            ("besteffort", 20, None, "burstable", {"memory": "64Mi"}),  # 1000 + 8 %, 750 + 90 %
        ):
            kube("create", "-f", "-", stdin=eater(calm, calm_mib, calm_requests))
            until(lambda name=calm: "full" in kube.run("logs", name).out)  # type: ignore[misc]
            kube("create", "-f", "-", stdin=eater(hungry, 400, hungry_requests))
            ended = until(lambda name=hungry: status_of(kube, name, "c").get("state", {}).get("terminated"))  # type: ignore[misc]
            assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
            found = status_of(kube, calm, "c")
            assert (found["restartCount"], "running" in found["state"]) == (0, True), calm
            kube("delete", "pods", "--all", "--grace-period=1")
