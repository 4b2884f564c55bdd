"""What happens on a node, as scenarios that any cgroup driver can be taken through: set-up, pods, a resize, teardown.

Each scenario prepares a tree and then does one thing. Faults and kills are placed inside that one thing; afterwards the
tree must be as before it or as after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.engine.executor import Holders
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.cgroups.engine.observe import walk
from plimsoll.cgroups.engine.transaction import Applied
from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse

GI = 1 << 30
RESERVED = "/plimsoll-reserved"
FILES_V2 = ("cpu.weight", "cpu.max", "memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.max",
            "memory.oom.group", "pids.max")  # fmt: skip
FILES_V1 = ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes", "pids.max")  # fmt: skip

Tree = dict[str, dict[str, str]]
Deed = Callable[[CgroupManager], Awaitable[Applied]]


class Scenario(msgspec.Struct, frozen=True):
    before: Deed | None
    deed: Deed
    again: Deed  # the same once more, or what makes it complete after a crash


def node_setting(
    version: CgroupVersion,
    driver: DriverName,
    *,
    root: str = "/plimsoll-test",
    reserved: str = RESERVED,
    memory_bytes: int = 8 * GI,
) -> NodeConfig:
    """Memory QoS tiered where there is v2, reserved cgroups enforced, qosReserved on: every knob moves."""
    profile = profile_named("1.36")
    config = default_config(profile)
    gates = {**config.feature_gates, "MemoryQoS": version == 2, "QOSReserved": True}
    config = msgspec.structs.replace(
        config,
        cgroup_root=root,
        feature_gates=gates,
        memory_reservation_policy="TieredReservation" if version == 2 else "None",
        qos_reserved_percent={"memory": 50},
        system_reserved={"cpu": parse("250m"), "memory": parse("256Mi")},
        system_reserved_cgroup=reserved,
        enforce_node_allocatable=("pods", "system-reserved"),
        pod_pids_limit=512,
        fail_cgroup_v1=False,
        single_process_oom_kill=None,
    )
    machine = Machine(cores=4, memory_bytes=memory_bytes, others={}, swap_controller=False, pid_capacity=30000)
    return resolved(machine, config, profile, cgroup_version=version, driver=driver, runtime="process")


def pod(number: int, **resources: dict[str, dict[str, str]]) -> Pod:
    """`pod(1, web={"requests": {…}})`: containers by name."""
    document: dict[str, Any] = {
        "metadata": {
            "name": f"p{number}",
            "namespace": "shop",
            "uid": f"dba294ab-05fe-4314-a6d0-{number:012d}",
        },
        "spec": {"containers": [{"name": name, "image": "x", "resources": each} for name, each in resources.items()]},
    }
    return from_document(document, Pod)


def sized(cpu: str, memory: str, cpu_limit: str = "", memory_limit: str = "") -> dict[str, dict[str, str]]:
    limits = {"cpu": cpu_limit or cpu, "memory": memory_limit or memory}
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}


GUARANTEED = pod(1, web=sized("500m", "64Mi"), log=sized("100m", "32Mi"))
BURSTABLE = pod(2, web=sized("250m", "64Mi", "500m", "128Mi"), log=sized("50m", "16Mi", "100m", "64Mi"))
BEST_EFFORT = pod(3, web={})
# One container grows and one shrinks, in both resources.
RESIZED = pod(2, web=sized("400m", "96Mi", "1", "192Mi"), log=sized("20m", "8Mi", "50m", "32Mi"))
PODS = (GUARANTEED, BURSTABLE, BEST_EFFORT)


async def _set_up_with_pods(tree: CgroupManager) -> Applied:
    await tree.setup()
    return await tree.add(PODS)


SCENARIOS: dict[str, Scenario] = {
    "set-up": Scenario(None, lambda tree: tree.setup(), lambda tree: tree.setup()),
    "first-pods": Scenario(lambda tree: tree.setup(), lambda tree: tree.add(PODS), lambda tree: tree.add(PODS)),
    "another-pod": Scenario(
        lambda tree: tree.add(PODS[:2]), lambda tree: tree.add(PODS[2:]), lambda tree: tree.add(PODS[2:])
    ),
    "pods-replaced": Scenario(
        lambda tree: tree.apply(PODS[:2]),
        lambda tree: tree.apply((RESIZED, BEST_EFFORT)),
        lambda tree: tree.apply((RESIZED, BEST_EFFORT)),
    ),
    "pod-removed": Scenario(
        _set_up_with_pods,
        lambda tree: tree.remove(BURSTABLE.metadata.uid),
        lambda tree: tree.remove(BURSTABLE.metadata.uid),
    ),
    "teardown": Scenario(
        _set_up_with_pods, lambda tree: tree.teardown(kill=True), lambda tree: tree.teardown(kill=True)
    ),
}
RESIZE = Scenario(_set_up_with_pods, lambda tree: tree.resize(RESIZED), lambda tree: tree.refresh())


def files_of(driver: CgroupDriver) -> tuple[str, ...]:
    return FILES_V2 if driver.version == 2 else FILES_V1


def tree_now(driver: CgroupDriver, roots: tuple[str, ...]) -> Tree:
    """Every cgroup there is below the roots, with every value."""
    found: Tree = {}
    for root in roots:
        for path in (root, *walk(driver, root)):
            seen = driver.read(path, files_of(driver))
            if seen is not None:
                found[path] = dict(seen.files)
    return found


def node_tree(
    driver: CgroupDriver, setting: NodeConfig, state_dir: Path, holders: Holders | None = None
) -> CgroupManager:
    return CgroupManager(driver, setting, state_dir, holders=holders)
