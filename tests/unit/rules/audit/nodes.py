"""Nodes for tests of the audit: evidence as a healthy node gives it, and ways to bend it.

The tree of a healthy node is what the cgroup engine makes; the kernel's defaults are in the files that are not written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.evidence import KernelFacts, KubeletFacts, NodeEvidence, NodeRecord, ProcessFacts
from plimsoll.rules.audit.finding import Finding, RuleAnswer
from plimsoll.rules.audit.table import audit
from plimsoll.rules.cgroups.desired import Shown, desired_tree
from plimsoll.rules.cgroups.desired_files import protected, wanted
from plimsoll.rules.cgroups.rounding import kept
from plimsoll.rules.model.cgroup_names import cgroup_path, root_name
from plimsoll.rules.model.objects import Node

GIB = 1 << 30
NOW_S = 1_790_000_000.0
DEFAULTS = {
    2: {
        "memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max", "memory.swap.max": "max",
        "memory.oom.group": "0", "cpu.weight": "100", "cpu.max": "max 100000", "pids.max": "max", "cpuset.cpus": "",
    },
    1: {
        "memory.limit_in_bytes": "9223372036854771712", "memory.memsw.limit_in_bytes": "9223372036854771712",
        "cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "pids.max": "max",
        "cpuset.cpus": "", "notify_on_release": "0",
    },
}  # fmt: skip
CONTROLLERS = {
    2: ("cpu", "cpuset", "hugetlb", "io", "memory", "pids"),
    1: ("cpu", "cpuacct", "cpuset", "memory", "pids"),
}
Bend = Callable[[NodeEvidence], NodeEvidence]


def container(name: str = "app", **resources: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": resources}


def pod(name: str = "web", *containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A running pod as the API shows it; `spec`, `status` and `metadata` are merged in."""
    uid = f"0000aaaa-0000-4000-8000-{zlib.crc32(name.encode()):012d}"
    listed = list(containers) or [
        container(requests={"memory": "256Mi", "cpu": "500m"}, limits={"memory": "512Mi", "cpu": "1"})
    ]
    statuses = [
        {
            "name": each["name"],
            "containerID": f"containerd://{container_id(name, each['name'])}",
            "state": {"running": {}},
        }
        for each in listed
    ]
    inits = more.get("spec", {}).get("initContainers", [])
    running = [
        {
            "name": each["name"],
            "containerID": f"containerd://{container_id(name, each['name'])}",
            "state": {"running": {}},
        }
        for each in inits
        if each.get("restartPolicy") == "Always"
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": uid, **more.get("metadata", {})},
        "spec": {"nodeName": "n1", "containers": listed, **more.get("spec", {})},
        "status": {
            "phase": "Running",
            "containerStatuses": statuses,
            "initContainerStatuses": running,
            **more.get("status", {}),
        },
    }


def container_id(pod_name: str, name: str) -> str:
    return f"{pod_name}-{name}".encode().hex().ljust(64, "0")[:64]


def node_object(release: str = "1.36", **capacity: str) -> Node:
    document = {
        "metadata": {"name": "n1"},
        "status": {
            "capacity": {
                "cpu": "4",
                "memory": "16Gi",
                "pods": "110",
                **{k.replace("_", "-"): v for k, v in capacity.items()},
            },
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": f"v{release}.1", "containerRuntimeVersion": "containerd://2.1.0"},
        },
    }
    return from_document(document, Node)


def healthy(
    *pods: dict[str, Any],
    release: str = "1.36",
    config: Mapping[str, Any] | None = None,
    version: int = 2,
    driver: str = "systemd",
    oci_runtime: str = "runc 1.3.2",
    node: Node | None = None,
) -> NodeEvidence:
    """A node that has exactly what it should have."""
    document: dict[str, Any] = {"cgroupDriver": driver, "failCgroupV1": False, **(config or {})}
    kernel = KernelFacts(
        "6.12.0", 2 if version == 2 else 1, 4, 16 * GIB, CONTROLLERS[version], psi=True,
        reclaim=True if version == 2 else None, recursive_protection=True if version == 2 else None,
        pid_max=4194304, threads_max=255000,
    )  # fmt: skip
    root = cgroup_path(
        root_name(str(document.get("cgroupRoot", "/"))), "systemd" if driver == "systemd" else "cgroupfs"
    )
    record = NodeRecord(
        NOW_S,
        kernel,
        KubeletFacts(document, "a test"),
        oci_runtime=oci_runtime,
        cgroups={root: DEFAULTS[version]},
        processes=(),
        overwrites=(),
    )
    listed = tuple(audited_pod(msgspec.json.encode(each)) for each in pods or (pod(),))
    bare = NodeEvidence("n1", record, node or node_object(release), listed)
    view = ComparedNode(bare)
    assert view.setting is not None, view.problem
    tree = desired_tree(list(view.workloads.values()), view.setting, Shown(container_id=view._id, reasons=False))
    plan = wanted(tree)
    made = protected(plan, [path for path, cgroup in plan.items() if cgroup.level == "root"])
    cgroups = {
        path: {**DEFAULTS[version], **{name: kept(name, text) for name, text in cgroup.files.items()}}
        for path, cgroup in made.items()
    }
    filled = msgspec.structs.replace(record, cgroups=cgroups)
    evidence = msgspec.structs.replace(bare, record=filled)
    processes, pid = [], 100
    for place in ComparedNode(evidence).places:
        if place.level == "container":
            pid += 1
            processes.append(
                ProcessFacts(
                    pid, place.path, "app", place.cgroup.oom_score_adj, first=True, threads=2, cgroups_writable=False
                )
            )
    return msgspec.structs.replace(evidence, record=msgspec.structs.replace(filled, processes=tuple(processes)))


# --- bends ---


def path_of(evidence: NodeEvidence, level: str, subject: str = "") -> str:
    places = ComparedNode(evidence).places
    return next(each.path for each in places if each.cgroup.level == level and subject in each.subject)


def with_file(level: str, file: str, text: str, subject: str = "") -> Bend:
    def bend(evidence: NodeEvidence) -> NodeEvidence:
        path = path_of(evidence, level, subject)
        cgroups = {**(evidence.record.cgroups or {})}
        cgroups[path] = {**cgroups[path], file: text}
        return with_record(cgroups=cgroups)(evidence)

    return bend


def with_counters(level: str, counters: Mapping[str, int]) -> Bend:
    def bend(evidence: NodeEvidence) -> NodeEvidence:
        return with_record(counters={path_of(evidence, level): dict(counters)})(evidence)

    return bend


def with_cgroup(path: str, **files: str) -> Bend:
    def bend(evidence: NodeEvidence) -> NodeEvidence:
        named = {key.replace("_", "."): text for key, text in files.items()}
        return with_record(cgroups={**(evidence.record.cgroups or {}), path: named})(evidence)

    return bend


def without_cgroup(level: str) -> Bend:
    def bend(evidence: NodeEvidence) -> NodeEvidence:
        gone = path_of(evidence, level)
        kept = {path: files for path, files in (evidence.record.cgroups or {}).items() if not path.startswith(gone)}
        return with_record(cgroups=kept)(evidence)

    return bend


def with_record(**changes: Any) -> Bend:
    def bend(evidence: NodeEvidence) -> NodeEvidence:
        return msgspec.structs.replace(evidence, record=msgspec.structs.replace(evidence.record, **changes))

    return bend


def with_kernel(**changes: Any) -> Bend:
    def bend(evidence: NodeEvidence) -> NodeEvidence:
        assert evidence.record.kernel is not None
        return with_record(kernel=msgspec.structs.replace(evidence.record.kernel, **changes))(evidence)

    return bend


def with_process(**changes: Any) -> Bend:
    """Changes the first process."""

    def bend(evidence: NodeEvidence) -> NodeEvidence:
        first, *others = evidence.record.processes or ()
        return with_record(processes=(msgspec.structs.replace(first, **changes), *others))(evidence)

    return bend


def bent(evidence: NodeEvidence, *bends: Bend) -> NodeEvidence:
    for bend in bends:
        evidence = bend(evidence)
    return evidence


def answer(evidence: NodeEvidence, rule: str) -> RuleAnswer:
    (found,) = audit(evidence, [rule]).answers
    return found


def found(evidence: NodeEvidence, rule: str) -> tuple[Finding, ...]:
    return answer(evidence, rule).findings
