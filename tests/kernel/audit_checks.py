"""The audit on a real kernel: a tree as a kubelet lays it out, made with the project's own driver, then bent.

The same checks run on the host (cgroup v1) and in a guest (v2). All cgroups are below a root of their own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from plimsoll.audit.cgroups import Driver, kernel_facts, observed_tree
from plimsoll.audit.processes import container_processes
from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.codec.lean.lean import from_document
from plimsoll.linux.machine import this_machine
from plimsoll.linux.processes import set_oom_score_adj
from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.evidence import KubeletFacts, NodeEvidence, NodeRecord
from plimsoll.rules.audit.finding import Finding
from plimsoll.rules.audit.table import audit
from plimsoll.rules.cgroups.desired import Shown, desired_tree
from plimsoll.rules.cgroups.desired_files import protected, wanted
from plimsoll.rules.model.objects import Node

MIB = 1 << 20
RELEASE = "v1.34.2"
UIDS = {name: f"dba294ab-05fe-4314-a6d0-{index:012d}" for index, name in enumerate(("web", "db", "batch"))}
IDS = {name: secrets.token_hex(32) for name in UIDS}
RESOURCES: dict[str, dict[str, dict[str, str]]] = {
    "web": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}},
    "db": {"requests": {"cpu": "200m", "memory": "48Mi"}, "limits": {"memory": "48Mi"}},  # no score below 0
    "batch": {},
}
# Rules about the tree and its processes; the others depend on the machine.
TREE_RULES = ["A01", "A02", "A03", "A04", "A05", "A06", "A09", "A11", "A12", "A15", "A16", "A17", "A24"]


def pod(name: str) -> dict[str, Any]:
    status = {"name": "app", "containerID": f"containerd://{IDS[name]}", "state": {"running": {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": UIDS[name]},
        "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "i", "resources": RESOURCES[name]}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


class AuditedMachine:
    """A tree of three pods below `root`, each with a sleeping process."""

    def __init__(self, driver: Driver, root: str, **config: Any) -> None:
        self.driver, self.root = driver, root
        self.config = {"cgroupRoot": root, "cgroupDriver": "cgroupfs", "failCgroupV1": False, **config}
        machine = this_machine()
        capacity = {"cpu": str(machine.cores), "memory": str(machine.memory_bytes), "pods": "110"}
        info = {"kubeletVersion": RELEASE, "containerRuntimeVersion": "containerd://2.1.0"}
        self.node = from_document(
            {"metadata": {"name": "n1"}, "status": {"capacity": capacity, "nodeInfo": info}}, Node
        )
        self.pods = [pod(name) for name in UIDS]
        self.processes: list[subprocess.Popen[bytes]] = []

    def evidence(self, *, processes: bool = True) -> NodeEvidence:
        tree = observed_tree(self.driver, self.root)
        known, _ = container_processes(self.driver, list(tree.cgroups)) if processes else (None, "")
        record = NodeRecord(
            0.0,
            kernel_facts(this_host(), self.driver, tree.pods_roots),
            KubeletFacts(self.config, "a test"),
            oci_runtime="runc 1.1.5",
            cgroups=tree.cgroups,
            counters=tree.counters,
            processes=known,
        )
        return NodeEvidence(
            "n1", record, self.node, tuple(audited_pod(msgspec.json.encode(each)) for each in self.pods)
        )

    async def make(self) -> None:
        for _ in range(2):  # which files the kernel has is seen once there are cgroups
            await self._written()

    async def _written(self) -> None:
        view = ComparedNode(self.evidence(processes=False))
        assert view.setting is not None, view.problem
        tree = desired_tree(list(view.workloads.values()), view.setting, Shown(container_id=view._id, reasons=False))
        plan = wanted(tree)
        for path, cgroup in protected(plan, [path for path, each in plan.items() if each.level == "root"]).items():
            if self.driver.read(path, ()) is None:
                await self.driver.make(path)
            for file, text in cgroup.files.items():
                if self.driver.has(file) is None:
                    await self.driver.write(path, file, text)

    def start(self, runner: asyncio.Runner) -> None:
        """A process in every container, with the score that the runtime gives it."""
        for place in ComparedNode(self.evidence(processes=False)).places:
            if place.level == "container":
                child = subprocess.Popen(["sleep", "600"])
                self.processes.append(child)
                runner.run(self.driver.move(place.path, child.pid))
                assert place.cgroup.oom_score_adj is not None
                set_oom_score_adj(child.pid, place.cgroup.oom_score_adj)

    def path(self, level: str, subject: str = "") -> str:
        places = ComparedNode(self.evidence(processes=False)).places
        return next(each.path for each in places if each.cgroup.level == level and subject in each.subject)

    def found(self, *rules: str) -> list[Finding]:
        return audit(self.evidence(), rules or TREE_RULES).findings

    async def remove(self) -> None:
        for child in self.processes:
            child.kill()
            child.wait()
        everything = [self.root, *(path for path in observed_tree(self.driver, self.root).cgroups if path != self.root)]
        for path in sorted(set(everything), key=lambda each: -each.count("/")):
            if self.driver.read(path, ()) is not None or self.driver.incomplete(path):
                await self.driver.remove(path)


@contextmanager
def audited_machine(**config: Any) -> Iterator[tuple[AuditedMachine, asyncio.Runner]]:
    driver = open_cgroupfs(this_host())
    machine = AuditedMachine(driver, f"/plimsoll-test-{os.getpid()}-{secrets.token_hex(4)}", **config)
    with asyncio.Runner() as runner:
        try:
            runner.run(machine.make())
            machine.start(runner)
            yield machine, runner
        finally:
            runner.run(machine.remove())
            driver.close()


def check_clean_and_bent(machine: AuditedMachine, runner: asyncio.Runner) -> None:
    """What the driver has made is clean; each bend is found by its rule, and by no other, and gone when it is undone."""
    assert machine.found() == []
    v2 = machine.driver.version == 2
    limit = "memory.max" if v2 else "memory.limit_in_bytes"
    app, whole = machine.path("container", "web"), machine.path("pod", "web")
    bends = [
        ("A01", app, limit, str(40 * MIB)),
        ("A01", whole, limit, str(40 * MIB)),
        ("A01", machine.path("class", "Burstable"), "cpu.weight" if v2 else "cpu.shares", "555"),
        ("A17", whole, "pids.max", "17"),
    ]
    if v2:
        bends += [
            ("A04", app, "memory.high", str(16 * MIB)),
            ("A15", app, "memory.oom.group", "0"),
            ("A02", whole, "memory.low", str(16 * MIB)),
        ]
    for rule, path, file, text in bends:
        if machine.driver.has(file) is not None:
            continue
        observed = machine.driver.read(path, [file])
        assert observed is not None
        before = observed.files[file]
        runner.run(machine.driver.write(path, file, text))
        found = machine.found()
        assert {each.rule for each in found} >= {rule}, (rule, file, found)
        assert any((each.rule, each.path, each.field, each.observed) == (rule, path, file, text) for each in found)
        runner.run(machine.driver.write(path, file, before))
        assert machine.found() == [], (rule, file)


def check_processes_and_strays(machine: AuditedMachine, runner: asyncio.Runner) -> None:
    """A05 after a changed score, A12 for an orphan and for a container that was moved away."""
    batch = machine.path("container", "batch")
    (pid,) = machine.driver.members(batch)
    (db,) = machine.driver.members(machine.path("container", "db"))
    set_oom_score_adj(db, 1000)
    assert [(each.rule, each.observed) for each in machine.found()] == [("A05", "1000")]
    orphan = f"{machine.path('class', 'BestEffort')}/pod00000000-dead-4000-8000-000000000000"
    runner.run(machine.driver.make(orphan))
    assert [(each.subject) for each in machine.found("A12")] == ["00000000-dead-4000-8000-000000000000"]
    runner.run(machine.driver.remove(orphan))
    child = next(each for each in machine.processes if each.pid == pid)
    child.kill()
    child.wait()
    runner.run(machine.driver.remove(batch))
    assert [(each.subject, each.observed) for each in machine.found("A12")] == [("shop/batch / app", "none")]
