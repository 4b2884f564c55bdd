"""Hundreds of pods on one real kernel with one driver: every file read back is what `explain` says.

    python -m tests.kernel.matrix pods.jsonl --driver systemd        (in a guest, or on a host below its own root)

`write_pods` draws the pods from the property tests' generator on the host, so that a guest need not import Hypothesis.
The payload makes their cgroups through the engine in blocks, then opens the kernel's files itself and compares each one
with the value of the tree that `plimsoll explain` prints, up to the kernel's known rounding. Then a second run must
write nothing, and a teardown must leave nothing. One JSON line has how many values agreed and how the pods were
spread over classes, numbers of containers and knobs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cgroups.drivers.detect import Hierarchies, open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.linux.machine import this_machine
from plimsoll.rules.cgroups.desired import Cgroup, desired_tree, workload
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig, resolved
from plimsoll.rules.profile import PROFILE_NAMES, profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.files import controller_of
from plimsoll.rules.resources.qos import qos_class

BLOCK = 20
LEAST_SHARE = 0.05
MOST_SHARE = (0.19, 0.6)  # of one number of containers, of one class: so that the rare ones have room
LEAST_LIMIT_BYTES = 8 << 20  # below it the kernel refuses a child cgroup (v1), or kills the process that keeps a scope


def write_pods(file: Path, count: int, seed: int) -> None:
    """Draw `count` different valid pods by seed; those are left out whose memory limit no process could live in."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    from tests.unit.strategies import lean, valid_pods

    taken: Counter[object] = Counter()
    found: dict[str, dict[str, Any]] = {}  # by everything but the identity, which the generator likes to repeat

    @seeded(seed)
    @settings(
        max_examples=count * 40,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(valid_pods(stored=False))
    def collect(document: dict[str, Any]) -> None:
        kinds = (qos_class(defaulted(lean(document))), len(document["spec"]["containers"]) + len(inits(document)))
        crowded = any(taken[kind] >= count * MOST_SHARE[isinstance(kind, str)] for kind in kinds)
        if len(found) < count and not crowded and _is_livable(document["spec"]):
            serial = len(found)
            metadata = {**document["metadata"], "name": "p", "uid": ""}
            shape = json.dumps({**document, "metadata": metadata}, sort_keys=True)
            identity = {"name": f"p{serial}", "uid": f"dba294ab-05fe-4314-a6d0-{serial:012x}"}
            if shape not in found:
                taken.update(kinds)
                found[shape] = {**document, "metadata": {**metadata, **identity}}

    collect()
    if len(found) < count:
        raise RuntimeError(f"only {len(found)} different pods came of {count * 40} examples")
    file.write_text("".join(json.dumps(each) + "\n" for each in found.values()))


def inits(document: dict[str, Any]) -> list[Any]:
    return document["spec"].get("initContainers") or []


def _is_livable(spec: dict[str, Any]) -> bool:
    blocks = [each.get("resources") for each in (*spec["containers"], *spec.get("initContainers", ()), spec)]
    limits = [
        QUANTITIES[text].value for block in blocks if block if (text := (block.get("limits") or {}).get("memory"))
    ]
    return all(limit == 0 or limit >= LEAST_LIMIT_BYTES for limit in limits)


class MismatchError(Exception):
    """The kernel has another value than explain says."""


class Matrix:
    def __init__(self, root: str, driver_name: str, profile: str, state: Path, *, memory_qos: bool) -> None:
        found = this_host()
        self._hosts = found
        self.driver = self._opened(found, driver_name)
        config: dict[str, Any] = {
            "cgroupRoot": root,
            "cgroupDriver": driver_name,
            "podPidsLimit": 500,
            "featureGates": {"MemoryQoS": memory_qos and found.version == 2},
        }
        self.setting = self._resolved(config, profile, found.version)
        self.tree = CgroupManager(self.driver, self.setting, state)
        self.values = 0
        self.lacking: Counter[str] = Counter()

    def _resolved(self, config: dict[str, Any], profile: str, version: Any) -> NodeConfig:
        chosen = profile_named(profile)
        machine = msgspec.structs.replace(this_machine(), cores=64, memory_bytes=1 << 42)
        kubelet = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", **config}
        return resolved(machine, reading(kubelet, chosen).config, chosen, cgroup_version=version, runtime="process")

    def _opened(self, found: Hierarchies, name: str) -> CgroupDriver:
        files = open_cgroupfs(found)
        if name == "cgroupfs":
            return files
        from plimsoll.cgroups.drivers.systemd import SystemdCgroups

        return SystemdCgroups(files)

    async def check(self, pods: list[Pod]) -> None:
        await self.tree.apply(pods)
        expected = desired_tree([workload(pod, self.setting) for pod in pods], self.setting)
        for path, each in self._placed(expected, pods):
            for file in each.files:
                self._compare(path, file.name, str(file.value))
        again = await self.tree.apply(pods)
        if again.steps:
            raise MismatchError(f"a second run wrote: {again.steps[:5]}")

    def _placed(self, node: Cgroup, pods: list[Pod]) -> Iterator[tuple[str, Cgroup]]:
        """Every cgroup of the explained tree with the path it really has: containers have ids by now."""
        paths = {uid: self.tree.paths(uid) for uid in (pod.metadata.uid for pod in pods)}
        by_path = {known[""]: known for known in paths.values()}
        for each in _walk(node):
            if each.level == "pod":
                yield each.path, each
                for container in each.children:
                    yield by_path[each.path][container.name], container
            elif each.level in ("pods", "class"):
                yield each.path, each

    def _compare(self, path: str, file: str, wanted: str) -> None:
        reason = self.driver.has(file)
        if reason is not None:
            self.lacking[f"{file}: {reason}"] += 1
            return
        found = self._read(path, file)
        if not same_value(file, wanted, found, self.setting.machine.page_size):
            raise MismatchError(f"{path} {file}: explained {wanted!r}, the kernel has {found!r}")
        self.values += 1

    def _read(self, path: str, file: str) -> str:
        """Not through the driver: what a person's `cat` would show."""
        if self._hosts.version == 2:
            assert self._hosts.unified is not None
            mount = self._hosts.unified.mount_point
        else:
            mount = self._hosts.v1[controller_of(file)].mount_point
        with open(f"{mount}{path}/{file}", encoding="ascii") as opened:
            return opened.read().strip()


def _walk(node: Cgroup) -> Iterator[Cgroup]:
    yield node
    for child in node.children:
        yield from _walk(child)


def knobs(pods: list[Pod], setting: NodeConfig) -> dict[str, Counter[str]]:
    """How the pods are spread: classes, containers, and which files each of them sets beyond its weight."""
    spread: dict[str, Counter[str]] = {"class": Counter(), "containers": Counter(), "knob": Counter()}
    for pod in pods:
        work = workload(pod, setting)
        spread["class"][work.qos] += 1
        spread["containers"][str(len(work.containers))] += 1
        for file in {file.name for each in _walk(desired_tree([work], setting)) for file in each.files}:
            if any(
                each.value(file) is not None
                for each in _walk(desired_tree([work], setting))
                if each.level in ("pod", "container")
            ):
                spread["knob"][file] += 1
    return spread


async def run(arguments: argparse.Namespace, pods: list[Pod]) -> dict[str, Any]:
    root = f"/plimsoll-test-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="plimsoll-matrix-") as state:
        matrix = Matrix(
            root, arguments.driver, arguments.profile, Path(state) / "node", memory_qos=arguments.memory_qos
        )
        try:
            await matrix.tree.setup()
            for start in range(0, len(pods), BLOCK):
                await matrix.check(pods[start : start + BLOCK])
        except BaseException:
            traceback.print_exc()  # what the teardown meets may hide it
            raise
        finally:
            await matrix.tree.teardown(kill=True)
        left = matrix.driver.read(root, ())
        if left is not None:
            raise MismatchError(f"{root} is still there after teardown")
    spread = knobs(pods, matrix.setting)
    thin = [
        f"{kind} {name}: {count} of {len(pods)}"
        for kind in spread
        for name, count in spread[kind].items()
        if count < LEAST_SHARE * len(pods)
    ]
    return {
        "kernel": os.uname().release,
        "cgroup": matrix.setting.policy.cgroup_version,
        "driver": arguments.driver,
        "profile": arguments.profile,
        "pods": len(pods),
        "values": matrix.values,
        "spread": spread,
        "under 5 %": thin,
        "lacking": matrix.lacking,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pods")
    parser.add_argument("--driver", choices=["cgroupfs", "systemd"], default="cgroupfs")
    parser.add_argument("--profile", choices=list(PROFILE_NAMES), default="documents")
    parser.add_argument("--memory-qos", action="store_true")
    arguments = parser.parse_args()
    pods = [pod_from_json(line) for line in Path(arguments.pods).read_bytes().splitlines()]
    print(json.dumps(asyncio.run(run(arguments, pods))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
