"""From an accepted resize to ordered steps (spec 02 §9, 03 §10).

Memory comes before cpu. For each of them a pod cgroup that shall grow is written before the containers, one that shall
shrink after them, and containers that shrink go before those that grow: so they fit into their pod at every moment. A
container whose resize policy asks for it is killed and started anew instead of being updated; that happens around
these steps (kill, then the steps, then start).

Compared are the allocated resources with the last ones handed to the runtime, never with what the kernel reports.
Nothing is done here: an executor carries the steps out in order and stops at the first failure; since every success is
recorded as actuated, the next plan holds only the rest.

Which control files a resize changes, to what, and in which order (02 §9).

The values are the difference of two desired trees, the one before and the one after. The order is that of the steps
(`resize_steps`): memory before cpu, a pod that grows before its containers, one that shrinks after them. What no step
writes (a container that is restarted, the sums of class and node, Memory QoS) comes last, from the top down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.cgroups.desired import Cgroup, Level, Workload, desired_tree
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import CPU, MEMORY, NO_RESOURCES, Container, Pod, ResourceList, Resources, is_sidecar
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resize.allocation import Allocation, allocation_of, resizable_containers, restarts_for
from plimsoll.rules.resources.files import controller_of, file_map
from plimsoll.rules.resources.values import UNLIMITED, Values

ResizedResource = Literal["memory", "cpu"]
_RESIZED: tuple[ResizedResource, ...] = ("memory", "cpu")


class WritePod(msgspec.Struct, frozen=True, tag="pod"):
    """Write `values` (only what changes) into the pod cgroup.

    The runtime hears the complete values (`after`): before the write, and again the old ones (`before`) if that fails,
    or once it is written (`Profile.sandbox_updated_first`).
    """

    resource: ResizedResource
    values: Values
    before: Values
    after: Values


class UpdateContainer(msgspec.Struct, frozen=True, tag="container"):
    """Hand a container its resources: the new ones of one kind, the last actuated ones of the other.

    `resources` is also what is recorded as actuated when the runtime has taken it.
    """

    container: str
    resource: ResizedResource
    resources: Resources


Step = WritePod | UpdateContainer


class MemoryCheck(msgspec.Struct, frozen=True):
    """Before anything is written: memory in use must be below a limit that is new or lower."""

    limit_bytes: int
    container: str | None = None  # None: the pod

    def refusal(self, usage_bytes: int, pod_usage_bytes: int) -> str | None:
        """Why the resize cannot go on."""
        return None if usage_bytes < self.limit_bytes else self.text(pod_usage_bytes)

    def text(self, pod_usage_bytes: int) -> str:
        """About a container too, the kubelet prints the pod's usage."""
        subject = "pod" if self.container is None else f'container "{self.container}"'
        return (
            f"cannot decrease memory limits: attempting to set {subject} memory limit ({self.limit_bytes}) "
            f"below current usage ({pod_usage_bytes})"
        )


class ResizePlan(msgspec.Struct, frozen=True):
    """`restarts` are killed before the steps and started after them; no step may run before every check has passed."""

    restarts: tuple[str, ...] = ()
    checks: tuple[MemoryCheck, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.restarts or self.checks or self.steps)


class _Change(msgspec.Struct, frozen=True):
    """One container whose memory or cpu changes in place; judged by the limit if it changed, else by the request."""

    container: Container
    actuated: Resources
    grows: bool
    old_limit: int
    new_limit: int


def restart_message(container: str) -> str:
    """Of the event Normal `Killing`."""
    return f"Container {container} resize requires restart"


def is_resize_in_progress(
    allocated: Pod, actuated: Allocation, running: Collection[str], gates: Gates = DEFAULT_GATES
) -> bool:
    """Is there still something to hand to the runtime (03 §8)? Ordinary init containers do not count."""
    lasting = [each for each in allocated.spec.init_containers if is_sidecar(each)] + [*allocated.spec.containers]
    if any(_differs(each.resources, _actuated(actuated, each)) for each in lasting if each.name in running):
        return True
    return _pod_level_differs(allocated, actuated, gates)


class PendingActuation(msgspec.Struct, frozen=True):
    """What of an allocation the runtime has not been given yet."""

    restarts: tuple[Container, ...] = ()  # to be killed and started with it
    in_place: tuple[Container, ...] = ()
    pod_level: bool = False

    def __bool__(self) -> bool:
        return bool(self.restarts or self.in_place or self.pod_level)


def pending_actuation(
    allocated: Pod, actuated: Allocation, running: Collection[str], gates: Gates = DEFAULT_GATES
) -> PendingActuation:
    restarts: list[Container] = []
    in_place: list[Container] = []
    for container in resizable_containers(allocated, gates):
        before = _actuated(actuated, container)
        if container.name in running and _differs(container.resources, before):
            (restarts if _must_restart(container, before) else in_place).append(container)
    return PendingActuation(tuple(restarts), tuple(in_place), _pod_level_differs(allocated, actuated, gates))


def resize_plan(
    allocated: Pod,
    actuated: Allocation,
    running: Collection[str],
    current: Values,
    wanted: Values,
    *,
    profile: Profile = DEFAULT_PROFILE,
    gates: Gates = DEFAULT_GATES,
    after_failure: bool = False,
) -> ResizePlan:
    """What to do so that the running containers and the pod cgroup get what is allocated.

    The pod cgroup is looked at only beside a change of its containers or of the pod level. `after_failure` includes it
    in any case: an earlier plan may have stopped between the last container and the pod.

    `current` and `wanted` are the pod cgroup's values, read and computed (Memory QoS left out). In `wanted`, None keeps
    what is there: limits are never removed at pod level. In `current`, None and −1 both mean unlimited.
    """
    left = pending_actuation(allocated, actuated, running, gates)
    restarts = tuple(each.name for each in left.restarts)
    whole_pod = bool(restarts) or after_failure or left.pod_level
    pod = _known(current)
    memory, cpu = (_ordered(_changes(left.in_place, actuated, name)) for name in _RESIZED)
    checks = _memory_checks(memory, pod, wanted) if memory or restarts else []
    steps: list[Step] = []
    if memory or whole_pod:
        pod = _add_steps(steps, "memory", [_memory_update(each) for each in memory], pod, wanted, profile)
    if cpu or whole_pod:
        _add_steps(steps, "cpu", [_cpu_update(each) for each in cpu], pod, wanted, profile)
    return ResizePlan(restarts, tuple(checks), tuple(steps))


def _add_steps(
    steps: list[Step],
    name: ResizedResource,
    updates: list[UpdateContainer],
    pod: Values,
    wanted: Values,
    profile: Profile,
) -> Values:
    """One resource's turn: raise the pod, update the containers, lower the pod. Returns the pod's values after it."""
    raising, lowering = _pod_writes(name, pod, wanted, profile)
    for values in (*raising, None, *lowering):
        if values is None:
            steps += updates
        else:
            after = _with(pod, values)
            steps.append(WritePod(name, values, pod, after))
            pod = after
    return pod


def _pod_writes(
    name: ResizedResource, now: Values, wanted: Values, profile: Profile
) -> tuple[list[Values], list[Values]]:
    """What to write before the containers and what after them.

    Growing, the limit comes before the shares; shrinking, after them. −1 is the smallest number, so "unlimited → limit"
    counts as growth: what Kubernetes does (02 §9.7).
    """
    if name == MEMORY:
        targets = [(now.memory_bytes, wanted.memory_bytes or None, Values(memory_bytes=wanted.memory_bytes))]
    else:
        limit = Values(cpu_quota_us=wanted.cpu_quota_us, cpu_period_us=wanted.cpu_period_us)
        targets = [
            (now.cpu_quota_us, wanted.cpu_quota_us, limit),
            (now.cpu_shares, wanted.cpu_shares, Values(cpu_shares=wanted.cpu_shares)),
        ]
    raising = [values for old, new, values in targets if new is not None and new > (old or 0)]
    lowering = [values for old, new, values in targets if new is not None and new < (old or 0)]
    return raising, lowering if profile.shares_after_limit_on_shrink else lowering[::-1]


def _known(current: Values) -> Values:
    return msgspec.structs.replace(
        current,
        memory_bytes=UNLIMITED if current.memory_bytes is None else current.memory_bytes,
        cpu_quota_us=UNLIMITED if current.cpu_quota_us is None else current.cpu_quota_us,
        cpu_shares=current.cpu_shares or 0,
    )


def _with(values: Values, written: Values) -> Values:
    fields = ("memory_bytes", "cpu_quota_us", "cpu_period_us", "cpu_shares")
    given = {field: value for field in fields if (value := getattr(written, field)) is not None}
    return msgspec.structs.replace(values, **given)


def _memory_checks(changes: Iterable[_Change], pod: Values, wanted: Values) -> list[MemoryCheck]:
    checks = []
    if wanted.memory_bytes and _added_or_lowered(pod.memory_bytes, wanted.memory_bytes):
        checks.append(MemoryCheck(wanted.memory_bytes))
    for change in changes:
        if _added_or_lowered(change.old_limit, change.new_limit):
            checks.append(MemoryCheck(change.new_limit, change.container.name))
    return checks


def tightened_memory(before: Resources, after: Resources) -> int:
    """The new memory limit, where it must be above what is in use; 0 where it is raised, taken away or as it was."""
    old, new = _amount(before.limits, MEMORY), _amount(after.limits, MEMORY)
    return new if _added_or_lowered(old, new) else 0


def _added_or_lowered(old: int | None, new: int) -> bool:
    return new > 0 and (not old or old == UNLIMITED or new < old)


# --- containers ---


def _actuated(actuated: Allocation, container: Container) -> Resources:
    """Without a record everything counts as new: at worst one update too many."""
    return actuated.containers.get(container.name, NO_RESOURCES)


def _amount(resources: ResourceList | None, name: str) -> int:
    quantity = (resources or {}).get(name, ZERO)
    return quantity.milli if name == CPU else quantity.value


def _figures(resources: Resources, name: str) -> tuple[int, int]:
    """Limit and request, 0 for none."""
    return _amount(resources.limits, name), _amount(resources.requests, name)


def _differs(left: Resources, right: Resources) -> bool:
    return any(_figures(left, name) != _figures(right, name) for name in _RESIZED)


def _must_restart(container: Container, actuated: Resources) -> bool:
    """One changed resource with that policy restarts the container for all of them (03 §3.1)."""
    return any(
        restarts_for(container, name) and _figures(container.resources, name) != _figures(actuated, name)
        for name in _RESIZED
    )


def _changes(containers: Iterable[Container], actuated: Allocation, name: str) -> list[_Change]:
    found = []
    for container in containers:
        before = _actuated(actuated, container)
        (old_limit, old_request), (new_limit, new_request) = _figures(before, name), _figures(container.resources, name)
        if (old_limit, old_request) != (new_limit, new_request):
            grows = new_limit > old_limit if new_limit != old_limit else new_request > old_request
            found.append(_Change(container, before, grows, old_limit, new_limit))
    return found


def _ordered(changes: list[_Change]) -> list[_Change]:
    """Decreases in reverse order of the spec, then increases in its order."""
    return [each for each in reversed(changes) if not each.grows] + [each for each in changes if each.grows]


def _memory_update(change: _Change) -> UpdateContainer:
    """While memory changes, cpu stays as it was last handed out."""
    new, old = change.container.resources, change.actuated
    resources = Resources(_with_cpu(new.requests, old.requests), _with_cpu(new.limits, old.limits), new.claims)
    return UpdateContainer(change.container.name, "memory", resources)


def _cpu_update(change: _Change) -> UpdateContainer:
    """By the time of cpu's turn memory is already the new one."""
    return UpdateContainer(change.container.name, "cpu", change.container.resources)


def _with_cpu(resources: ResourceList | None, source: ResourceList | None) -> ResourceList | None:
    kept = {name: quantity for name, quantity in (resources or {}).items() if name != CPU}
    if source and CPU in source:
        kept[CPU] = source[CPU]
    return kept or None


def _pod_level_differs(allocated: Pod, actuated: Allocation, gates: Gates) -> bool:
    if not gates.pod_level_resize:
        return False
    return _differs(allocated.spec.resources or NO_RESOURCES, actuated.pod_level or NO_RESOURCES)


How = Literal["resize", "restart", "follows"]
_Key = tuple[Level, str, str]  # level, name, path
OOM_SCORE_ADJ = "oom_score_adj"


class FileChange(msgspec.Struct, frozen=True, rename="camel"):
    """One file of one cgroup; None: at the kernel's default. `how`: by a step of the resize, with the container's new
    start, or as a sum that follows."""

    level: Level
    name: str
    path: str
    file: str
    before: int | str | None
    after: int | str | None
    how: How


def resize_writes(
    before: Workload, after: Workload, others: Sequence[Workload], setting: NodeConfig
) -> tuple[FileChange, ...]:
    """Every file that differs, once. Both workloads are the same pod, of the same class."""
    changed = _differences(desired_tree([before, *others], setting), desired_tree([after, *others], setting))
    plan = resize_plan(
        after.pod,
        allocation_of(before.pod),
        [each.name for each in after.containers],
        before.values,
        after.values,
        profile=setting.profile,
    )
    found: list[FileChange] = []
    for step in plan.steps:
        for key in [key for key in changed if _belongs(step, key, after, setting)]:
            found.append(_made(key, changed.pop(key), "resize"))
    for restarted in plan.restarts:
        for key in [key for key in changed if key[0][:2] == ("container", restarted)]:
            found.append(_made(key, changed.pop(key), "restart"))
    return (*found, *(_made(key, values, "follows") for key, values in changed.items()))


_Values = tuple[int | str | None, int | str | None]
_FileKey = tuple[_Key, str]


def _belongs(step: WritePod | UpdateContainer, key: _FileKey, after: Workload, setting: NodeConfig) -> bool:
    (level, name, _), file = key
    if isinstance(step, UpdateContainer):
        return (level, name) == ("container", step.container) and controller_of(file) == step.resource
    return (level, name) == ("pod", after.title) and file in file_map(step.values, setting.policy.cgroup_version)


def _differences(before: Cgroup, after: Cgroup) -> dict[_FileKey, _Values]:
    old, new = dict(_flat(before)), dict(_flat(after))
    return {
        key: (old.get(key), value)
        for key, value in [*new.items(), *((key, None) for key in old.keys() - new.keys())]
        if old.get(key) != value
    }


def _flat(cgroup: Cgroup) -> Iterator[tuple[_FileKey, int | str | None]]:
    key: _Key = (cgroup.level, cgroup.name, cgroup.path)
    for file in cgroup.files:
        yield (key, file.name), file.value
    if cgroup.oom_score_adj is not None:
        yield (key, OOM_SCORE_ADJ), cgroup.oom_score_adj
    for child in cgroup.children:
        yield from _flat(child)


def _made(key: _FileKey, values: _Values, how: How) -> FileChange:
    (level, name, path), file = key
    return FileChange(level, name, path, file, *values, how)
