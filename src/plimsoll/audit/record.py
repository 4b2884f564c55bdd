"""Everything that one audit reads on the machine it runs on, as a NodeRecord."""

from __future__ import annotations

import time

import msgspec

from plimsoll.audit.attached import attached_values
from plimsoll.audit.cgroups import kernel_facts, observed_tree
from plimsoll.audit.kubelet import cpu_manager_facts, kubelet_facts, kubelet_root, memory_manager_policy, oci_runtime
from plimsoll.audit.processes import container_processes
from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, open_cgroupfs, this_host
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.rules.audit.evidence import KubeletFacts, NodeRecord


def _cgroup_root(kubelet: KubeletFacts | None) -> str:
    """Plain components only: it becomes a path."""
    if kubelet is None:
        return "/"
    root = kubelet.flags.get("cgroupRoot", [""])[-1] or str(kubelet.document.get("cgroupRoot") or "/")
    return "/" if ".." in root.split("/") else f"/{root.strip('/')}"


def this_node(kubelet: KubeletFacts | None = None, *, runtime: str = "", processes: bool = True) -> NodeRecord:
    """`kubelet`: its configuration, if it is already known from /configz. `runtime`: an OCI runtime, by its version."""
    unread: dict[str, str] = {}
    record = NodeRecord(time_s=time.time(), oci_runtime=runtime or oci_runtime())
    if kubelet is None:
        kubelet, why = kubelet_facts()
        if why:
            unread["configuration"] = why
    root = kubelet_root()
    cpus, why = cpu_manager_facts(root)
    if why:
        unread["cpu manager state"] = why
    record = msgspec.structs.replace(
        record, kubelet=kubelet, cpu_manager=cpus, memory_manager_policy=memory_manager_policy(root), unread=unread
    )
    try:
        host = this_host()
        driver = open_cgroupfs(host)
    except (CgroupsUnusableError, CgroupError, OSError) as error:
        return msgspec.structs.replace(record, unread={**unread, "kernel": str(error), "cgroups": str(error)})
    try:
        tree = observed_tree(driver, _cgroup_root(kubelet))
        facts = kernel_facts(host, driver, tree.pods_roots)
        known, why = container_processes(driver, list(tree.cgroups)) if processes else (None, "--no-processes")
    except CgroupError as error:
        return msgspec.structs.replace(record, unread={**unread, "cgroups": str(error)})
    finally:
        driver.close()
    if why:
        unread |= {"processes": why, "applications": why}
    return msgspec.structs.replace(
        record,
        kernel=facts,
        cgroups=tree.cgroups,
        counters=tree.counters,
        processes=known,
        attached=attached_values(),
        unread=unread,
    )
