"""Faults and kills on a real kernel: each operation refused once, a real kill −9 after each, a reader all the time.

    python -m tests.kernel.faults --driver systemd --every 3        (in a guest, or on a host below its own root)

The scenarios are those of the unit tests (`tests.node_scenarios`). After each fault the tree must be as before, after
each kill and a new start too; doing it again must give the new tree, and once more must write nothing. While a pod is
resized to and fro another process reads limits and must never see a container's above its pod's.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import fcntl
import json
import os
import shutil
import signal
import struct
import sys
import tempfile
import termios
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupGoneError
from plimsoll.cgroups.engine import scope_holder
from plimsoll.cgroups.engine.executor import StepError
from plimsoll.rules.cgroups.steps import Step
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from tests.faulty_driver import FaultyDriver
from tests.node_scenarios import (
    BURSTABLE,
    RESERVED,
    RESIZED,
    SCENARIOS,
    Scenario,
    Tree,
    node_setting,
    node_tree,
    tree_now,
)

LEAST_READS = 20
ERRNOS = (errno.EBUSY, errno.EINVAL, errno.ENOENT, errno.EACCES, errno.EIO)
KILLING = ("pods-replaced", "pod-removed", "teardown")
LIMITS = {2: "memory.max", 1: "memory.limit_in_bytes"}


class BrokenPromiseError(Exception):
    """The promise does not hold."""


class Node:
    """One node on the real kernel; `start` is a new process as far as the engine can see."""

    def __init__(self, name: str, state_dir: Path) -> None:
        found = this_host()
        self.name, self._found, self._state_dir = name, found, state_dir
        self._root = f"/plimsoll-test-{os.getpid()}"
        top, self.reserved = self._root, RESERVED
        if name == "systemd":
            top, self.reserved = (f"/{each[1:].replace('-', '_')}.slice" for each in (self._root, RESERVED))
        self.roots = (top, self.reserved)
        driver: DriverName = "systemd" if name == "systemd" else "cgroupfs"
        self.setting = node_setting(found.version, driver, root=self._root, reserved=self.reserved)
        self.kernel = self._opened()
        self.kills = False

    def _opened(self) -> CgroupDriver:
        files = open_cgroupfs(self._found)
        if self.name == "cgroupfs":
            return files
        from plimsoll.cgroups.drivers.systemd import SystemdCgroups

        return SystemdCgroups(files)

    def start(self) -> None:
        self.driver = FaultyDriver(self.kernel)
        holders = scope_holder if self.name == "systemd" else None
        self.tree = node_tree(self.driver, self.setting, self._state_dir, holders)

    def now(self) -> Tree:
        """systemd removes a scope with its last process, and no undo restores it: where a step kills, its
        scopes are left out of the comparison. Doing it again makes the desired ones again."""
        found = tree_now(self.kernel, self.roots)
        return {path: files for path, files in found.items() if not (self.kills and path.endswith(".scope"))}

    async def fresh(self, scenario: Scenario) -> Tree:
        """The node as the scenario begins."""
        self.start()
        await self.tree.teardown(kill=True)
        shutil.rmtree(self._state_dir, ignore_errors=True)
        self.start()
        if scenario.before is not None:
            await scenario.before(self.tree)
        self.start()
        return self.now()

    async def reserve(self) -> None:
        if self.kernel.read(self.reserved, ()) is None:
            await self.kernel.make(self.reserved)

    async def clear(self) -> None:
        self.start()
        await self.tree.teardown(kill=True)
        try:
            await self.kernel.remove(self.reserved)
        except CgroupGoneError:
            pass


def _run(coroutine: Coroutine[Any, Any, Any], node: Node) -> Any:
    """Each in a loop of its own, so that a connection to systemd never outlives its loop."""
    node.kernel = node._opened()
    return asyncio.run(coroutine)


async def _again_gives(node: Node, scenario: Scenario, new: Tree, what: str) -> None:
    node.start()
    await scenario.again(node.tree)
    _same(node.now(), new, f"{what}, done again")
    node.start()
    await scenario.again(node.tree)
    if node.driver.made:
        raise BrokenPromiseError(f"{what}: a further run wrote {node.driver.made[:3]}")


def _same(found: Tree, wanted: Tree, what: str) -> None:
    if found == wanted:
        return
    paths = [path for path in sorted({*found, *wanted}) if found.get(path) != wanted.get(path)]
    differences = [f"{path}: {found.get(path)} instead of {wanted.get(path)}" for path in paths[:3]]
    raise BrokenPromiseError(f"{what}: {'; '.join(differences)}")


async def rehearsed(node: Node, scenario: Scenario) -> tuple[Tree, Tree, int]:
    old = await node.fresh(scenario)
    await scenario.deed(node.tree)
    return old, node.now(), len(node.driver.made)


async def refused(node: Node, scenario: Scenario, number: int, code: int, old: Tree, new: Tree, what: str) -> str:
    _same(await node.fresh(scenario), old, f"{what}: the beginning")
    node.driver.fail_at = {number: code}
    outcome = "went on"
    try:
        await scenario.deed(node.tree)
    except StepError:
        outcome = "undone"
        _same(node.now(), old, what)
    await _again_gives(node, scenario, new, what)
    return outcome


def killed(node: Node, scenario: Scenario, number: int, old: Tree, new: Tree, what: str) -> None:
    """A child runs the step and dies by SIGKILL after that operation."""
    _same(_run(node.fresh(scenario), node), old, f"{what}: the beginning")
    pid = os.fork()
    if pid == 0:
        try:
            _run(_dying(node, scenario, number), node)
        finally:
            os._exit(3)  # it should not have come so far
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise BrokenPromiseError(f"{what}: the child was to die by a signal, and ended with {status}")
    node.start()
    unfinished = node.tree.status().unfinished
    if unfinished is None or not unfinished.subject:
        raise BrokenPromiseError(f"{what}: the status names nothing unfinished")
    _run(_recovered(node, old, what), node)
    _run(_again_gives(node, scenario, new, what), node)


async def _dying(node: Node, scenario: Scenario, number: int) -> None:
    node.start()

    def die(_: Step) -> None:
        if len(node.driver.made) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    node.driver.after_each = die
    await scenario.deed(node.tree)


async def _recovered(node: Node, old: Tree, what: str) -> None:
    node.start()
    await node.tree.recover()
    _same(node.now(), old, f"{what}, after the next start")


async def watched(node: Node, rounds: int) -> int:
    """A pod to and fro between two sizes, with a concurrent reader, at least `rounds` times and until it has read a few
    times; returns how often."""
    node.start()
    await node.tree.setup()
    await node.tree.add([BURSTABLE])
    paths = node.tree.paths(BURSTABLE.metadata.uid)
    file = LIMITS[node.kernel.version]
    reads, reader = os.pipe(), os.fork()
    if reader == 0:
        _read_until_killed(node, paths, file, reads[1])
    try:
        done = 0
        while done < rounds or (_unread(reads[0]) < LEAST_READS and done < 100 * rounds):
            await node.tree.resize(RESIZED)
            await node.tree.resize(BURSTABLE)
            done += 2
    finally:
        os.kill(reader, signal.SIGTERM)
        await asyncio.to_thread(os.waitpid, reader, 0)
        os.close(reads[1])
    with os.fdopen(reads[0]) as report:
        lines = report.read().splitlines()
    bad = [line for line in lines if line != "."]
    if bad:
        raise BrokenPromiseError(f"a reader saw {bad[0]}")
    return len(lines)


def _unread(pipe: int) -> int:
    """How many lines are in the pipe, if each is a dot."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]) // len(".\n")


def _read_until_killed(node: Node, paths: dict[str, str], file: str, report: int) -> None:
    """Pod, container, pod: the value before or after must cover the one between."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kernel = node._opened()

    def limit(path: str) -> int:
        seen = kernel.read(path, (file,))
        text = seen.files[file] if seen is not None else "0"
        return 1 << 63 if text == "max" else int(text)

    while True:
        for name, path in paths.items():
            if name:
                before, inner, after = limit(paths[""]), limit(path), limit(paths[""])
                word = "." if inner <= max(before, after) else f"{name} {inner} in a pod of {before}, then {after}"
                os.write(report, f"{word}\n".encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--driver", choices=["cgroupfs", "systemd"], default="cgroupfs")
    parser.add_argument("--every", type=int, default=1, help="only each n-th operation")
    parser.add_argument("--codes", type=int, default=1, help="how many errnos for each (all: 5)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS))
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="plimsoll-faults-") as state:
        node = Node(asked.driver, Path(state) / "node")
        _run(node.reserve(), node)
        try:
            for name in asked.scenarios:
                scenario = SCENARIOS[name]
                node.kills = asked.driver == "systemd" and name in KILLING
                old, new, count = _run(rehearsed(node, scenario), node)
                for number in range(1, count + 1, asked.every):
                    for index in range(asked.codes):
                        code = ERRNOS[(number + index) % len(ERRNOS)]
                        what = f"{name}: operation {number} of {count} refused with {errno.errorcode[code]}"
                        counts[_run(refused(node, scenario, number, code, old, new, what), node)] += 1
                    killed(node, scenario, number, old, new, f"{name}: killed after operation {number} of {count}")
                    counts["killed"] += 1
            counts["reads"] = _run(watched(node, asked.rounds), node)
        finally:
            _run(node.clear(), node)
    print(json.dumps({"kernel": os.uname().release, "driver": asked.driver, **counts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
