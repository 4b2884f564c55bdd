"""The pages of the node's endpoint: statistics, metrics, configuration, pressure and OOM kills."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain

import msgspec

from plimsoll.cgroups.stats.usage import CgroupUsage, Pressures
from plimsoll.codec.owners import Owner, OwnersPage, owned
from plimsoll.node.agent import Agent
from plimsoll.node.machine import LiveNode
from plimsoll.node.pod_source import PodsShown
from plimsoll.node.pressure.manager import PressureManager
from plimsoll.node.server.logs import Query
from plimsoll.node.server.server import NodePages
from plimsoll.node.stats.io_metrics import PodPaths, see_io
from plimsoll.node.stats.line_metrics import LineMetrics
from plimsoll.node.stats.prometheus import cadvisor_page, resource_page
from plimsoll.node.stats.stats import Stats
from plimsoll.node.stats.summary import summary_json
from plimsoll.rules.config.parse import config_document
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.objects import container_fields

PAGE_AGE_S = 1.0
HOST_LOGS = "/var/log"
DRIFT_PERIODS = 2  # a value that is refused is tried again in each period


def node_pages(
    live: LiveNode,
    agent: Agent,
    pods: PodsShown,
    stats: Stats,
    pressure: PressureManager,
    pressures: Callable[[], Pressures | None],
    asked: Mapping[str, Callable[[Query], Awaitable[bytes]]],
) -> NodePages:
    """`pressures`: of the machine. `asked`: further pages, with parameters."""
    meters, config = agent.meters, live.setting.config
    lines = LineMetrics()

    async def summary() -> bytes:
        await stats.measure_disks()
        return summary_json(stats.sample(PAGE_AGE_S), pressures())

    def metrics() -> str:
        observed = agent.view.last.values()
        containers = [container for pod in observed for container in pod.containers]
        meters.see((sandbox for pod in observed for sandbox in pod.sandboxes), containers)
        meters.see_resizes(agent.pods.resizes.pending(), agent.pods.resizes.in_progress())
        meters.see_drift(time.monotonic() - DRIFT_PERIODS * live.extras.cgroup_check_period_s)
        if live.setting.policy.memory_qos:
            meters.see_memory_qos(*reserved_bytes(stats))
        if live.setting.policy.io is not None:
            see_io(meters.io, _pod_paths(agent), live.driver, live.setting.policy.io)
        return meters.page()

    async def owners() -> bytes:
        return msgspec.json.encode(owners_page(agent))

    def cadvisor() -> Iterator[str]:
        snapshot = stats.sample(PAGE_AGE_S)
        read = stats.scraped(snapshot)
        return chain(
            cadvisor_page(snapshot, read, pressure.oom_kills_by_container()),
            lines.page(snapshot, read, stats.class_paths(snapshot), list(pressure.distances())),
        )

    return NodePages(
        summary=summary,
        metrics=metrics,
        resource=lambda: resource_page(stats.sample(PAGE_AGE_S)),
        cadvisor=cadvisor,
        probes=meters.probes_page,
        configuration=lambda: config_document(config, live.setting.profile),
        allocated=pods.allocated if config.gate("KubeletAllocatedPodsEndpoint") else None,
        logs=HOST_LOGS if config.serves_system_logs else "",
        own={"oom": pressure.oom_page, "pressure": pressure.pressure_page, "owners": owners},
        asked=asked,
    )


def owners_page(agent: Agent) -> OwnersPage:
    """What the containers of the node's active pods own exclusively."""
    facts, found = agent.node_resources, []
    for pod in facts.active_pods():
        for _, container in container_fields(pod.spec):
            uid, name = pod.metadata.uid, container.name
            own = owned(facts.cpu_ids(uid, name), facts.blocks(uid, name), agent.devices.devices_of(uid, name))
            if own:
                found.append(Owner(pod.metadata.namespace, pod.metadata.name, name, own))
    return OwnersPage(tuple(found), cpu_text(agent.cpus.shared) if agent.cpus.is_static else "")


def _pod_paths(agent: Agent) -> Iterator[PodPaths]:
    for worker in agent.pods:
        paths = dict(agent.cgroups.paths(worker.uid))
        if own := paths.pop("", ""):
            meta = worker.pod.metadata
            yield PodPaths(meta.namespace, meta.name, own, tuple(filter(None, paths.values())))


def reserved_bytes(stats: Stats) -> tuple[int, int]:
    """The sums of memory.min of Guaranteed and of memory.low of Burstable pods, as the kernel has them (02 §6.1):
    kubepods has the sum of both, the class burstable its own."""
    snapshot = stats.sample(PAGE_AGE_S)
    read = stats.scraped(snapshot)
    whole = _min_bytes(read.get(snapshot.node.place.pods_path))
    low = sum(each.lines.low_bytes for path in stats.class_paths(snapshot) if (each := read.get(path)) and each.lines)
    return max(0, whole - low), low


def _min_bytes(usage: CgroupUsage | None) -> int:
    return 0 if usage is None or usage.lines is None else usage.lines.min_bytes
