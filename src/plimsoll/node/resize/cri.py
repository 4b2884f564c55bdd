"""New sizes for a running pod whose containers' cgroups are the runtime's: told step by step (03 §10).

Raised values of the pod's own cgroup are written before its containers are told, lowered ones after them. A memory
limit that comes down goes the way of every one here (`shrink_ladder`): what can be reclaimed is, then memory.high and a
freeze hold the container still; only the limit itself is the runtime's to write, in that moment. One that does not fit
is refused, and nobody is killed for it.

Another memory.high than the rules' for a container whose cgroup is the runtime's to write, until it ends.

The runtime is told in `unified`, beside all that the container has, because some take what is missing for the default
(03 §13, 12). Whether it has listened is read back by whoever asked: there are runtimes that leave `unified` alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.errors import PlimsollError
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.resources.cri_cgroups import HIGH
from plimsoll.node.resources.pleg import NOTHING
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.resize.allocation import Allocation, allocated_pod
from plimsoll.rules.resize.steps import ResizePlan, UpdateContainer, WritePod, resize_plan
from plimsoll.rules.resources.cri import CriResources as Told
from plimsoll.rules.resources.cri import cleared, cri_resources
from plimsoll.rules.resources.values import UNLIMITED, Values
from plimsoll.runtime.interface import ContainerStateSeen, RuntimeCallError

log = logging.getLogger(__name__)
T = TypeVar("T")

ANSWER_S = 2.0  # how long a container may stay frozen for its runtime's answer
# A v1 kernel refuses a limit below what is in use; runc and crun pass that on in words.
_TOO_LOW = ("unable to set memory limit", "device or resource busy", "memory.limit_in_bytes")

Given = Callable[[str, Resources], None]


async def hand_out(tools: Dependencies, after: Pod, actuated: Allocation, given: Given) -> None:
    """`actuated`: what the containers were told last. `given` is called after each that has taken its new size."""
    cgroups, uid = tools.cgroups, after.metadata.uid
    parts = tools.view.last.get(uid, NOTHING)
    await _catch_up(tools, uid, parts.containers)
    current = cgroups.pod_kernel_values(after)
    if current is None:
        return
    ids = {each.name: each.id for each in parts.containers if each.phase == "running"}
    sandbox = next((each.id for each in parts.sandboxes if each.ready), "")
    plan = resize_plan(
        after,
        actuated,
        ids,
        current,
        cgroups.work(after).values,
        profile=tools.setting.profile,
        gates=tools.gates,
        after_failure=True,
    )
    if not cgroups.shrinks_safely:
        _check_as_kubernetes(tools, uid, plan)
    said = dict(actuated.containers)
    for step in plan.steps:
        match step:
            case WritePod(values=values, before=before, after=then):
                write = partial(_write_pod, tools, uid, values, before)
                await _in_sandbox(tools, sandbox, before, then, write)
            case UpdateContainer(container=name, resources=resources):
                await _tell(tools, after, name, ids[name], said.get(name), resources)
                said[name] = resources
                given(name, resources)
    if not plan.steps:  # else first of all it is told that it is done; what is above the pod follows in the next turn
        await cgroups.resize(after)


async def _catch_up(tools: Dependencies, uid: str, containers: Iterable[ContainerStateSeen]) -> None:
    """Memory QoS as the node is set now, for containers that were started when it was set otherwise. Told once;
    whether it was heeded is read back. CPUs may be others by now, and are left out."""
    behind = tools.cgroups.behind(uid)
    tools.cgroups.caught_up(uid)
    for each in containers:
        if each.id not in behind or each.told is None:
            continue
        files = {**each.told.unified, **behind[each.id]}
        update = msgspec.structs.replace(each.told, unified=files, cpuset_cpus="", cpuset_mems="")
        try:
            await tools.runtime.update_container(each.id, update)
        except RuntimeCallError as trouble:
            log.warning("container %s of pod %s keeps its Memory QoS: %s", each.name, uid, trouble)


def _check_as_kubernetes(tools: Dependencies, uid: str, plan: ResizePlan) -> None:
    pod_used = tools.cgroups.memory_used(uid) or 0
    for check in plan.checks:
        used = pod_used if check.container is None else tools.cgroups.memory_used(uid, check.container) or 0
        if (refusal := check.refusal(used, pod_used)) is not None:
            raise ShrinkError(tools.cgroups.paths(uid).get(check.container or "", ""), refusal)


async def have_sized(tools: Dependencies, pod: Pod, sandbox_id: str) -> Mapping[str, str]:
    """The pod's cgroup, for containers that are about to start; where it gets another size for them, its sandbox hears
    of that as with any resize."""
    before = None if tools.cgroups.is_sized_for(pod) else tools.cgroups.pod_kernel_values(pod)
    have = partial(tools.cgroups.have, pod, {})
    if before is None:
        return await have()
    return await _in_sandbox(tools, sandbox_id, before, tools.cgroups.work(pod).values, have)


async def _in_sandbox(
    tools: Dependencies, sandbox_id: str, before: Values, after: Values, write: Callable[[], Awaitable[T]]
) -> T:
    """Writes the pod's own cgroup, and tells the runtime that runs its sandbox: first where it may refuse (03 §10)."""
    told_first = tools.setting.profile.sandbox_updated_first
    if sandbox_id and told_first:
        await tools.runtime.update_sandbox(sandbox_id, cri_resources(after, 0))
    try:
        written = await write()
    except PlimsollError:
        if told_first:
            await _mention(tools, sandbox_id, before)
        raise
    if not told_first:
        await _mention(tools, sandbox_id, after)
    return written


async def _mention(tools: Dependencies, sandbox_id: str, values: Values) -> None:
    """Whatever the runtime makes of it."""
    if not sandbox_id:
        return
    try:
        await tools.runtime.update_sandbox(sandbox_id, cri_resources(values, 0))
    except RuntimeCallError as trouble:
        log.info("sandbox %s keeps its size as far as the runtime is concerned: %s", sandbox_id, trouble)


async def _write_pod(tools: Dependencies, uid: str, values: Values, before: Values) -> None:
    limit = values.memory_bytes
    if limit is not None and _comes_down(before.memory_bytes, limit):
        await tools.cgroups.lower_memory(uid, "", limit)
    else:
        await tools.cgroups.write_pod(uid, values)


async def _tell(
    tools: Dependencies, pod: Pod, name: str, container_id: str, before: Resources | None, resources: Resources
) -> None:
    wanted = kept(tools, pod, container_id, told(tools, pod, name, resources))
    update = wanted if before is None else cleared(told(tools, pod, name, before), wanted)
    limit, has = update.memory_limit_bytes, tools.cgroups.kernel_values(pod, name, container_id)
    if limit <= 0 or has is None or not _comes_down(has.memory_bytes, limit) or not tools.cgroups.shrinks_safely:
        await tools.runtime.update_container(container_id, update)
        return

    async def by_runtime() -> bool:
        try:
            async with asyncio.timeout(ANSWER_S):
                await tools.runtime.update_container(container_id, update)
        except TimeoutError:
            return False
        except RuntimeCallError as trouble:
            if any(each in trouble.reason for each in _TOO_LOW):
                return False
            raise
        return True

    await tools.cgroups.lower_memory(pod.metadata.uid, name, limit, by_runtime)


def told(tools: Dependencies, pod: Pod, name: str, resources: Resources) -> Told:
    """A container's numbers, were these its resources."""
    work = tools.cgroups.workload_of(allocated_pod(pod, Allocation({name: resources})))
    each = zip(work.containers, work.container_values, work.scores, strict=True)
    return next(cri_resources(values, score) for container, values, score in each if container.name == name)


def _comes_down(before: int | None, after: int) -> bool:
    return after > 0 and (before is None or before == UNLIMITED or before > after)


LIFT_ANSWER_S = 10.0


async def lift(tools: Dependencies, pod: Pod, name: str, container_id: str, high: str) -> None:
    """RuntimeTrouble where it refuses or does not answer."""
    uid = pod.metadata.uid
    work = tools.cgroups.workload_of(_given_pod(tools, pod))
    each = zip(work.containers, work.container_values, work.scores, strict=True)
    values, score = next((values, score) for container, values, score in each if container.name == name)
    now = cri_resources(values, score, cpuset_cpus=tools.cpus.cpus_of(uid, name))
    update = msgspec.structs.replace(now, unified={**now.unified, HIGH: high})
    try:
        async with asyncio.timeout(LIFT_ANSWER_S):
            await tools.runtime.update_container(container_id, update)
    except TimeoutError:
        raise RuntimeCallError("update container", f"no answer within {LIFT_ANSWER_S:g} s") from None
    if tools.cgroups.stands is not None:
        tools.cgroups.stands.lift(uid, container_id, high)


def _given_pod(tools: Dependencies, pod: Pod) -> Pod:
    """As the runtime was told last: a wish that was not accepted, or not handed out yet, is no business of a lift."""
    record = tools.checkpoint.get(pod.metadata.uid)
    promised = pod if record.allocation is None else allocated_pod(pod, record.allocation)
    return allocated_pod(promised, Allocation(record.actuated, tools.gates.pod_level_resize, record.actuated_pod))


def kept(tools: Dependencies, pod: Pod, container_id: str, told: Told) -> Told:
    """What the runtime is told of a container that may have been lifted: a resize does not take that back."""
    stands = tools.cgroups.stands
    if stands is None:
        return told
    return msgspec.structs.replace(told, unified=stands.with_lift(pod.metadata.uid, container_id, told.unified))
