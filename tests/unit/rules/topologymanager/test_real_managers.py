"""Answers of the real CPU, memory, device and topology managers for random machines, settings and pods (07).

`real_managers.jsonl.gz` has one life of a node per line: `release`; `nodes` (id, `mem` in bytes, `huge`: KiB of a page →
number, `dist`: distances, `cores`: threads `t`, socket `s`, cache `u`); `cpu`, `memory`, `devices`: the settings of the
managers, or null; `mock`: hints of providers instead of managers; `tm`: policy, scope and options of the topology
manager; `gates` that are off; `fixed`: the hint of each container is given, and the policy is not asked; `created`: why
the managers cannot be created; `ops`: what happens, each with `real`, the answer of the release: admitted or the
refusal, the hints that every manager gave, the hint stored for each container, and afterwards all exclusive CPUs, the
shared pool, memory blocks, free memory and devices. A restart may have other settings, another machine, or a state file
that is gone or has a wrong checksum (`damage`). `again` has the answers for the pods that run, `create` why managers
cannot be created, `start` why they do not start; then the node is `down` until another restart.

Many machines are uneven: offline CPUs, cores and sockets of different sizes. The lives were drawn at random.
The managers ran with maps in the order of their keys, which is one of the orders that Go may choose. `panic` and
`endless` are what no answer can be compared with.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.kernel.cpu_state import CpuState, cpu_state_from_json, cpu_state_json
from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError
from plimsoll.codec.kernel.memory_state import MemoryState, memory_state_from_json, memory_state_json
from plimsoll.errors import InvalidConfigError
from plimsoll.node.resources.state_file import StateMismatchError
from plimsoll.rules.config.manager_options import none_option_error
from plimsoll.rules.config.reserved_memory import ReservedMemory, reserved_by_node
from plimsoll.rules.cpumanager.assignment import CPU_ERRORS, CpuAllocation, CpuPlan
from plimsoll.rules.cpumanager.assignment import policy_error as cpu_policy_error
from plimsoll.rules.cpumanager.assignment import state_error as cpu_state_error
from plimsoll.rules.cpumanager.creation import StaticSetting, static_plan
from plimsoll.rules.cpumanager.pools import CpuPools
from plimsoll.rules.cpumanager.topology import NO_CPUS, CpuTopology, LogicalCpu
from plimsoll.rules.cpuset import cpu_numbers, cpu_text
from plimsoll.rules.devices.allocation import Device, DeviceAllocation, DeviceError, Ids, Pool
from plimsoll.rules.memorymanager.allocation import MemoryAllocation, MemoryAssignmentError, finished_inits
from plimsoll.rules.memorymanager.blocks import Blocks, fresh_machine, release, release_all
from plimsoll.rules.memorymanager.blocks import policy_error as memory_policy_error
from plimsoll.rules.memorymanager.blocks import state_error as memory_state_error
from plimsoll.rules.model.objects import Container, Pod
from plimsoll.rules.numa import NO_HINT, Hint, HintLists, mask_of
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.topologymanager.admission import HintProvider, TopologyAffinityError, TopologySetting, allocate
from plimsoll.rules.topologymanager.creation import topology_setting
from plimsoll.rules.topologymanager.merge import NumaLayout
from tests.unit.strategies import Json, lean

SAMPLE = Path(__file__).with_name("real_managers.jsonl.gz")
ERRORS = (*CPU_ERRORS, DeviceError, MemoryAssignmentError, TopologyAffinityError)
SETTINGS = ("nodes", "cpu", "memory", "tm")
PAGES = {"1048576": "hugepages-1Gi", "2048": "hugepages-2Mi"}


def hint(given: Json) -> Hint:
    return Hint(None if given["m"] is None else mask_of(given["m"]), given["p"])


def texts(hints: HintLists) -> Json:
    return {name: None if each is None else "".join(map(str, each)) for name, each in hints.items()}


def containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


class Recorded:
    """A manager, or only hints; what it says is kept."""

    def __init__(self, name: str, manager: HintProvider | None, said: list[Any], hints: HintLists) -> None:
        self._name, self._manager, self._said, self._hints = name, manager, said, hints

    def hints(self, container: Container) -> HintLists:
        found = self._hints if self._manager is None else self._manager.hints(container)
        self._said.append([self._name, container.name, texts(found)])
        return found

    def pod_hints(self) -> HintLists:
        found = self._hints if self._manager is None else self._manager.pod_hints()
        self._said.append([self._name, "", texts(found)])
        return found

    def allocate(self, container: Container, hint: Hint = NO_HINT) -> None:
        if self._manager is not None:
            self._manager.allocate(container, hint)


def mismatch(manager: str, reason: str) -> StateMismatchError:
    return StateMismatchError(manager, Path(f"DIR/{manager.lower()}_manager_state"), reason)


class RefusedError(Exception):
    """Managers that cannot be created, or do not start."""


class Node:
    """`files`: what a restart finds on the disk. A node that does not start is down until a restart succeeds."""

    def __init__(self, life: Json) -> None:
        self.life, self.profile = life, profile_named(life["release"])
        self.policy = NodePolicy(1 << 40, static_cpus=True)
        self.pods: dict[str, Pod] = {}
        self.plan: CpuPlan | None = None
        self.machine: Any = None
        self.blocks: dict[str, dict[str, Blocks]] = {}
        self.pools: dict[str, Pool] = {}
        self.devices: dict[str, dict[str, dict[str, Ids]]] = {}
        self.files: dict[str, bytes] = {}
        self.settings = {name: life[name] for name in SETTINGS}
        for name, each in (life["devices"] or {}).items():
            self.list_devices(name, each["devices"])
        self.created = self.up(self.settings)

    def gate(self, name: str) -> bool:
        return bool(self.life.get("gates", {}).get(name, True))

    # --- creation, in the order of a kubelet ---

    def up(self, given: Json) -> Json:
        """Why the managers cannot be created, or do not start; nothing if all of them run."""
        self.is_up = False
        try:
            setting, plan, machine = self._created(given)
            self._start_cpus(plan)
            self._start_memory(machine)
        except RefusedError as error:
            return {error.args[0]: error.args[1]}
        self.setting, self.settings, self.is_up = setting, given, True
        return {}

    def _created(self, given: Json) -> tuple[TopologySetting, CpuPlan | None, Any]:
        manager = "topology"
        try:
            topology, nodes = given["tm"], given["nodes"]
            distances = {each["id"]: tuple(each["dist"]) for each in nodes if each["dist"] is not None}
            layout = NumaLayout(tuple(each["id"] for each in nodes), distances)
            policy, scope, options = topology["policy"], topology["scope"], topology["options"]
            setting = topology_setting(policy, scope, options, layout, self.gate, self.profile)
            manager = "cpu"
            plan = self._plan(nodes, given["cpu"], policy)
            manager = "memory"
            return setting, plan, self._machine(nodes, given["memory"])
        except InvalidConfigError as error:
            raise RefusedError("create", f"{manager}: {error.reason}") from None

    def _plan(self, nodes: Sequence[Json], asked: Json | None, topology_policy: str) -> CpuPlan | None:
        if asked is None or asked.get("policy") == "none":
            if (error := none_option_error(asked["options"] if asked else {})) is not None:
                raise error
            return None
        places = {
            cpu: LogicalCpu(min(core["t"]), core["s"], node["id"], core["u"])
            for node in nodes
            for core in node["cores"]
            for cpu in core["t"]
        }
        explicit = cpu_numbers(asked["explicit"]) or ()
        setting = StaticSetting(asked["options"], explicit, asked["count"], topology_policy)
        return static_plan(CpuTopology(places), setting, self.gate, self.profile)

    def _machine(self, nodes: Sequence[Json], asked: Json | None) -> Any:
        if asked is None or asked.get("policy") == "None":
            return None
        sizes = {
            node["id"]: {"memory": node["mem"]}
            | {PAGES[size]: int(size) * 1024 * number for size, number in node["huge"].items()}
            for node in nodes
        }
        entries = [
            ReservedMemory(each["node"], {kind: parse(size) for kind, size in each["limits"].items()})
            for each in asked["reserved"]
        ]
        expected = {kind: parse(size) for kind, size in asked["expected"].items()}
        reserved = reserved_by_node(entries, sizes, expected)
        return fresh_machine(sizes, reserved, wraps=self.profile.memory_wraps_around)

    def _start_cpus(self, plan: CpuPlan | None) -> None:
        pools = CpuPools({}, NO_CPUS)
        if "cpu" in self.files:
            try:
                state = cpu_state_from_json(self.files["cpu"], tries_v1=self.profile.damaged_cpu_file_as_v1)
                error = cpu_policy_error("none" if plan is None else "static", state.policy)
            except CorruptCheckpointError as damage:
                error = str(damage)
            if error:
                raise RefusedError("start", f"cpu: {mismatch('CPU', error)}")
            pools = CpuPools(state.owned, state.shared)
            if plan is not None and (error := cpu_state_error(pools, plan)):
                raise RefusedError("start", f"cpu: {error}")
        if plan is not None and not pools.owned and not pools.shared:
            pools = plan.pools({})
        self.plan, self.cpus = plan, pools
        self._save_cpus()

    def _start_memory(self, fresh: Any) -> None:
        machine, owned = fresh, dict[str, Any]()
        if "memory" in self.files:
            try:
                state = memory_state_from_json(self.files["memory"])
                error = memory_policy_error("None" if fresh is None else "Static", state.policy)
            except CorruptCheckpointError as damage:
                error = str(damage)
            if error:
                raise RefusedError("start", f"memory: {mismatch('memory', error)}")
            if fresh is not None and (error := memory_state_error(state.machine, state.owned, fresh)):
                raise RefusedError("start", f"memory: {error}")
            if fresh is not None and state.machine:
                machine, owned = state.machine, {uid: dict(each) for uid, each in state.owned.items()}
        self.machine, self.blocks = machine, owned
        self._save_memory()

    def _save_cpus(self) -> None:
        policy = "none" if self.plan is None else "static"
        self.files["cpu"] = cpu_state_json(CpuState(policy, self.cpus.shared, self.cpus.owned))

    def _save_memory(self) -> None:
        policy = "None" if self.machine is None else "Static"
        owned = {uid: each for uid, each in self.blocks.items() if each}
        self.files["memory"] = memory_state_json(MemoryState(policy, self.machine or {}, owned))

    def save(self) -> None:
        self._save_cpus()
        self._save_memory()

    def damage(self, what: str) -> None:
        """A wrong checksum, or the file is gone."""
        name, _, gone = what.partition("-")
        data = self.files.pop(name, None)
        if data is not None and not gone:
            before, found, _ = data.rpartition(b'"checksum":')
            self.files[name] = before + found + b"1}"

    # --- pods ---

    def list_devices(self, name: str, devices: Sequence[Json]) -> None:
        found = {
            each["id"]: Device(each["id"], each["h"], None if each["n"] is None else tuple(each["n"]))
            for each in devices
        }
        self.pools[name] = Pool(found, asks=bool(self.life["devices"][name]["prefer"]))

    def _preferred(self, resource: str, available: Ids, must: Ids, size: int) -> Sequence[str]:
        """The plugins of the sample prefer the highest names, say nothing, or name devices as they come."""
        asked = self.life["devices"][resource]
        if asked["prefer"] == "high":
            return [*sorted(must), *sorted(available - must, reverse=True)][: max(size, len(must))]
        named = ["nothing", *(each["id"] for each in asked["devices"])]
        return [] if asked["prefer"] == "empty" else named[: size + 1]

    def admit(self, pod: Pod, given: Json, *, trusts: bool = False) -> Json:
        """`given`: the hints of a life with fixed ones. `trusts`: the pod runs, and the node has just started."""
        said, providers = list[Any](), list[HintProvider]()
        for hints in self.life.get("mock") or ():
            lists = {name: None if each is None else tuple(map(hint, each)) for name, each in (hints or {}).items()}
            providers.append(Recorded("", None, [], lists))
        devices = cpus = memory = None
        if self.life["devices"] is not None:
            nodes, narrow = self.setting.layout.nodes, self.profile.device_hints_of_used_nodes
            devices = DeviceAllocation(
                pod, self.pools, self.devices, nodes, self._preferred, narrow=narrow, trusts=trusts
            )
            providers.append(Recorded("devices", devices, said, {}))
        if self.plan is not None:
            cpus = CpuAllocation(pod, self.cpus, self.plan, self.policy)
            providers.append(Recorded("cpu", cpus, said, {}))
        if self.machine is not None:
            checks = self.profile.memory_groups_checked
            memory = MemoryAllocation(pod, self.blocks, self.machine, self.policy, checks_groups=checks)
            providers.append(Recorded("memory", memory, said, {}))
        uid, answer = pod.metadata.uid, {"said": said, "stored": {}}
        try:
            if self.life["fixed"]:
                for each in containers(pod):
                    for provider in providers:
                        provider.hints(each)
                    for provider in providers:
                        provider.allocate(each, hint(given[each.name]))
            else:
                stored = allocate(pod, providers, self.setting)
                answer["stored"] = {name: str(each) for name, each in stored.items()}
        except ERRORS as error:
            if not trusts and self.profile.refused_pods_assigned:
                self.cpus = self.cpus if cpus is None else cpus.pools.released([uid])
                self.machine = self.machine if memory is None else memory.undone()
            return answer | {"refused": [error.reason, str(error)]}
        self.pods[uid] = pod
        if devices is not None:
            self.devices[uid] = devices.result
        if cpus is not None:
            self.cpus = cpus.pools
        if memory is not None:
            self.machine, self.blocks[uid] = memory.machine, memory.result
        return answer

    def remove(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.devices.pop(uid, None)
        self.cpus = self.cpus.released([uid])
        blocks = self.blocks.pop(uid, {})
        if self.machine is not None:
            self.machine = release_all(self.machine, blocks)

    def start(self, uid: str, container: str) -> None:
        if uid in self.pods and uid in self.blocks:
            for name in finished_inits(self.pods[uid], container, self.blocks[uid]):
                self.machine = release(self.machine, self.blocks[uid].pop(name))

    def restart(self, op: Json) -> Json:
        """All pods that run are admitted again before plugins and the API server are there; then the others go."""
        self.damage(op.get("damage", ""))
        if failed := self.up({name: op.get(name, before) for name, before in self.settings.items()}):
            return failed
        listed, self.pools = self.pools, {name: Pool({}, stopped=True) for name in self.pools}
        gone, again = [uid for uid in op.get("gone", ()) if uid in self.pods], []
        for uid, pod in list(self.pods.items()):
            if uid not in gone:
                again.append(self.admit(pod, {}, trusts=True) | {"uid": uid})
                gone += [uid] if "refused" in again[-1] else []
        for uid in sorted(gone):
            self.remove(uid)
        self.pools = listed
        return {"again": again}

    def owned(self) -> Json:
        found: Json = {}
        if self.plan is not None:
            found["shared"] = cpu_text(self.cpus.shared)
            found["cpus"] = {
                f"{uid}/{name}": cpu_text(each)
                for uid, owned in self.cpus.owned.items()
                for name, each in owned.items()
            }
        if self.machine is not None:
            found["blocks"] = {
                f"{uid}/{name}": sorted([each.type, each.size, list(each.nodes)] for each in blocks)
                for uid, owned in self.blocks.items()
                for name, blocks in owned.items()
            }
            found["free"] = {
                str(node): {
                    "assignments": each.assignments,
                    "cells": list(each.cells),
                    **{kind: table.free for kind, table in each.memory.items()},
                }
                for node, each in self.machine.items()
            }
        if self.life["devices"] is not None:
            found["devices"] = {
                f"{uid}/{name}/{resource}": sorted(ids)
                for uid, owned in self.devices.items()
                for name, resources in owned.items()
                for resource, ids in resources.items()
            }
        return found


def after(node: Node, op: Json) -> Json:
    """What the managers answer, and what pods own afterwards."""
    answer: Json = {}
    if not node.is_up and op["op"] != "restart":
        return {"down": True}
    match op["op"]:
        case "admit":
            answer = node.admit(defaulted(lean(op["pod"])), op.get("hints"))
        case "remove":
            node.remove(op["uid"])
        case "start":
            node.start(op["uid"], op["container"])
        case "devices":
            node.list_devices(op["resource"], op["devices"])
        case "restart":
            answer = node.restart(op)
    if not node.is_up:
        return answer
    node.save()
    return answer | node.owned()


@pytest.mark.parametrize("release", ["1.36"])
def test_lives_of_nodes(release: str) -> None:
    with gzip.open(SAMPLE, "rt") as lines:
        lives = [life for line in lines if (life := json.loads(line))["release"] == release]
    assert len(lives) >= 600
    for life in lives:
        node = Node(life)
        assert node.created == life.get("created", {}), f"life {life['id']}"
        for number, op in enumerate(life["ops"]):
            mine = after(node, op)
            if op["real"].keys() & {"panic", "endless"}:
                break
            assert mine == op["real"], f"life {life['id']}, step {number}"
