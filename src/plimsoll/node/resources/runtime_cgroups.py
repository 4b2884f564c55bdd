"""The cgroups of containers that a CRI runtime creates and writes: resizes, raised memory.high, CPUs.

A resize runs step by step (03 §10): raised values of the pod's own cgroup are written before its containers are
updated, lowered ones after them. A memory limit is lowered as everywhere here (`rules.cgroups.shrink`): memory is
reclaimed first, then memory.high and a freeze keep the container still; at that moment the runtime writes the limit
itself. A limit that does not fit is refused, and no process is killed for it.

Another memory.high than the rules compute is requested in `unified`, together with everything that the container has,
because some runtimes take what is missing for the default (03 §13, 12). The next observation reads back whether the
runtime has applied it: some ignore `unified`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.engine.shrink import SetLimit, Shrinker, ShrinkError
from plimsoll.errors import PlimsollError
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.resources.cgroup_locator import HIGH, CgroupLocator, Finding
from plimsoll.node.resources.container_cgroups import MakeSandbox, MarkActuated
from plimsoll.node.resources.pleg import NOTHING, RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.resource_managers import ResourceManagers
from plimsoll.rules.cgroups.repair import RUNTIME_RESETS, Difference, Repair, runtime_differences
from plimsoll.rules.model.kernel import Weight
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.model.observed import CriResources, ObservedContainer
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resize.allocation import Allocation, allocated_pod
from plimsoll.rules.resize.steps import ResizePlan, UpdateContainer, WritePod, resize_plan
from plimsoll.rules.resources.cri import cleared, cri_resources, unified, with_every_limit, with_memory_limit
from plimsoll.rules.resources.files import file_map
from plimsoll.rules.resources.values import UNLIMITED, Values
from plimsoll.runtime.interface import ContainerRuntime, RuntimeCallError

log = logging.getLogger(__name__)
T = TypeVar("T")

UPDATE_S = 2.0  # how long a container may stay frozen while its runtime updates it
LIFT_S = 10.0
# A v1 kernel refuses a limit below what is in use; runc and crun pass its message on.
_TOO_LOW = ("unable to set memory limit", "device or resource busy", "memory.limit_in_bytes")


class RuntimeCgroups:
    scopes_may_vanish = True  # a runtime removes a container's cgroup when it ends

    def __init__(
        self,
        pods: PodCgroups,
        locator: CgroupLocator,
        driver: CgroupDriver,
        runtime: ContainerRuntime,
        view: RuntimeView,
        managers: ResourceManagers,
        checkpoint: Checkpoint,
        config: NodeConfig,
    ) -> None:
        self._pods, self._locator, self._driver, self._runtime = pods, locator, driver, runtime
        self._view, self._cpus, self._checkpoint = view, managers.cpus, checkpoint
        self._memory = managers.memory
        self._profile, self._gates = config.profile, config.policy.gates
        self._page_size = config.machine.page_size
        self._shrinker = Shrinker(driver, clock=time.monotonic, sleep=asyncio.sleep)
        self._cpus_set: dict[str, str] = {}  # container id → the CPUs that the runtime was last asked to set
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by pod uid
        self._ignored: dict[str, tuple[Difference, ...]] = {}  # container id → what an update did not change

    # --- starts ---

    async def start(
        self, pod: Pod, ids: Mapping[str, str], sandbox_id: str, make_sandbox: MakeSandbox
    ) -> tuple[Mapping[str, str], str]:
        """The runtime needs the pod's cgroup before the sandbox, and other containers off these CPUs before a start."""
        paths = await self.ensure_pod(pod, sandbox_id)
        made = await make_sandbox()
        await self.pin()
        return paths, made

    async def ensure_pod(self, pod: Pod, sandbox_id: str) -> Mapping[str, str]:
        """The pod's cgroup, for containers that are about to start. If its size changes for them, its sandbox is
        updated as in any resize."""
        before = None if self._pods.is_sized_for(pod) else self._pods.readings.pod_kernel_values(pod)
        ensure = partial(self._pods.ensure, pod, {})
        if before is None:
            return await ensure()
        return await self._with_sandbox(sandbox_id, before, self._pods.workloads.of(pod).values, ensure)

    def observe(self, pod: Pod, containers: Iterable[ObservedContainer]) -> list[Finding]:
        uid = pod.metadata.uid
        if not self._pods.enforced or not (path := self._pods.paths(uid).get("", "")):
            return []
        desired = {name: unified(values) for name, values in self._pods.workloads.values(pod).items()}
        before = self._locator.paths(uid)
        findings = self._locator.observe(uid, path, containers, desired)
        if self._locator.paths(uid) != before:
            self._pods.notify_changed()
        return findings

    def conditions(self) -> dict[str, str]:
        return self._locator.conditions()

    # --- resizes ---

    def is_current(self, pod: Pod) -> bool:
        return not self._locator.outdated(pod.metadata.uid) and self._pods.is_sized_for(pod)

    def _lock(self, uid: str) -> asyncio.Lock:
        """A resize, a raised memory.high and a repair of the same pod exclude each other."""
        return self._locks.setdefault(uid, asyncio.Lock())

    async def actuate(self, pod: Pod, actuated: Allocation, mark: MarkActuated) -> None:
        self._pods.resizing(pod.metadata.uid)
        async with self._lock(pod.metadata.uid):
            await self._actuate(pod, actuated, mark)

    async def _actuate(self, pod: Pod, actuated: Allocation, mark: MarkActuated) -> None:
        uid = pod.metadata.uid
        observed = self._view.last.get(uid, NOTHING)
        await self._update_memory_qos(uid, observed.containers)
        current = self._pods.readings.pod_kernel_values(pod)
        if current is None:
            return
        ids = {container.name: container.id for container in observed.containers if container.phase == "running"}
        sandbox_id = next((sandbox.id for sandbox in observed.sandboxes if sandbox.ready), "")
        plan = resize_plan(
            pod,
            actuated,
            ids,
            current,
            self._pods.workloads.of(pod).values,
            profile=self._profile,
            gates=self._gates,
            after_failure=True,
        )
        if not self._pods.shrinks_safely:
            self._check_as_kubernetes(uid, plan)
        done = dict(actuated.containers)
        for step in plan.steps:
            match step:
                case WritePod(values=values, before=before, after=after):
                    write = partial(self._write_pod, uid, values, before)
                    await self._with_sandbox(sandbox_id, before, after, write)
                case UpdateContainer(container=name, resources=resources):
                    await self._update(pod, name, ids[name], done.get(name), resources)
                    done[name] = resources
                    mark(name)
        if not plan.steps:  # otherwise completion is reported first; the cgroups above the pod follow in the next sync
            await self._pods.resize(pod)

    async def _update_memory_qos(self, uid: str, containers: Iterable[ObservedContainer]) -> None:
        """For containers that were started with other node settings; requested once, and read back later. Their CPUs
        may have changed by now, and are left out."""
        outdated = self._locator.outdated(uid)
        self._locator.updated(uid)
        for container in containers:
            resources = container.cri_resources
            if container.id not in outdated or resources is None:
                continue
            files = {**resources.unified, **outdated[container.id]}
            update = msgspec.structs.replace(resources, unified=files, cpuset_cpus="", cpuset_mems="")
            try:
                await self._runtime.update_container(container.id, update)
            except RuntimeCallError as error:
                log.warning("container %s of pod %s keeps its Memory QoS: %s", container.name, uid, error)

    def _check_as_kubernetes(self, uid: str, plan: ResizePlan) -> None:
        pod_used = self._pods.readings.memory_used(uid) or 0
        for check in plan.checks:
            used = pod_used if check.container is None else self._pods.readings.memory_used(uid, check.container) or 0
            if (refusal := check.refusal(used, pod_used)) is not None:
                raise ShrinkError(self._pods.paths(uid).get(check.container or "", ""), refusal)

    async def _with_sandbox(
        self, sandbox_id: str, before: Values, after: Values, write: Callable[[], Awaitable[T]]
    ) -> T:
        """Write the pod's own cgroup and update its sandbox: first the sandbox, if the runtime may refuse (03 §10)."""
        sandbox_first = self._profile.sandbox_updated_first
        if sandbox_id and sandbox_first:
            await self._runtime.update_sandbox(sandbox_id, cri_resources(after, 0))
        try:
            written = await write()
        except PlimsollError:
            if sandbox_first:
                await self._try_update_sandbox(sandbox_id, before)
            raise
        if not sandbox_first:
            await self._try_update_sandbox(sandbox_id, after)
        return written

    async def _try_update_sandbox(self, sandbox_id: str, values: Values) -> None:
        if not sandbox_id:
            return
        try:
            await self._runtime.update_sandbox(sandbox_id, cri_resources(values, 0))
        except RuntimeCallError as error:
            log.info("the runtime did not update the size of sandbox %s: %s", sandbox_id, error)

    async def _write_pod(self, uid: str, values: Values, before: Values) -> None:
        limit = values.memory_bytes
        if limit is not None and _is_lower(before.memory_bytes, limit):
            await self._lower_memory(uid, "", limit)
            return
        path = self._pods.paths(uid)[""]
        for file, text in file_map(values, self._driver.version).items():
            await self._driver.write(path, file, str(text))

    async def _update(
        self,
        pod: Pod,
        name: str,
        container_id: str,
        before: Resources | None,
        resources: Resources,
        *,
        unlimited: bool = False,
    ) -> None:
        """`unlimited`: limits that the container should not have are removed, whatever it had `before`."""
        desired = self.with_lift(pod, container_id, self.cri_resources(pod, name, resources))
        had = None if before is None else self.with_lift(pod, container_id, self.cri_resources(pod, name, before))
        update = desired if had is None else cleared(with_every_limit(had) if unlimited else had, desired)
        limit, has = update.memory_limit_bytes, self._pods.readings.kernel_values(pod, name, container_id)
        if limit <= 0 or has is None or not _is_lower(has.memory_bytes, limit) or not self._pods.shrinks_safely:
            await self._runtime.update_container(container_id, update)
            return

        async def by_runtime(limit_bytes: int) -> bool:
            resources = update if limit_bytes == limit else with_memory_limit(had or desired, limit_bytes)
            try:
                async with asyncio.timeout(UPDATE_S):
                    await self._runtime.update_container(container_id, resources)
            except TimeoutError:
                return False
            except RuntimeCallError as error:
                if any(text in error.reason for text in _TOO_LOW):
                    return False
                raise
            return True

        await self._lower_memory(pod.metadata.uid, name, limit, by_runtime)

    async def _lower_memory(self, uid: str, container: str, limit: int, by_runtime: SetLimit | None = None) -> None:
        """Of one container, or of the pod; raises ShrinkError if it does not fit. `by_runtime` writes the limit."""
        file = "memory.max" if self._driver.version == 2 else "memory.limit_in_bytes"
        await self._shrinker(self._pods.paths(uid)[container], file, str(limit), by_runtime)

    def cri_resources(self, pod: Pod, name: str, resources: Resources) -> CriResources:
        """Of one container, if these were its resources."""
        return self._pods.workloads.cri_resources_once(allocated_pod(pod, Allocation({name: resources})), name)

    def with_lift(self, pod: Pod, container_id: str, resources: CriResources) -> CriResources:
        """A resize keeps a container's raised memory.high."""
        files = self._locator.with_lift(pod.metadata.uid, container_id, resources.unified)
        return msgspec.structs.replace(resources, unified=files)

    # --- repairs ---

    async def repair(self, uids: Collection[str]) -> list[Repair]:
        """The node's and the pods' cgroups are written here, those of containers by the runtime that owns them."""
        repairs = await self._pods.repair(uids)
        for uid in sorted(self._pods.settled(uids)):
            async with self._lock(uid):
                pod = self._pods.sized_pod(uid)
                if pod is None or not self._pods.settled([uid]):
                    continue
                for container in self._view.last.get(uid, NOTHING).containers:
                    if container.phase == "running":
                        repairs += await self._repair_container(pod, container)
        running = {each.id for observed in self._view.last.values() for each in observed.containers}
        self._ignored = {key: found for key, found in self._ignored.items() if key in running}
        return repairs

    async def _repair_container(self, pod: Pod, container: ObservedContainer) -> list[Repair]:
        uid, name = pod.metadata.uid, container.name
        ignored = self._ignored.get(container.id, ())
        found = [each for each in self._differences(pod, container) if each not in ignored]
        if not found:
            return []
        every = (*pod.spec.init_containers, *pod.spec.containers)
        resources = next(each.resources for each in every if each.name == name)
        try:
            await self._update(pod, name, container.id, resources, resources, unlimited=True)
        except PlimsollError as error:
            return [Repair(uid, each, str(error)) for each in found]
        left = self._ignored[container.id] = tuple(self._differences(pod, container))
        return [Repair(uid, each, "the runtime does not write it" if each in left else "") for each in found]

    def _differences(self, pod: Pod, container: ObservedContainer) -> list[Difference]:
        uid, path = pod.metadata.uid, self._pods.paths(pod.metadata.uid).get(container.name, "")
        if not path or container.id not in path.rpartition("/")[2]:
            return []
        values, version = self._pods.workloads.values(pod)[container.name], self._driver.version
        weights: tuple[Weight, ...] = ("linear", "quadratic")  # by the runtime's release (02 §4.2)
        desired, other = (
            {file: str(text) for file, text in file_map(values, version, weight).items()} for weight in weights
        )
        desired = dict(self._locator.with_lift(uid, container.id, desired))
        # On v1 a runtime may leave out a hierarchy, such as one that is mounted elsewhere.
        seen = self._driver.texts(path, {*desired, *RUNTIME_RESETS})
        found = [] if seen is None else runtime_differences(path, desired, seen, self._page_size)
        return [each for each in found if other.get(each.file) != each.found]

    # --- memory.high ---

    async def lift(self, pod: Pod, container: str, container_id: str, high: str) -> None:
        """Raises RuntimeCallError if the runtime refuses or does not answer."""
        uid = pod.metadata.uid
        cpus, mems = partial(self._cpus.cpus_of, uid), partial(self._memory.mems_of, uid)
        now = self._pods.workloads.cri_resources(self._actuated_pod(pod), cpus, mems)[container]
        update = msgspec.structs.replace(now, unified={**now.unified, HIGH: high})
        async with self._lock(uid):
            try:
                async with asyncio.timeout(LIFT_S):
                    await self._runtime.update_container(container_id, update)
            except TimeoutError:
                raise RuntimeCallError("update container", f"no answer within {LIFT_S:g} s") from None
            self._locator.lift(uid, container_id, high)

    def _actuated_pod(self, pod: Pod) -> Pod:
        """The actuated resources; a pending resize must not leak into the update of memory.high."""
        record = self._checkpoint.get(pod.metadata.uid)
        allocated = pod if record.allocation is None else allocated_pod(pod, record.allocation)
        return allocated_pod(allocated, record.actuated_sizes(pod_level=self._gates.pod_level_resize))

    # --- CPUs ---

    async def pin(self, *, every: bool = False) -> None:
        """An update with the list of CPUs and nothing else, so that no quota is changed (02 §10)."""
        if not self._cpus.is_static:
            return
        running = {
            container.id: (container.pod_uid, container.name)
            for observed in (await self._view.all()).values()
            for container in observed.containers
            if container.phase == "running"
        }
        self._cpus_set = {key: text for key, text in self._cpus_set.items() if key in running}
        desired = {key: self._cpus.cpus_of(uid, name) for key, (uid, name) in running.items()}
        changed = [key for key, text in desired.items() if self._cpus_set.get(key) != text]
        # Shared containers first: they leave CPUs before another container gets these.
        for key in sorted(changed, key=lambda key: desired[key] != self._cpus.shared_text):
            try:
                await self._runtime.update_container(key, CriResources(cpuset_cpus=desired[key]))
            except RuntimeCallError as error:  # it may have just ended; otherwise the next round retries
                log.info("CPUs of container %s: %s", key, error)
            else:
                self._cpus_set[key] = desired[key]


def _is_lower(before: int | None, after: int) -> bool:
    return after > 0 and (before is None or before == UNLIMITED or before > after)
