"""A whole node put together: the agent with a runtime, its presence in the API, its endpoint.

All of it runs in one task group of one process. A part that fails beyond repair ends the process, loudly; containers
run on in the supervisor, or wherever their runtime has them, and the next start goes on with them. Only `--end-pods`
(for `up`) takes everything away.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from plimsoll.api.discovery.pages import git_version
from plimsoll.api.server.log_format import log_to_stderr
from plimsoll.cgroups.drivers.detect import entry_directories, memory_root, this_host
from plimsoll.cgroups.stats.usage import Pressures, host_pressure
from plimsoll.cli.daemon import allow_many_files, host_and_port, stop_event
from plimsoll.cli.node.machine import LiveNode, node_name, socket_of
from plimsoll.errors import PlimsollError
from plimsoll.kube import kubeconfig
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.linux.cpu_topology import node_topology
from plimsoll.linux.identity import internal_ip, machine_identity
from plimsoll.linux.mlock import keep_in_memory
from plimsoll.linux.nice import go_before_others
from plimsoll.linux.state_dir import private_directory
from plimsoll.node.agent import Agent
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pod_source import PodsShown
from plimsoll.node.pods.image_gc import remove_unused_images
from plimsoll.node.pressure.manager import PressureManager
from plimsoll.node.reporting.certificate import NodeIdentity, Renewal, kept_identity
from plimsoll.node.reporting.event_correlator import EventType, ObjectReference
from plimsoll.node.reporting.registration import Registration
from plimsoll.node.resources.kubelet_cgroups import OwnPlace
from plimsoll.node.resources.runtime_health import RuntimeHealth
from plimsoll.node.server.auth import EndpointAccess
from plimsoll.node.server.server import NodePages, NodeServer, server_tls
from plimsoll.node.stats.prometheus import cadvisor_page, resource_page
from plimsoll.node.stats.stats import NodePlace, Stats
from plimsoll.node.stats.summary import summary_json
from plimsoll.node.volumes.pod_dirs import pods_on_disk, remove_pod_files
from plimsoll.rules.config.document import config_document
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.node.node_object import ImageOnNode, NodeFacts, NodeHealth
from plimsoll.runtime.cri.answers import Filesystems
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.runtime.interface import ContainerRuntime, RuntimeCallError

READY_S = 3.0  # how long a node waits for its own pods before it is registered all the same
PAGE_AGE_S = 1.0
UNENFORCED = "cgroups of this machine cannot be written: the limits are kept in memory and hold nobody back"

log = logging.getLogger(__name__)


async def run_node(live: LiveNode, options: dict[str, Any]) -> None:
    """Until a signal. `options`: those of `plimsoll node`."""
    stop = stop_event(while_stdin=options["while_stdin"])
    log_to_stderr()
    allow_many_files()
    node = NodeProcess(live, options)
    for note in live.notes:
        log.warning("%s", note)
    try:
        await node.run(stop, ends_pods=options["end_pods"])
    except* PlimsollError as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[PlimsollError]) -> PlimsollError:
    """One sentence for people; the parts that were cancelled with it have nothing to say."""
    for each in group.exceptions:
        return _first(each) if isinstance(each, BaseExceptionGroup) else each
    raise AssertionError("an exception group is never empty")


class NodeProcess:
    """Everything of one node. Made first, so that what is wrong with the options is said before anything runs."""

    def __init__(self, live: LiveNode, options: dict[str, Any]) -> None:
        self._live = live
        self._own_place = OwnPlace(live.setting.config, live.driver, may_move_system=options["allow_move"])
        self._name = node_name(options["name"])
        self._host, self._port = host_and_port(options["listen"])
        self._labels = _labels(options["node_labels"])
        self._home = private_directory(state_of(live, options))
        self._kubeconfig: Path = options["kubeconfig"]
        access = kubeconfig.load(self._kubeconfig)
        ca = access.ca
        if access.certificate is None or access.key is None or ca is None:
            raise PlimsollError(
                f"{options['kubeconfig']}: a node needs a certificate of its own and the CA's: "
                f"plimsoll api token create --node {self._name} prints such a file"
            )
        identity = kept_identity(self._home, NodeIdentity(access.certificate, access.key))
        access = msgspec.structs.replace(access, certificate=identity.certificate, key=identity.key)
        self._transport = HttpTransport(access, agent=f"kubelet/{git_version(live.setting.profile)}")
        client = Client(self._transport)
        self._embedded = embedded_runtime(live, self._home, self._kubeconfig) if live.told is None else None
        self._cri = CriRuntime(socket_of(live.told.endpoint), outlives_us=True) if live.told is not None else None
        runtime: ContainerRuntime | None = self._embedded or self._cri
        assert runtime is not None
        version = runtime if live.told is None else live.told
        ip = internal_ip(self._host)
        self._facts = NodeFacts(
            name=self._name,
            hostname=self._name,
            internal_ip=ip,
            port=self._port,
            machine=machine_identity(),
            runtime_version=f"{version.name}://{version.version}",
            kubelet_version=git_version(live.setting.profile),
            labels=self._labels,
            declared_capacity=live.declared_capacity,
            simulated=live.driver.simulated,
        )
        self.registration = Registration(client, self._facts, live.setting, self._health, self._tell)
        self._state = private_directory(self._home / "node")
        self.meters = NodeMeters(self._name)
        self.agent = Agent(
            live.setting,
            runtime,
            live.driver,
            live.tree,
            client,
            self._state,
            self._name,
            node=self.registration.node,
            conditions=self._conditions,
            node_ip=ip,
            unenforced=UNENFORCED if live.driver.simulated else "",
            meters=self.meters,
            keeps_images=options["keep_images"],
            hidden=(self._home, self._kubeconfig),
            topology=node_topology(live.setting.machine.cores, simulated=live.driver.simulated),
        )
        self._runtime_health = None
        if self._cri is not None:
            self._runtime_health = RuntimeHealth(self._cri, self.registration.report_soon)
        shown = PodsShown(self.agent)
        place = self._place()
        layers = None if self._cri is None else self._cri.writable_layers
        self._stats = Stats(live.files, place, shown.places, clock=time.time, system=self._system, layers=layers)
        self._pressure = PressureManager(
            self.agent,
            self._stats,
            live.setting,
            live.extras,
            live.files,
            place,
            state=self._state,
            boot_id=self._facts.machine.boot_id,
            log_prefix="" if live.files is None else memory_root(this_host()),
            tell=self._tell,
            changed=self._pressure_changed,
            counted=self.meters.evicted,
            remove_images=partial(remove_unused_images, self._cri)
            if self._cri is not None and not options["keep_images"]
            else None,
        )
        self.meters.oom_totals = self._pressure.oom_totals
        self._endpoint = NodeServer(
            shown,
            runtime,
            self._pages(),
            EndpointAccess(self._name, client, time.monotonic),
            server_tls(identity.certificate, identity.key, ca),
            time.time,
        )
        self._renewal = Renewal(client, self._name, identity, self._home, self._renewed)

    async def run(self, stop: asyncio.Event, *, ends_pods: bool) -> None:
        keep_in_memory()
        go_before_others()
        try:
            port = await self._endpoint.start(self._host, self._port)
            self.registration.facts = msgspec.structs.replace(self._facts, port=port)
            async with asyncio.TaskGroup() as group:
                agent = group.create_task(self.agent.run(), name="agent")
                present = [
                    group.create_task(self._own_place.keep(lambda note: log.warning("%s", note)), name="own place"),
                    group.create_task(self._presence(port), name="presence"),
                    group.create_task(self._renewal.run(), name="certificate"),
                    group.create_task(self._pressure.run(), name="pressure"),
                ]
                if self._runtime_health is not None:
                    present.append(group.create_task(self._runtime_health.run(), name="runtime health"))
                await stop.wait()
                for task in present:
                    task.cancel()
                await (self.agent.end() if ends_pods else self.agent.stop())
                await agent
        finally:
            await self._endpoint.close()
            self._stats.close()
            if ends_pods and stop.is_set() and self._embedded is not None:  # not where the agent has failed
                await end_supervisor(self._embedded)
            await self._transport.close()

    async def _presence(self, port: int) -> None:
        """A node is registered when it knows its pods, so that it is ready from the first moment on."""
        try:
            async with asyncio.timeout(READY_S):
                await self.agent.ready.wait()
        except TimeoutError:
            log.warning("the pods of this node are not known yet; registering all the same")
        async with asyncio.TaskGroup() as group:
            group.create_task(self.registration.run())
            group.create_task(self._announced(port))

    async def _announced(self, port: int) -> None:
        await self.agent.ready.wait()
        self.registration.report_soon()
        await self.registration.registered.wait()
        self._tell("Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
        click.echo(f"ready: node {self._name}, endpoint https://{self._host}:{port}")

    # ---

    def _health(self) -> NodeHealth:
        troubles = () if self.agent.ready.is_set() else ("container runtime status check may not have completed yet",)
        if self._runtime_health is None:
            images = tuple(ImageOnNode((name,)) for name in sorted(self._live.extras.images))
        else:
            images, troubles = self._runtime_health.images, (*troubles, *self._runtime_health.errors)
        warnings = self.agent.container_cgroups.conditions()
        return NodeHealth(frozenset(self._conditions()), troubles, images, warnings)

    def _conditions(self) -> tuple[NodeCondition, ...]:
        return self._pressure.conditions()

    def _pressure_changed(self) -> None:
        """Told to the API, and what had to wait for it is looked at again."""
        self.registration.report_soon()
        self.agent.pods.resizes.retry("periodic_retry")

    def _tell(self, kind: str, reason: str, message: str) -> None:
        """As a kubelet: an event about a node bears the node's name for a uid."""
        told: EventType = "Warning" if kind == "Warning" else "Normal"
        self.agent.recorder.tell(ObjectReference("Node", self._name, "", self._name, "", "v1"), told, reason, message)

    def _renewed(self, identity: NodeIdentity) -> None:
        self._transport.renew(identity.certificate, identity.key)
        self._endpoint.renew(identity.certificate, identity.key)

    def _place(self) -> NodePlace:
        """A node whose capacity was declared is not the whole machine: it uses what its pods use."""
        pods_path = self._live.tree.status().path
        told = Filesystems() if self._live.told is None else self._live.told.filesystems
        return NodePlace(
            name=self._name,
            pods_path=pods_path,
            node_path=pods_path if self._live.declared_capacity else "/",
            nodefs=str(self._home),
            imagefs=_if_there(told.images) or str(self._home),
            containerfs=_if_there(told.containers),
            capacity_bytes=self._live.setting.machine.memory_bytes if self._live.declared_capacity else None,
            started_s=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME),
            system_started_s=time.time(),
        )

    def _system(self) -> dict[str, int]:
        pids = {"kubelet": os.getpid()}
        if self._embedded is not None:
            pids["runtime"] = self._embedded.supervisor_pid
        elif self._cri is not None and (pid := self._cri.pid):
            pids["runtime"] = pid
        return pids

    def _pages(self) -> NodePages:
        stats, meters = self._stats, self.meters

        def pressures() -> Pressures | None:
            """Of the machine, where that is what the node is."""
            return None if self._live.declared_capacity or self._live.driver.simulated else host_pressure()

        async def summary() -> bytes:
            await stats.measure_disks()
            return summary_json(stats.sample(PAGE_AGE_S), pressures())

        def metrics() -> str:
            seen = self.agent.view.last.values()
            containers = [each for parts in seen for each in parts.containers]
            meters.see((each for parts in seen for each in parts.sandboxes), containers)
            meters.see_resizes(self.agent.pods.resizes.pending(), self.agent.pods.resizes.in_progress())
            return meters.page()

        def cadvisor() -> str:
            snapshot = stats.sample(PAGE_AGE_S)
            return cadvisor_page(snapshot, stats.cpu_limits(snapshot))

        return NodePages(
            summary=summary,
            metrics=metrics,
            resource=lambda: resource_page(stats.sample(PAGE_AGE_S)),
            cadvisor=cadvisor,
            probes=meters.probes_page,
            configuration=lambda: config_document(self._live.setting.config),
            own={"oom": self._pressure.oom_page, "pressure": self._pressure.pressure_page},
        )


def _if_there(mount_point: str) -> str:
    """A runtime may see other mounts than we do; one that we do not see is as good as not told."""
    return mount_point if os.path.isdir(mount_point) else ""


def state_of(live: LiveNode, options: dict[str, Any]) -> Path:
    """On a kernel in memory only the cgroups are forgotten: pods, logs and keys are where they always are."""
    from plimsoll.linux.state_dir import default_state

    return default_state(options["state_dir"]) if live.driver.simulated else live.home


def embedded_runtime(live: LiveNode, home: Path, *secret: Path) -> ProcessRuntime:
    """`secret`: what no container may see, besides the state directory."""
    config, files = live.setting.config, live.files
    opened: Callable[[str], Sequence[int]] = (lambda _: ()) if files is None else partial(entry_directories, files)
    return ProcessRuntime(
        home / "runtime",
        opened,
        {name: as_text(stands_for) for name, stands_for in live.extras.images.items()},
        hidden=(home, *secret),
        log_max_bytes=config.container_log_max_bytes,
        log_max_files=config.container_log_max_files,
    )


def as_text(stands_for: str | tuple[str, ...]) -> str:
    return stands_for if isinstance(stands_for, str) else shlex.join(stands_for)


async def end_supervisor(runtime: ProcessRuntime) -> None:
    """The agent has let go of it; whatever still runs in it is killed."""
    try:
        await runtime.open()
        await runtime.shutdown()
    except RuntimeCallError as trouble:
        log.error("the supervisor could not be ended: %s", trouble)


async def swept(live: LiveNode, home: Path) -> list[str]:
    """Take away what a node agent that was killed has left here; what cannot be taken away, in sentences."""
    troubles = []
    if (home / "runtime" / "socket").exists():
        await end_supervisor(embedded_runtime(live, home))
    try:
        found = live.tree.status()
        if found.is_set_up or found.unfinished is not None:
            await live.tree.teardown(kill=True)
    except PlimsollError as error:
        troubles.append(str(error))
    for uid in pods_on_disk(home / "node"):
        try:
            await asyncio.to_thread(remove_pod_files, home / "node", uid)
        except OSError as error:
            troubles.append(f"{error.filename}: {error.strerror}")
    return troubles


def _labels(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise click.UsageError(f"--node-labels: {part!r} is not name=value")
        found[name] = value
    return found
