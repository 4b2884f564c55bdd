"""Every control file whose value differs from the expected one, and the rule that reports it.

A file that the kubelet and the runtime do not write has the kernel's default. Each difference is reported once: by the
rule that knows more about it, otherwise by A01.

Who writes what, and when again (Kubernetes 1.27 to 1.37): the kubelet writes kubepods when it starts; the QoS classes
every minute (`periodicQOSCgroupUpdateInterval`); a pod's cgroup when it is created and at a resize, and in no case
because it differs. The runtime writes a container's cgroup at create and at UpdateContainerResources. systemd writes
every property that it knows again at `daemon-reload`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

from plimsoll.rules.audit.evidence import AuditedPod
from plimsoll.rules.audit.finding import Finding, Owner, Severity
from plimsoll.rules.audit.view import NodeView, Place
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.cgroups.rounding import kept, same_value
from plimsoll.rules.model.objects import CPU
from plimsoll.rules.resources.cpu import shares_from_weight, weight_linear, weight_quadratic
from plimsoll.rules.resources.effective import pod_level_set

KERNEL_DEFAULTS = {"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max"}
# Of cgroups that only the kubelet and the runtime write: a reserved one may have limits of an administrator. systemd
# sets pids.max of scopes, and some runtimes that of containers.
_UNLIMITED = {"cpu.max": "max", "memory.limit_in_bytes": "max", "cpu.cfs_quota_us": "max"}
_MANY_PROCESSES = {"pids.max": "max"}
PROTECTIONS = ("memory.min", "memory.low")
LIMITS = frozenset({"memory.max", "cpu.max", "memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.cfs_period_us"})
SWAP = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes"})
_DEFAULT = "the kernel's default"
_UNWRITTEN = {"cpuset.cpus": "the CPUs of its pod"}
_LEAST_SHARES = {"cpu.shares": "2", "cpu.weight": "1"}
QUOTAS = frozenset({"cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"})


class Difference(msgspec.Struct, frozen=True):
    place: Place
    file: str
    expected: str
    observed: str
    written: bool  # whether anybody should write this file at all


class ComparedNode(NodeView):
    """A node with its differences."""

    @cached_property
    def differences(self) -> dict[str, list[Difference]]:
        """Rule → the differences that it reports."""
        found: dict[str, list[Difference]] = {}
        for place in self.places:
            for each in _of_place(self, place):
                rule = _rule(self, each)
                if rule:
                    found.setdefault(rule, []).append(each)
        return found


def _of_place(view: NodeView, place: Place) -> Iterator[Difference]:
    """Without the values that `plimsoll attach` has set, and those that a resize is about to change."""
    for each in _differing(view, place):
        meant = (view.record.attached.get(place.path, {}).get(each.file), *_of_resizes(view, each))
        is_meant = any(
            text is not None and same_value(each.file, text, each.observed, view.page_size) for text in meant
        )
        if not is_meant and not _lost_its_shares(each):
            yield each


def _lost_its_shares(each: Difference) -> bool:
    """A container without a CPU request starts with the shares of its pod's limit. A resize of the pod passes a request
    of 0 for it, and leaves it the least shares until it restarts (kubelet 1.36, updatePodContainerResources).
    """
    place = each.place
    if place.work is None or place.pod is None or each.observed != _LEAST_SHARES.get(each.file):
        return False
    requests = {container.name: container.resources.requests or {} for container in place.work.containers}
    has_level = pod_level_set(place.work.pod.spec.resources)
    return has_level and CPU not in requests.get(place.container, {CPU: None}) and was_resized(place.pod)


def _of_resizes(view: NodeView, each: Difference) -> Iterator[str | None]:
    for tree in view.resizes:
        cgroup = tree.get(each.place.path)
        value = cgroup.value(each.file) if cgroup is not None else None
        yield KERNEL_DEFAULTS.get(each.file) if value is None else str(value)


def _differing(view: NodeView, place: Place) -> Iterator[Difference]:
    observed = place.observed
    if observed is None:
        return
    expected = {file.name: str(file.value) for file in place.cgroup.files}
    for file, value in expected.items():
        have = observed.get(file)
        if have is not None and not same_value(file, value, have, view.page_size):
            yield Difference(place, file, value, kept(file, have, view.page_size), written=True)
    for file, value in _unwritten(place).items():
        have = observed.get(file)
        if file in expected or have is None or same_value(file, value, have, view.page_size):
            continue
        if place.level == "node" and file in PROTECTIONS and _sum_below(view, place.path, file) == have:
            continue  # it makes the protection below effective
        yield Difference(place, file, value, kept(file, have, view.page_size), written=False)
    if place.level == "container" and view.parsed.config.cpu_manager_policy == "none":
        yield from _pinned(view, place)


def _unwritten(place: Place) -> dict[str, str]:
    match place.cgroup.level:
        case "reserved":
            return KERNEL_DEFAULTS
        case "class" | "pod":
            return KERNEL_DEFAULTS | _UNLIMITED | _MANY_PROCESSES
        case _:
            return KERNEL_DEFAULTS | _UNLIMITED


def _pinned(view: NodeView, place: Place) -> Iterator[Difference]:
    """Without a CPU manager a container has the CPUs of its pod: on v1 the file is a copy, on v2 it is empty."""
    have = (place.observed or {}).get("cpuset.cpus", "")
    above = view.observed.get(parent_path(place.path), {}).get("cpuset.cpus", "")
    if have and have != above:
        yield Difference(place, "cpuset.cpus", above or "empty", have, written=False)


def _sum_below(view: NodeView, path: str, file: str) -> str:
    below = (files.get(file, "0") for child, files in view.observed.items() if parent_path(child) == path)
    return str(sum(int(text) for text in below if text.isdecimal()))


def _rule(view: NodeView, each: Difference) -> str:
    place, file = each.place, each.file
    if file == "pids.max":
        return "A17"
    if place.level == "container":
        if file == "memory.high":
            return "A04"
        if file == "memory.oom.group":
            return "A15"
        if file in SWAP:
            return "A16"
        if file in QUOTAS and place.cgroup.exclusive_cpus:
            return "A08"
        if file == "cpu.weight" and _by_other_formula(each):
            return "A09" if view.weight is not None else ""
    if place.level == "pod" and each.written and file in LIMITS and place.pod is not None and was_resized(place.pod):
        return "A06"
    return "A01"


def _by_other_formula(each: Difference) -> bool:
    """Whether both weights are of the same shares, by the two formulas that runtimes use."""
    expected, observed = int(each.expected), each.observed
    if not observed.isdecimal():
        return False
    known = each.place.work
    if known is None:
        return False
    index = next((i for i, c in enumerate(known.containers) if c.name == each.place.container), None)
    shares = known.container_values[index].cpu_shares if index is not None else shares_from_weight(expected)
    return shares is not None and int(observed) in (weight_linear(shares), weight_quadratic(shares))


def was_resized(pod: AuditedPod) -> bool:
    """Signs of a resize: a condition, a status, a generation beyond the first, or an OOM kill during one."""
    status, metadata = pod.pod.status, pod.pod.metadata
    if status.resize or metadata.generation > 1:
        return True
    return any(each.type.startswith("PodResize") for each in pod.conditions)


# --- findings ---


def found_difference(
    view: NodeView,
    rule: str,
    severity: Severity,
    each: Difference,
    advice: str,
    *,
    note: str = "",
) -> Finding:
    place = each.place
    reason = view.reason(place.path, each.file) if each.written else None
    owner, again = owner_and_overwrite(view, place, each.file)
    return Finding(
        rule,
        severity,
        place.level,
        place.subject,
        each.file,
        declared=(reason.source if reason is not None else "") or "nothing",
        expected=(each.expected + (f"  ({reason.formula})" if reason is not None and reason.formula else ""))
        if each.written
        else f"{each.expected} ({_UNWRITTEN.get(each.file, _DEFAULT)}: neither kubelet nor runtime writes it here)",
        effective=effective_text(place, each.file),
        observed=each.observed,
        path=place.path,
        owner=owner,
        next_overwrite=again,
        advice=advice,
        note=note,
        node=view.evidence.name,
    )


def effective_text(place: Place, file: str) -> str:
    """What the cgroup really gets, where an ancestor decides."""
    effective = place.effective
    if effective is None:
        return ""
    match file:
        case "memory.min":
            return str(effective.memory_min_bytes)
        case "memory.low":
            return str(effective.memory_low_bytes)
        case "memory.max" | "memory.limit_in_bytes" if effective.memory_limit_bytes is not None:
            source = "" if effective.memory_limit_from == place.path else f", of {effective.memory_limit_from}"
            return f"{effective.memory_limit_bytes}{source}"
        case "cpu.max" | "cpu.cfs_quota_us" if effective.cpu_ceiling_milli is not None:
            source = "" if effective.cpu_ceiling_from == place.path else f", of {effective.cpu_ceiling_from}"
            return f"{effective.cpu_ceiling_milli}m{source}"
    return ""


def owner_and_overwrite(view: NodeView, place: Place, file: str) -> tuple[Owner, str]:
    """Who writes the file, and when it is written again."""
    systemd = view.observed_driver == "systemd" and not file.startswith(("hugetlb.", "memory.oom.group"))
    reload = "; systemd writes its own value at each daemon-reload" if systemd else ""
    match place.cgroup.level:
        case "pods" if file in PROTECTIONS:
            return "kubelet", f"within a minute, by the kubelet{reload}"
        case "pods" | "reserved":
            return "kubelet", f"when the kubelet starts{reload}"
        case "class":
            return "kubelet", f"within a minute, by the kubelet{reload}"
        case "pod":
            return "kubelet", f"at the next resize of the pod, not before{reload}"
        case _ if file == "cpuset.cpus" and view.parsed.config.cpu_manager_policy != "none":
            return "kubelet", "at the CPU manager's next reconciliation (cpuManagerReconcilePeriod)"
        case _:
            return "container runtime", f"at the next resize or restart of the container{reload}"
