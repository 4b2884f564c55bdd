"""A node in memory for attach: a simulated kernel, pods in the book, and the service without a runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from plimsoll.attach.journal import AttachJournal
from plimsoll.attach.pods import PodBook
from plimsoll.attach.service import AttachService, Mode, Scope
from plimsoll.attach.writer import AttachWriter
from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.rules.attach.policy import AttachPolicy, Switches
from plimsoll.runtime.nri import messages as m
from tests.unit.rules.attach.nodes import node, resources

BURSTABLE = resources(memory=("64Mi", "128Mi"))
MIB = 1 << 20
HIGH = str(int(64 * MIB + 64 * MIB * 0.9) // 4096 * 4096)
LOW = str(64 * MIB)
TIERED = AttachPolicy(Switches("tiered"))


def document(name: str, container: dict[str, Any] = BURSTABLE, namespace: str = "default", **metadata: Any) -> bytes:
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **metadata},
            "spec": {"containers": [{"name": "main", "image": "i", "resources": container}]},
        }
    )


class AttachNode:
    def __init__(
        self,
        state: Path,
        mode: Mode = "enforce",
        policy: AttachPolicy = TIERED,
        scope: Scope | None = None,
        kernel: SimulatedKernel | None = None,
    ) -> None:
        self.kernel = kernel or SimulatedKernel(2)
        self.policy = policy
        self.state = state
        self.restart(mode, scope)

    def restart(self, mode: Mode = "enforce", scope: Scope | None = None) -> None:
        """A new process, with the journal of the one before."""
        self.journal = AttachJournal(self.state)
        self.journal.open("boot")
        self.book = PodBook()
        self.writer = AttachWriter(self.kernel, self.journal, 4096)
        scope = scope or Scope(mode)
        self.service = AttachService("n", node(), scope, lambda: self.policy, self.book, self.journal, self.writer)

    async def pod(
        self, name: str, container: dict[str, Any] = BURSTABLE, **metadata: Any
    ) -> tuple[m.PodSandbox, m.Container]:
        """In the API, and its cgroup as the kubelet makes it."""
        for path in ("/kubepods", "/kubepods/burstable", f"/kubepods/burstable/poduid-{name}"):
            if self.kernel.read(path, ()) is None:
                await self.kernel.make(path)
        self.book.put([audited_pod(document(name, container, **metadata))])
        linux = m.LinuxContainer(cgroups_path=self.container_path(name))
        namespace = str(metadata.get("namespace", "default"))
        return m.PodSandbox(f"s-{name}", name, f"uid-{name}", namespace), m.Container(
            name, f"s-{name}", "main", linux=linux
        )

    async def created(self, pod: m.PodSandbox, container: m.Container) -> dict[str, str]:
        """As a runtime: ask, make the cgroup, write the values. They are returned."""
        self.service.plugin.is_synchronized = True
        adjust = await self.service.plugin.created(pod, container)
        path = self.container_path(container.id)
        if self.kernel.read(path, ()) is None:
            await self.kernel.make(path)
        resources = adjust.linux.resources if adjust is not None and adjust.linux is not None else None
        files = dict(resources.unified) if resources is not None else {}
        for file, value in files.items():
            await self.kernel.write(path, file, value)
        return files

    def container_path(self, name: str) -> str:
        return f"/kubepods/burstable/poduid-{name}/{name}"

    def files(self, path: str) -> dict[str, str]:
        found = self.kernel.read(path, ("memory.min", "memory.low", "memory.high", "memory.oom.group"))
        assert found is not None
        return dict(found.files)

    def tree(self) -> dict[str, dict[str, str]]:
        found = {}
        paths = ["/kubepods"]
        while paths:
            path = paths.pop()
            found[path] = self.files(path)
            paths += [f"{path}/{name}" for name in self.kernel.children(path)]
        return found
