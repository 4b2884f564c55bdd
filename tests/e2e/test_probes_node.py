"""Probes, readiness gates, stop signals and /proc of real containers, and a node's port through the API server."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.linux.machine import kernel_version
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, PODS, Document, RealNode, kubectl_for, real_node, reasons, status_of
from tests.e2e.waiting import until

GATE = "example.com/in-the-load-balancer"
# HTTP/2 by hand: settings, and for each call of grpc.health.v1.Health/Check the answer SERVING (field 1: 1) as long as
# /tmp/healthy exists, then NOT_SERVING. Header blocks are literals: ":status 200" is index 8 of HPACK's static table.
GRPC = r"""
import os, socket, struct
def frame(kind, flags, stream, data): return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data
def literal(name, value): return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
def exactly(peer, count):
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part: raise EOFError
        data += part
    return data
open("/tmp/healthy", "w").close()
server = socket.create_server(("127.0.0.1", 5000))
while True:
    peer, _ = server.accept()
    try:
        exactly(peer, 24)
        peer.sendall(frame(4, 0, 0, b""))
        while True:
            head = exactly(peer, 9)
            data = exactly(peer, int.from_bytes(head[:3], "big"))
            stream = int.from_bytes(head[5:], "big")
            if head[3] == 4 and not head[4] & 1: peer.sendall(frame(4, 1, 0, b""))
            if head[3] in (0, 1) and head[4] & 1:
                answer = b"\x08\x01" if os.path.exists("/tmp/healthy") else b"\x08\x02"
                peer.sendall(frame(1, 4, stream, b"\x88" + literal(b"content-type", b"application/grpc")))
                peer.sendall(frame(0, 0, stream, b"\0" + struct.pack(">I", len(answer)) + answer))
                peer.sendall(frame(1, 5, stream, literal(b"grpc-status", b"0")))
    except (EOFError, OSError): peer.close()
"""
EVERY_SECOND = {"periodSeconds": 1, "timeoutSeconds": 10}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    gates = ("--feature-gates", "ContainerStopSignals=true")
    with real_node(tmp_path_factory.mktemp("probes") / "n", "1.36", options=gates, api_options=gates) as made:
        yield made


@pytest.fixture
def kube(node: RealNode, tmp_path: Path) -> Iterator[Kubectl]:
    with kubectl_for(node, tmp_path) as made:
        yield made


def create(kube: Kubectl, name: str, script: str, *, spec: Document | None = None, **container: Any) -> None:
    """A pod whose container `c` runs the script."""
    command = container.pop("command", ["sh", "-c", script])
    only = {"name": "c", "image": "busybox", "command": command, **container}
    body = {"nodeName": NODE, "containers": [only], "terminationGracePeriodSeconds": 0, **(spec or {})}
    kube.api("POST", PODS, {"metadata": {"name": name}, "spec": body})


def test_a_node_is_reached_by_its_port(kube: Kubectl) -> None:
    """e2e: Proxy version v1 should proxy logs on node with explicit kubelet port using proxy subresource."""
    port = kube.api("GET", f"/api/v1/nodes/{NODE}")["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    for name in (f"{NODE}:{port}", f"https:{NODE}:{port}"):
        assert kube("get", "--raw", f"/api/v1/nodes/{name}/proxy/healthz").out == "ok"
    other = kube.run("get", "--raw", f"/api/v1/nodes/{NODE}:{port + 1}/proxy/healthz")
    assert "only the port of the node's endpoint can be reached" in other.err


def test_probes(kube: Kubectl) -> None:
    """e2e: a liveness probe waits for the startup probe; ready immediately after it; the grace period of the probe."""
    started = {"exec": {"command": ["test", "-e", "/tmp/started"]}, **EVERY_SECOND, "failureThreshold": 600}
    alive = {"exec": {"command": ["test", "-e", "/tmp/alive"]}, **EVERY_SECOND, "failureThreshold": 1}
    ready = {"exec": {"command": ["true"]}, "periodSeconds": 3600}  # were it not for the startup probe, an hour later
    create(kube, "slow", "sleep 1000", startupProbe=started, livenessProbe=alive, readinessProbe=ready)
    dead = {"exec": {"command": ["false"]}, **EVERY_SECOND, "failureThreshold": 1, "terminationGracePeriodSeconds": 1}
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    create(kube, "stubborn", stubborn, livenessProbe=dead, spec={"terminationGracePeriodSeconds": 3600})
    health = {"grpc": {"port": 5000}, **EVERY_SECOND, "failureThreshold": 1}
    create(kube, "grpc", "", command=["python3", "-c", GRPC], readinessProbe={**health, "failureThreshold": 2},
           livenessProbe={**health, "initialDelaySeconds": 2, "failureThreshold": 600})  # fmt: skip

    until(lambda: status_of(kube, "slow", "c").get("started") is False and "Unhealthy" in reasons(kube, "slow"))
    assert status_of(kube, "slow", "c")["ready"] is False
    kube("exec", "slow", "--", "touch", "/tmp/alive", "/tmp/started")
    until(lambda: status_of(kube, "slow", "c").get("ready"))
    assert (status_of(kube, "slow", "c")["started"], status_of(kube, "slow", "c")["restartCount"]) == (True, 0)

    until(lambda: status_of(kube, "grpc", "c").get("ready"))
    kube("exec", "grpc", "--", "rm", "/tmp/healthy")
    until(lambda: status_of(kube, "grpc", "c").get("ready") is False)
    assert status_of(kube, "grpc", "c")["restartCount"] == 0

    # It ignores TERM: with the pod's own hour it would still run.
    until(lambda: status_of(kube, "stubborn", "c").get("restartCount", 0) > 0)
    assert status_of(kube, "stubborn", "c")["lastState"]["terminated"]["exitCode"] == 137
    kube("exec", "slow", "--", "rm", "/tmp/alive")
    until(lambda: status_of(kube, "slow", "c")["restartCount"] == 1)


def test_a_sidecar_with_probes_and_hooks(kube: Kubectl) -> None:
    """The next container waits for its startup probe, the pod for its readiness; its hook runs after the others ended."""
    script = "trap 'cat /tmp/word; exit 0' TERM; while :; do sleep 0.1; done"
    sidecar = {
        "name": "side",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["test", "-e", "/tmp/go"]}, **EVERY_SECOND, "failureThreshold": 600},
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, **EVERY_SECOND, "failureThreshold": 1},
        "lifecycle": {
            "postStart": {"exec": {"command": ["touch", "/tmp/hooked"]}},
            "preStop": {"exec": {"command": ["sh", "-c", "echo goodbye > /tmp/word"]}},
        },
    }
    spec = {"initContainers": [sidecar], "restartPolicy": "Never", "terminationGracePeriodSeconds": 60}
    create(kube, "both", "until test -e /tmp/done; do sleep 0.1; done", spec=spec)
    until(lambda: "Unhealthy" in reasons(kube, "both"))
    assert status_of(kube, "both", "side")["started"] is False
    assert "waiting" in status_of(kube, "both", "c")["state"]
    kube("exec", "both", "-c", "side", "--", "sh", "-c", "test -e /tmp/hooked && touch /tmp/go")
    until(lambda: "running" in status_of(kube, "both", "c").get("state", {}))
    assert condition(kube, "both", "Ready") == "False"
    kube("exec", "both", "-c", "side", "--", "touch", "/tmp/ready")
    until(lambda: condition(kube, "both", "Ready") == "True")
    kube("exec", "both", "-c", "c", "--", "touch", "/tmp/done")
    until(lambda: status_of(kube, "both")["phase"] == "Succeeded")
    assert kube("logs", "both", "-c", "side").lines == ["goodbye"]


def condition(kube: Kubectl, name: str, kind: str) -> str:
    found = status_of(kube, name).get("conditions") or []
    return next((each["status"] for each in found if each["type"] == kind), "")


def set_gate(kube: Kubectl, name: str, value: str) -> None:
    change = {"status": {"conditions": [{"type": GATE, "status": value}]}}
    kube.api("PATCH", f"{PODS}/{name}/status", change)


def test_readiness_gates(kube: Kubectl) -> None:
    """e2e: Pods should support pod readiness gates. What others write there is theirs: the node never writes it back."""
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, **EVERY_SECOND, "failureThreshold": 1}
    create(kube, "gated", "touch /tmp/ready; sleep 1000", readinessProbe=probe,
           spec={"readinessGates": [{"conditionType": GATE}]})  # fmt: skip
    until(lambda: condition(kube, "gated", "ContainersReady") == "True")
    assert condition(kube, "gated", "Ready") == "False"
    set_gate(kube, "gated", "True")
    until(lambda: condition(kube, "gated", "Ready") == "True")
    set_gate(kube, "gated", "False")
    kube("exec", "gated", "--", "rm", "/tmp/ready")  # the node reports at once, maybe before it has seen the gate
    until(lambda: condition(kube, "gated", "ContainersReady") == "False")
    assert (condition(kube, "gated", GATE), condition(kube, "gated", "Ready")) == ("False", "False")
    kube("exec", "gated", "--", "touch", "/tmp/ready")
    until(lambda: condition(kube, "gated", "ContainersReady") == "True")
    assert (condition(kube, "gated", GATE), condition(kube, "gated", "Ready")) == ("False", "False")


def test_a_stop_signal_of_its_own(kube: Kubectl) -> None:
    """KEP-4960. A deadline ends the pod; its program would ignore TERM."""
    script = "trap '' TERM; trap 'exit 7' USR1; touch /tmp/up; while :; do sleep 0.1; done"
    probe = {"exec": {"command": ["test", "-e", "/tmp/up"]}, **EVERY_SECOND}
    create(kube, "signalled", script, lifecycle={"stopSignal": "SIGUSR1"}, readinessProbe=probe,
           spec={"os": {"name": "linux"}, "terminationGracePeriodSeconds": 600, "restartPolicy": "Never"})  # fmt: skip
    until(lambda: status_of(kube, "signalled", "c").get("ready"))
    assert status_of(kube, "signalled", "c")["stopSignal"] == "SIGUSR1"
    kube.api("PATCH", f"{PODS}/signalled", {"spec": {"activeDeadlineSeconds": 1}})
    ended = until(lambda: status_of(kube, "signalled", "c").get("state", {}).get("terminated"))
    assert ended["exitCode"] == 7


def test_termination_messages(kube: Kubectl) -> None:
    """e2e: Container Runtime blackbox test on terminated container should report termination message …"""
    fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    path = {"terminationMessagePath": "/dev/termination-custom-log"}
    user = {"securityContext": {"runAsUser": 1000}}
    rows = {
        "of-its-file": ("printf OK > /dev/termination-custom-log", {**path, **user}, "OK"),
        "of-its-log": ("echo DONE; false", fallback, "DONE\n"),
        "of-file-though": ("printf OK > /dev/termination-log; echo LOG; true", fallback, "OK"),
        "of-nothing": ("echo DONE; true", fallback, ""),
    }
    for name, (script, fields, _) in rows.items():
        create(kube, name, script, spec={"restartPolicy": "Never"}, **fields)
    for name, (_, _, message) in rows.items():
        ended = until(lambda name=name: status_of(kube, name, "c").get("state", {}).get("terminated"))  # type: ignore[misc]
        assert ended.get("message", "") == message, name


def test_a_sub_path_that_is_completed_later(kube: Kubectl) -> None:
    """e2e: Variable Expansion should verify that a failing subpath expansion can be modified during the lifecycle of a
    container."""
    field = {"fieldRef": {"fieldPath": "metadata.annotations['mysubpath']"}}
    env = [{"name": "POD_NAME", "value": "foo"}, {"name": "ANNOTATION", "valueFrom": field}]
    mounts = [
        {"name": "work", "mountPath": "/subpath_mount", "subPathExpr": "$(ANNOTATION)/$(POD_NAME)"},
        {"name": "work", "mountPath": "/volume_mount"},
    ]
    spec = {"volumes": [{"name": "work", "emptyDir": {}}]}
    create(kube, "later", "sleep 1000", spec=spec, env=env, volumeMounts=mounts)
    kube.api("PATCH", f"{PODS}/later", {"metadata": {"annotations": {"mysubpath": "mypath"}}})
    until(
        lambda: "running" in status_of(kube, "later", "c").get("state", {}),
        lambda: kube("describe", "pod", "later").out,
    )
    kube("exec", "later", "--", "touch", "/subpath_mount/here")
    assert kube("exec", "later", "--", "ls", "/volume_mount/mypath/foo").lines == ["here"]


def test_proc(kube: Kubectl) -> None:
    """The same paths are masked as by containerd, except with procMount: Unmasked, which needs users of its own."""
    script = "cat /proc/keys | wc -c; touch /proc/sys/kernel/domainname 2>&1 | grep -c -i read-only; sleep 1000"
    create(kube, "masked", script)
    until(lambda: len(kube("logs", "masked").lines) == 2)
    assert kube("logs", "masked").lines == ["0", "1"]
    refused = kube.run("create", "-f", "-", stdin=f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"u"}},"spec":'
                       f'{{"nodeName":"{NODE}","containers":[{{"name":"c","image":"busybox","command":["true"],'
                       f'"securityContext":{{"procMount":"Unmasked"}}}}]}}}}')  # fmt: skip
    assert "`hostUsers` must be false to use `Unmasked`" in refused.err


def test_an_unmasked_proc(kube: Kubectl) -> None:
    """e2e: Security Context procMount. Nothing is mounted over /proc, and it is writable as its own users allow."""
    if kernel_version() < (6, 3):
        pytest.skip("users of their own: Linux 6.3")
    script = "grep -c ' /proc/' /proc/self/mountinfo; cat /proc/self/uid_map; sleep 1000"
    create(kube, "plain-proc", script, spec={"hostUsers": False})
    create(kube, "open-proc", script, spec={"hostUsers": False}, securityContext={"procMount": "Unmasked"})
    for name in ("plain-proc", "open-proc"):
        until(lambda name=name: len(kube("logs", name).lines) == 2)  # type: ignore[misc]
    assert int(kube("logs", "plain-proc").lines[0]) > 5
    assert kube("logs", "open-proc").lines[0] == "0"
    assert kube("logs", "open-proc").lines[1].split()[0] == "0"


def test_types_of_host_paths(kube: Kubectl, tmp_path: Path) -> None:
    """e2e: HostPathType …: what is there must be what the type says; …OrCreate creates it."""
    os.chmod(tmp_path, 0o755)
    (tmp_path / "file").write_text("text")
    (tmp_path / "directory").mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    fits = {
        "Directory": "directory", "DirectoryOrCreate": "new-directory", "File": "file", "FileOrCreate": "new-file",
        "Socket": "socket", "CharDevice": "/dev/null",
    }  # fmt: skip
    wrong = {
        "Directory": "file", "DirectoryOrCreate": "file", "File": "directory", "FileOrCreate": "directory",
        "Socket": "file", "CharDevice": "file", "BlockDevice": "file",
    }  # fmt: skip
    mounts, volumes = [], []
    for number, (kind, name) in enumerate(fits.items()):
        volumes.append({"name": f"v{number}", "hostPath": {"path": str(tmp_path / name), "type": kind}})
        mounts.append({"name": f"v{number}", "mountPath": f"/mnt/{kind}"})
    script = "stat -c '%n %F' /mnt/*; sleep 1000"
    create(kube, "host-paths", script, spec={"volumes": volumes}, volumeMounts=mounts)
    for kind, name in wrong.items():
        volume = {"name": "v", "hostPath": {"path": str(tmp_path / name), "type": kind}}
        mount = {"name": "v", "mountPath": "/mnt/v"}
        create(kube, f"wrong-{kind.lower()}", "true", spec={"volumes": [volume]}, volumeMounts=[mount])
    until(lambda: len(kube("logs", "host-paths").lines) == len(fits), lambda: kube("describe", "pod", "host-paths").out)
    said = dict(line.removeprefix("/mnt/").split(" ", 1) for line in kube("logs", "host-paths").lines)
    assert said == {
        "Directory": "directory",
        "DirectoryOrCreate": "directory",
        "File": "regular file",
        "FileOrCreate": "regular empty file",
        "Socket": "socket",
        "CharDevice": "character special file",
    }
    assert (tmp_path / "new-directory").is_dir() and (tmp_path / "new-file").is_file()
    for kind in wrong:
        name = f"wrong-{kind.lower()}"
        until(lambda name=name: "FailedMount" in reasons(kube, name), lambda: kube("describe", "pod", name).out)  # type: ignore[misc] # noqa: B023
        assert status_of(kube, name, "c")["state"]["waiting"]["reason"] == "ContainerCreating"
        kube.api("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    listening.close()


def test_published_files(kube: Kubectl) -> None:
    """e2e: Secrets, ConfigMap, Downward API volume, Projected …: as non-root with defaultMode and fsGroup set, with
    mappings and item mode set, cpu and memory of a container, labels that are modified; in one pod."""
    kube.api("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"data-1": "one"}})
    kube.api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"data-2": "two"}})
    labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    limit = {"path": "limit", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory"}}
    request = {"path": "request", "resourceFieldRef": {
        "containerName": "c", "resource": "requests.cpu", "divisor": "1m"}}  # fmt: skip
    name = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400}
    items = [{"key": "data-2", "path": "path/to/data-2", "mode": 0o400}]
    volumes = [
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o440}},
        {"name": "downward", "downwardAPI": {"items": [labels, limit, request]}},
        {"name": "projected", "projected": {"sources": [
            {"configMap": {"name": "m", "items": items}}, {"downwardAPI": {"items": [name]}}]}},
        {"name": "empty", "emptyDir": {}},
    ]  # fmt: skip
    script = """
    stat -L -c '%a %u %g' /secret/data-1 /projected/path/to/data-2 /projected/name; cat /secret/data-1; echo
    cat /projected/path/to/data-2; echo; cat /projected/name; echo; cat /downward/limit; echo; cat /downward/request; echo
    touch /empty/f; stat -c '%a %u %g' /empty/f /empty; stat -f -c %T /empty | grep -c tmpfs; sleep 1000"""
    context = {"runAsUser": 1000, "fsGroup": 1001}
    spec = {"volumes": volumes, "securityContext": context}
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    resources = {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}
    create(kube, "files", script, spec=spec, volumeMounts=mounts, resources=resources)
    kube.api("PATCH", f"{PODS}/files", {"metadata": {"labels": {"key": "value1"}}})
    until(lambda: len(kube.run("logs", "files").lines) == 11, lambda: kube("describe", "pod", "files").out)
    # An owner that is not in the pod may read by its group, as with a kubelet: 0400 becomes 0440.
    assert kube("logs", "files").lines == [
        "440 0 1001", "440 0 1001", "440 0 1001", "one", "two", "files", str(64 << 20), "250",
        "644 1000 1001", "2777 0 1001", "0",
    ]  # fmt: skip

    def shown() -> str:
        return kube("exec", "files", "--", "cat", "/downward/labels").out

    until(lambda: shown().strip() == 'key="value1"', shown)
    kube.api("PATCH", f"{PODS}/files", {"metadata": {"labels": {"key": "value2"}}})
    until(lambda: shown().strip() == 'key="value2"', shown)


def test_a_job_whose_tasks_fail_and_are_restarted_locally(kube: Kubectl) -> None:
    """e2e: Job should run a job to completion when tasks sometimes fail and are locally restarted."""
    script = "test -e /data/once && exit 0; touch /data/once; exit 1"
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script],
                 "volumeMounts": [{"name": "data", "mountPath": "/data"}]}  # fmt: skip
    spec = {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}], "restartPolicy": "OnFailure"}
    template = {"spec": {**spec, "nodeName": NODE}}
    job = {"metadata": {"name": "locally"}, "spec": {"completions": 2, "parallelism": 2, "template": template}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    kube.api("POST", jobs, {"apiVersion": "batch/v1", "kind": "Job", **job})

    def status() -> Document:
        found: Document = kube.api("GET", f"{jobs}/locally").get("status", {})
        return found

    until(lambda: status().get("succeeded") == 2, lambda: str(status()))
    assert not status().get("failed")
    pods = kube.api("GET", f"{PODS}?labelSelector=job-name%3Dlocally")["items"]
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [1, 1]
