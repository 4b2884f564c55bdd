"""Pods whose containers are resized in place on a real node: their node, their manifests, their files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import RealNode, pod_of, real_node, status_of
from tests.e2e.waiting import until
from tests.kernel.guest import GUEST_VARIABLE

MIB = 1 << 20
HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
Document = dict[str, Any]


def profile_param(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.xdist_group(f"resize {name}"), id=name)  # one node for each


PROFILES = [profile_param("documents"), profile_param("1.36")]


@contextmanager
def resize_node(
    profile: str, tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    root = "/plimsolltest" if GUEST_VARIABLE in os.environ else ""
    with real_node(tmp_path_factory.mktemp("resize") / "cluster", profile, cgroup_root=root) as made:
        place = f"{'a guest' if root else 'this machine'}, cgroup v{this_host().version}"
        exercised("resize by the node agent", f"{place}, embedded runtime, profile {profile}")
        yield made


def resources(cpu: str | None = None, memory: str | None = None, **more: str) -> Document:
    """Requests and limits alike; with `cpu_limit` and so on, other limits; "-" for none at all."""
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    limits = {name: more.get(f"{name}_limit", text) for name, text in requests.items()}
    limits = {name: text for name, text in limits.items() if text != "-"}
    return {"requests": requests, **({"limits": limits} if limits else {})}


def shell(name: str, size: Document, script: str = HANDLES_TERM, **more: object) -> Document:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script], "resources": size, **more}


def patch_of(**sizes: Document) -> str:
    """Container → its new resources."""
    return json.dumps({"spec": {"containers": [{"name": name, "resources": size} for name, size in sizes.items()]}})


def ask(node: RealNode, kube: Kubectl, name: str, patch: str) -> None:
    """As the profile's users do: documents by a plain patch."""
    way = () if node.profile == "documents" else ("--subresource", "resize")
    kube("patch", "pod", name, *way, "-p", patch)


def files(node: RealNode, kube: Kubectl, name: str, container: str = "") -> dict[str, int]:
    """What the kernel has for the pod, or for one of its containers."""
    found = pod_of(kube, name)
    qos = {"Guaranteed": "", "Burstable": "burstable/", "BestEffort": "besteffort/"}[found["status"]["qosClass"]]
    path = f"{node.cgroup_root}/kubepods/{qos}pod{found['metadata']['uid']}"
    if container:
        path += "/" + status_of(kube, name, container)["containerID"].removeprefix("plimsoll://")
    return {
        file: int(Path(f"/sys/fs/cgroup/{file.partition('.')[0]}{path}/{file}").read_text())
        for file in ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes")
    }


def settled(kube: Kubectl, name: str, container: str, size: Document) -> Document:
    """Its status, as soon as it says that the resources are these and nothing is left to do."""

    def read() -> Document:
        status = status_of(kube, name)
        conditions = {each["type"] for each in status.get("conditions", ())}
        found = next(each for each in status["containerStatuses"] if each["name"] == container)
        is_so = found.get("resources") == size and found.get("allocatedResources") == size["requests"]
        is_done = not status.get("resize") and not {"PodResizePending", "PodResizeInProgress"} & conditions
        return found if is_so and is_done and found.get("state", {}).get("running") else {}

    return until(read)


def pending(kube: Kubectl, name: str) -> Document:
    return next((c for c in status_of(kube, name).get("conditions", ()) if c["type"] == "PodResizePending"), {})


def milli(cpu: str) -> int:
    return int(cpu.removesuffix("m"))


def mebi(memory: str) -> int:
    return int(memory.removesuffix("Mi"))


def row(kube: Kubectl, name: str) -> tuple[str, str, str, str]:
    """spec, A, R, Z of the stored object."""
    found = pod_of(kube, name)
    (container,) = found["status"].get("containerStatuses") or [{}]
    return (
        found["spec"]["containers"][0]["resources"]["requests"]["cpu"],
        container.get("allocatedResources", {}).get("cpu", "-"),
        container.get("resources", {}).get("requests", {}).get("cpu", "-"),
        found["status"].get("resize", "-"),
    )
