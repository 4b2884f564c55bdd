"""The static CPU policy on this machine's own cgroup v1: one CPU is reserved, one can be owned. And a device plugin.

Eight CPUs, whole cores and resizes are shown in a guest (`tests/kernel/in_guest/static_cpus.py`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.containerd_node import containerd_node
from tests.e2e.device_plugin import Plugin, allocatable, annotations, device_pod
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import (
    CONFIG,
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
from tests.kernel.attach_bench import containerd_release
from tests.unit.console import run
from tests.unit.node.devices.example_plugin import RESOURCE

SLEEPS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
STATIC = {**CONFIG, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
RUNTIMES = ("embedded", "containerd")
ENDPOINT = "--container-runtime-endpoint"
CDI = Path("/var/run/cdi")


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=pytest.mark.xdist_group(f"static cpus {each}")) for each in RUNTIMES],
)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs: one is reserved")
    config = tmp_path_factory.mktemp("cpus") / "kubelet.json"
    config.write_text(json.dumps(STATIC))
    options = ("--config", str(config), "--capacity", "cpu=2,memory=2Gi,pods=110")
    directory = tmp_path_factory.mktemp("cpus") / "cluster"
    with ExitStack() as stack:
        if request.param == "embedded":
            made = stack.enter_context(real_node(directory, options=options))
        else:
            made, _ = stack.enter_context(containerd_node(directory, options=options))
        exercised("static CPU policy", f"this machine, cgroup v1, {request.param}")
        yield made


def pod(name: str, cpu: str = "") -> str:
    """Guaranteed with that many CPUs, or without any request: the node has only one CPU to promise."""
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sh", "-c", SLEEPS],
        "resources": {"limits": {"cpu": cpu, "memory": "32Mi"}} if cpu else {},
    }
    whole = {"nodeName": NODE, "terminationGracePeriodSeconds": 2, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole})


def cpuset_path(node: RealNode, kube: Kubectl, name: str) -> str:
    """Of a process of the container; some end as soon as they are seen."""
    ident = status_of(kube, name, "c")["containerID"].rpartition("/")[2]
    (cgroup,) = [each for each in node.memory_cgroups() if each.endswith(ident)]
    for pid in Path(f"/sys/fs/cgroup/memory{node.cgroup_root}/{cgroup}/cgroup.procs").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):
            return cgroup_of(int(pid), "cpuset")
    return ""


def cpuset(node: RealNode, kube: Kubectl, name: str) -> str:
    """As the kernel has it for the container's own process, in the cpuset hierarchy."""
    path = until(lambda: cpuset_path(node, kube, name))
    assert path.startswith(node.cgroup_root), path
    return Path(f"/sys/fs/cgroup/cpuset{path}/cpuset.cpus").read_text().strip()


def nproc(kube: Kubectl, name: str) -> str:
    return kube("exec", name, "--", "nproc").out.strip()


def endpoint_of(node: RealNode) -> str:
    """The socket of containerd; "" with the embedded runtime."""
    words = node.node_options
    return words[words.index(ENDPOINT) + 1].removeprefix("unix://") if ENDPOINT in words else ""


def failed(kube: Kubectl, name: str) -> Document:
    return until(lambda: found if (found := status_of(kube, name)).get("phase") == "Failed" else {})


def test_one_owns_a_cpu_and_the_others_share_the_rest(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("shared"))
    running(kube, "shared")
    assert (cpuset(node, kube, "shared"), nproc(kube, "shared")) == ("0-1", "2")
    kube("create", "-f", "-", stdin=pod("owner", "1"))
    running(kube, "owner")
    assert (cpuset(node, kube, "owner"), nproc(kube, "owner")) == ("1", "1")
    assert (cpuset(node, kube, "shared"), nproc(kube, "shared")) == ("0", "1")
    state = json.loads((node.state / "node" / "cpu_manager_state").read_text())
    described = run("describe", "node", NODE, "--kubeconfig", str(node.kubeconfig)).out
    assert re.search(r"Exclusive resources:\n  shared CPUs: 0\n.*\n  \S+/owner +c +CPUs 1\n", described), described
    shown = run("tree", "--cgroup-root", node.cgroup_root, "--state-dir", str(node.state)).out
    if not endpoint_of(node):  # the names of a runtime's containers are not in the state of the node
        assert re.search(r"─ c .* CPUs 1", shown), shown
    uid = pod_of(kube, "owner")["metadata"]["uid"]
    assert (state["policyName"], state["defaultCpuSet"], state["entries"]) == ("static", "0", {uid: {"c": "1"}})

    # Nor is there any cpu left to promise, but a kubelet asks for the CPUs first.
    kube("create", "-f", "-", stdin=pod("late", "1"))
    refused = failed(kube, "late")
    assert refused["reason"] == "UnexpectedAdmissionError"
    assert refused["message"] == (
        "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: "
        "requested=1, available=0, which is unexpected"
    )
    until(lambda: "UnexpectedAdmissionError" in reasons(kube, "late"))

    before = status_of(kube, "owner")["containerStatuses"]
    node.kill_node()
    node.start_node()
    assert running(kube, "owner")["containerStatuses"] == before
    assert (cpuset(node, kube, "owner"), cpuset(node, kube, "shared")) == ("1", "0")

    kube("delete", "pod", "owner")
    until(lambda: cpuset(node, kube, "shared") == "0-1")
    assert nproc(kube, "shared") == "2"


def test_a_fraction_shares(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("half", "500m"))
    running(kube, "half")
    assert cpuset(node, kube, "half") == "0-1"
    kube(
        "patch",
        "pod",
        "half",
        "-p",
        json.dumps(
            {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}}
        ),
    )
    until(lambda: cpuset(node, kube, "half") == "1")
    kube(
        "patch",
        "pod",
        "half",
        "-p",
        json.dumps(
            {
                "spec": {
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "700m"}, "limits": {"cpu": "700m"}}}]
                }
            }
        ),
    )
    until(lambda: "ResizeInfeasible" in reasons(kube, "half"))
    until(lambda: status_of(kube, "half").get("resize") == "Infeasible")
    assert cpuset(node, kube, "half") == "1"


def test_another_policy_is_refused_while_pods_are_there(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("here", "1"))
    running(kube, "here")
    before = status_of(kube, "here", "c")["containerID"]
    node.kill_node()
    log = node.directory / "node.log"
    said = log.stat().st_size
    with pytest.raises(AssertionError):
        node.start_node("--config", str(node.config))  # without the policy
    assert (
        'configured policy "none" differs from state checkpoint policy "static", please drain this node'
        in log.read_bytes()[said:].decode()
    )
    node.start_node()
    running(kube, "here")
    assert cpuset(node, kube, "here") == "1"
    assert status_of(kube, "here", "c")["containerID"] == before  # an agent that cannot start ends no container


READS = (
    "test -c /dev/d0 && test -c /dev/d1 && ! test -e /dev/d2 && echo gone > /dev/d1 && echo $NULL_DEVICES"
    " && cat /null/info && if echo x > /null/info; then echo writable; fi"
)


def test_devices_mounts_variables_and_annotations(node: RealNode, kube: Kubectl) -> None:
    socket, plugin = endpoint_of(node), Plugin(node)
    try:
        until(lambda: allocatable(kube) == "4")
        kube("create", "-f", "-", stdin=device_pod("first", 2))
        running(kube, "first")
        host = Path("/etc/hostname").read_text()
        assert kube("exec", "first", "--", "sh", "-c", f"({READS}) 2>/dev/null").out == f"d0,d1\n{host}"
        before = status_of(kube, "first", "c")
        if socket:
            ident = before["containerID"].rpartition("/")[2]
            assert annotations(socket, ident)["example.com/given"] == "yes"
        described = run("describe", "node", NODE, "--kubeconfig", str(node.kubeconfig)).out
        assert re.search(rf"(?s)Exclusive resources:\n.*  \S+/first +c +{RESOURCE} d0 d1\n", described), described

        for who in ("node", "plugin", "both"):
            if who != "node":
                plugin.kill()
            if who != "plugin":
                node.kill_node()
                node.start_node()
            if who != "node":
                until(lambda: allocatable(kube) == "0")
                plugin.start()
            until(lambda: allocatable(kube) == "4")
            assert running(kube, "first")["containerStatuses"][0] == before, who
        kube("create", "-f", "-", stdin=device_pod("second", 3))
        refused = until(lambda: found if (found := status_of(kube, "second")).get("phase") == "Failed" else {})
        assert refused["reason"] == "UnexpectedAdmissionError"
        assert "Requested: 3, Available: 2" in refused["message"]
        kube("create", "-f", "-", stdin=device_pod("third", 2))
        running(kube, "third")
        assert kube("exec", "third", "--", "sh", "-c", "echo $NULL_DEVICES").out == "d2,d3\n"
    finally:
        plugin.kill()


@pytest.fixture
def cdi_kind() -> Iterator[str]:
    """Of devices d0 to d3, in a CDI file of this machine."""
    kind = f"plimsoll-test-{secrets.token_hex(4)}.example.com/null"
    devices = [
        {
            "name": f"d{number}",
            "containerEdits": {
                "env": [f"CDI_{number}=yes"],
                "deviceNodes": [{"path": f"/dev/cdi{number}", "hostPath": "/dev/null"}],
            },
        }
        for number in range(4)
    ]
    file = CDI / f"{kind.partition('.')[0]}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices}))
    yield kind
    file.unlink()


def test_cdi_devices(node: RealNode, kube: Kubectl, cdi_kind: str) -> None:
    if endpoint_of(node) and containerd_release() < (2, 0):
        pytest.skip("CDI: needs containerd 2, which has it on by default")
    until(lambda: allocatable(kube) != "4")  # the plugin of another test has ended
    plugin = Plugin(node, cdi_kind)
    try:
        until(lambda: allocatable(kube) == "4")
        kube("create", "-f", "-", stdin=device_pod("cdi", 2))
        running(kube, "cdi")
        reads = "echo $CDI_0 $CDI_1 $CDI_2; [ -c /dev/cdi0 ] && echo x >/dev/cdi1 && [ ! -e /dev/cdi2 ] && echo there"
        assert kube("exec", "cdi", "--", "sh", "-c", reads).out == "yes yes\nthere\n"
    finally:
        plugin.kill()
