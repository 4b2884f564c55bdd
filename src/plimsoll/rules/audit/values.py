"""A01, A15, A16, A17: values of control files that differ from what this kubelet and this runtime write."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.audit.differences import ComparedNode, found_difference
from plimsoll.rules.audit.finding import Finding, Rule, Severity, Unknown
from plimsoll.rules.cgroups.rounding import kept
from plimsoll.rules.model.objects import HUGEPAGES_PREFIX

# The kubelet writes the classes when a pod starts or ends, and every minute (periodicQOSCgroupUpdateInterval).
CLASS_DELAY_S = 75.0
_RECREATE = "recreate the container (delete the pod), or resize it, so that the runtime writes the value again"
_ADVICE = {
    "node": "restart the kubelet; if the value returns, look for a systemd drop-in or a tool that writes it",
    "class": "wait a minute; if it stays, look for a second writer (systemd drop-ins, node tuning tools)",
    "pod": "resize the pod or recreate it: the kubelet does not repair the cgroup of a running pod",
    "container": _RECREATE,
    "process": "restart the container",
}


def _any_value(view: ComparedNode) -> Iterator[Finding | Unknown]:
    yield from _unreadable(view)
    for each in view.differences.get("A01", ()):
        note = "" if each.written else "something other than the kubelet and the runtime has written it"
        severity: Severity = "error"
        if each.place.cgroup.level == "class" and (title := _just_resized(view)):
            severity, note = "note", f"{title} was resized a moment ago: the kubelet counts it here within a minute"
        yield found_difference(view, "A01", severity, each, _ADVICE[each.place.level], note=note)


def _just_resized(view: ComparedNode) -> str:
    """A pod whose resize may not yet be in the sums of its class."""
    for each in view.pods:
        if each.resized_s is not None and view.record.time_s - each.resized_s < CLASS_DELAY_S:
            return each.title
    return ""


def _unreadable(view: ComparedNode) -> Iterator[Unknown]:
    """Pods without an expected tree, and files that this kernel lacks."""
    places = view.places  # computing them finds the problems
    if view.problem:
        yield Unknown(view.evidence.name, f"the expected values cannot be computed: {view.problem}")
    for title, reason in view.unreadable.items():
        yield Unknown(title, f"its values cannot be computed: {reason}")
    missing: dict[str, str] = {}
    huge_pages = _has_huge_pages(view)
    for place in places:
        for file in place.cgroup.files if place.observed is not None else ():
            if not view.has_file(file.name) and (huge_pages or not file.name.startswith("hugetlb.")):
                missing.setdefault(file.name, place.subject)
    for name, subject in missing.items():
        yield Unknown(subject, f"{name} is in none of the observed cgroups: this kernel or this dump does not have it")


def _has_huge_pages(view: ComparedNode) -> bool:
    """Whether limits of huge pages mean anything: a kernel without their controller has no such files."""
    kernel, node = view.record.kernel, view.evidence.node
    if kernel is None or node is None or "hugetlb" in kernel.controllers:
        return True
    capacity = node.status.capacity or {}
    return any(amount.value for name, amount in capacity.items() if name.startswith(HUGEPAGES_PREFIX))


def _oom_group(view: ComparedNode) -> Iterator[Finding]:
    for each in view.differences.get("A15", ()):
        means = "kills one process of the container" if each.observed == "0" else "kills the whole container"
        advice = "set singleProcessOOMKill as intended and recreate the container"
        yield found_difference(view, "A15", "warning", each, advice, note=f"an OOM kill {means}")
    expected_anywhere = view.setting is not None and view.setting.policy.oom_group
    for place in view.places:
        if place.level == "container" and place.observed is not None and not expected_anywhere:
            have = place.observed.get("memory.oom.group")
            if have == "1" and place.cgroup.value("memory.oom.group") is None:
                yield Finding(
                    "A15",
                    "warning",
                    "container",
                    place.subject,
                    "memory.oom.group",
                    declared="singleProcessOOMKill: true" if view.record.kubelet is not None else "",
                    expected="0",
                    observed="1",
                    path=place.path,
                    owner="container runtime",
                    next_overwrite="at the next restart of the container",
                    advice="recreate the container if one process may die alone (the kubelet's setting says so)",
                    note="an OOM kill kills the whole container",
                    node=view.evidence.name,
                )


def _swap(view: ComparedNode) -> Iterator[Finding]:
    for each in view.differences.get("A16", ()):
        yield found_difference(
            view,
            "A16",
            "warning",
            each,
            "check memorySwap.swapBehavior and the swap setting of the runtime; " + _RECREATE,
        )


def _pids(view: ComparedNode) -> Iterator[Finding]:
    for each in view.differences.get("A17", ()):
        yield found_difference(view, "A17", "warning", each, _ADVICE[each.place.level])
    kernel = view.record.kernel
    if kernel is None or kernel.pid_max is None:
        return
    for place in view.places:
        text = place.observed.get("pids.max") if place.observed is not None else None
        limit = kept("pids.max", text) if text is not None else "max"
        if place.level == "pod" and limit.isdecimal() and int(limit) >= kernel.pid_max:
            yield Finding(
                "A17",
                "warning",
                "pod",
                place.subject,
                "pids.max",
                declared=f"podPidsLimit {limit}",
                expected=f"less than kernel.pid_max, {kernel.pid_max}",
                effective=str(kernel.pid_max),
                observed=limit,
                path=place.path,
                advice="lower podPidsLimit or raise the sysctl kernel.pid_max: one pod can use up all pids of the node",
                node=view.evidence.name,
            )


def _on_v2(view: ComparedNode) -> str:
    return "" if view.version == 2 else "cgroup v1 has no memory.oom.group"


RULES = (
    Rule(
        "A01",
        "error",
        ("node", "class", "pod", "container"),
        "a control file differs from what this kubelet writes",
        "The value in the kernel decides, not the manifest. A file that differs was written by another program, was "
        "left "
        "from an earlier state, or was refused by the kernel. The expected value is the one that `plimsoll explain` "
        "computes for this release, these feature gates and this configuration. Files with a rule of their own are "
        "reported there.",
        "Find the other writer (systemd drop-ins, tuning daemons, scripts), then let the owner write it again.",
        ("02 §4", "02 §5"),
        ("pods", "configuration", "kernel", "cgroups"),
        _any_value,
    ),
    Rule(
        "A15",
        "warning",
        ("container",),
        "memory.oom.group contradicts singleProcessOOMKill",
        "Since 1.28 the kubelet has the kernel kill all processes of a container on cgroup v2, unless "
        "singleProcessOOMKill is set. A container that was created before the setting changed keeps the old value.",
        "Decide by workload: databases with a process per connection want single kills, most others the whole "
        "container. "
        "Set singleProcessOOMKill and recreate the container.",
        ("kubernetes#117793", "02 §5"),
        ("pods", "configuration", "kernel", "cgroups"),
        _oom_group,
        _on_v2,
    ),
    Rule(
        "A16",
        "warning",
        ("container",),
        "swap limit differs from the swap behavior",
        "NoSwap forbids swap to containers, LimitedSwap gives Burstable ones a share of the node's swap by their "
        "memory "
        "request. A container outside that rule swaps without limit, or not at all.",
        "Check memorySwap.swapBehavior, the feature gate NodeSwap and the runtime's own swap setting.",
        ("02 §5", "KEP-2400"),
        ("pods", "configuration", "kernel", "cgroups"),
        _swap,
    ),
    Rule(
        "A17",
        "warning",
        ("node", "class", "pod"),
        "process limits differ, or do not protect the node",
        "podPidsLimit is the pids.max of every pod. Above the kernel's pid_max it limits nothing: one pod with a fork "
        "bomb stops the whole node.",
        "Set podPidsLimit well below kernel.pid_max; recreate pods after a change.",
        ("02 §4", "01 §10"),
        ("pods", "configuration", "kernel", "cgroups"),
        _pids,
    ),
)
