"""What the agent writes into a pod's memory: what a turn decided, and how its attempts to start something went."""

from __future__ import annotations

import msgspec

from plimsoll.rules.crash_backoff import ERR_IMAGE_PULL, next_pull_backoff
from plimsoll.rules.objects import Container
from plimsoll.rules.pod_seen import PodMemory, PodSeen, PodWork, StartTrouble


def remember(memory: PodMemory, work: PodWork) -> PodMemory:
    """The memory with what this work adds to it."""
    if not (work.waits or work.backoffs):
        return memory
    trouble = {**memory.trouble, **{each.name: StartTrouble(each.reason, each.message) for each in work.waits}}
    return msgspec.structs.replace(memory, trouble=trouble, backoffs={**memory.backoffs, **work.backoffs})


def started(memory: PodMemory, name: str) -> PodMemory:
    """The memory after a container was started: nothing keeps it waiting any more."""
    if name not in memory.trouble:
        return memory
    trouble = {other: each for other, each in memory.trouble.items() if other != name}
    return msgspec.structs.replace(memory, trouble=trouble)


def start_failed(memory: PodMemory, name: str, trouble: StartTrouble) -> PodMemory:
    """The memory after an attempt to start a container went wrong."""
    return msgspec.structs.replace(memory, trouble={**memory.trouble, name: trouble})


def pull_failed(
    memory: PodMemory, container: Container, message: str, now_s: float, reason: str = ERR_IMAGE_PULL
) -> PodMemory:
    """The memory after an image could not be had: the trouble, and the wait before the next pull."""
    entry = next_pull_backoff(memory.image_backoffs.get(container.image), now_s)
    changed = start_failed(memory, container.name, StartTrouble(reason, message))
    return msgspec.structs.replace(changed, image_backoffs={**memory.image_backoffs, container.image: entry})


def kept(memory: PodMemory, seen: PodSeen) -> PodMemory:
    """The memory without verdicts of probes about containers that are gone."""
    ids = {each.id for each in seen.containers}
    if memory.probes.keys() <= ids:
        return memory
    return msgspec.structs.replace(memory, probes={each: memory.probes[each] for each in memory.probes if each in ids})
