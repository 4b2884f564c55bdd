"""The agent of one node: takes the pods that are bound to it, and makes them so.

    list and watch ──▶ pods (one worker each) ──▶ runtime, cgroups, volumes
                          ▲                          │
    runtime's changes, probes, timers ───────────────┘──▶ statuses and events

Everything runs in one task group, in one thread. Any event only means "look again", so an agent that was killed simply
starts: it opens the runtime, whose containers never stopped, lists its pods, and goes on with each from what is there.
What runs for pods that nobody knows any more is ended, but not before the first list has come: without it nobody could
say which those are.

`stop` leaves everything running, as a kubelet does; `end` (for `plimsoll up` and `plimsoll run`) takes it all away.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.errors import PlimsollError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.reflector import ObjectChange, Reflector
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pods.container_gc import Cleanup
from plimsoll.node.pods.manager import Pods
from plimsoll.node.reporting.event_correlator import ObjectReference
from plimsoll.node.reporting.event_recorder import Recorder
from plimsoll.node.reporting.status_manager import Reporter
from plimsoll.node.resources.cpu_manager import CpuManager
from plimsoll.node.resources.cri_cgroups import RuntimeCgroups
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.server.log_rotation import LogRotation
from plimsoll.node.sources.mirror_pods import Mirror, MirrorPods
from plimsoll.node.sources.static_pods import StaticPods
from plimsoll.rules.cpumanager.topology import CpuTopology, flat
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.runtime.interface import ContainerRuntime

log = logging.getLogger(__name__)

HOUSEKEEPING_S = 60.0
TIDY_S = 5.0
END_S = 4.0  # Ctrl-C ends everything within five seconds
CRI_END_S = 12.0  # a runtime is slower; `up` does not wait for that, and takes away the rest itself
CLOSE_S = 2.0


class Agent:
    def __init__(
        self,
        setting: NodeConfig,
        runtime: ContainerRuntime,
        driver: CgroupDriver,
        tree: CgroupManager,
        client: Client,
        state_dir: Path,
        node_name: str,
        *,
        clock: Callable[[], float] = time.time,
        node: Callable[[], Node] | None = None,
        conditions: Callable[[], Iterable[NodeCondition]] = tuple,
        node_ip: str = "127.0.0.1",
        unenforced: str = "",
        meters: NodeMeters | None = None,
        keeps_images: bool = False,
        hidden: Sequence[Path] = (),
        topology: CpuTopology | None = None,
    ) -> None:
        """`node`: the Node as the API has it, for labels and taints. `unenforced`: why limits are not real here.

        `keeps_images`, `hidden`: as `Dependencies` has it. `topology`: of the node's CPUs."""
        self.setting, self.runtime, self.node_name = setting, runtime, node_name
        self._client, self._clock = client, clock
        self.view = RuntimeView(runtime)
        self.cgroups = PodCgroups(tree, driver, setting)
        if runtime.makes_cgroups:
            self.cgroups.stands = RuntimeCgroups(
                driver, setting.runtime, setting.machine.page_size, state_dir / "lifted.json"
            )
        self.checkpoint = Checkpoint(state_dir / "agent.jsonl")
        self.cpus = CpuManager(state_dir, setting, topology or flat(setting.machine.cores))
        self.recorder = Recorder(client, node_name, clock=clock)
        self.reporter = Reporter(client, versioned=setting.profile.resize_status_field)
        self.tools = Dependencies(
            setting=setting,
            runtime=runtime,
            view=self.view,
            cgroups=self.cgroups,
            checkpoint=self.checkpoint,
            cpus=self.cpus,
            recorder=self.recorder,
            reporter=self.reporter,
            client=client,
            state_dir=state_dir,
            node_name=node_name,
            node_ip=node_ip,
            clock=clock,
            unenforced=unenforced,
            meters=meters or NodeMeters(node_name),
            keeps_images=keeps_images,
            hidden=hidden,
        )
        known_node = node or (lambda: plain_node(node_name, setting))
        self.pods = Pods(self.tools, lambda: with_own_size(known_node(), setting), conditions)
        self.cleanup = Cleanup(self.tools, self.pods)
        self.static = StaticPods(setting.config, node_name, self.pods.take, clock, self._broken_manifest)
        self.mirrors = MirrorPods(
            client,
            lambda: self.static.pods,
            lambda key: self.pods.named(*key) is not None,
            lambda: known_node().metadata.uid,
        )
        self.static.changed = self.pods.one_is_gone = self.mirrors.wake
        self.tools.mirror_of = self._mirror_of
        self._stopping = asyncio.Event()
        self._untidy = asyncio.Event()
        self.ready = asyncio.Event()  # the first list has come

    async def run(self) -> None:
        """Until `stop` or `end`. Raises where this machine, its cgroups or the runtime cannot be used at all."""
        self.checkpoint.load()
        self.tools.pinning.check()
        self.cpus.load(drained=not self.checkpoint.all())
        await self.runtime.open()
        try:
            await self.cgroups.setup()
            await self.static.begin()
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(coroutine, name=name)
                    for name, coroutine in (
                        ("runtime view", self.view.run()),
                        ("cgroups", self.cgroups.run()),
                        ("statuses", self.reporter.run()),
                        ("events", self.recorder.run()),
                        ("checkpoint", self.checkpoint.run()),
                        ("runtime changes", self._follow_runtime()),
                        ("pods", self._follow_pods()),
                        ("resizes", self.pods.resizes.run()),
                        ("static pods", self.static.run()),
                        ("mirror pods", self.mirrors.run()),
                        ("CPUs", self.tools.pinning.run(self._with_processes, self._cpus_freed)),
                        ("housekeeping", self._housekeeping()),
                        ("tidying", self._tidying()),
                    )
                ]
                if self.runtime.makes_cgroups:
                    running.append(group.create_task(self._log_rotation().run(), name="log rotation"))
                await self._stopping.wait()
                await self.pods.close()
                for task in running:
                    task.cancel()
        finally:
            await self.pods.close()
            self.checkpoint.save_if_possible()
            await self.runtime.close()

    async def stop(self) -> None:
        """Let go of everything; containers run on, and the next agent finds them."""
        await self.reporter.drained(CLOSE_S)
        await self.recorder.drained(CLOSE_S)
        self._stopping.set()

    async def end(self) -> None:
        """Kill every pod of this node and take away all that was made for them, cgroups of the node included."""
        await self.pods.close()
        end_s = CRI_END_S if self.runtime.makes_cgroups else END_S
        try:
            async with asyncio.timeout(end_s):
                await self.cleanup.all_pods()
        except TimeoutError:
            log.error("not every pod could be ended within %g s: the rest is killed with its cgroups", end_s)
        await self.cgroups.teardown()
        self._stopping.set()

    async def _follow_pods(self) -> None:
        reflector = Reflector(request.PODS, fields=f"spec.nodeName={self.node_name}")
        async for changes in self._client.follow(reflector, lambda error: log.warning("pods: %s", error)):
            self.pods.all_known = self.static.all_read.is_set()
            self.pods.take(self._without_mirrors(changes))
            if not self.ready.is_set():
                self.pods.resizes.begin()
                self.ready.set()
                gc.collect()
                gc.freeze()

    def _without_mirrors(self, changes: list[ObjectChange]) -> list[ObjectChange]:
        """What the API shows of static pods is looked at, and no work of its own."""
        others, mirrors = self.mirrors.split(changes)
        for key, is_news in mirrors.items():
            worker = self.pods.named(*key)
            mirror = self._mirror_of(worker.uid) if worker is not None else None
            if worker is None or mirror is None:
                continue
            self.reporter.observe(mirror.uid, mirror.status, mirror.version)
            if is_news:
                worker.wake()
        return others

    def _mirror_of(self, uid: str) -> Mirror | None:
        worker = self.pods.workers.get(uid)
        if worker is None:
            return None
        pod = self.static.pods.get((worker.pod.metadata.namespace, worker.pod.metadata.name))
        return self.mirrors.mirror_of(pod) if pod is not None and pod.uid == uid else None

    def _broken_manifest(self, sentence: str) -> None:
        about = ObjectReference("Node", self.node_name, "", self.node_name, "", "v1")
        self.recorder.record(about, "Warning", "InvalidStaticPod", sentence)

    def _cpus_freed(self) -> None:
        self.pods.resizes.room("pod_terminated")

    def _with_processes(self) -> set[str] | None:
        return self.pods.with_processes() if self.pods.all_known else None

    async def _follow_runtime(self) -> None:
        async for uid in self.runtime.changes():
            self.pods.wake([uid] if uid else None)
            if uid and uid not in self.pods.workers:
                self._untidy.set()

    def _log_rotation(self) -> LogRotation:
        config = self.setting.config
        return LogRotation(self.runtime, self.view, config.container_log_max_bytes, config.container_log_max_files)

    async def _housekeeping(self) -> None:
        """Once the first list has come it is known which pods there are: what belongs to none of them goes."""
        await self.ready.wait()
        await self.static.all_read.wait()
        self.pods.all_known = True
        while True:
            try:
                await self.cleanup.leftovers()
                for worker in list(self.pods):
                    await worker.refresh_volumes()
            except (PlimsollError, OSError) as error:
                log.warning("housekeeping: %s", error)
            gc.collect()  # the daemon's high thresholds leave it to us; what was frozen is not looked at
            await asyncio.sleep(HOUSEKEEPING_S)

    async def _tidying(self) -> None:
        """The runtime tells of a pod that we do not know: mostly one that is just gone, else one to be ended."""
        await self.ready.wait()
        await self.static.all_read.wait()
        while True:
            await self._untidy.wait()
            await asyncio.sleep(TIDY_S)
            self._untidy.clear()
            try:
                await self.cleanup.leftovers()
            except (PlimsollError, OSError) as error:
                log.warning("tidying up: %s", error)


def plain_node(name: str, setting: NodeConfig) -> Node:
    """What admission needs of a Node that the API has not told us anything about."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return Node(
        metadata=Metadata(name=name, labels=labels),
        status=NodeStatus(capacity=setting.capacity, allocatable=setting.allocatable),
    )


def with_own_size(node: Node, setting: NodeConfig) -> Node:
    """How large the node is, it knows best itself: what the API has may be from before its last start."""
    status = node.status
    return msgspec.structs.replace(
        node,
        status=msgspec.structs.replace(
            status,
            capacity={**(status.capacity or {}), **setting.capacity},
            allocatable={**(status.allocatable or {}), **setting.allocatable},
        ),
    )
