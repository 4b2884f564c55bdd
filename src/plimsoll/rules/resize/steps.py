"""The ordered steps of an accepted resize, and the control files that it changes (02 §9, 03 §10).

Memory comes before cpu. For each resource, a pod cgroup that grows is written before its containers and one that
shrinks after them, and containers that shrink come before those that grow: so the containers fit into their pod at
every moment. A container whose resize policy is RestartContainer is not updated: it is killed before these steps and
started after them.

The allocated resources are compared with the actuated ones, never with what the kernel reports. A container without a
limit has that of the pod level, so it is resized with the pod, or restarted if its policy says so.

An executor carries out the steps in order and stops at the first failure. Every success is recorded as actuated, so the
next plan contains only the rest.

`resize_writes` lists the control files. Their values are the difference of two desired trees, before and after the
resize, in the order of the steps. Files that no step writes (of a restarted container, of QoS class and node cgroups,
of Memory QoS) come last, from the top down.
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
from plimsoll.rules.resize.allocation import (
    Allocation,
    actuated_size,
    allocation_of,
    resizable_containers,
    restarts_for,
    whole_amount,
    with_pod_limits,
)
from plimsoll.rules.resources.files import controller_of, file_map
from plimsoll.rules.resources.values import UNLIMITED, Values

ResizedResource = Literal["memory", "cpu"]
_RESIZED: tuple[ResizedResource, ...] = ("memory", "cpu")


class WritePod(msgspec.Struct, frozen=True, tag="pod"):
    """Write `values` (only what changes) into the pod cgroup.

    The runtime is sent the complete values (`after`): before the write, and the old ones (`before`) again if that
    fails, or only after the write (`Profile.sandbox_updated_first`).
    """

    resource: ResizedResource
    values: Values
    before: Values
    after: Values


class UpdateContainer(msgspec.Struct, frozen=True, tag="container"):
    """Update a container: one resource as allocated, the other as last actuated.

    `resources` is recorded as actuated when the runtime has accepted it.
    """

    container: str
    resource: ResizedResource
    resources: Resources


Step = WritePod | UpdateContainer


class MemoryCheck(msgspec.Struct, frozen=True):
    """Before any write: memory usage must be below a limit that is new or lower."""

    limit_bytes: int
    container: str | None = None  # None: the pod

    def refusal(self, usage_bytes: int, pod_usage_bytes: int) -> str | None:
        """Why the resize cannot continue."""
        return None if usage_bytes < self.limit_bytes else self.text(pod_usage_bytes)

    def text(self, pod_usage_bytes: int) -> str:
        """For a container too, the kubelet prints the pod's usage."""
        subject = "pod" if self.container is None else f'container "{self.container}"'
        return (
            f"cannot decrease memory limits: attempting to set {subject} memory limit ({self.limit_bytes}) "
            f"below current usage ({pod_usage_bytes})"
        )


class ResizePlan(msgspec.Struct, frozen=True):
    """`restarts` are killed before the steps and started after them; all checks must pass before the first step."""

    restarts: tuple[str, ...] = ()
    checks: tuple[MemoryCheck, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.restarts or self.checks or self.steps)


class _Change(msgspec.Struct, frozen=True):
    """One container whose memory or cpu changes in place; `grows` compares the limit if it changed, else the
    request."""

    container: Container
    actuated: Resources
    grows: bool
    old_limit: int
    new_limit: int


def restart_message(container: str) -> str:
    """The message of the event Normal `Killing`."""
    return f"Container {container} resize requires restart"


def is_resize_in_progress(
    allocated: Pod, actuated: Allocation, running: Collection[str], gates: Gates = DEFAULT_GATES
) -> bool:
    """Whether allocated resources are not actuated yet (03 §8). Init containers that are not sidecars do not count."""
    sidecars = (container for container in allocated.spec.init_containers if is_sidecar(container))
    lasting = (*sidecars, *allocated.spec.containers)
    sizes = (_sizes(allocated, actuated, each, gates) for each in lasting if each.name in running)
    if any(_differs(*size) for size in sizes):
        return True
    return _pod_level_differs(allocated, actuated, gates)


class PendingActuation(msgspec.Struct, frozen=True):
    """The allocated resources that are not actuated yet."""

    restarts: tuple[Container, ...] = ()  # to be killed and started again
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
        after, before = _sizes(allocated, actuated, container, gates)
        if container.name in running and _differs(after, before):
            (restarts if _must_restart(container, after, before, gates) else in_place).append(container)
    return PendingActuation(tuple(restarts), tuple(in_place), _pod_level_differs(allocated, actuated, gates))


def resize_plan(
    allocated: Pod,
    actuated: Allocation,
    running: Collection[str],
    current: Values,
    desired: Values,
    *,
    profile: Profile = DEFAULT_PROFILE,
    gates: Gates = DEFAULT_GATES,
    after_failure: bool = False,
) -> ResizePlan:
    """The steps that actuate the allocated resources of the running containers and the pod cgroup.

    The pod cgroup is checked only if its containers or the pod level change. `after_failure` includes it in any case:
    an earlier plan may have stopped between the last container and the pod.

    `current` and `desired` are the pod cgroup's values, read and computed (without Memory QoS). In `desired`, None
    keeps the current value: limits are never removed at pod level. In `current`, None and −1 both mean unlimited.
    """
    pending = pending_actuation(allocated, actuated, running, gates)
    restarts = tuple(container.name for container in pending.restarts)
    whole_pod = bool(restarts) or after_failure or pending.pod_level
    pod = _known(current)
    sizes = [(each, *_sizes(allocated, actuated, each, gates)) for each in pending.in_place]
    memory, cpu = (_ordered(_changes(sizes, name)) for name in _RESIZED)
    checks = _memory_checks(memory, pod, desired) if memory or restarts else []
    steps: list[Step] = []
    if memory or whole_pod:
        pod = _add_steps(steps, "memory", [_memory_update(each) for each in memory], pod, desired, profile)
    if cpu or whole_pod:
        _add_steps(steps, "cpu", [_cpu_update(each) for each in cpu], pod, desired, profile)
    return ResizePlan(restarts, tuple(checks), tuple(steps))


def _add_steps(
    steps: list[Step],
    name: ResizedResource,
    updates: list[UpdateContainer],
    pod: Values,
    desired: Values,
    profile: Profile,
) -> Values:
    """The steps of one resource: raise the pod, update the containers, lower the pod. Returns the pod's new values."""
    raising, lowering = _pod_writes(name, pod, desired, profile)
    for values in (*raising, None, *lowering):
        if values is None:
            steps += updates
        else:
            after = _with(pod, values)
            steps.append(WritePod(name, values, pod, after))
            pod = after
    return pod


def _pod_writes(
    name: ResizedResource, now: Values, desired: Values, profile: Profile
) -> tuple[list[Values], list[Values]]:
    """The writes before and after the containers.

    When growing, the limit comes before the shares; when shrinking, after them. −1 is the smallest number, so
    "unlimited → limit" counts as growth, as in Kubernetes (02 §9.7).
    """
    if name == MEMORY:
        targets = [(now.memory_bytes, desired.memory_bytes or None, Values(memory_bytes=desired.memory_bytes))]
    else:
        limit = Values(cpu_quota_us=desired.cpu_quota_us, cpu_period_us=desired.cpu_period_us)
        targets = [
            (now.cpu_quota_us, desired.cpu_quota_us, limit),
            (now.cpu_shares, desired.cpu_shares, Values(cpu_shares=desired.cpu_shares)),
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
    changed = {field: value for field in fields if (value := getattr(written, field)) is not None}
    return msgspec.structs.replace(values, **changed)


def _memory_checks(changes: Iterable[_Change], pod: Values, desired: Values) -> list[MemoryCheck]:
    checks = []
    if desired.memory_bytes and _added_or_lowered(pod.memory_bytes, desired.memory_bytes):
        checks.append(MemoryCheck(desired.memory_bytes))
    for change in changes:
        if _added_or_lowered(change.old_limit, change.new_limit):
            checks.append(MemoryCheck(change.new_limit, change.container.name))
    return checks


def tightened_memory(before: Resources, after: Resources) -> int:
    """The new memory limit if it must be above the usage; 0 if it is raised, removed or unchanged."""
    old, new = whole_amount(before.limits, MEMORY), whole_amount(after.limits, MEMORY)
    return new if _added_or_lowered(old, new) else 0


def _added_or_lowered(old: int | None, new: int) -> bool:
    return new > 0 and (not old or old == UNLIMITED or new < old)


# --- containers ---


def _sizes(allocated: Pod, actuated: Allocation, container: Container, gates: Gates) -> tuple[Resources, Resources]:
    """Allocated and actuated. Without a record everything counts as new: at worst one unnecessary update."""
    if gates.pod_level_resize:
        return with_pod_limits(container.resources, allocated.spec.resources), actuated_size(actuated, container.name)
    return container.resources, actuated.containers.get(container.name, NO_RESOURCES)


def _figures(resources: Resources, name: str) -> tuple[int, int]:
    """Limit and request, 0 for none."""
    return whole_amount(resources.limits, name), whole_amount(resources.requests, name)


def _differs(left: Resources, right: Resources) -> bool:
    return any(_figures(left, name) != _figures(right, name) for name in _RESIZED)


def _must_restart(container: Container, allocated: Resources, actuated: Resources, gates: Gates) -> bool:
    """One changed resource with the policy RestartContainer restarts the container for all of them (03 §3.1)."""

    def changes(name: ResizedResource) -> bool:
        (new_limit, new_request), (old_limit, old_request) = _figures(allocated, name), _figures(actuated, name)
        requests_count = name != MEMORY or gates.memory_request_restarts
        return new_limit != old_limit or (requests_count and new_request != old_request)

    return any(restarts_for(container, name) and changes(name) for name in _RESIZED)


def _changes(sizes: Iterable[tuple[Container, Resources, Resources]], name: str) -> list[_Change]:
    found = []
    for container, after, before in sizes:
        (old_limit, old_request), (new_limit, new_request) = _figures(before, name), _figures(after, name)
        if (old_limit, old_request) != (new_limit, new_request):
            grows = new_limit > old_limit if new_limit != old_limit else new_request > old_request
            found.append(_Change(container, before, grows, old_limit, new_limit))
    return found


def _ordered(changes: list[_Change]) -> list[_Change]:
    """Decreases in reverse order of the spec, then increases in its order."""
    return [change for change in reversed(changes) if not change.grows] + [change for change in changes if change.grows]


def _memory_update(change: _Change) -> UpdateContainer:
    """While memory changes, cpu stays as actuated."""
    new, old = change.container.resources, change.actuated
    resources = Resources(_with_cpu(new.requests, old.requests), _with_cpu(new.limits, old.limits), new.claims)
    return UpdateContainer(change.container.name, "memory", resources)


def _cpu_update(change: _Change) -> UpdateContainer:
    """Memory is updated before cpu, so both are new here."""
    return UpdateContainer(change.container.name, "cpu", change.container.resources)


def _with_cpu(resources: ResourceList | None, source: ResourceList | None) -> ResourceList | None:
    mixed = {name: quantity for name, quantity in (resources or {}).items() if name != CPU}
    if source and CPU in source:
        mixed[CPU] = source[CPU]
    return mixed or None


def _pod_level_differs(allocated: Pod, actuated: Allocation, gates: Gates) -> bool:
    if not gates.pod_level_resize:
        return False
    return _differs(allocated.spec.resources or NO_RESOURCES, actuated.pod_level or NO_RESOURCES)


How = Literal["resize", "restart", "follows"]
_Key = tuple[Level, str, str]  # level, name, path
OOM_SCORE_ADJ = "oom_score_adj"


class FileChange(msgspec.Struct, frozen=True, rename="camel"):
    """One file of one cgroup; None: the kernel's default. `how`: by a step of the resize, by the container's restart,
    or as a sum that follows."""

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
    """Every file that differs, once. Both workloads are the same pod, of the same QoS class."""
    changed = _differences(desired_tree([before, *others], setting), desired_tree([after, *others], setting))
    plan = resize_plan(
        after.pod,
        allocation_of(before.pod),
        [container.name for container in after.containers],
        before.values,
        after.values,
        profile=setting.profile,
    )
    writes: list[FileChange] = []
    for step in plan.steps:
        for key in [key for key in changed if _belongs(step, key, after, setting)]:
            writes.append(_file_change(key, changed.pop(key), "resize"))
    for restarted in plan.restarts:
        for key in [key for key in changed if key[0][:2] == ("container", restarted)]:
            writes.append(_file_change(key, changed.pop(key), "restart"))
    return (*writes, *(_file_change(key, values, "follows") for key, values in changed.items()))


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


def _file_change(key: _FileKey, values: _Values, how: How) -> FileChange:
    (level, name, path), file = key
    return FileChange(level, name, path, file, *values, how)
