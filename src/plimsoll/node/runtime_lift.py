"""Another memory.high than the rules' for a container whose cgroup is the runtime's to write, until it ends.

The runtime is told in `unified`, beside all that the container has, because some take what is missing for the default
(03 §13, 12). Whether it has listened is read back by whoever asked: there are runtimes that leave `unified` alone.
"""

from __future__ import annotations

import asyncio

import msgspec

from plimsoll.node.runtime_cgroups import HIGH
from plimsoll.node.tools import Tools
from plimsoll.rules.allocation import Allocation, allocated_pod
from plimsoll.rules.cri_resources import Resources, cri_resources
from plimsoll.rules.objects import Pod
from plimsoll.runtime.runtime import RuntimeTrouble

ANSWER_S = 10.0


async def lift(tools: Tools, pod: Pod, name: str, container_id: str, high: str) -> None:
    """RuntimeTrouble where it refuses or does not answer."""
    uid = pod.metadata.uid
    work = tools.cgroups.workload_of(_given_pod(tools, pod))
    each = zip(work.containers, work.container_values, work.scores, strict=True)
    values, score = next((values, score) for container, values, score in each if container.name == name)
    now = cri_resources(values, score, cpuset_cpus=tools.cpus.cpus_of(uid, name))
    update = msgspec.structs.replace(now, unified={**now.unified, HIGH: high})
    try:
        async with asyncio.timeout(ANSWER_S):
            await tools.runtime.update_container(container_id, update)
    except TimeoutError:
        raise RuntimeTrouble("update container", f"no answer within {ANSWER_S:g} s") from None
    if tools.cgroups.stands is not None:
        tools.cgroups.stands.lift(uid, container_id, high)


def _given_pod(tools: Tools, pod: Pod) -> Pod:
    """As the runtime was told last: a wish that was not accepted, or not handed out yet, is no business of a lift."""
    record = tools.checkpoint.get(pod.metadata.uid)
    promised = pod if record.allocation is None else allocated_pod(pod, record.allocation)
    return allocated_pod(promised, Allocation(record.actuated, tools.gates.pod_level_resize, record.actuated_pod))


def kept(tools: Tools, pod: Pod, container_id: str, told: Resources) -> Resources:
    """What the runtime is told of a container that may have been lifted: a resize does not take that back."""
    stands = tools.cgroups.stands
    if stands is None:
        return told
    return msgspec.structs.replace(told, unified=stands.with_lift(pod.metadata.uid, container_id, told.unified))
