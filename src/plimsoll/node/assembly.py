"""The composition root of a node: the agent with its runtime, its Node object in the API, its server.

All parts run in one task group of one process. A part that fails beyond repair ends the process with an error;
containers continue in the supervisor, or in their runtime, and the next start finds them. Only `end_pods` (for
`plimsoll up`) removes everything.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from plimsoll.cgroups.drivers.detect import memory_root, this_host
from plimsoll.cgroups.stats.usage import Pressures, host_pressure
from plimsoll.errors import PlimsollError
from plimsoll.kube import kubeconfig
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.linux.cpu_topology import node_topology
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.linux.identity import internal_ip, machine_identity
from plimsoll.linux.mlock import lock_memory, return_large_blocks
from plimsoll.linux.nice import raise_priority
from plimsoll.linux.numa import this_numa
from plimsoll.net.tls import use_small_buffers
from plimsoll.node.agent import Agent
from plimsoll.node.agent_lock import take_agent_lock
from plimsoll.node.embedded_runtime import embedded_runtime, end_supervisor, runtime_warnings
from plimsoll.node.live.agent_pods import live_source
from plimsoll.node.machine import LiveNode, RuntimeInfo, node_place, socket_path
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pages import node_pages
from plimsoll.node.pod_source import PodsShown
from plimsoll.node.pods.image_gc import collect_images, remove_unused_images
from plimsoll.node.pressure.eviction_manager import EvictionSink
from plimsoll.node.pressure.evictor import Evictor, MonitoredPods, Reclaimers
from plimsoll.node.pressure.manager import PressureManager, PressureSetup
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.node.reporting.certificate import NodeIdentity, Renewal
from plimsoll.node.reporting.credentials import node_credentials
from plimsoll.node.reporting.event_correlator import EventType, ObjectReference
from plimsoll.node.reporting.registration import Registration
from plimsoll.node.resources.cgroup_repair import CgroupRepair
from plimsoll.node.resources.kubelet_cgroups import OwnPlace
from plimsoll.node.resources.pleg import RuntimeHealth
from plimsoll.node.resources.workloads import lean_pod_of
from plimsoll.node.server.auth import EndpointAccess, access_policy
from plimsoll.node.server.server import NodeServer, server_tls
from plimsoll.node.server.serving import ServingCertificate
from plimsoll.node.stats.stats import NodePlace, Stats
from plimsoll.node.stats.task_stats import log_task_stats
from plimsoll.rules.cgroups.repair import Repair
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.lifecycle.service_links import linked_server
from plimsoll.rules.lifecycle.shutdown import NOT_READY, shutdown_periods
from plimsoll.rules.node.node_object import HandlerReport, ImageOnNode, NodeFacts, NodeHealth, RuntimeReport
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.version import git_version

READY_S = 3.0  # how long registration waits for the node's pods to be known
UNENFORCED = "cgroups are not writable on this machine: limits are simulated and not enforced"

if TYPE_CHECKING:
    from plimsoll.node.shutdown import NodeShutdown

log = logging.getLogger(__name__)
GARBAGE = (5_000, 10, 50)  # of a process that stays: cycles of a burst of pods must not become 20 MiB first
PODS_REQUESTS, IDLE = 10, 3  # at one time, and kept open; each is a TLS connection with a buffer of 256 KiB


class AgentOptions(msgspec.Struct, frozen=True):
    """The options of `plimsoll node`, parsed. `state_dir`: where the agent keeps pods, logs and keys."""

    name: str
    host: str
    port: int
    kubeconfig: Path
    state_dir: Path
    labels: Mapping[str, str] = {}
    keep_images: bool = False  # never pull an image that is present
    allow_move_system_processes: bool = False
    end_pods: bool = False  # at the end, remove everything that was created
    described: Mapping[str, Any] = {}  # the options that describe the node, for other commands


async def run_node(live: LiveNode, options: AgentOptions, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
    """Run the node until `stop` is set. `announce` gets one line once the node is ready."""
    return_large_blocks()
    use_small_buffers()
    gc.set_threshold(*GARBAGE)
    lock = take_agent_lock(options.state_dir, UNENFORCED if live.driver.simulated else "", options.described)
    try:
        node = NodeProcess(live, options)
        for note in live.notes:
            log.warning("%s", note)
        await node.run(stop, announce)
    except* PlimsollError as group:
        raise _first(group) from None
    finally:
        os.close(lock)


def _first(group: BaseExceptionGroup[PlimsollError]) -> PlimsollError:
    """The first error is shown; the other tasks were cancelled because of it."""
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group is never empty")


class NodeProcess:
    """One node. Constructed before anything runs, so that errors in the options are reported first."""

    def __init__(self, live: LiveNode, options: AgentOptions) -> None:
        self._live, self._options = live, options
        home = private_directory(options.state_dir)
        access, identity, ca = node_credentials(options.kubeconfig, options.name, home, live.setting.config)
        self._server_url = access.server
        # As with a kubelet, what pods need never delays the node's own requests, its lease above all.
        user_agent = f"kubelet/{git_version(live.setting.profile)}"
        self._transport = HttpTransport(access, agent=user_agent, idle=IDLE)
        self._pods_transport = HttpTransport(access, agent=user_agent, at_once=PODS_REQUESTS, idle=IDLE)
        client = Client(self._transport)
        secrets = kubeconfig.files_of(options.kubeconfig)
        self._runtime = _runtime(live, home, *secrets)
        self._facts = _facts(live, options, live.runtime or self._runtime)
        self.registration = Registration(client, self._facts, live.setting, self._health, self._event)
        memory_qos = live.setting.policy.memory_qos
        has_io = live.setting.policy.io is not None
        self.meters = NodeMeters(options.name, live.setting.profile, memory_qos=memory_qos, io=has_io)
        state = private_directory(home / "node")
        self.agent = self._build_agent(Client(self._pods_transport), state, hidden=(home, *secrets))
        self.agent.devices.changed = self.registration.report_soon
        self._system_cgroups = OwnPlace(
            live.setting.config, live.driver, may_move_system=options.allow_move_system_processes
        )
        self._runtime_health: RuntimeHealth | None = None
        if isinstance(self._runtime, CriRuntime):
            self._runtime_health = RuntimeHealth(self._runtime, self.registration.report_soon)
        pods, place = PodsShown(self.agent), node_place(live, options.name, home)
        self._imagefs = place.imagefs
        layers = self._runtime.writable_layers if isinstance(self._runtime, CriRuntime) else None
        self._stats = Stats(live.files, place, pods.places, clock=time.time, system=self._system_pids, layers=layers)
        self._pressure = self._build_pressure(place, state)
        self._shutdown: NodeShutdown | None = None
        if periods := shutdown_periods(live.setting.config):
            from plimsoll.node.shutdown import NodeShutdown  # D-Bus takes memory that most nodes do not need

            self._shutdown = NodeShutdown(periods, self.agent.pods, self._event, self.registration.report_soon)
            self.agent.is_shutting_down = self._is_shutting_down
        self.meters.oom_totals = self._pressure.oom_totals
        self._pressure.measure(self.meters.deciding)
        self._repair = build_repair(live, self.agent, self._event)
        self._serving = ServingCertificate(live.setting.config, client, self._facts, home, identity)
        self._live_pages = live_source(live, self.agent, self._pressure, self._pressures, self._stats)
        asked = {"live": self._live_pages.live_page, "history": self._live_pages.history_page}
        self._server = NodeServer(
            pods,
            self._runtime,
            node_pages(live, self.agent, pods, self._stats, self._pressure, self._pressures, asked),
            EndpointAccess(options.name, client, time.monotonic, access_policy(live.setting)),
            server_tls(self._serving.current, ca),
            time.time,
            live.setting.config.streaming_idle_s,
        )
        self._serving.start(self._server.renew)
        self._renewal = Renewal(client, options.name, identity, home, self._renewed)

    def _build_agent(self, client: Client, state: Path, hidden: Sequence[Path]) -> Agent:
        live, options = self._live, self._options
        return Agent(
            live.setting,
            self._runtime,
            live.driver,
            live.tree,
            client,
            state,
            options.name,
            node=self.registration.node,
            read_node=self.registration.read,
            conditions=self._conditions,
            node_ip=self._facts.internal_ip,
            server=linked_server(self._server_url),
            unenforced=UNENFORCED if live.driver.simulated else "",
            meters=self.meters,
            keeps_images=options.keep_images,
            hidden=hidden,
            topology=node_topology(live.setting.machine.cores, simulated=live.driver.simulated),
            numa=None if live.driver.simulated else this_numa(),
        )

    def _build_pressure(self, place: NodePlace, state: Path) -> PressureManager:
        live, runtime = self._live, self._runtime
        setup = PressureSetup(
            live.setting,
            live.extras,
            live.files,
            place,
            state,
            boot_id=self._facts.machine.boot_id,
            log_prefix="" if live.files is None else memory_root(this_host()),
        )
        sink = _EvictionSink(self._event, self._pressure_changed, self.meters.evicted)
        remove_images = None
        if isinstance(runtime, CriRuntime) and not self._options.keep_images:
            remove_images = partial(remove_unused_images, runtime)
        return build_pressure(self.agent, self._stats, setup, sink, remove_images)

    async def run(self, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
        lock_memory()
        raise_priority()
        end_pods = self._options.end_pods
        try:
            port = await self._server.start(self._options.host, self._options.port)
            self.registration.facts = msgspec.structs.replace(self._facts, port=port)
            async with asyncio.TaskGroup() as group:
                agent = group.create_task(self.agent.run(), name="agent")
                others = [group.create_task(run, name=name) for name, run in self._tasks(port, announce).items()]
                await stop.wait()
                for task in others:
                    task.cancel()
                await (self.agent.end() if end_pods else self.agent.stop())
                await agent
        finally:
            await self._server.close()
            self._stats.close()
            if end_pods and stop.is_set() and isinstance(self._runtime, ProcessRuntime):  # not after a failed agent
                await end_supervisor(self._runtime)
            await self._transport.close()
            await self._pods_transport.close()

    def _tasks(self, port: int, announce: Callable[[str], None]) -> dict[str, Coroutine[Any, Any, None]]:
        tasks = {
            "system cgroups": self._system_cgroups.keep(lambda note: log.warning("%s", note)),
            "registration": self._register(port, announce),
            "certificate": self._renewal.run(),
            "serving certificate": self._serving.run(self.registration.registered),
            "pressure": self._pressure.run(),
            "cgroup repair": self._repair_cgroups(),
            "history": self._live_pages.run(),
            "task stats": log_task_stats(self._live.files, self.agent.container_paths),
        }
        if self._runtime_health is not None:
            tasks["runtime health"] = self._runtime_health.run()
        if self._live.setting.config.gate("PodsAPI"):
            from plimsoll.node.pods_api import serve_pods  # HTTP/2 takes memory that most nodes do not need

            tasks["pods api"] = serve_pods(self.agent, self._options.state_dir)
        if self._shutdown is not None:
            tasks["graceful shutdown"] = self._shutdown.run()
        if isinstance(self._runtime, CriRuntime) and not self._options.keep_images:
            tasks["image garbage collection"] = collect_images(
                self._runtime, self._live.setting.config, self._imagefs, self._event, self.agent.ready
            )
        return tasks

    async def _repair_cgroups(self) -> None:
        await self.agent.ready.wait()
        await self._repair.run()

    async def _register(self, port: int, announce: Callable[[str], None]) -> None:
        """A node is registered when its pods are known, so that it is Ready from its first status on."""
        try:
            async with asyncio.timeout(READY_S):
                await self.agent.ready.wait()
        except TimeoutError:
            log.warning("the pods of this node are not known yet; registering without them")
        async with asyncio.TaskGroup() as group:
            group.create_task(self.registration.run())
            group.create_task(self._announce(port, announce))

    async def _announce(self, port: int, announce: Callable[[str], None]) -> None:
        await self.agent.ready.wait()
        self.registration.report_soon()
        await self.registration.registered.wait()
        if self._live.driver.simulated:
            self._event("Warning", "LimitsNotEnforced", UNENFORCED)
        else:
            self._event("Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
        io = self._live.setting.policy.io
        for problem in io.unweighted if io is not None else ():
            self._event("Warning", "IOWeightsNotEnforced", problem)
        for reason, sentence in runtime_warnings(self._runtime) if isinstance(self._runtime, ProcessRuntime) else ():
            log.warning("%s", sentence)
            self._event("Warning", reason, sentence)
        announce(f"ready: node {self._options.name}, endpoint https://{self._options.host}:{port}")

    # --- callbacks ---

    def _health(self) -> NodeHealth:
        errors = () if self.agent.ready.is_set() else ("container runtime status check may not have completed yet",)
        if self._runtime_health is None:
            images = tuple(ImageOnNode((name,)) for name in sorted(self._live.extras.images))
        else:
            images, errors = self._runtime_health.images, (*errors, *self._runtime_health.errors)
        if self._is_shutting_down():
            errors = (*errors, NOT_READY)
        warnings = self.agent.container_cgroups.conditions()
        return NodeHealth(
            frozenset(self._conditions()),
            errors,
            images,
            warnings,
            self._runtime_report(),
            self.agent.devices.sizes(),
        )

    def _runtime_report(self) -> RuntimeReport:
        found = self._runtime.features
        handlers = (
            HandlerReport(name, name in found.recursive_read_only, name in found.user_namespaces)
            for name in found.handlers
        )
        return RuntimeReport(_runtime_version(self._runtime), found.strict_groups, tuple(handlers))

    def _is_shutting_down(self) -> bool:
        return self._shutdown is not None and self._shutdown.is_active

    def _conditions(self) -> tuple[NodeCondition, ...]:
        return self._pressure.conditions()

    def _pressure_changed(self) -> None:
        """Report the conditions, and retry resizes that were deferred because of them."""
        self.registration.report_soon()
        self.agent.pods.resizes.retry("periodic_retry")

    def _event(self, kind: str, reason: str, message: str) -> None:
        """An event about the node; like the kubelet, with the node's name as uid."""
        event_type: EventType = "Warning" if kind == "Warning" else "Normal"
        reference = ObjectReference("Node", self._options.name, "", self._options.name, "", "v1")
        self.agent.recorder.record(reference, event_type, reason, message)

    def _renewed(self, identity: NodeIdentity) -> None:
        for transport in (self._transport, self._pods_transport):
            transport.renew(identity.certificate, identity.key)
        self._serving.identity_renewed(identity)

    def _system_pids(self) -> dict[str, int]:
        runtime = self._runtime
        pid = runtime.supervisor_pid if isinstance(runtime, ProcessRuntime) else runtime.pid
        return {"kubelet": os.getpid(), **({"runtime": pid} if pid else {})}

    def _pressures(self) -> Pressures | None:
        """Of the machine, unless the node is only a part of it."""
        return None if self._live.declared_capacity or self._live.driver.simulated else host_pressure()


NodeEvent = Callable[[str, str, str], None]


class _EvictionSink(NamedTuple):
    event: NodeEvent
    condition_changed: Callable[[], None]
    evicted: Callable[[str, float], None]


def build_pressure(
    agent: Agent,
    stats: Stats,
    setup: PressureSetup,
    sink: EvictionSink,
    remove_images: Callable[[], Awaitable[None]] | None = None,
) -> PressureManager:
    """`remove_images`: remove unused images, where the runtime has any."""
    record = agent.events.emit_lifecycle
    pods = MonitoredPods(agent.pods, agent.cgroups, agent.view, record, partial(_lift, agent))
    reclaimers = Reclaimers(agent.cleanup.dead_containers, remove_images, setup.reclaim())
    evictor = Evictor(agent.pods, agent.cgroups, agent.view, agent.checkpoint, stats, record, reclaimers)
    manager = PressureManager(setup, pods, evictor, sink, agent.ready)
    agent.cgroups.listeners += manager.listeners
    return manager


def build_repair(live: LiveNode, agent: Agent, node_event: NodeEvent) -> CgroupRepair:
    """`node_event` gets type, reason and message of an event about the node."""

    def report(repair: Repair) -> None:
        difference, worker = repair.difference, agent.pods.workers.get(repair.uid)
        reason = "FailedCgroupRepair" if repair.refused else "CgroupRepaired"
        where = difference.level, difference.path, difference.file
        agent.meters.see_repair(*where, refused=bool(repair.refused), at_s=time.monotonic())
        if worker is not None:
            agent.events.emit(worker.pod, "Warning", reason, repair.message)
        else:
            node_event("Warning", reason, repair.message)

    period_s = live.extras.cgroup_check_period_s
    repair = CgroupRepair(agent.cgroups, agent.container_cgroups, report, files=live.files, period_s=period_s)
    agent.cgroups.listeners.append(repair)
    return repair


async def _lift(agent: Agent, container: MonitoredContainer, high: str) -> None:
    if (worker := agent.pods.workers.get(container.pod_uid)) is not None:
        await agent.container_cgroups.lift(lean_pod_of(worker.pod), container.name, container.id, high)


def _runtime(live: LiveNode, home: Path, *secret: Path) -> ProcessRuntime | CriRuntime:
    if live.runtime is None:
        return embedded_runtime(live, home, *secret)
    return CriRuntime(socket_path(live.runtime.endpoint), outlives_us=True)


def _runtime_version(runtime: RuntimeInfo | ProcessRuntime | CriRuntime) -> str:
    return f"{runtime.name}://{runtime.version}"


def _facts(live: LiveNode, options: AgentOptions, runtime: RuntimeInfo | ProcessRuntime | CriRuntime) -> NodeFacts:
    return NodeFacts(
        name=options.name,
        hostname=options.name,
        internal_ip=internal_ip(options.host),
        port=options.port,
        machine=machine_identity(),
        runtime_version=_runtime_version(runtime),
        kubelet_version=git_version(live.setting.profile),
        labels=options.labels,
        declared_capacity=live.declared_capacity,
        simulated=live.driver.simulated,
    )
