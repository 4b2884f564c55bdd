"""The life of pods in profile 1.36 on a real node: pod-level resizes, probes and hooks, restart rules.

The same tests with the embedded runtime and with containerd, on this machine's own kernel.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.containerd_node import containerd_node
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import pod, shell
from tests.e2e.private_registry import PASSWORD, USER, private_registry
from tests.e2e.real_node import Document, RealNode, pod_of, real_node, reasons, running, status_of
from tests.e2e.waiting import until

PROFILE = "1.36"
MIB = 1 << 20
HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"


def _runtime(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.xdist_group(f"pod life {name}"), id=name)  # one node for each


@pytest.fixture(scope="module", params=[_runtime("embedded"), _runtime("containerd")])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    directory = tmp_path_factory.mktemp("life") / "cluster"
    exercised("life of pods", f"this machine, cgroup v1, {request.param}, profile {PROFILE}")
    if request.param == "embedded":
        with real_node(directory, PROFILE) as made:
            yield made
        return
    with containerd_node(directory, PROFILE) as (made, _):
        yield made


def create(kube: Kubectl, manifest: str) -> None:
    kube("create", "-f", "-", stdin=manifest)


def kernel_limits(node: RealNode, kube: Kubectl, name: str, container: str = "") -> tuple[int, int]:
    """cpu quota and memory limit of a Guaranteed pod, or of one of its containers."""
    path = f"{node.cgroup_root}/kubepods/pod{pod_of(kube, name)['metadata']['uid']}"
    if container:
        path += "/" + status_of(kube, name, container)["containerID"].partition("://")[2]
    quota = Path(f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us").read_text()
    return int(quota), int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text())


# --- pod-level resources ---


def block(cpu: str, memory: str) -> Document:
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": amounts, "limits": amounts}


def resized(kube: Kubectl, name: str, size: Document) -> Document:
    """The status, as soon as the pod-level resize is done."""
    kube("patch", "pod", name, "--subresource", "resize", "-p", json.dumps({"spec": {"resources": size}}))
    generation = pod_of(kube, name)["metadata"]["generation"]

    def read() -> Document:
        status = status_of(kube, name)
        types = {each["type"] for each in status["conditions"] if each["status"] == "True"}
        is_done = not {"PodResizePending", "PodResizeInProgress"} & types and "Ready" in types
        return status if is_done and status.get("observedGeneration") == generation else {}

    return until(read)


def policy(cpu: str, memory: str) -> list[Document]:
    return [{"resourceName": "cpu", "restartPolicy": cpu}, {"resourceName": "memory", "restartPolicy": memory}]


def restarts(status: Document) -> dict[str, int]:
    every = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    return {each["name"]: each["restartCount"] for each in every}


@pytest.mark.parametrize(
    ("rules", "after_cpu", "after_memory"),
    [
        pytest.param(policy("NotRequired", "NotRequired"), 0, 0, id="no restart"),
        pytest.param(policy("RestartContainer", "NotRequired"), 1, 1, id="cpu restart"),
        pytest.param(policy("NotRequired", "RestartContainer"), 0, 1, id="mem restart"),
    ],
)
def test_a_pod_level_resize_reaches_containers_without_limits(
    node: RealNode, kube: Kubectl, rules: list[Document], after_cpu: int, after_memory: int
) -> None:
    """e2e: PLR Pod InPlace Resize … resizing only pod-level cpu, … only pod-level mem."""
    sidecar = shell("s", HANDLES_TERM, restartPolicy="Always", resizePolicy=rules)
    plain = shell("c", HANDLES_TERM, resizePolicy=rules)
    create(kube, pod("level", plain, initContainers=[sidecar], resources=block("100m", "64Mi")))
    status = running(kube, "level")
    assert status["allocatedResources"] == {"cpu": "100m", "memory": "64Mi"}
    for name in ("", "c", "s"):
        assert kernel_limits(node, kube, "level", name) == (10_000, 64 * MIB)

    status = resized(kube, "level", block("200m", "64Mi"))
    assert restarts(status) == {"s": after_cpu, "c": after_cpu}
    assert status["allocatedResources"] == {"cpu": "200m", "memory": "64Mi"}
    assert status["resources"]["limits"] == {"cpu": "200m", "memory": "64Mi"}
    assert [each["resources"] for each in status["containerStatuses"]] == [{}]
    for name in ("", "c", "s"):
        assert kernel_limits(node, kube, "level", name) == (20_000, 64 * MIB)

    status = resized(kube, "level", block("200m", "48Mi"))
    assert restarts(status) == {"s": after_memory, "c": after_memory}
    for name in ("", "c", "s"):
        assert kernel_limits(node, kube, "level", name) == (20_000, 48 * MIB)


def test_a_pod_level_memory_limit_below_the_usage(node: RealNode, kube: Kubectl) -> None:
    """e2e: decrease pod-level memory limit below usage."""
    create(kube, pod("tight", shell("c", HANDLES_TERM), resources=block("100m", "64Mi")))
    running(kube, "tight")
    tiny = json.dumps({"spec": {"resources": block("100m", "10Ki")}})
    kube("patch", "pod", "tight", "--subresource", "resize", "-p", tiny)

    def refused() -> Document:
        conditions = {each["type"]: each for each in status_of(kube, "tight")["conditions"]}
        found: Document = conditions.get("PodResizeInProgress", {})
        return found if found.get("reason") == "Error" else {}

    assert "memory limit (10240) below current usage" in until(refused)["message"]
    assert 1 * MIB < kernel_limits(node, kube, "tight", "c")[1] <= 64 * MIB, "it follows the usage down, no further"
    status = resized(kube, "tight", block("100m", "64Mi"))
    assert restarts(status) == {"c": 0}
    assert kernel_limits(node, kube, "tight") == kernel_limits(node, kube, "tight", "c") == (10_000, 64 * MIB)


def test_every_pod_has_the_resources_of_the_whole_in_its_status(node: RealNode, kube: Kubectl) -> None:
    """e2e: pod-level resize with requests and limits add."""
    size = {"requests": {"cpu": "20m"}, "limits": {"cpu": "100m"}}
    create(kube, pod("whole", shell("c", HANDLES_TERM, resources=size)))
    status = running(kube, "whole")
    assert status["allocatedResources"] == {"cpu": "20m"}
    # The CPU limit is read from the pod's cgroup; its request from 20 shares.
    assert status["resources"]["limits"]["cpu"] == "100m"
    added = {"requests": {"cpu": "50m"}, "limits": {"cpu": "250m"}}
    assert resized(kube, "whole", added)["allocatedResources"] == {"cpu": "50m"}


# --- restart rules ---


def on_codes(action: str, *codes: int) -> Document:
    return {"action": action, "exitCodes": {"operator": "In", "values": list(codes)}}


def test_a_container_restarts_by_its_own_rules(node: RealNode, kube: Kubectl) -> None:
    """A pod that never restarts: one container by its exit code, one by its policy, one not at all."""
    again = "n=$(cat /v/$0 2>/dev/null || echo 0); echo $((n+1)) > /v/$0; [ $n -ge 1 ] && exit 0; exit $1"
    volume = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    by_code = {"name": "code", "image": "busybox", "command": ["sh", "-c", again, "code", "42"], **volume}
    by_policy = {"name": "policy", "image": "busybox", "command": ["sh", "-c", again, "policy", "7"], **volume}
    create(
        kube,
        pod(
            "rules",
            {**by_code, "restartPolicy": "Never", "restartPolicyRules": [on_codes("Restart", 42)]},
            {**by_policy, "restartPolicy": "OnFailure"},
            shell("once", "exit 0"),
            restartPolicy="Never",
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
    )
    status = until(lambda: found if (found := status_of(kube, "rules")).get("phase") == "Succeeded" else {})
    assert restarts(status) == {"code": 1, "policy": 1, "once": 0}


def test_a_rule_restarts_all_containers_in_place(node: RealNode, kube: Kubectl) -> None:
    """e2e: RestartAllContainers: the sandbox stays, and the pod begins with its init container again."""
    begin = "echo begun >> /v/log; [ $(wc -l < /v/log) -ge 2 ] && touch /v/second; exit 0"
    fails_once = "[ -e /v/second ] && exec sleep 1000; exit 42"
    volume = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    source = shell("source", fails_once, restartPolicy="Never", **volume)
    source["restartPolicyRules"] = [on_codes("RestartAllContainers", 42)]
    create(
        kube,
        pod(
            "together",
            source,
            shell("other", HANDLES_TERM),
            initContainers=[shell("begin", begin, **volume)],
            restartPolicy="Never",
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
    )

    def again() -> Document:
        status = status_of(kube, "together")
        every = status.get("containerStatuses", [])
        runs = bool(every) and all(each["state"].get("running") for each in every)
        return status if runs and restarts(status) == {"begin": 1, "source": 1, "other": 1} else {}

    status = until(again)
    assert status["phase"] == "Running"
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["AllContainersRestarting"] == "False"
    last = {each["name"]: each["lastState"]["terminated"]["reason"] for each in status["containerStatuses"]}
    assert last == {"other": "RestartingAllContainers", "source": "RestartingAllContainers"}


# --- images ---


def test_a_private_image_is_pulled_with_the_secrets_of_the_pod(
    node: RealNode, kube: Kubectl, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "containerd" not in request.node.name:
        pytest.skip("the embedded runtime pulls no images")
    with private_registry(tmp_path) as image:
        container = {"name": "c", "image": image}
        create(kube, pod("denied", container))
        waiting = until(lambda: status_of(kube, "denied", "c").get("state", {}).get("waiting", {}).get("message"))
        assert waiting
        until(lambda: "Failed" in reasons(kube, "denied"))
        server = image.partition("/")[0]
        login = (f"--docker-server={server}", f"--docker-username={USER}", f"--docker-password={PASSWORD}")
        kube("create", "secret", "docker-registry", "login", *login)
        create(kube, pod("allowed", container, imagePullSecrets=[{"name": "login"}]))
        running(kube, "allowed")
        until(lambda: {"Pulling", "Pulled"} <= set(reasons(kube, "allowed")))
        kube("delete", "secret", "login")


# --- variables from a file ---


def test_variables_from_a_file(node: RealNode, kube: Kubectl) -> None:
    """e2e: FileKeyRef. An init container writes the file; a link to a file of the machine is not followed."""
    volume = {"volumes": [{"name": "own", "emptyDir": {}}]}
    write = "printf \"# made here\\nTOKEN='a b\\nc'\\n\" > /own/env; ln -s /etc/passwd /own/link"
    init = shell("i", write, volumeMounts=[{"name": "own", "mountPath": "/own"}])
    for name in ("env", "link"):
        source = {"volumeName": "own", "path": name, "key": "TOKEN"}
        main = shell("c", 'echo "$X"', env=[{"name": "X", "valueFrom": {"fileKeyRef": source}}])
        create(kube, pod(f"from-{name}", main, initContainers=[init], restartPolicy="Never", **volume))
    until(lambda: status_of(kube, "from-env").get("phase") == "Succeeded", lambda: str(status_of(kube, "from-env")))
    assert kube("logs", "from-env").out == "a b\nc\n"
    waiting = until(lambda: status_of(kube, "from-link", "c").get("state", {}).get("waiting", {}).get("message"))
    assert waiting == "couldn't parse env file: link: Invalid cross-device link"
