"""The Node object of the fake node, as a kubelet would register it (05 B9)."""

from __future__ import annotations

from plimsoll.rules.profile import Profile
from tests.e2e.fake_containers import Document

CAPACITY = {"cpu": "16", "memory": "33554432Ki", "ephemeral-storage": "102400Mi", "pods": "110"}
ALLOCATABLE = {**CAPACITY, "cpu": "15500m", "memory": "32Gi"}
CONFIG = {
    "systemReserved": {"cpu": "500m"},
    "evictionSoft": {"memory.available": "2Gi"},
    "evictionSoftGracePeriod": {"memory.available": "30s"},
}
CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_document(name: str, port: int, profile: Profile, stamp: str) -> Document:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    info = {
        "machineID": "0" * 32,
        "systemUUID": "00000000-0000-0000-0000-000000000000",
        "bootID": "00000000-0000-0000-0000-000000000001",
        "kernelVersion": "6.1.0-play",
        "osImage": "Plimsoll Playground",
        "containerRuntimeVersion": "fake://1.0",
        "kubeletVersion": f"v{profile.release}.0+play",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
        for kind, status, reason, message in CONDITIONS
    ]
    status = {
        "capacity": CAPACITY,
        "allocatable": ALLOCATABLE,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": info,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }
