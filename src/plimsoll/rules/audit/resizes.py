"""A05, A06, A07: what an in-place resize leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.errors import PlimsollError
from plimsoll.rules.audit.differences import ComparedNode, found_difference
from plimsoll.rules.audit.evidence import AuditedPod, ConditionFacts
from plimsoll.rules.audit.finding import Finding, Rule, Unknown
from plimsoll.rules.model.objects import Resources
from plimsoll.rules.resize.allocation import allocation_of
from plimsoll.rules.resize.verdict import resize_setting, resize_verdict
from plimsoll.rules.resources.allocated_status import actuated_resources, allocated_from_status, is_resize_under_way
from plimsoll.rules.scheduling.fit import allocated_load
from plimsoll.rules.timestamps import human_duration

WAITING_S = 600.0  # a resize that waits longer is reported
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


def _stale_scores(view: ComparedNode) -> Iterator[Finding | Unknown]:
    for place in view.places:
        expected = place.cgroup.oom_score_adj
        if place.level != "container" or place.observed is None or expected is None:
            continue
        processes = view.processes_in.get(place.path, [])
        first = next((each for each in processes if each.first), None)
        if first is None or first.oom_score_adj is None:
            yield Unknown(place.subject, "its first process, or the score of it, cannot be seen")
            continue
        if first.oom_score_adj == expected:
            continue
        others = sum(each.oom_score_adj == first.oom_score_adj for each in processes) - 1
        more = f"; {others} more processes have it too" if others else ""
        if expected < 0 <= first.oom_score_adj:
            more += "; a runtime without CAP_SYS_RESOURCE cannot set a score below 0"
        yield Finding(
            "A05",
            "warning",
            "process",
            f"{place.subject} / {first.name} (pid {first.pid})",
            "oom_score_adj",
            declared="requests.memory",
            expected=str(expected),
            effective=str(first.oom_score_adj),
            observed=str(first.oom_score_adj),
            path=place.path,
            owner="container runtime",
            next_overwrite="when the container restarts",
            advice="restart the container; a runtime does not change the score of running processes at a resize",
            note=f"the order of OOM kills is another one than the requests say{more}",
            node=view.evidence.name,
        )


def _stale_pod(view: ComparedNode) -> Iterator[Finding]:
    for each in view.differences.get("A06", ()):
        pod = each.place.pod
        killed = pod is not None and any(facts.last_reason == "OOMKilled" for facts in pod.containers.values())
        note = (
            "a container of the pod was OOM-killed meanwhile: the kubelet then never finishes the resize"
            if killed
            else ""
        )
        yield found_difference(view, "A06", "error", each, "recreate the pod, or resize it once more", note=note)


def _unfinished(view: ComparedNode) -> Iterator[Finding | Unknown]:
    for pod in view.pods:
        waiting = [each for each in pod.conditions if each.type in (PENDING, IN_PROGRESS) and each.status == "True"]
        if not waiting and not is_resize_under_way(pod.pod):
            yield from _not_actuated(view, pod)
            continue
        condition = waiting[0] if waiting else ConditionFacts("status.resize", "True", pod.pod.status.resize)
        if condition.since_s is not None and view.record.time_s:
            age_s = view.record.time_s - condition.since_s
            if age_s < WAITING_S:
                continue
            since = human_duration(age_s)
        elif pod.is_unseen:
            continue
        elif condition.type in (PENDING, IN_PROGRESS):
            lacking = (
                f"{condition.type} has no time" if condition.since_s is None else "the dump has no time of its own"
            )
            yield Unknown(pod.title, f"{lacking}, so it is not known how long the resize waits")
            continue
        else:
            since = "an unknown time"
        yield Finding(
            "A07",
            "warning",
            "pod",
            pod.title,
            condition.type,
            declared=_shown(pod),
            expected="done within minutes",
            observed=f"{condition.reason or 'in progress'} for {since}"
            + (f": {condition.message}" if condition.message else ""),
            next_overwrite="when the node has room, or when the spec changes",
            advice=_verdict(view, pod),
            node=view.evidence.name,
        )


def _not_actuated(view: ComparedNode, pod: AuditedPod) -> Iterator[Finding]:
    """No resize is reported, but the runtime has other resources than are allocated."""
    allocated = allocated_from_status(pod.pod)
    actual = actuated_resources(allocated)
    by_name = {container.name: container.resources for container in allocated.spec.containers}
    for name, resources in actual.items():
        facts = pod.containers.get(name)
        wanted = by_name.get(name)
        if wanted is None or facts is None or facts.state != "running" or resources == wanted:
            continue
        yield Finding(
            "A07",
            "warning",
            "container",
            f"{pod.title} / {name}",
            "status.containerStatuses[].resources",
            declared=_amounts(wanted),
            expected=_amounts(wanted),
            observed=_amounts(resources),
            next_overwrite="at the next resize or restart of the container",
            advice="resize the pod once more, or recreate it: no condition says that a resize is under way",
            node=view.evidence.name,
        )


def _verdict(view: ComparedNode, pod: AuditedPod) -> str:
    """What the node would answer now, by the rule of its release."""
    setting, node = view.setting, view.evidence.node
    if setting is None or node is None:
        return "wait, or make room on the node; the verdict cannot be computed without the Node object"
    try:
        allocated = allocated_from_status(pod.pod)
        load = allocated_load(node, [allocated_from_status(each.pod) for each in view.pods])
        verdict = resize_verdict(pod.pod, allocation_of(allocated, setting.policy.gates), resize_setting(setting, load))
    except PlimsollError as error:
        return f"the verdict cannot be computed again: {error}"
    match verdict.decision:
        case "Accepted":
            return "the node has room now: if it stays, restart the kubelet, or request the resize once more"
        case "Deferred":
            return f"still deferred now: {verdict.message}; make room, or request less"
        case "Infeasible":
            return f"infeasible on this node: {verdict.message}; request less, or move the pod"
        case _:
            return "nothing is left to change: the status is out of date; restart the kubelet if it stays"


def _shown(pod: AuditedPod) -> str:
    return "; ".join(f"{each.name}: {_amounts(each.resources)}" for each in pod.pod.spec.containers)


def _amounts(resources: Resources) -> str:
    parts = []
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        if amounts:
            parts.append(f"{kind} " + ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items())))
    return " ".join(parts) or "nothing"


RULES = (
    Rule(
        "A05",
        "warning",
        ("process",),
        "oom_score_adj is out of date",
        "The score of a container follows from its memory request. A resize changes the request, but neither runc nor "
        "crun changes the score of running processes, so the kernel kills in another order than the requests say.",
        "Restart the container, or set the score of its processes by hand until then.",
        ("runc#4669", "O-3"),
        ("pods", "configuration", "cgroups", "processes"),
        _stale_scores,
    ),
    Rule(
        "A06",
        "error",
        ("pod",),
        "the pod's own limit did not follow a resize",
        "A resize changes containers and the pod's cgroup in separate steps. If it fails between them, above all "
        "when a "
        "container is OOM-killed meanwhile, the pod keeps the old limit, and the larger one of its containers is "
        "worth nothing.",
        "Resize the pod once more, or recreate it.",
        ("kubernetes#138760", "03 §10"),
        ("pods", "configuration", "kernel", "cgroups"),
        _stale_pod,
    ),
    Rule(
        "A07",
        "warning",
        ("pod", "container"),
        "a resize does not finish: spec, allocated and actual resources disagree",
        "A resize waits (Deferred), cannot be done (Infeasible) or is in progress for minutes, or the runtime has "
        "other "
        "resources than the node allocated. The verdict is computed again by the rule of this release.",
        "Follow the verdict: make room, request less, move the pod, or restart the kubelet.",
        ("03 §6", "03 §7"),
        ("pods",),
        _unfinished,
    ),
)
