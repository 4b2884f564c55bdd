"""A node of Kubernetes' own control plane: it joins with a bootstrap token and behaves as any other node."""

from __future__ import annotations

import json
import secrets
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from plimsoll.codec.kernel.x509 import common_name
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.node.reporting.certificate import NodeIdentity, Renewal
from tests.e2e.containerd_node import inside, node_options, own_containerd
from tests.e2e.control_plane import BOOTSTRAPPERS, TOKEN, ControlPlane, control_plane
from tests.e2e.kubectl import Kubectl, any_binary
from tests.e2e.real_node import CONFIG, NODE, RealNode, pod_of, running, status_of
from tests.e2e.stream_checks import attach_and_run, copy_both_ways, exec_and_its_streams, port_forward
from tests.e2e.waiting import until
from tests.unit.api.admission.test_pod_answers import pod as odd_pod
from tests.unit.api.admission.test_pod_answers import rows

pytestmark = pytest.mark.xdist_group("real control plane")  # one for all
RELEASE = "1.36"
ROLES = {
    "bootstrap": ("system:node-bootstrapper", BOOTSTRAPPERS),
    "approve": ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", BOOTSTRAPPERS),
    "rotate": ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
}
SHELL = {"image": "busybox", "command": ["sh", "-c", "echo began; exec sleep 10000"]}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane") / "here") as made:
        yield made


@pytest.fixture(scope="module")
def kube(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    made = Kubectl(any_binary(), plane.kubeconfig, tmp_path_factory.mktemp("home"))
    for name, (role, group) in ROLES.items():
        made("create", "clusterrolebinding", f"kubeadm:{name}", f"--clusterrole={role}", f"--group={group}")
    token, _, secret = TOKEN.partition(".")
    words = {"token-id": token, "token-secret": secret, "auth-extra-groups": BOOTSTRAPPERS}
    words["usage-bootstrap-authentication"] = "true"
    literals = [f"--from-literal={name}={text}" for name, text in words.items()]
    kind = "--type=bootstrap.kubernetes.io/token"
    made("create", "secret", "generic", f"bootstrap-token-{token}", "-n", "kube-system", kind, *literals)
    yield made
    made.api.close()


@pytest.fixture(scope="module", params=["embedded", "containerd"])
def node(
    request: pytest.FixtureRequest, plane: ControlPlane, kube: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealNode]:
    made = RealNode(tmp_path_factory.mktemp("node"), f"/plimsoll-test-{secrets.token_hex(4)}", RELEASE)
    made.config.write_text(json.dumps({**CONFIG, "serverTLSBootstrap": True}))
    made.kubeconfig = plane.kubeconfig
    made.node_options = ("--bootstrap-kubeconfig", str(plane.bootstrap_kubeconfig()))
    kube("delete", "csr", "--all")
    with ExitStack() as stack:
        if request.param == "containerd":
            daemon = stack.enter_context(own_containerd())
            made.node_options += node_options(daemon)
            made.before_node = inside(daemon)
        stack.callback(_remove_root, made)
        stack.callback(made.close)
        made.start_node()
        until(lambda: kube("get", "sa", "default", "--ignore-not-found").out)
        yield made


def _remove_root(node: RealNode) -> None:
    for hierarchy in Path("/sys/fs/cgroup").iterdir():
        left = hierarchy / node.cgroup_root.strip("/")
        if left.is_dir():
            left.rmdir()


def requests_of(kube: Kubectl, signer: str) -> list[dict[str, object]]:
    found = kube.api("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
    return [each for each in found if each["spec"]["signerName"] == signer]


def served_certificate(plane: ControlPlane, kube: Kubectl) -> bytes:
    port = kube.api("GET", f"/api/v1/nodes/{NODE}")["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    return ssl.get_server_certificate(("127.0.0.1", port)).encode()


def test_it_joins_and_gets_both_certificates(plane: ControlPlane, kube: Kubectl, node: RealNode) -> None:
    (client,) = requests_of(kube, "kubernetes.io/kube-apiserver-client-kubelet")
    assert client["spec"]["username"] == f"system:bootstrap:{TOKEN.partition('.')[0]}"
    until(lambda: kube("get", "node", NODE).table[0][1] == "Ready")
    assert load(node.node_kubeconfig).server == plane.url
    (serving,) = until(lambda: requests_of(kube, "kubernetes.io/kubelet-serving"))
    assert serving["spec"]["username"] == f"system:node:{NODE}"
    assert serving["spec"]["usages"] == ["digital signature", "server auth"]
    kube("certificate", "approve", serving["metadata"]["name"])

    def signed() -> bytes:
        (found,) = requests_of(kube, "kubernetes.io/kubelet-serving")
        return str(found.get("status", {}).get("certificate", "")).encode()

    until(signed)
    before = load(node.node_kubeconfig).certificate
    until(lambda: served_certificate(plane, kube).strip() not in (b"", (before or b"").strip()))
    kube("run", "first", f"--image={SHELL['image']}", "--command", "--", *SHELL["command"])
    running(kube, "first")
    until(lambda: kube.run("logs", "first").out == "began\n", lambda: kube.run("logs", "first").err)
    kube("delete", "pod", "first", "--grace-period=1")


@pytest.mark.parametrize("check", [exec_and_its_streams, copy_both_ways, attach_and_run, port_forward])
def test_streams_through_the_real_api_server(node: RealNode, kube: Kubectl, check: object, tmp_path: Path) -> None:
    assert callable(check)
    check(kube, tmp_path)
    kube("delete", "pod", "--all", "--wait", "--grace-period=1")


def test_workloads(node: RealNode, kube: Kubectl) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", **SHELL}]}}
    template["spec"]["terminationGracePeriodSeconds"] = 0
    spec = {"selector": {"matchLabels": labels}, "template": template}
    job = {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", **SHELL, "command": ["true"]}]}}
    }
    objects = [
        ("apps/v1", "Deployment", {**spec, "replicas": 2}),
        ("apps/v1", "DaemonSet", spec),
        ("batch/v1", "Job", {"completions": 2, **job}),
    ]
    items = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": it} for version, kind, it in objects
    ]
    kube("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kube("rollout", "status", "deployment/x", "--timeout=120s")
    kube("rollout", "status", "daemonset/x", "--timeout=120s")
    kube("wait", "--for=condition=complete", "job/x", "--timeout=120s")
    kube("set", "env", "deployment/x", "NEW=1")
    kube("rollout", "status", "deployment/x", "--timeout=120s")
    shown = kube("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s").out
    assert "evicted" in shown and "drained" in shown
    kube("uncordon", NODE)
    kube("rollout", "status", "deployment/x", "--timeout=120s")
    kube("delete", "deployment/x", "daemonset/x", "job/x", "--cascade=foreground", "--timeout=120s")


async def test_the_certificate_is_renewed_by_the_real_signer(node: RealNode, kube: Kubectl, tmp_path: Path) -> None:
    """The request is approved and signed by kube-controller-manager, as that of any kubelet."""
    access = load(node.node_kubeconfig)
    assert access.certificate is not None and access.key is not None
    old, used = NodeIdentity(access.certificate, access.key), list[NodeIdentity]()
    transport = HttpTransport(access)
    try:
        await Renewal(Client(transport), NODE, old, tmp_path, used.append).renew()
        transport.renew(used[0].certificate, used[0].key)
        shown = await Client(transport).ask(request.get(request.NODES, NODE))
    finally:
        await transport.close()
    assert shown["metadata"]["name"] == NODE
    assert common_name(used[0].certificate) == f"system:node:{NODE}"
    assert used[0].certificate != old.certificate


def test_a_pod_with_too_many_files_is_evicted(node: RealNode, kube: Kubectl) -> None:
    """The node ends it by itself, and the real API server has its status."""
    mount = {"name": "v", "mountPath": "/v"}
    container = {"name": "c", **SHELL, "volumeMounts": [mount]}
    container["command"] = ["sh", "-c", "dd if=/dev/zero of=/v/large bs=1048576 count=8; exec sleep 10000"]
    spec = {"containers": [container], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hoarder"}, "spec": spec}
    kube("create", "-f", "-", stdin=json.dumps({**pod, "spec": {**spec, "terminationGracePeriodSeconds": 0}}))
    until(lambda: status_of(kube, "hoarder").get("reason") == "Evicted", lambda: kube("describe", "pod", "hoarder").out)
    status = status_of(kube, "hoarder")
    assert status["phase"] == "Failed"
    assert 'Usage of EmptyDir volume "v" exceeds the limit "1Mi".' in status["message"]
    kube("delete", "pod", "hoarder")


def test_restarts_of_both_sides_leave_the_containers_alone(plane: ControlPlane, node: RealNode, kube: Kubectl) -> None:
    kube("run", "stays", f"--image={SHELL['image']}", "--command", "--", *SHELL["command"])
    before = running(kube, "stays")["containerStatuses"][0]["containerID"]
    plane.stop_api()
    plane.start_api()
    node.kill_node()
    node.start_node()
    until(lambda: kube("get", "node", NODE).table[0][1] == "Ready")
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    kube("run", "after", f"--image={SHELL['image']}", "--overrides", _overrides(resources), "--command", "--", "true")
    running(kube, "after")
    status = status_of(kube, "stays")["containerStatuses"][0]
    assert (status["containerID"], status["restartCount"]) == (before, 0)
    larger = {"spec": {"containers": [{"name": "after", "resources": {"limits": {"memory": "256Mi"}}}]}}
    kube("patch", "pod", "after", "--subresource=resize", "-p", json.dumps(larger))

    def resized() -> bool:
        shown = pod_of(kube, "after")["status"]["containerStatuses"][0]
        return bool(shown["resources"]["limits"]["memory"] == "256Mi")

    until(resized, lambda: kube("describe", "pod", "after").out)
    kube("delete", "pod", "stays", "after", "--grace-period=1")


def _overrides(resources: dict[str, dict[str, str]]) -> str:
    container = {"name": "after", **SHELL, "resources": resources}
    return json.dumps({"spec": {"containers": [container]}})


async def test_the_recorded_answers_about_odd_pods(plane: ControlPlane, kube: Kubectl) -> None:
    """What `tests/unit/api/admission/test_pod_answers.py` expects of this project's API server is what this one says."""
    until(lambda: kube.run("get", "serviceaccount", "default").code == 0)
    if not json.loads(kube("version", "-o", "json").out)["serverVersion"]["gitVersion"].startswith(f"v{RELEASE}."):
        pytest.skip(f"the answers are those of {RELEASE}")
    transport, wrong = HttpTransport(load(plane.kubeconfig)), []
    try:
        for row in rows():
            path = "/api/v1/namespaces/default/pods?dryRun=All&fieldValidation=Strict"
            call = request.Request("POST", path, json.dumps(odd_pod(row)).encode(), request.JSON)
            try:
                await Client(transport).ask(call)
                code, message = 201, None
            except request.ApiError as error:
                code, message = error.code, error.message
            if (code, message) != (row["code"], row.get("message")):
                wrong.append((row["name"], code, message))
    finally:
        await transport.close()
    assert not wrong
