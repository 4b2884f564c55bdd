"""The real agent over a real containerd with real kubectl, on this machine's own kernel (cgroup v1, cgroupfs)."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import SandboxSpec
from tests.e2e.containerd_node import (
    HANDLES_TERM,
    Containerd,
    cgroup,
    containerd_node,
    create,
    ended,
    major_version,
    names,
    number,
    runc_version,
    summary_of,
    writes,
)
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import limits, pod, shell
from tests.e2e.real_node import NODE, RealNode, pod_of, reasons, running, status_of
from tests.e2e.waiting import until
from tests.kernel.containerd import cgroup_parent

MIB = 1 << 20
KILLS = 3
Document = dict[str, Any]
NodeAndRuntime = tuple[RealNode, Containerd]

pytestmark = pytest.mark.xdist_group("agent with containerd")  # one node for all


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[NodeAndRuntime]:
    with containerd_node(tmp_path_factory.mktemp("containerd") / "cluster") as made:
        exercised("node agent", "this machine, cgroup v1, containerd and runc")
        yield made


@pytest.fixture
def node(pair: NodeAndRuntime) -> RealNode:
    return pair[0]


@pytest.fixture
def daemon(pair: NodeAndRuntime) -> Containerd:
    return pair[1]


def test_the_node_says_what_runs_its_containers(kube: Kubectl) -> None:
    found = json.loads(kube("get", "node", NODE, "-o", "json").out)["status"]
    assert re.match(r"containerd://[12]\.\d", found["nodeInfo"]["containerRuntimeVersion"])
    names = {name for image in found["images"] for name in image["names"]}
    assert {"docker.io/library/nginx:latest", "docker.io/library/ubuntu:18.04"} <= names
    assert not {"CgroupDriverMismatch", "MemoryQoSUnsupported"} & {each["type"] for each in found["conditions"]}


def test_a_pod_runs_in_its_cgroups_with_its_limits_and_goes(node: RealNode, kube: Kubectl) -> None:
    create(kube, pod("plain", shell("c", HANDLES_TERM, **limits("64Mi", "250m"))))
    status = running(kube, "plain")
    assert (status["phase"], status["qosClass"], status["containerStatuses"][0]["restartCount"]) == (
        "Running",
        "Guaranteed",
        0,
    )
    own, uid = cgroup(node, kube, "plain", container="c"), pod_of(kube, "plain")["metadata"]["uid"]
    assert number(own / "memory.limit_in_bytes") == number(own.parent / "memory.limit_in_bytes") == 64 * MIB
    cpu = cgroup(node, kube, "plain", "cpu", "c")
    assert number(cpu / "cpu.cfs_quota_us") == number(cpu.parent / "cpu.cfs_quota_us") == 25_000
    assert number(cpu / "cpu.shares") == 256
    assert (own / "cgroup.procs").read_text().split(), "no process is in the container's cgroup"
    assert "up" in until(lambda: kube("logs", "plain").out)
    assert kube("exec", "plain", "--", "sh", "-c", "echo $((6*7))").out.strip() == "42"
    assert kube("exec", "-i", "plain", "--", "head", "-n1", stdin="through\n").out == "through\n"
    kube("delete", "pod", "plain")
    assert not [each for each in node.memory_cgroups() if uid in each]
    until(lambda: {"Pulled", "Created", "Started", "Killing"} <= set(reasons(kube, "plain")))


def test_the_handler_of_a_runtime_class_reaches_containerd(node: RealNode, kube: Kubectl) -> None:
    """containerd runs a handler that it has, and refuses another one with its own words."""
    for name, handler in (("known", "runc"), ("unknown", "runsc")):
        head = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": f"{name}-{kube.namespace}"},
        }
        kube("create", "-f", "-", stdin=json.dumps({**head, "handler": handler}))
        create(kube, pod(name, shell("c", HANDLES_TERM, **limits("64Mi")), runtimeClassName=f"{name}-{kube.namespace}"))
    running(kube, "known")
    until(lambda: "FailedCreatePodSandBox" in reasons(kube, "unknown"))
    assert 'no runtime for "runsc" is configured' in kube("describe", "pod", "unknown").out
    for name in ("known", "unknown"):
        kube("delete", "pod", name)
        kube("delete", "runtimeclass", f"{name}-{kube.namespace}")


def test_an_out_of_memory_kill_restarts_that_container_alone(kube: Kubectl) -> None:
    hog = shell("hog", "sleep 0.5; exec tail /dev/zero", **limits("32Mi", "1"))
    create(kube, pod("hungry", hog, shell("calm", "sleep 1000")))

    def hit() -> Document:
        found = status_of(kube, "hungry", "hog")
        return found if found.get("lastState", {}).get("terminated", {}).get("reason") == "OOMKilled" else {}

    assert until(hit)["lastState"]["terminated"]["exitCode"] == 137
    assert status_of(kube, "hungry", "calm")["restartCount"] == 0
    assert status_of(kube, "hungry")["phase"] == "Running"


def test_a_failed_liveness_probe_restarts_the_container(kube: Kubectl) -> None:
    script = "touch /tmp/healthy; sleep 2.5; rm /tmp/healthy; sleep 1000"
    probe = {
        "exec": {"command": ["test", "-f", "/tmp/healthy"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "timeoutSeconds": 10,
    }
    create(
        kube,
        pod("sick", shell("c", script, livenessProbe=probe, readinessProbe=probe), terminationGracePeriodSeconds=1),
    )
    running(kube, "sick")

    def again() -> Document:
        found = status_of(kube, "sick", "c")
        return found if found.get("restartCount") else {}

    restarted = until(again)
    assert restarted["lastState"]["terminated"]["exitCode"] == 137
    assert "Container c failed liveness probe, will be restarted" in kube("describe", "pod", "sick").out


def test_a_pod_with_loopback_alone_is_probed_from_within(kube: Kubectl) -> None:
    web: Document = {"name": "web", "image": "nginx", "ports": [{"name": "http", "containerPort": 80}]}
    web |= {"readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}}
    web |= {"livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1}}
    client = "until wget -q -O - http://localhost; do sleep 0.1; done; sleep 1000"
    create(kube, pod("talk", web, shell("client", client)))
    assert "podIP" not in running(kube, "talk")
    until(lambda: "Welcome to nginx!" in kube("logs", "talk", "-c", "client").out)


def test_volumes_files_and_identity(kube: Kubectl) -> None:
    kube("create", "configmap", "words", "--from-literal=greeting=hello")
    mounts = [{"name": "m", "mountPath": "/m"}, {"name": "w", "mountPath": "/w", "subPath": "greeting"}]
    script = "cat /w; df /m | tail -1; id -u; id -g; cat /etc/hostname; echo said > /dev/termination-log"
    main = shell("c", script, volumeMounts=mounts, securityContext={"runAsUser": 7, "runAsGroup": 8})
    volumes = [
        {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "w", "configMap": {"name": "words"}},
    ]
    create(kube, pod("files", main, volumes=volumes, restartPolicy="Never"))
    until(lambda: status_of(kube, "files").get("phase") == "Succeeded")
    first, disk, *rest = kube("logs", "files").out.replace("hello", "hello\n").split("\n")
    assert first == "hello" and disk.split()[:2] == ["tmpfs", "1024"]
    assert rest[:3] == ["7", "8", "files"]
    assert status_of(kube, "files", "c")["state"]["terminated"]["message"] == "said\n"


def test_security_contexts(kube: Kubectl) -> None:
    """Each reaches containerd; SELinux labels are accepted where the kernel has no SELinux."""
    context = {
        "supplementalGroups": [60000],
        "fsGroup": 4711,
        "seLinuxOptions": {"level": "s0:c1"},
        "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "83"}],
    }
    own = {"runAsUser": 1000, "windowsOptions": {"runAsUserName": "x"}, "readOnlyRootFilesystem": True}
    script = (
        "id -G; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; grep NoNewPrivs /proc/self/status; "
        "touch /x 2>/dev/null || echo read-only; stat -c '%a %g' /sub"
    )
    mount = {"volumeMounts": [{"name": "m", "mountPath": "/sub", "subPath": "new"}]}
    create(
        kube,
        pod(
            "context",
            shell("c", script, securityContext=own, **mount),
            securityContext=context,
            volumes=[{"name": "m", "emptyDir": {"medium": "Memory"}}],
            restartPolicy="Never",
        ),
    )
    groups, port, privileges, root, volume = ended(kube, "context").splitlines()
    assert {"4711", "60000"} <= set(groups.split())
    assert (port, privileges.split()[1], root, volume) == ("83", "0", "read-only", "3777 4711")
    create(
        kube,
        pod(
            "bound",
            shell("c", "grep NoNewPrivs /proc/self/status", securityContext={"allowPrivilegeEscalation": False}),
            restartPolicy="Never",
        ),
    )
    assert ended(kube, "bound").split()[1] == "1"


def test_what_containerd_2_can_do(kube: Kubectl) -> None:
    """Groups without those of the image, users of its own, and the files of an image as a volume."""
    if major_version(kube) < 2:
        pytest.skip("containerd 2.1")
    context = {"supplementalGroupsPolicy": "Strict", "supplementalGroups": [60000], "runAsUser": 1000}
    create(kube, pod("strict-2", shell("c", "id -G"), securityContext=context, restartPolicy="Never"))
    assert ended(kube, "strict-2").split() == ["0", "60000"]
    if (version := runc_version()) < (1, 2):
        pytest.skip(f"user namespaces need runc 1.2, this one is {version[0]}.{version[1]}")
    mounts = [{"name": "e", "mountPath": "/e"}, {"name": "i", "mountPath": "/i"}]
    volumes = [{"name": "e", "emptyDir": {}}, {"name": "i", "image": {"reference": "busybox", "pullPolicy": "Never"}}]
    script = "cat /proc/self/uid_map; touch /e/f && stat -c '%u:%g' /e/f; ls /i/bin/sh"
    spec = {"hostUsers": False, "securityContext": {"fsGroup": 5555}, "restartPolicy": "Never"}
    create(kube, pod("users-2", shell("c", script, volumeMounts=mounts), volumes=volumes, **spec))
    inside, outside, length, owner, shown = ended(kube, "users-2").split()
    assert (inside, length, owner, shown) == ("0", "65536", "0:5555", "/i/bin/sh")
    assert int(outside) >= 65536


def test_what_this_containerd_cannot_do_is_refused_as_by_a_kubelet(kube: Kubectl) -> None:
    if major_version(kube) >= 2:
        pytest.skip("containerd 1")
    create(kube, pod("strict", shell("c", "true"), securityContext={"supplementalGroupsPolicy": "Strict"}))
    until(lambda: status_of(kube, "strict").get("reason") == "SupplementalGroupsPolicyNotSupported")
    create(kube, pod("users", shell("c", "true"), hostUsers=False))
    create(
        kube,
        pod(
            "image-volume",
            shell("c", "true", volumeMounts=[{"name": "i", "mountPath": "/i"}]),
            volumes=[{"name": "i", "image": {"reference": "busybox"}}],
        ),
    )

    def said(name: str, words: str) -> bool:
        return words in kube("get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json").out

    until(lambda: said("users", "can't set `spec.hostUsers: false`, runtime does not support user namespaces"))
    until(lambda: said("image-volume", "this container runtime does not mount images"))


def test_the_root_of_the_machine_and_a_secret(kube: Kubectl) -> None:
    """As node-exporter mounts it, and as most pods of a cluster read their configuration."""
    kube("create", "secret", "generic", "login", "--from-literal=user=root")
    # Without mountPropagation: in the mount namespace of this containerd nothing is shared.
    mounts = [
        {"name": "host", "mountPath": "/host", "readOnly": True},
        {"name": "login", "mountPath": "/login"},
    ]
    env = [{"name": "U", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}]
    script = "cat /login/user; echo $U; cat /host/etc/hostname; stat -L -c %a /login/user"
    volumes = [
        {"name": "host", "hostPath": {"path": "/"}},
        {"name": "login", "secret": {"secretName": "login", "defaultMode": 0o400}},
    ]
    create(
        kube, pod("exporter", shell("c", script, volumeMounts=mounts, env=env), volumes=volumes, restartPolicy="Never")
    )
    assert ended(kube, "exporter") == f"rootroot\n{Path('/etc/hostname').read_text()}400\n"


def test_images_that_cannot_be_had(kube: Kubectl) -> None:
    absent = {"image": "localhost:1/none:1", "command": ["true"]}
    create(kube, pod("odd", {"name": "c", **absent, "imagePullPolicy": "IfNotPresent"}))
    create(kube, pod("never", {"name": "c", **absent, "imagePullPolicy": "Never"}))

    def reason(name: str) -> str:
        return str(status_of(kube, name, "c").get("state", {}).get("waiting", {}).get("reason"))

    until(lambda: reason("odd") == "ImagePullBackOff")
    until(lambda: reason("never") == "ErrImageNeverPull")
    until(lambda: {"Pulling", "Failed", "BackOff"} <= set(reasons(kube, "odd")))
    until(lambda: "ErrImageNeverPull" in reasons(kube, "never"))


def test_root_is_refused_with_run_as_non_root(kube: Kubectl) -> None:
    create(kube, pod("nonroot", shell("c", "true"), securityContext={"runAsNonRoot": True}))

    def message() -> str:
        return str(status_of(kube, "nonroot", "c").get("state", {}).get("waiting", {}).get("message", ""))

    until(lambda: "image will run as root" in message())


def test_a_resize_needs_no_restart_and_a_limit_below_usage_kills_nothing(node: RealNode, kube: Kubectl) -> None:
    # Memory of tmpfs, which cannot be reclaimed: 24 MiB that a lower limit cannot have.
    taken = "dd if=/dev/zero of=/dev/shm/taken bs=1M count=24 2>/dev/null; echo taken; " + HANDLES_TERM
    create(kube, pod("sized", shell("c", taken, **limits("64Mi", "250m"))))
    before = running(kube, "sized")["containerStatuses"][0]
    until(lambda: "taken" in kube("logs", "sized").out)

    def resized(memory: str, cpu: str) -> None:
        patch = {"name": "c", "resources": {"limits": {"memory": memory, "cpu": cpu}}}
        patch["resources"]["requests"] = patch["resources"]["limits"]  # type: ignore[index]
        kube("patch", "pod", "sized", "-p", json.dumps({"spec": {"containers": [patch]}}))

    def values() -> tuple[int, int, int, int]:
        memory, cpu = cgroup(node, kube, "sized", container="c"), cgroup(node, kube, "sized", "cpu", "c")
        files = (memory / "memory.limit_in_bytes", cpu / "cpu.cfs_quota_us")
        above = (memory.parent / "memory.limit_in_bytes", cpu.parent / "cpu.cfs_quota_us")
        return tuple(map(number, (*files, *above)))  # type: ignore[return-value]

    resized("96Mi", "500m")
    until(lambda: values() == (96 * MIB, 50_000, 96 * MIB, 50_000))
    until(lambda: status_of(kube, "sized", "c")["resources"]["limits"] == {"cpu": "500m", "memory": "96Mi"})
    resized("8Mi", "500m")
    until(lambda: status_of(kube, "sized").get("resize") == "InProgress")
    until(lambda: 24 * MIB < values()[0] < 40 * MIB, lambda: str(values()))  # as far as the usage allows
    assert values()[2] == 96 * MIB
    resized("48Mi", "250m")
    until(lambda: values() == (48 * MIB, 25_000, 48 * MIB, 25_000))
    after = until(lambda: (found := status_of(kube, "sized", "c"))["resources"]["limits"]["memory"] == "48Mi" and found)
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


def test_writable_layers_are_reported(kube: Kubectl) -> None:
    """04 §13b. containerd counts every ten seconds."""
    kube("create", "configmap", "reported", "--from-literal=greeting=hello")
    mounts = [{"name": "words", "mountPath": "/words"}, {"name": "taken", "mountPath": "/taken"}]
    volumes = [
        {"name": "words", "configMap": {"name": "reported"}},
        {"name": "taken", "emptyDir": {"medium": "Memory"}},
    ]
    writer = shell(
        "writer", f"dd if=/dev/zero of=/taken/x bs=1M count=4 2>/dev/null; {writes(20)}", volumeMounts=mounts
    )
    create(kube, pod("writes", writer, shell("calm", HANDLES_TERM), volumes=volumes))
    running(kube, "writes")

    def summary() -> Document:
        found = summary_of(kube, "writes")
        every = {each["name"]: each["rootfs"] for each in found.get("containers", [])}
        return found if every and all(each.get("usedBytes") for each in every.values()) and large(every) else {}

    def large(every: dict[str, Document]) -> bool:
        return bool(every["writer"]["usedBytes"] >= 20 * MIB)

    found = until(summary)
    used = {each["name"]: each["rootfs"] for each in found["containers"]}
    assert 20 * MIB <= used["writer"]["usedBytes"] < 24 * MIB, used
    assert used["calm"]["usedBytes"] < MIB and used["writer"]["inodesUsed"] >= 1
    volume_stats = {each["name"]: each["usedBytes"] for each in found["volume"]}
    assert 0 < volume_stats["words"] < MIB and volume_stats["taken"] >= 4 * MIB
    stored = found["ephemeral-storage"]["usedBytes"]
    parts = sum(each[part]["usedBytes"] for each in found["containers"] for part in ("rootfs", "logs"))
    own = stored - parts - volume_stats["words"]  # /etc/hosts and the termination log; what is in memory is not on disk
    assert 0 < own < 100_000


def test_a_container_above_its_storage_limit_is_evicted(kube: Kubectl) -> None:
    """04 §6.3: it is within what its pod may have, so the container's own limit is reported."""

    def limited(name: str, script: str, storage: str) -> Document:
        return shell(name, script, resources={"limits": {"ephemeral-storage": storage}})

    create(kube, pod("full", limited("writer", writes(20), "8Mi"), limited("calm", HANDLES_TERM, "64Mi")))
    create(kube, pod("fits", limited("writer", writes(20), "32Mi")))
    running(kube, "full")
    evicted = until(lambda: (found := status_of(kube, "full")).get("reason") == "Evicted" and found)
    assert evicted["message"] == 'Container writer exceeded its local ephemeral storage limit "8Mi". '
    ended = until(
        lambda: [
            each["state"]["terminated"]["exitCode"]
            for each in status_of(kube, "full")["containerStatuses"]
            if "terminated" in each["state"]
        ]
    )
    assert evicted["phase"] == "Failed" and len(ended) == 2
    assert running(kube, "fits")["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_pods_outlive_the_runtime(daemon: Containerd, kube: Kubectl, how: signal.Signals) -> None:
    create(kube, pod("stay", shell("c", HANDLES_TERM), shell("d", "sleep 10; exit 4"), restartPolicy="Never"))
    before = running(kube, "stay")["containerStatuses"][0]
    first = daemon.pid
    daemon.stop(how)
    create(kube, pod("late", shell("c", HANDLES_TERM)))  # while no runtime can start it
    daemon.start()
    assert daemon.pid != first
    running(kube, "late")
    ended = until(lambda: status_of(kube, "stay", "d").get("state", {}).get("terminated"))
    assert (ended["exitCode"], ended["reason"]) == (4, "Error")
    found = status_of(kube, "stay", "c")
    assert (found["containerID"], found["restartCount"], found["ready"]) == (before["containerID"], 0, True)
    until(
        lambda: (
            "True" in kube("get", "node", NODE, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}").out
        )
    )


def test_no_pod_of_a_killed_agent_is_lost_doubled_or_restarted(node: RealNode, kube: Kubectl) -> None:
    """Killed at random moments while pods come and go. The counts of the issue are `./dev prove`'s."""
    dice = random.Random(5)
    create(kube, pod("stay", shell("c", HANDLES_TERM)))
    before = running(kube, "stay")["containerStatuses"][0]["containerID"]
    for attempt in range(KILLS):
        create(kube, pod(f"come{attempt}", shell("c", HANDLES_TERM)))
        if attempt:
            kube("delete", "pod", f"come{attempt - 1}", "--wait=false")
        time.sleep(dice.uniform(0.0, 0.8))  # the moment of the kill, not a wait for anything
        node.kill_node()
        node.start_node()
    running(kube, f"come{KILLS - 1}")
    until(lambda: names(kube) == [f"come{KILLS - 1}", "stay"])
    found = status_of(kube, "stay", "c")
    assert (found["containerID"], found["restartCount"]) == (before, 0)
    assert status_of(kube, f"come{KILLS - 1}", "c")["restartCount"] == 0


def test_foreign_pods_in_the_same_runtime_are_not_changed(node: RealNode, daemon: Containerd) -> None:
    """What is below our kubepods and unknown is ended; a sandbox elsewhere is left as it is."""
    with cgroup_parent() as elsewhere:
        places = {"theirs": f"{elsewhere}/podtheirs", "ours": f"{node.cgroup_root}/kubepods/besteffort/podours"}

        async def made() -> None:
            runtime = CriRuntime(daemon.socket)
            await runtime.open()
            for uid, place in places.items():
                await runtime.make_sandbox(SandboxSpec(uid, uid, "default", host_network=True, cgroup_parent=place))
            await runtime.close()

        async def there() -> set[str]:
            runtime = CriRuntime(daemon.socket)
            await runtime.open()
            found = {each.pod_uid: each.id for each in (await runtime.seen()).sandboxes if each.pod_uid in places}
            if found.keys() == {"theirs"}:
                await runtime.remove_sandbox(found["theirs"])
            await runtime.close()
            return set(found)

        node.kill_node()
        asyncio.run(made())
        node.start_node()
        assert until(lambda: (found := asyncio.run(there())) != {"theirs", "ours"} and found) == {"theirs"}
        until(lambda: not [each for each in node.memory_cgroups() if "podours" in each])
