"""The agent of one node: runs the pods that are bound to it.

    list and watch ──▶ pods (one worker each) ──▶ runtime, cgroups, volumes
                          ▲                          │
    runtime's changes, probes, timers ───────────────┘──▶ statuses and events

Everything runs in one task group, in one thread. Every event only requeues a pod, so a restarted agent needs no special
case: it opens the runtime, whose containers never stopped, lists its pods, and continues with each from what it
observes. Containers of pods that are not known are terminated, but not before the first list has arrived.

`stop` leaves everything running, as a kubelet does; `end` (for `plimsoll up` and `plimsoll run`) removes it all.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from plimsoll.aio import ExponentialBackoff, supervise
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.errors import PlimsollError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.reflector import ObjectChange, Reflector
from plimsoll.linux.machine import has_app_armor, has_selinux, kernel_version
from plimsoll.linux.numa import NumaMemory
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.devices.manager import DeviceManager
from plimsoll.node.devices.pod_resources import PodResourcesServer
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pods.container_gc import Cleanup
from plimsoll.node.pods.container_spec import NodePaths, node_names
from plimsoll.node.pods.image_manager import plugins_of, pull_limit
from plimsoll.node.pods.manager import Pods
from plimsoll.node.pods.runtime_classes import RuntimeClasses
from plimsoll.node.pods.service_links import ServiceLinks
from plimsoll.node.pods.services import NodeServices
from plimsoll.node.pods.status import PodReports
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.reporting.event_correlator import ObjectReference
from plimsoll.node.reporting.event_recorder import PodEvents, Recorder
from plimsoll.node.reporting.status_manager import Reporter
from plimsoll.node.resources.cgroup_locator import CgroupLocator
from plimsoll.node.resources.container_cgroups import AgentCgroups, ContainerCgroups
from plimsoll.node.resources.cpu_manager import CpuManager, CpuPinning
from plimsoll.node.resources.io_annotations import IoAnnotations
from plimsoll.node.resources.memory_manager import MemoryManager
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.resource_managers import NodeResources, ResourceManagers, topology_of
from plimsoll.node.resources.runtime_cgroups import RuntimeCgroups
from plimsoll.node.resources.user_namespaces import UserNamespaces
from plimsoll.node.server.logs import LogRotation
from plimsoll.node.sources.mirror_pods import Mirror, MirrorPods
from plimsoll.node.sources.static_pods import StaticPods
from plimsoll.node.volumes.object_cache import ObjectCache
from plimsoll.node.volumes.pod_dirs import pods_on_disk, remove_pod_files
from plimsoll.node.volumes.volumes import Volumes
from plimsoll.rules.cpumanager.topology import CpuTopology, flat
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.lifecycle.backoff import crash_limits
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.lifecycle.pod_actions import compute_pod_actions
from plimsoll.rules.lifecycle.security_context import Abilities, app_armor_profiles
from plimsoll.rules.lifecycle.service_links import LinkedService
from plimsoll.rules.lifecycle.shutdown import REJECTED_MESSAGE, REJECTED_REASON
from plimsoll.rules.lifecycle.status import NodeView, shows_allocated
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.node.security_admission import NodeSecurity, check_unsafe_sysctls, security_refusals
from plimsoll.rules.quantity import from_units
from plimsoll.runtime.interface import Runtime

log = logging.getLogger(__name__)

SHUTDOWN_REFUSAL = AdmissionRefusal(REJECTED_REASON, REJECTED_MESSAGE)

ONE_NODE = NumaMemory({}, {})
PLUGINS, POD_RESOURCES = "device-plugins", "pod-resources"
HOUSEKEEPING_S = 60.0
UNKNOWN_PODS_S = 5.0
END_S = 4.0  # Ctrl-C removes everything within five seconds
CRI_END_S = 12.0  # a CRI runtime is slower; `up` does not wait for it, and removes the rest itself
CLOSE_S = 2.0
RESTART_FIRST_S, RESTART_MOST_S = 1.0, 30.0


class Agent:
    def __init__(
        self,
        setting: NodeConfig,
        runtime: Runtime,
        driver: CgroupDriver,
        tree: CgroupManager,
        client: Client,
        state_dir: Path,
        node_name: str,
        *,
        clock: Callable[[], float] = time.time,
        node: Callable[[], Node] | None = None,
        read_node: Callable[[], Awaitable[None]] | None = None,
        conditions: Callable[[], Iterable[NodeCondition]] = tuple,
        node_ip: str = "127.0.0.1",
        server: LinkedService | None = None,
        unenforced: str = "",
        meters: NodeMeters | None = None,
        keeps_images: bool = False,
        hidden: Sequence[Path] = (),
        topology: CpuTopology | None = None,
        numa: NumaMemory | None = None,
    ) -> None:
        """`node`: the Node as the API server has it, for labels and taints; `read_node` reads it again. `unenforced`:
        why limits have no effect here. `keeps_images`: a present image is never pulled again. `hidden`: directories
        that no hostPath may show, besides the state directory. `topology`: of the node's CPUs; `numa`: the
        memory of its NUMA nodes."""
        check_unsafe_sysctls(setting.config.allowed_unsafe_sysctls)
        self.is_shutting_down: Callable[[], bool] = lambda: False  # the machine
        self.setting, self.runtime, self.node_name = setting, runtime, node_name
        self._client = client
        self.meters = meters or NodeMeters(node_name, setting.profile)
        self.view = RuntimeView(runtime)
        self.checkpoint = Checkpoint(state_dir / "agent.jsonl")
        self.recorder = Recorder(client, node_name, clock=clock)
        self.reporter = Reporter(client, versioned=setting.profile.resize_status_field)
        self.events = PodEvents(self.recorder)
        is_confined = not runtime.makes_cgroups or setting.config.seccomp_default
        stop_signals = setting.config.gate("ContainerStopSignals")
        self.paths = NodePaths(
            state_dir,
            state_dir / "logs",
            node_names(setting.config),
            makes_etc=not runtime.makes_cgroups,
            bounds_files=not runtime.makes_cgroups and not driver.simulated,
            seccomp_default="RuntimeDefault" if is_confined else "Unconfined",
            stop_signals=stop_signals,
            default_sysctls=setting.config.default_pod_sysctls,
            abilities=Abilities(has_selinux(), applies_profiles=runtime.makes_cgroups),
        )
        covered = () if runtime.makes_cgroups else (state_dir, *hidden)
        self.volumes = Volumes(state_dir, covered, features=lambda: runtime.features, in_memory=not driver.simulated)
        places, memory = topology or flat(setting.machine.cores), numa or ONE_NODE
        aligned = topology_of(setting, places, memory)  # a kubelet creates them in this order, too (AD-10)
        self.cpus = CpuManager(state_dir, setting, places)
        self.memory = MemoryManager(state_dir, setting, memory)
        self.devices = DeviceManager(
            state_dir / PLUGINS,
            aligned.layout.nodes,
            narrow=setting.profile.device_hints_of_used_nodes,
            report=self._device_event,
        )
        self.managers = ResourceManagers(setting, self.cpus, self.memory, aligned, self.devices)
        self._locator = (
            CgroupLocator(driver, setting.runtime, setting.machine.page_size, state_dir / "lifted.json")
            if runtime.makes_cgroups
            else None
        )
        cpus_of = self.cpus.cpus_of if self.cpus.is_static else None
        mems_of = self.memory.mems_of if self.memory.is_static else None
        self.cgroups = PodCgroups(tree, driver, setting, cpus=cpus_of, mems=mems_of, locator=self._locator)
        self.container_cgroups = self._container_cgroups(driver)
        self.io: IoAnnotations | None = None
        if setting.policy.io is not None:
            self.io = IoAnnotations(setting, self.cgroups.sized_pod, self._warn)
        period_s = setting.config.cpu_manager_reconcile_period_s
        self._pinning = CpuPinning(
            self.cpus,
            self.cgroups,
            self.container_cgroups,
            period_s,
            self.managers.retain,
            binds_memory=self.memory.is_static,
        )
        in_place = setting.config.gate("InPlacePodVerticalScaling")
        allocated = shows_allocated(setting.config.gate, setting.profile)
        self.reports = PodReports(
            self.reporter, self.cgroups.readings,
            lambda: NodeView((node_ip,), runtime.name, setting.profile, in_place, allocated, stop_signals),
            setting.policy.gates, clock, self._mirror_of,
            "" if self.cgroups.enforced else unenforced or "cgroups of this machine cannot be written",
        )  # fmt: skip

        known_node = node or (lambda: plain_node(node_name, setting))
        self.pods = Pods(
            setting, self._make_worker, self.checkpoint, self.managers, self._pinning, self.reporter, self.events,
            self.meters, clock, lambda: with_own_size(known_node(), setting, self.devices.sizes()), conditions,
            self._pod_removed, read_node, self._refusals, self.io,
        )  # fmt: skip
        self.node_resources = NodeResources(self.managers, self.pods.allocated)
        self.pod_resources = PodResourcesServer(self.node_resources, self.devices)
        limits = crash_limits(setting.config.feature_gates, setting.config.crash_loop_max_period_s)
        self._services = NodeServices(
            setting, runtime, self.view, self.checkpoint, self.cgroups, self.container_cgroups, self.managers,
            self._pinning, self.pods.resizes, self.volumes, ObjectCache(client, clock),
            UserNamespaces(state_dir, setting.config.user_ids_per_pod), ServiceLinks(client, clock, server),
            RuntimeClasses(client), self.paths,
            Surroundings(host_ips=(node_ip,), allocatable=setting.allocatable), self.events, self.reports, self.meters,
            partial(compute_pod_actions, limits=limits, profile=setting.profile), clock, keeps_images,
            plugins_of(setting.config, clock), pull_limit(setting.config),
        )  # fmt: skip
        self.cleanup = Cleanup(self._services, self.pods)
        self.static = StaticPods(setting.config, node_name, self.pods.take, clock, self._broken_manifest)
        self.mirrors = MirrorPods(
            client,
            lambda: self.static.pods,
            lambda key: self.pods.named(*key) is not None,
            lambda: known_node().metadata.uid,
        )
        self.static.changed = self.mirrors.wake
        self._bound_pods = Reflector(request.PODS, fields=f"spec.nodeName={node_name}")
        self._stopping = asyncio.Event()
        self._unknown_pods = asyncio.Event()  # the runtime has a pod that is not known here
        self.ready = asyncio.Event()  # the first list has arrived

    def _refusals(self, pod: RunPod) -> tuple[AdmissionRefusal, ...]:
        node = NodeSecurity(
            has_app_armor(),
            kernel_version(),
            self.setting.config.allowed_unsafe_sysctls,
            self.runtime.features.strict_groups,
        )
        refusals = tuple(security_refusals(pod, node, asks_app_armor=app_armor_profiles(pod)))
        return (SHUTDOWN_REFUSAL, *refusals) if self.is_shutting_down() else refusals

    def _container_cgroups(self, driver: CgroupDriver) -> ContainerCgroups:
        if self._locator is None:
            return AgentCgroups(self.cgroups, scopes_may_vanish=driver.name == "systemd")
        return RuntimeCgroups(
            self.cgroups, self._locator, driver, self.runtime, self.view, self.managers, self.checkpoint, self.setting
        )

    def _make_worker(self, pod: RunPod, status: JsonObject, body: bytes) -> PodWorker:
        return PodWorker(self._services, pod, status, body)

    async def run(self) -> None:
        """Until `stop` or `end`. Raises if this machine, its cgroups or the runtime cannot be used at all."""
        cpus_freed = partial(self.pods.resizes.retry, "pod_terminated")
        self.checkpoint.load()
        self._pinning.check()
        self.managers.load(drained=not self.checkpoint.all())
        await self.runtime.open()
        try:
            await self._open_devices()
            await self.cgroups.setup()
            await self.static.begin()
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(coroutine, name=name)
                    for name, coroutine in (
                        ("runtime view", self.view.run()),
                        ("cgroups", self.cgroups.run()),
                        ("statuses", _kept_up("statuses", self.reporter.run)),
                        ("events", _kept_up("events", self.recorder.run)),
                        ("checkpoint", self.checkpoint.run()),
                        ("runtime changes", self._follow_runtime()),
                        ("pods", _kept_up("pods", self._follow_pods)),
                        ("resizes", self.pods.run_resizes()),
                        ("static pods", self.static.run()),
                        ("mirror pods", _kept_up("mirror pods", self.mirrors.run)),
                        ("CPUs", self._pinning.run(self._uids_with_processes, cpus_freed)),
                        ("housekeeping", self._housekeeping()),
                        ("unknown pods", self._remove_unknown_pods()),
                    )
                ]
                if self.runtime.makes_cgroups:
                    config = self.setting.config
                    sizes = config.container_log_max_bytes, config.container_log_max_files
                    rotation = LogRotation(self.runtime, self.view, *sizes)
                    running.append(group.create_task(rotation.run(), name="log rotation"))
                await self._stopping.wait()
                await self.pods.close()
                for task in running:
                    task.cancel()
        finally:
            await self.pods.close()
            self.checkpoint.save_if_possible()
            await self.pod_resources.close()
            await self.devices.close()
            await self.runtime.close()

    async def stop(self) -> None:
        """Containers keep running, and the next agent finds them."""
        await self.reporter.drained(CLOSE_S)
        await self.recorder.drained(CLOSE_S)
        self._stopping.set()

    async def end(self) -> None:
        """Kill every pod of this node and remove all that was created for them, including the node's cgroups."""
        await self.pods.close()
        end_s = CRI_END_S if self.runtime.makes_cgroups else END_S
        try:
            async with asyncio.timeout(end_s):
                await self.cleanup.all_pods()
        except TimeoutError:
            log.error("not every pod could be stopped within %g s: the rest is killed with its cgroups", end_s)
        await self.cgroups.teardown()
        await self._remove_pod_files()
        self._stopping.set()

    async def _remove_pod_files(self) -> None:
        """Files and mounts of pods that could not be stopped in time: their processes are killed by now."""
        state = self.paths.state
        for uid in pods_on_disk(state):
            try:
                await asyncio.to_thread(remove_pod_files, state, uid)
            except OSError as error:
                log.error("files of pod %s are not removed: %s: %s", uid, error.filename, error.strerror)

    async def _follow_pods(self) -> None:
        async for changes in self._client.follow(self._bound_pods, lambda error: log.warning("pods: %s", error)):
            self.pods.all_known = self.static.all_read.is_set()
            self.pods.take(self._without_mirrors(changes))
            if not self.ready.is_set():
                self.pods.begin_resizes()
                self.ready.set()
                gc.collect()
                gc.freeze()

    def _without_mirrors(self, changes: list[ObjectChange]) -> list[ObjectChange]:
        """Mirror pods show static pods in the API: they have no worker of their own."""
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

    def container_paths(self) -> list[str]:
        """The cgroups of running containers."""
        return [
            path
            for uid, observed in self.view.last.items()
            for name, path in self.cgroups.paths(uid).items()
            if name in {container.name for container in observed.containers if container.phase == "running"}
        ]

    def _mirror_of(self, uid: str) -> Mirror | None:
        worker = self.pods.workers.get(uid)
        if worker is None:
            return None
        pod = self.static.pods.get((worker.pod.metadata.namespace, worker.pod.metadata.name))
        return self.mirrors.mirror_of(pod) if pod is not None and pod.uid == uid else None

    def _broken_manifest(self, sentence: str) -> None:
        reference = ObjectReference("Node", self.node_name, "", self.node_name, "", "v1")
        self.recorder.record(reference, "Warning", "InvalidStaticPod", sentence)

    async def _open_devices(self) -> None:
        try:
            await self.devices.open()
            await self.pod_resources.listen(self.paths.state / POD_RESOURCES)
        except OSError as error:  # pods without devices do not depend on it
            log.error("device plugins cannot register in %s: %s", self.devices.directory, error.strerror or error)

    def _device_event(self, reason: str, message: str) -> None:
        reference = ObjectReference("Node", self.node_name, "", self.node_name, "", "v1")
        self.recorder.record(reference, "Warning", reason, message)

    def _warn(self, pod: RunPod, reason: str, message: str) -> None:
        self.events.emit(pod, "Warning", reason, message)

    def _pod_removed(self) -> None:
        self.mirrors.wake()

    def _uids_with_processes(self) -> set[str] | None:
        return self.pods.with_processes() if self.pods.all_known else None

    async def _follow_runtime(self) -> None:
        async for uid in self.runtime.changes():
            self.pods.wake([uid] if uid else None)
            if uid and uid not in self.pods.workers:
                self._unknown_pods.set()

    async def _housekeeping(self) -> None:
        """After the first list all pods are known: what belongs to none of them is removed."""
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
            gc.collect()  # the daemon's thresholds are high; frozen objects are not scanned
            await asyncio.sleep(HOUSEKEEPING_S)

    async def _remove_unknown_pods(self) -> None:
        """Containers of a pod that is not known here: mostly one that was just removed, otherwise one to terminate."""
        await self.ready.wait()
        await self.static.all_read.wait()
        while True:
            await self._unknown_pods.wait()
            await asyncio.sleep(UNKNOWN_PODS_S)
            self._unknown_pods.clear()
            try:
                await self.cleanup.leftovers()
            except (PlimsollError, OSError) as error:
                log.warning("removing unknown pods: %s", error)


async def _kept_up(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """A task that works with answers of the API server: whatever they contain, the pods of the node go on."""
    await supervise(name, run, ExponentialBackoff(RESTART_FIRST_S, RESTART_MOST_S))


def plain_node(name: str, setting: NodeConfig) -> Node:
    """What admission needs of a Node that the API server does not have."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return Node(
        metadata=Metadata(name=name, labels=labels),
        status=NodeStatus(capacity=setting.capacity, allocatable=setting.allocatable),
    )


def with_own_size(node: Node, setting: NodeConfig, devices: Mapping[str, tuple[int, int]]) -> Node:
    """With the size that the agent has found: the API server's may be from before the last start."""
    status = node.status
    capacity = {name: from_units(number) for name, (number, _) in devices.items()}
    allocatable = {name: from_units(number) for name, (_, number) in devices.items()}
    return msgspec.structs.replace(
        node,
        status=msgspec.structs.replace(
            status,
            capacity={**(status.capacity or {}), **setting.capacity, **capacity},
            allocatable={**(status.allocatable or {}), **setting.allocatable, **allocatable},
        ),
    )
