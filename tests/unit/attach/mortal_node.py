"""A node whose attach can be killed before and after everything that it leaves behind, beside a runtime that lives on.

Left behind are writes to the journal, writes to the kernel, and requests and answers to the runtime. The runtime is as
containerd: it keeps `unified` in its record of a container, writes the record at every update, and may carry out an
update after the attach that asked for it has died; a new plugin has to wait until that is done.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from plimsoll.attach.journal import AttachJournal
from plimsoll.attach.service import Mode, Scope
from plimsoll.attach.writer import AttachWriter, Restored
from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.rules.attach.policy import AttachPolicy, Switches
from plimsoll.rules.attach.values import HIGH
from plimsoll.runtime.nri import messages as m
from plimsoll.runtime.nri.plugin import NriSession
from tests.unit.attach.attach_node import AttachNode, document
from tests.unit.rules.attach.nodes import resources

FILES = ("memory.min", "memory.low", "memory.high", "memory.oom.group", "cpu.max.burst")
SIZES = [
    resources(memory=("64Mi", "128Mi"), cpu=("100m", "500m")),
    resources(memory=("32Mi", "96Mi"), cpu=("100m", "400m")),
    resources(memory=("48Mi", "256Mi"), cpu=("200m", "900m")),
]
POLICIES = [
    AttachPolicy(Switches("tiered")),
    AttachPolicy(Switches("tiered", factor=0.5, oom_group="container", cpu_burst_percent=20)),
    AttachPolicy(Switches("hard", factor=0.3), restore_on_exit=True),
    AttachPolicy(Switches("tiered", factor=0.7, cpu_burst_percent=60)),
    AttachPolicy(),
]

Tree = dict[str, dict[str, str]]


class Killed(BaseException):
    """attach was killed: nothing of it may catch this."""


class Killer:
    """`left`: how many points attach still passes; None: it is not killed."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.points = 0

    def point(self) -> None:
        self.points += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed


class MortalKernel(SimulatedKernel):
    def __init__(self, killer: Killer) -> None:
        super().__init__(2)
        self.killer = killer

    async def write(self, path: str, file: str, value: str) -> None:
        self.killer.point()
        await self.write_by_another(path, file, value)
        self.killer.point()

    async def write_by_another(self, path: str, file: str, value: str) -> None:
        await super().write(path, file, value)


class ModelContainer(msgspec.Struct):
    name: str
    pod: m.PodSandbox
    message: m.Container
    path: str
    record: dict[str, str] = {}
    is_running: bool = False


class ModelRuntime:
    """As far as attach sees it: the session of a plugin."""

    def __init__(self, kernel: MortalKernel) -> None:
        self.kernel = kernel
        self.connected = False
        self.problem = ""
        self.containers: dict[str, ModelContainer] = {}
        self.accepted: list[tuple[str, Mapping[str, str]]] = []  # updates that are not carried out yet
        self.meanwhile: Coroutine[Any, Any, None] | None = None  # what happens while an update is asked for

    async def update(self, updates: Sequence[m.ContainerUpdate]) -> set[str]:
        self.kernel.killer.point()
        if (happening := self.meanwhile) is not None:
            self.meanwhile = None
            await happening
        asked = []
        for each in updates:
            assert each.linux is not None and each.linux.resources is not None
            asked.append((each.container_id, each.linux.resources.unified))
        self.accepted[:0] = asked  # before the answers that the runtime has not come to yet
        self.kernel.killer.point()
        await self.carry_out(len(asked))
        self.kernel.killer.point()
        return set()

    async def carry_out(self, most: int | None = None) -> None:
        most = len(self.accepted) if most is None else most
        for container_id, files in self.accepted[:most]:
            container = self.containers.get(container_id)
            if container is None:
                continue
            container.record |= files
            if container.is_running:
                await self.write_record(container)
        del self.accepted[:most]

    async def write_record(self, container: ModelContainer) -> None:
        for file, value in container.record.items():
            await self.kernel.write_by_another(container.path, file, value)


class MortalNode:
    def __init__(self, state: Path, policy: AttachPolicy) -> None:
        self.killer = Killer()
        self.kernel = MortalKernel(self.killer)
        self.runtime = ModelRuntime(self.kernel)
        self.state, self.policy = state, policy
        self.sizes: dict[str, int] = {}
        self.node: AttachNode | None = None
        self.kills = 0

    async def prepare(self, pods: Sequence[str]) -> None:
        """The levels that the kubelet makes; `kubepods` has a value of another program."""
        for path in ("/kubepods", "/kubepods/burstable"):
            await self.kernel.make(path)
        await self.kernel.write_by_another("/kubepods", "memory.low", "8192")
        for name in pods:
            await self.kernel.make(f"/kubepods/burstable/poduid-{name}")
            self.sizes[name] = 0

    # attach

    async def mortal(self, acting: Coroutine[Any, Any, Any], points: int | None) -> Any:
        """What attach does is cut off after so many points; None then."""
        self.killer.left = points
        try:
            return await acting
        except Killed:
            self.kills += 1
            self.die()
            return None
        finally:
            self.killer.left = None

    def die(self) -> None:
        assert self.node is not None
        self.node.journal.close()
        self.node, self.runtime.connected = None, False

    async def start(self, mode: Mode = "enforce", namespaces: frozenset[str] = frozenset({"default"})) -> None:
        node = AttachNode(self.state, mode, self.policy, Scope(mode, namespaces), self.kernel)
        self.node = node
        node.writer.session = cast("NriSession", self.runtime)
        self._mortal_journal(node.journal)
        for name in self.sizes:
            self.show(name)
        await node.service.begin()

    def _mortal_journal(self, journal: AttachJournal) -> None:
        real = journal._log.write

        def write(changes: Mapping[str, bytes | None]) -> None:
            self.killer.point()
            real(changes)
            self.killer.point()

        journal._log.write = write  # type: ignore[method-assign]

    def set_policy(self, policy: AttachPolicy) -> None:
        self.policy = policy
        if self.node is not None:
            self.node.policy = policy

    def show(self, name: str) -> None:
        """The pod in the API, with its resources of now and the container that runs."""
        if self.node is None:
            return
        body = msgspec.json.decode(document(name, SIZES[self.sizes[name]]))
        running = [each for each in self.runtime.containers.values() if each.name == name and each.is_running]
        body["status"] = {
            "containerStatuses": [
                {"name": "main", "containerID": f"containerd://{each.message.id}", "state": {"running": {}}}
                for each in running[-1:]
            ]
        }
        self.node.book.put([audited_pod(msgspec.json.encode(body))])

    async def connect(self) -> None:
        await self.runtime.carry_out()
        assert self.node is not None
        plugin, seen = self.node.service.plugin, self.runtime.containers.values()
        plugin.configured("containerd", "v2.1.9")
        state = {False: m.CREATED, True: m.RUNNING}
        messages = [msgspec.structs.replace(each.message, state=state[each.is_running]) for each in seen]
        plugin.synchronized([each.pod for each in seen], messages)
        self.runtime.connected = True

    async def round(self, points: int | None = None, meanwhile: Coroutine[Any, Any, None] | None = None) -> None:
        assert self.node is not None
        self.runtime.meanwhile = meanwhile
        await self.mortal(self.node.service.round(), points)
        if self.runtime.meanwhile is not None:
            self.runtime.meanwhile.close()
            self.runtime.meanwhile = None

    async def lift(self, container_id: str, value: int, points: int | None = None) -> None:
        """As the watchdog does."""
        assert self.node is not None
        target = self.node.service.decision.at(self.runtime.containers[container_id].path)
        if target is not None and HIGH in target.files:
            await self.mortal(self.node.service.watchdog._lift(target, str(value)), points)

    async def end(self, points: int | None = None) -> None:
        assert self.node is not None
        await self.mortal(self.node.service.end(), points)
        if self.node is not None:
            self.die()

    async def detach(self, points: int | None = None) -> bool:
        """Whether it was not killed; every file had a value of ours or the one from before."""
        done = await self.restored(points)
        assert {each.outcome for each in done} <= {"restored", "already", "gone"}, done
        return bool(done) or points is None

    async def restored(self, points: int | None = None) -> list[Restored]:
        """Nothing if it was killed."""
        await self.runtime.carry_out()
        journal = AttachJournal(self.state)
        journal.open("boot")
        self._mortal_journal(journal)
        self.runtime.connected = True
        writer = AttachWriter(self.kernel, journal, 4096, cast("NriSession", self.runtime))
        writer.runtime_updates_unified = True
        self.killer.left = points
        try:
            done = await writer.restore(list(journal.entries.values()))
            assert not journal.entries
            return done
        except Killed:
            self.kills += 1
            return []
        finally:
            self.killer.left = None
            self.runtime.connected = False
            journal.close()

    async def act(self, action: str, points: int | None) -> None:
        """One of `ACTIONS`."""
        if action != "round without the runtime":
            await self.connect()
        if action.startswith("round"):
            await self.round(points)
        elif action == "create":
            await self.create("a", len(self.runtime.containers) + 1, points)
        else:
            await self.update("a1", points, at_once=action == "update")

    # The kubelet and the runtime

    async def create(self, name: str, number: int, points: int | None = None) -> None:
        container_id = f"{name}{number}"
        path = f"/kubepods/burstable/poduid-{name}/{container_id}"
        message = m.Container(container_id, f"s-{name}", "main", linux=m.LinuxContainer(cgroups_path=path))
        container = ModelContainer(name, m.PodSandbox(f"s-{name}", name, f"uid-{name}", "default"), message, path)
        if self.node is not None and self.runtime.connected:
            adjust = await self.mortal(self._answered_create(container), points)
            resources = adjust.linux.resources if adjust is not None and adjust.linux is not None else None
            container.record = dict(resources.unified) if resources is not None else {}
        self.runtime.containers[container_id] = container

    async def _answered_create(self, container: ModelContainer) -> m.ContainerAdjustment | None:
        assert self.node is not None
        adjust = await self.node.service.plugin.created(container.pod, container.message)
        self.killer.point()  # answered or not
        return adjust

    async def start_container(self, container_id: str) -> None:
        container = self.runtime.containers[container_id]
        if not container.is_running:
            await self.kernel.make(container.path)
            container.is_running = True
            await self.runtime.write_record(container)
            self.show(container.name)

    async def stop(self, container_id: str) -> None:
        container = self.runtime.containers.pop(container_id)
        if container.is_running:
            await self.kernel.remove(container.path)
        if self.node is not None and self.runtime.connected:
            self.node.service.plugin.changed(m.STOP_CONTAINER, container.pod, container.message)

    async def update(self, container_id: str, points: int | None = None, *, at_once: bool = True) -> None:
        """By the kubelet, which changes no file of attach. Not `at_once`: the runtime has the answer, and is slow."""
        container = self.runtime.containers[container_id]
        files: Mapping[str, str] = {}
        if self.node is not None and self.runtime.connected:
            answer = await self.mortal(self._answered_update(container), points)
            if answer is not None and answer.linux is not None and answer.linux.resources is not None:
                files = answer.linux.resources.unified
        self.runtime.accepted.append((container_id, files))
        if at_once:
            await self.runtime.carry_out()

    async def update_meanwhile(self, container_id: str, policy: AttachPolicy) -> None:
        """While a round waits for the runtime: a kill ends both."""
        self.set_policy(policy)
        answer = await self._answered_update(self.runtime.containers[container_id])
        if answer is not None and answer.linux is not None and answer.linux.resources is not None:
            self.runtime.accepted.append((container_id, answer.linux.resources.unified))

    async def _answered_update(self, container: ModelContainer) -> m.ContainerUpdate | None:
        assert self.node is not None
        answer = await self.node.service.plugin.updated(container.pod, container.message, m.LinuxResources())
        self.killer.point()
        return answer

    def resize(self, name: str, size: int) -> None:
        self.sizes[name] = size
        self.show(name)

    # What must hold

    def high(self, container_id: str) -> str:
        group = self.kernel.read(self.runtime.containers[container_id].path, (HIGH,))
        assert group is not None
        return group.files[HIGH]

    def tree(self) -> Tree:
        found, paths = {}, ["/kubepods"]
        while paths:
            path = paths.pop()
            group = self.kernel.read(path, FILES)
            assert group is not None
            found[path] = dict(group.files)
            paths += [f"{path}/{name}" for name in self.kernel.children(path)]
        return found

    async def check_restored(self) -> None:
        """After a detach: now, and after all that the runtime may do with its record later."""
        usual = {**dict.fromkeys(FILES, "0"), "memory.high": "max"}
        for _ in range(2):
            before = {path: usual | ({"memory.low": "8192"} if path == "/kubepods" else {}) for path in self.tree()}
            assert self.tree() == before
            for container_id in self.runtime.containers:
                await self.start_container(container_id)
                await self.update(container_id)


ACTIONS = ("round", "round without the runtime", "update", "slow update", "create")


async def double_kills(*policies: AttachPolicy, every: int = 1) -> int:
    """How many pairs of kills there were: after a life that ends well, two are killed, each at every of its points; the
    second one may have another policy. Then detach."""
    kills, number = 0, 0
    for first, second in itertools.product(ACTIONS, ACTIONS):
        ends = await _points(policies, (first, None), (second, None))
        for one, two in itertools.product(range(ends[0]), range(ends[1])):
            number += 1
            if number % every == 0:
                kills += len(await _points(policies, (first, one), (second, two), is_killed=True)) == 2
    return kills


async def _points(
    policies: Sequence[AttachPolicy], *lives: tuple[str, int | None], is_killed: bool = False
) -> list[int]:
    """How many points each life had; with `is_killed` only those that were killed."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        node = MortalNode(Path(directory), policies[0])
        await node.prepare(["a"])
        await node.start()
        await node.connect()
        await node.create("a", 1)
        await node.start_container("a1")
        await node.round()
        node.die()
        for policy, (action, points) in zip(policies[1:], lives, strict=True):
            node.set_policy(policy)
            await node.start()
            before = node.killer.points
            await node.act(action, points)
            if node.node is None or not is_killed:
                found.append(node.killer.points - before)
            if node.node is not None:
                node.die()
        assert await node.detach()
        await node.check_restored()
    return found
