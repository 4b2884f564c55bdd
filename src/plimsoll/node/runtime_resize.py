"""New sizes for a running pod whose containers' cgroups are the runtime's: told step by step (03 §10).

Raised values of the pod's own cgroup are written before its containers are told, lowered ones after them. A memory
limit that comes down goes the way of every one here (`shrink_ladder`): what can be reclaimed is, then memory.high and a
freeze hold the container still; only the limit itself is the runtime's to write, in that moment. One that does not fit
is refused, and nobody is killed for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plimsoll.cgroups.shrink import ShrinkRefused
from plimsoll.node import runtime_lift
from plimsoll.node.tools import Tools
from plimsoll.rules.allocation import Allocation, allocated_pod
from plimsoll.rules.cri_resources import Resources as Told
from plimsoll.rules.cri_resources import cleared, cri_resources
from plimsoll.rules.objects import Pod, Resources
from plimsoll.rules.resize_steps import ResizePlan, UpdateContainer, WritePod, resize_plan
from plimsoll.rules.values import UNLIMITED, Values
from plimsoll.runtime.runtime import RuntimeTrouble

ANSWER_S = 2.0  # how long a container may stay frozen for its runtime's answer
# A v1 kernel refuses a limit below what is in use; runc and crun pass that on in words.
_TOO_LOW = ("unable to set memory limit", "device or resource busy", "memory.limit_in_bytes")

Given = Callable[[str, Resources], None]


async def hand_out(tools: Tools, after: Pod, actuated: Allocation, given: Given) -> None:
    """`actuated`: what the containers were told last. `given` is called after each that has taken its new size."""
    cgroups, uid = tools.cgroups, after.metadata.uid
    current = cgroups.pod_kernel_values(after)
    if current is None:
        return
    parts = tools.view.last.get(uid)
    ids = {each.name: each.id for each in (parts.containers if parts else ()) if each.phase == "running"}
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
            case WritePod(values=values, before=before):
                await _write_pod(tools, uid, values, before)
            case UpdateContainer(container=name, resources=resources):
                await _tell(tools, after, name, ids[name], said.get(name), resources)
                said[name] = resources
                given(name, resources)
    if not plan.steps:  # else first of all it is told that it is done; what is above the pod follows in the next turn
        await cgroups.resize(after)


def _check_as_kubernetes(tools: Tools, uid: str, plan: ResizePlan) -> None:
    pod_used = tools.cgroups.memory_used(uid) or 0
    for check in plan.checks:
        used = pod_used if check.container is None else tools.cgroups.memory_used(uid, check.container) or 0
        if (refusal := check.refusal(used, pod_used)) is not None:
            raise ShrinkRefused(tools.cgroups.paths(uid).get(check.container or "", ""), refusal)


async def _write_pod(tools: Tools, uid: str, values: Values, before: Values) -> None:
    limit = values.memory_bytes
    if limit is not None and _comes_down(before.memory_bytes, limit):
        await tools.cgroups.lower_memory(uid, "", limit)
    else:
        await tools.cgroups.write_pod(uid, values)


async def _tell(
    tools: Tools, pod: Pod, name: str, container_id: str, before: Resources | None, resources: Resources
) -> None:
    wanted = runtime_lift.kept(tools, pod, container_id, told(tools, pod, name, resources))
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
        except RuntimeTrouble as trouble:
            if any(each in trouble.reason for each in _TOO_LOW):
                return False
            raise
        return True

    await tools.cgroups.lower_memory(pod.metadata.uid, name, limit, by_runtime)


def told(tools: Tools, pod: Pod, name: str, resources: Resources) -> Told:
    """A container's numbers, were these its resources."""
    work = tools.cgroups.workload_of(allocated_pod(pod, Allocation({name: resources})))
    each = zip(work.containers, work.container_values, work.scores, strict=True)
    return next(cri_resources(values, score) for container, values, score in each if container.name == name)


def _comes_down(before: int | None, after: int) -> bool:
    return after > 0 and (before is None or before == UNLIMITED or before > after)
