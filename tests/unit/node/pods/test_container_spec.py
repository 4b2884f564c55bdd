"""The runtime's specs of a pod and its containers (03 §12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import ContainerConfigError, InvalidNameError
from plimsoll.node.devices.messages import CDIDevice, ContainerAllocateResponse, DeviceSpec, PluginMount
from plimsoll.node.pods.container_spec import NodePaths, container_hash, container_spec, node_names, sandbox_spec
from plimsoll.node.volumes.pod_dirs import termination_message
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.lifecycle.host_files import Dns, NodeNames
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.profile import PROFILE_DOCUMENTS
from plimsoll.runtime.cri.requests import container_config
from plimsoll.runtime.interface import ContainerMount, ContainerSpec, CriResources, Image, PortMapping, Security

IMAGE = Image("sha256:1", user=5)
LABELS = {"io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u-1"}


def pod(container: Any = None, uid: str = "u-1", **spec: Any) -> RunPod:
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": uid,
        "labels": {"app": "web", "io.kubernetes.pod.name": "a lie"},
        "annotations": {"note": "x"},
    }
    return run_pod(
        {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "nginx", **(container or {})}], **spec}}
    )


@pytest.fixture
def place(tmp_path: Path) -> NodePaths:
    return NodePaths(tmp_path / "state", tmp_path / "logs", NodeNames("node-1", "", Dns(("192.0.2.53",))))


def spec_of(it: RunPod, place: NodePaths, *mounts: ContainerMount, attempt: int = 0, **options: Any) -> ContainerSpec:
    environment = {"NAME": "world"}
    return container_spec(it, it.spec.containers[0], attempt, IMAGE, environment, mounts, place, **options)


def test_dns_by_the_kubelets_settings(place: NodePaths, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("search example.org\nnameserver 192.0.2.53\n")
    config = msgspec.structs.replace(
        default_config(PROFILE_DOCUMENTS), cluster_dns=("10.96.0.10",), resolv_conf=str(tmp_path / "resolv.conf")
    )
    paths = msgspec.structs.replace(place, names=node_names(config))
    searches = ("ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org")
    assert sandbox_spec(pod(), 0, "", paths).dns == Dns(("10.96.0.10",), searches, ("ndots:5",))
    assert sandbox_spec(pod(dnsPolicy="Default"), 0, "", paths).dns == Dns(("192.0.2.53",), ("example.org",))
    empty = msgspec.structs.replace(place, names=node_names(msgspec.structs.replace(config, resolv_conf="")))
    assert sandbox_spec(pod(dnsPolicy="Default"), 0, "", empty).dns == Dns()


def test_host_ports(place: NodePaths) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "hostPort": 5353, "protocol": "UDP", "hostIP": "127.0.0.1"}]
    forwarded = (PortMapping(53, 5353, "UDP", "127.0.0.1"),)
    assert sandbox_spec(pod({"ports": ports}), 0, "", place).ports == forwarded
    assert sandbox_spec(pod({"ports": ports}, hostNetwork=True), 0, "", place).ports == ()


def test_the_sandbox(place: NodePaths) -> None:
    it = pod(hostPID=True, shareProcessNamespace=True)
    found = sandbox_spec(it, 2, "/kubepods/podu-1", place)
    assert (found.pod_uid, found.name, found.namespace, found.attempt, found.hostname) == ("u-1", "p", "ns", 2, "p")
    assert (found.host_network, found.host_pid, found.host_ipc, found.share_process_namespace) == (
        False,
        True,
        False,
        True,
    )
    assert found.log_directory == str(place.logs / "ns_p_u-1")
    assert found.cgroup_parent == "/kubepods/podu-1"
    assert found.labels == {"app": "web", **LABELS}
    assert found.annotations == {"note": "x"}
    assert sandbox_spec(pod(hostNetwork=True), 0, "", place).hostname == "node-1"


def test_the_container(place: NodePaths) -> None:
    it = pod(
        {
            "command": ["echo", "$(NAME)", "$$(NAME)", "$(NONE)"],
            "args": ["$(NAME)"],
            "workingDir": "/work",
            "tty": True,
            "stdin": True,
            "stdinOnce": True,
            "terminationMessagePath": "/tmp/why",
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "lifecycle": {"stopSignal": "SIGUSR1"},
            "securityContext": {"runAsUser": 7, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        },
        terminationGracePeriodSeconds=5,
    )
    found = spec_of(it, place, attempt=3, resources=CriResources(oom_score_adj=999), cgroup="/kubepods/podu-1/c")
    assert (found.name, found.attempt, found.image, found.image_ref) == ("c", 3, "nginx", "sha256:1")
    assert (found.command, found.args) == (("echo", "world", "$(NAME)", "$(NONE)"), ("world",))
    assert (found.working_dir, found.tty, found.stdin, found.stdin_once) == ("/work", True, True, True)
    assert found.environment == {"NAME": "world"}
    assert found.security == Security(user=7, read_only_root=True, drop_capabilities=("ALL",))
    assert (found.log_path, found.stop_signal) == ("c/3.log", "SIGUSR1")
    assert (found.resources.oom_score_adj, found.cgroup) == (999, "/kubepods/podu-1/c")
    assert found.labels == {**LABELS, "io.kubernetes.container.name": "c"}
    assert found.annotations == {
        "io.kubernetes.container.hash": container_hash(it.spec.containers[0]),
        "io.kubernetes.container.restartCount": "3",
        "io.kubernetes.container.terminationMessagePath": "/tmp/why",
        "io.kubernetes.container.terminationMessagePolicy": "FallbackToLogsOnError",
        "io.kubernetes.pod.terminationGracePeriod": "5",
    }
    assert all(mount.read_only for mount in found.mounts if mount.container_path.startswith("/etc"))


def test_files_of_every_container(place: NodePaths) -> None:
    found = {
        mount.container_path: Path(mount.host_path) for mount in spec_of(pod(), place, pod_ips=("10.0.0.7",)).mounts
    }
    assert list(found) == ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log"]
    assert "10.0.0.7\tp\n" in found["/etc/hosts"].read_text()
    assert found["/etc/hostname"].read_text() == "p\n"
    assert found["/etc/resolv.conf"].read_text() == "nameserver 192.0.2.53\n"
    found["/dev/termination-log"].write_text("because")
    assert termination_message(place.state, "u-1", "c", 0) == "because"
    assert termination_message(place.state, "u-1", "c", 1) == ""


def test_a_runtime_that_writes_its_own_files(tmp_path: Path) -> None:
    place = NodePaths(tmp_path, tmp_path, makes_etc=False)
    assert [mount.container_path for mount in spec_of(pod(), place).mounts] == ["/etc/hosts", "/dev/termination-log"]


def test_a_volume_replaces_our_own_file_and_outer_paths_come_first(place: NodePaths) -> None:
    found = spec_of(
        pod(),
        place,
        ContainerMount("/host/deep", "/a/b/c/d"),
        ContainerMount("/host/hosts", "/etc/hosts"),
        ContainerMount("/host/dev", "/dev"),
    )
    paths = [(mount.container_path, mount.host_path) for mount in found.mounts]
    assert paths[0] == ("/dev", "/host/dev")
    assert paths[-1] == ("/a/b/c/d", "/host/deep")
    assert [host for path, host in paths if path == "/etc/hosts"] == ["/host/hosts"]


def test_the_hash_is_over_name_and_image_only() -> None:
    def hashed(**container: Any) -> str:
        return container_hash(pod(container).spec.containers[0])

    assert hashed() == hashed(resources={"limits": {"cpu": "1"}}, command=["x"])
    assert len({hashed(), hashed(image="other"), hashed(name="d")}) == 3


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}, "breaks non-root policy"),
        ({"command": ["a\0b"]}, "zero byte"),
        ({"terminationMessagePath": "/a/../../b"}, "terminationMessagePath"),
        ({"terminationMessagePath": "/"}, "terminationMessagePath"),
    ],
)
def test_invalid_containers_are_refused(place: NodePaths, container: Any, message: str) -> None:
    with pytest.raises(ContainerConfigError, match=message):
        spec_of(pod(container), place)


def test_names_never_become_paths_unchecked(place: NodePaths) -> None:
    with pytest.raises(InvalidNameError):
        spec_of(pod({"name": "../c"}), place)
    with pytest.raises(InvalidNameError):
        sandbox_spec(pod(uid="../u"), 0, "", place)
    assert not place.state.exists()


PLUGGED = ContainerAllocateResponse(
    envs={"GPU": "g0"},
    mounts=(PluginMount("/opt/driver", "/usr/lib/driver", True),),
    devices=(DeviceSpec("/dev/gpu", "/dev/null", "rw"),),
    annotations={"example.com/gpu": "g0"},
    cdi_devices=(CDIDevice("example.com/gpu=g0"),),
)


def test_what_a_device_plugin_says_reaches_a_cri_runtime(place: NodePaths) -> None:
    spec = spec_of(pod(), msgspec.structs.replace(place, makes_etc=False), devices=PLUGGED)
    found = container_config(sandbox_spec(pod(), 0, "", place), spec)
    assert [each.name for each in found.CDI_devices] == ["example.com/gpu=g0"]
    assert [(each.container_path, each.host_path, each.permissions) for each in found.devices] == [
        ("/dev/gpu", "/dev/null", "rw")
    ]
    assert ("GPU", b"g0") in [(each.key, each.value) for each in found.envs]
    assert ("/opt/driver", "/usr/lib/driver", True) in [
        (each.container_path, each.host_path, each.readonly) for each in found.mounts
    ]
    assert found.annotations["example.com/gpu"] == "g0"


def test_cdi_devices_with_the_embedded_runtime(place: NodePaths, tmp_path: Path) -> None:
    """The agent applies their edits; a CRI runtime gets the names only."""
    edits = {
        "env": ["GPU=cdi", "CARD=1"],
        "deviceNodes": [{"path": "/dev/card", "hostPath": "/dev/null"}],
        "mounts": [{"hostPath": "/opt/card", "containerPath": "/card", "options": ["ro"]}],
        "additionalGids": [44],
    }
    device = {"name": "g0", "containerEdits": edits}
    (tmp_path / "gpu.json").write_text(json.dumps({"kind": "example.com/gpu", "devices": [device]}))
    here = msgspec.structs.replace(place, cdi=(str(tmp_path),))
    spec = spec_of(pod(), here, devices=PLUGGED)
    assert (spec.environment["GPU"], spec.environment["CARD"]) == ("cdi", "1")
    assert [(each.host_path, each.container_path, each.permissions) for each in spec.devices] == [
        ("/dev/null", "/dev/gpu", "rw"),
        ("/dev/null", "/dev/card", "rwm"),
    ]
    assert ContainerMount("/opt/card", "/card", read_only=True) in spec.mounts
    assert 44 in spec.security.groups
    there = spec_of(pod(), msgspec.structs.replace(here, makes_etc=False), devices=PLUGGED)
    assert "CARD" not in there.environment and there.cdi_devices == ("example.com/gpu=g0",)


def test_a_cdi_device_that_nothing_describes(place: NodePaths, tmp_path: Path) -> None:
    with pytest.raises(ContainerConfigError, match=r"device example\.com/gpu=g0: no CDI file describes it"):
        spec_of(pod(), msgspec.structs.replace(place, cdi=(str(tmp_path),)), devices=PLUGGED)
