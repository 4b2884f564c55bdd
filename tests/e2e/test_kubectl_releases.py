"""The everyday verbs of kubectl 1.N against an API server and a node with profile 1.N, for every release.

`./dev test` takes the oldest and the newest release, the first one with the subresource `resize`, and of the verbs
those that depend on the release most; `./dev prove kubectl` takes everything.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.net.grpc.client import GrpcClient
from plimsoll.rules.profile import FIRST_MINOR, LAST_MINOR, profile_named
from tests.e2e.kubectl import Kubectl, NoKubectlError, of_minor
from tests.e2e.real_node import NODE, RealNode, pod_of, real_node, running, status_of
from tests.e2e.stream_checks import GREETING, SERVER
from tests.e2e.waiting import until

FIRST_WITH_SUBRESOURCE = 32
PODS_API_FROM = 37
GATE_ON_FROM = 33  # before that, a cluster that wants resizes switches the gate on
ALLOCATED_STATUS_GATED = 32  # needs a second gate there
GATE = ("--feature-gates", "InPlacePodVerticalScaling=true")
ALWAYS = {FIRST_MINOR, LAST_MINOR}
Document = dict[str, Any]


def releases() -> list[Any]:
    return [
        pytest.param(
            minor,
            id=f"1.{minor}",
            marks=[pytest.mark.xdist_group(f"kubectl 1.{minor}"), *([] if minor in ALWAYS else [pytest.mark.long])],
        )
        for minor in range(FIRST_MINOR, LAST_MINOR + 1)
    ]


@pytest.fixture(scope="module", params=releases())
def minor(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def node(minor: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    gate = GATE if minor < GATE_ON_FROM else ()
    directory = tmp_path_factory.mktemp(f"home-{minor}") / "cluster"
    with real_node(directory, f"1.{minor}", options=gate, api_options=gate) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(minor: int, node: RealNode, exercised: Callable[[str, str], None]) -> Kubectl:
    try:
        binary = of_minor((1, minor))
    except NoKubectlError as error:
        pytest.skip(str(error))
    exercised("kubectl of each release", binary.version)
    return Kubectl(binary, node.kubeconfig, node.directory.parent)


@pytest.fixture
def kube(cluster: Kubectl) -> Iterator[Kubectl]:
    yield cluster
    cluster("delete", "deployments,pods", "--all", "--grace-period=1")


def pod(name: str, script: str = "echo started; sleep 1000", **metadata: Any) -> Document:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def deployment(name: str) -> Document:
    template = pod(name, labels={"app": name})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


def started(kube: Kubectl, document: Document) -> None:
    name = document["metadata"]["name"]
    assert kube("apply", "-f", "-", stdin=json.dumps(document)).out == f"pod/{name} created\n"
    assert kube("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=120s").out == f"pod/{name} condition met\n"


def jsonpath(kube: Kubectl, what: str, path: str) -> str:
    return kube("get", what, "-o", f"jsonpath={{{path}}}").out


def test_the_server(kube: Kubectl, minor: int) -> None:
    asked = kube("version", "-o", "json")
    assert asked.err == "", "no warning about a version skew"
    versions = json.loads(asked.out)
    for side in ("clientVersion", "serverVersion"):
        assert (versions[side]["major"], versions[side]["minor"].rstrip("+")) == ("1", str(minor)), side
        assert versions[side]["gitVersion"].startswith(f"v1.{minor}.")
    assert "Kubernetes control plane is running at" in re.sub(r"\x1b\[[0-9;]*m", "", kube("cluster-info").out)
    assert {"v1", "apps/v1", "batch/v1", "metrics.k8s.io/v1beta1"} <= set(kube("api-versions").lines)
    names = set(kube("api-resources", "-o", "name").lines)
    assert {"pods", "nodes", "events", "deployments.apps", "jobs.batch", "nodes.metrics.k8s.io"} <= names
    assert ["pods", "po", "v1", "true", "Pod"] in kube("api-resources").table
    explained = kube("explain", "pod.spec").out
    assert re.search(r"(?m)^\s+containers\s+<\[\]Container> -required-$", explained), explained
    assert "terminationGracePeriodSeconds" in explained
    assert "limits" in kube("explain", "pods.spec.containers.resources").out
    assert kube("auth", "can-i", "create", "pods").out == "yes\n"
    denied = kube.run("auth", "can-i", "create", "pods", "--as", "nobody")
    assert (denied.code, denied.out) == (1, "no\n"), denied
    (node,) = kube("get", "nodes", "-o", "wide").table
    assert node[:3] == [NODE, "Ready", "<none>"]
    assert node[4].startswith(f"v1.{minor}.")


async def test_the_pods_api(kube: Kubectl, node: RealNode, minor: int) -> None:
    """Its gate is on by default since 1.37."""
    socket_path = node.state / "pods-api/pods-api.sock"
    assert socket_path.exists() == (minor >= PODS_API_FROM)
    if minor >= PODS_API_FROM:
        started(kube, pod("shown"))
        client = GrpcClient(str(socket_path))
        shown = await client.unary("/v1alpha1.Pods/ListPods", b"", 60)
        client.close()
        uid = jsonpath(kube, "pod/shown", ".metadata.uid").encode()
        assert uid in shown and b"busybox" in shown and b"Running" in shown


def test_objects(kube: Kubectl, tmp_path: Path) -> None:
    document = pod("web", labels={"tier": "front"})
    started(kube, document)
    same = kube.run("diff", "-f", "-", stdin=json.dumps(document))
    assert (same.code, same.out) == (0, ""), same
    changed = kube.run("diff", "-f", "-", stdin=json.dumps(pod("web", labels={"tier": "back"})))
    assert changed.code == 1 and "+    tier: back" in changed.out, changed
    assert kube("apply", "-f", "-", stdin=json.dumps(document)).out == "pod/web unchanged\n"

    (row,) = kube("get", "pods", "-o", "wide").table
    assert row[:4] == ["web", "1/1", "Running", "0"] and row[6] == NODE, row
    assert kube("get", "pods", "-l", "tier=front", "-o", "name").out == "pod/web\n"
    assert "\n  qosClass: Burstable\n" in kube("get", "pod", "web", "-o", "yaml").out
    assert jsonpath(kube, "pod/web", ".status.phase") == "Running"
    columns = kube("get", "pods", "-o", "custom-columns=NAME:.metadata.name,CLASS:.status.qosClass")
    assert columns.table == [["web", "Burstable"]]

    with kube.background("get", "pods", "-w", "-L", "tier") as watch:
        watch.wait_for(lambda lines: lines[-1:] != [] and lines[-1].endswith("front"))
        assert kube("label", "pod", "web", "tier=back", "--overwrite").out == "pod/web labeled\n"
        watch.wait_for(lambda lines: lines[-1].endswith("back"))
    assert kube("annotate", "pod", "web", "note=one").out.startswith("pod/web annotate")
    assert kube("patch", "pod", "web", "-p", '{"metadata":{"annotations":{"note":"two"}}}').out == "pod/web patched\n"
    edited = kube("edit", "pod", "web", env={"KUBE_EDITOR": "sed -i s/note:.two/note:\\ three/"})
    assert edited.out == "pod/web edited\n"
    assert jsonpath(kube, "pod/web", ".metadata.annotations.note") == "three"

    described = re.sub(r"[ \t]+", " ", kube("describe", "pod", "web").out)
    for line in (f"Node: {NODE}/", "QoS Class: Burstable", "Status: Running", "Labels: tier=back", " cpu: 100m"):
        assert line in described, f"{line!r} is not in\n{described}"
    assert re.search(r"Normal Started .* Started container c|Normal Started .* Container started", described), described
    until(lambda: kube("logs", "web").out == "started\n")
    reasons = {row[2] for row in kube("events", "--for", "pod/web").table}
    assert {"Scheduled", "Created", "Started"} <= reasons
    assert "Started" in {row[2] for row in kube("get", "events", "--field-selector", "involvedObject.name=web").table}
    assert kube("delete", "pod", "web").out.startswith('pod "web" deleted')
    assert 'pods "web" not found' in kube.refused("get", "pod", "web")


@pytest.mark.long
def test_streams_and_usage(kube: Kubectl, tmp_path: Path) -> None:
    started(kube, pod("web", SERVER))
    assert kube("exec", "web", "--", "echo", "hello").out == "hello\n"
    assert kube.run("exec", "web", "--", "sh", "-c", "exit 3").code == 3
    assert kube("exec", "-i", "web", "--", "cat", stdin="in and out\n").out == "in and out\n"
    (tmp_path / "file").write_text("copied\n")
    kube("cp", str(tmp_path / "file"), "web:/tmp/there")
    kube("cp", "web:/tmp/there", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "copied\n"
    with kube.background("port-forward", "pod/web", ":8080") as forwarding:
        (line, *_) = forwarding.wait_for(bool)
        port = int(line.removeprefix("Forwarding from 127.0.0.1:").split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as near:
            near.sendall(b"hello ")
            near.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: near.recv(100), b"")) == GREETING + b"HELLO bye"
    version = "v1" if minor >= 37 else "v1beta1"
    assert f"/apis/metrics.k8s.io/{version}/namespaces/" in kube("top", "pod", "-v=6").err
    ((name, cpu, memory),) = kube("top", "pod").table
    assert name == "web" and re.fullmatch(r"\d+m", cpu) and re.fullmatch(r"\d+Mi", memory)
    ((name, cpu, share, *_),) = kube("top", "node").table
    assert name == NODE and re.fullmatch(r"\d+m", cpu) and re.fullmatch(r"\d+%", share)


@pytest.mark.long
def test_rollouts(kube: Kubectl) -> None:
    made = kube("apply", "--server-side", "-f", "-", stdin=json.dumps(deployment("shop")))
    assert made.out == "deployment.apps/shop serverside-applied\n"
    finished = 'deployment "shop" successfully rolled out'
    assert kube("rollout", "status", "deployment/shop", "--timeout=120s").lines[-1] == finished
    assert kube("scale", "deployment/shop", "--replicas=2").out == "deployment.apps/shop scaled\n"
    kube("wait", "deployment/shop", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=120s")
    assert kube("get", "deployment", "shop").table[0][:4] == ["shop", "2/2", "2", "2"]
    kube("scale", "deployment/shop", "--replicas=1")
    said = kube("set", "resources", "deployment/shop", "--requests=cpu=50m").out
    assert said == "deployment.apps/shop resource requirements updated\n"
    kube("rollout", "status", "deployment/shop", "--timeout=120s")
    assert [row[0] for row in kube("rollout", "history", "deployment/shop").table if row and row[0].isdigit()] == [
        "1",
        "2",
    ]
    cpu = ".spec.template.spec.containers[0].resources.requests.cpu"
    assert jsonpath(kube, "deployment/shop", cpu) == "50m"
    assert kube("rollout", "undo", "deployment/shop").out == "deployment.apps/shop rolled back\n"
    kube("rollout", "status", "deployment/shop", "--timeout=120s")
    assert jsonpath(kube, "deployment/shop", cpu) == "100m"
    assert kube("delete", "deployment", "shop").out.startswith('deployment.apps "shop" deleted')
    kube("wait", "pods", "-l", "app=shop", "--for=delete", "--timeout=120s")


def test_resize(kube: Kubectl, minor: int) -> None:
    """By a plain patch up to 1.31, with the subresource from 1.32 on, and never the other way."""
    started(kube, pod("web"))
    before = running(kube, "web")["containerStatuses"][0]["containerID"]
    change = '{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"200m"},"limits":{"cpu":"600m"}}}]}}'
    plain, subresource = ("patch", "pod", "web", "-p", change), ("--subresource", "resize")
    if minor < FIRST_WITH_SUBRESOURCE:
        assert 'invalid subresource value: "resize"' in kube.refused(*plain, *subresource)
        assert kube(*plain).out == "pod/web patched\n"
    else:
        assert "pod updates may not change fields other than" in kube.refused(*plain)
        assert kube(*plain, *subresource).out == "pod/web patched\n"
    path = "{.status.containerStatuses[0].resources.limits.cpu}"
    kube("wait", "pod/web", f"--for=jsonpath={path}=600m", "--timeout=120s")
    status = status_of(kube, "web", "c")
    if minor == ALLOCATED_STATUS_GATED:
        assert "allocatedResources" not in status
    else:
        assert status["allocatedResources"]["cpu"] == "200m"
    assert (status["restartCount"], status["containerID"]) == (0, before)
    until(lambda: not status_of(kube, "web").get("resize"))
    profile = profile_named(f"1.{minor}")
    generation = pod_of(kube, "web")["metadata"].get("generation")
    assert generation == 2 or not profile.resize_conditions, generation


@pytest.mark.long
def test_maintenance_of_a_node(kube: Kubectl, minor: int) -> None:
    started(kube, pod("lonely"))
    described = re.sub(r"[ \t]+", " ", kube("describe", "node", NODE).out)
    assert f"Kubelet Version: v1.{minor}." in described
    assert " default lonely 100m (1%) 500m (6%) 32Mi (1%) 64Mi (3%)" in described
    try:
        assert kube("cordon", NODE).out == f"node/{NODE} cordoned\n"
        assert kube("get", "nodes").table[0][1] == "Ready,SchedulingDisabled"
        assert "declare no controller (use --force to override)" in kube.refused("drain", NODE)
        drained = kube("drain", NODE, "--force", "--timeout=120s")
        assert "pod/lonely evicted" in drained.out and drained.lines[-1] == f"node/{NODE} drained"
    finally:
        assert kube("uncordon", NODE).out == f"node/{NODE} uncordoned\n"
    assert kube("taint", "nodes", NODE, "spare=yes:NoSchedule").out == f"node/{NODE} tainted\n"
    assert kube("taint", "nodes", NODE, "spare-").out == f"node/{NODE} untainted\n"
