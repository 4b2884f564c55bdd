"""A08, A09, A10, A24: exclusive CPUs, weights by two formulas, pods against the system, and throttling."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.audit.differences import ComparedNode, found_difference, owner_and_overwrite
from plimsoll.rules.audit.finding import Finding, Rule, Unknown
from plimsoll.rules.audit.view import Place
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.cpuset import cpu_numbers, cpu_text
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US
from plimsoll.rules.model.objects import CPU
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resources.cpu import weight_linear, weight_quadratic

# As the alert CPUThrottlingHigh of the Kubernetes mixin.
THROTTLED_SHARE = 0.25
FEWEST_PERIODS = 100  # ten seconds with a runnable task
BUSY_SHARE = 0.9  # of its quota: then the quota is too small, otherwise bursts are cut
IDLE_STALL_PERCENT = 5.0


def _exclusive(view: ComparedNode) -> Iterator[Finding]:
    for each in view.differences.get("A08", ()):
        advice = "recreate the container: since 1.33 a container with exclusive CPUs has no quota"
        yield found_difference(
            view, "A08", "warning", each, advice, note="the quota throttles CPUs that no other container uses"
        )
    state = view.record.cpu_manager
    if state is None or state.policy != "static":
        return
    shared = frozenset(cpu_numbers(state.shared) or ())
    for place in view.places:
        if place.level != "container" or place.observed is None or place.pod is None:
            continue
        text = place.observed.get("cpuset.cpus")
        have = cpu_numbers(text) if text is not None else None
        if have is None:
            continue
        own = state.owned.get(place.pod.pod.metadata.uid, {}).get(place.container)
        wanted = frozenset(cpu_numbers(own) or ()) if own is not None else shared
        if frozenset(have) == wanted or (own is None and have and frozenset(have) <= shared):
            continue
        kind = "exclusive CPUs" if own is not None else "the shared pool"
        yield Finding(
            "A08",
            "error",
            "container",
            place.subject,
            "cpuset.cpus",
            declared="whole CPUs of a Guaranteed pod" if own is not None else "no exclusive CPUs",
            expected=f"{cpu_text(wanted)} ({kind} by the CPU manager's state file)",
            effective=text or "all CPUs of the node",
            observed=text or "empty: all CPUs of the node",
            path=place.path,
            owner="kubelet",
            next_overwrite=owner_and_overwrite(view, place, "cpuset.cpus")[1],
            advice="if it stays, drain the node, delete /var/lib/kubelet/cpu_manager_state and restart the kubelet",
            note="it runs on CPUs of other containers" if own is None or not have else "",
            node=view.evidence.name,
        )


def _has_static_cpus(view: ComparedNode) -> str:
    return "" if view.parsed.config.cpu_manager_policy == "static" else "cpuManagerPolicy is none"


def _mixed_weights(view: ComparedNode) -> Iterator[Finding]:
    """Containers whose weight follows another formula than that of most, or than that of the runtime."""
    by_formula: dict[str, list[tuple[Place, int]]] = {"linear": [], "quadratic": []}
    for place in view.places:
        shares = _shares(place)
        text = (place.observed or {}).get("cpu.weight", "")
        if place.level != "container" or shares is None or not text.isdecimal():
            continue
        linear, quadratic = weight_linear(shares), weight_quadratic(shares)
        if linear != quadratic and int(text) in (linear, quadratic):
            by_formula["linear" if int(text) == linear else "quadratic"].append((place, shares))
    if not by_formula["linear"] or not by_formula["quadratic"]:
        return
    right: str = view.weight or max(by_formula, key=lambda name: len(by_formula[name]))
    for place, shares in by_formula["quadratic" if right == "linear" else "linear"]:
        expected = weight_linear(shares) if right == "linear" else weight_quadratic(shares)
        yield Finding(
            "A09",
            "warning",
            "container",
            place.subject,
            "cpu.weight",
            declared=f"requests.cpu, {shares} shares",
            expected=f"{expected} ({right}, as "
            f"{'the runtime writes it' if view.weight else 'most containers have it'})",
            observed=(place.observed or {})["cpu.weight"],
            path=place.path,
            owner="container runtime",
            next_overwrite="at the next resize or restart of the container",
            advice="recreate the containers that are older than the runtime's upgrade (runc 1.3.2, crun 1.23)",
            note="beside containers with the other formula its CPU share is another one than its request says",
            node=view.evidence.name,
        )


def _shares(place: Place) -> int | None:
    if place.work is None or not place.container:
        return None
    for container, values in zip(place.work.containers, place.work.container_values, strict=True):
        if container.name == place.container:
            return values.cpu_shares
    return None


def _on_v2(view: ComparedNode) -> str:
    return "" if view.version == 2 else "cgroup v1 has cpu.shares, not cpu.weight"


def _against_system(view: ComparedNode) -> Iterator[Finding | Unknown]:
    file, default = ("cpu.weight", 100) if view.version == 2 else ("cpu.shares", 1024)
    top = next((path for path, owner in view.owners.items() if owner.kind == "pods"), None)
    if top is None or file not in view.observed[top]:
        yield Unknown(view.evidence.name, f"kubepods and its {file} were not observed")
        return
    beside = {
        path: int(files.get(file, default))
        for path, files in view.observed.items()
        if path not in (top, "/") and parent_path(path) == parent_path(top) and view.owners[path].kind == "other"
    }
    system = beside.get(f"{parent_path(top).rstrip('/')}/system.slice")
    if system is None:
        return
    pods = int(view.observed[top][file])
    kernel = view.record.kernel
    cpus = kernel.cpus if kernel is not None else 1
    share = cpus * sum(beside.values()) / (pods + sum(beside.values()))
    setting = view.setting
    reserved = 0
    if setting is not None:
        names = (setting.config.system_reserved, setting.config.kube_reserved)
        reserved = sum(amounts.get(CPU, ZERO).milli for amounts in names)
    if pods < system:
        expected, note = (
            f"at least that of system.slice, {system}",
            "under load, services outside of pods get more CPU than all pods together",
        )
    elif reserved and share * 1000 < reserved:
        expected = f"weights that leave {reserved}m to the system, as reserved"
        note = f"under load, all services together get {share * 1000:.0f}m of {cpus} CPUs"
    else:
        return
    yield Finding(
        "A10",
        "warning",
        "node",
        view.evidence.name,
        file,
        declared=f"reserved CPU {reserved}m",
        expected=expected,
        effective=f"{cpus * 1000 - share * 1000:.0f}m for pods, {share * 1000:.0f}m for the rest, if both are busy",
        observed=f"kubepods {pods}, " + ", ".join(f"{path[1:]} {weight}" for path, weight in sorted(beside.items())),
        path=top,
        next_overwrite="when the kubelet starts",
        advice="enforce system-reserved-compressible and kube-reserved-compressible, so that the kubelet weights "
        "these slices too",
        note=note,
        node=view.evidence.name,
    )


# --- throttling ---


def _throttled(view: ComparedNode) -> Iterator[Finding]:
    for place in view.places:
        counters = view.record.counters.get(place.path, {})
        periods, throttled = counters.get("cpu.stat:nr_periods", 0), counters.get("cpu.stat:nr_throttled", 0)
        if place.level not in ("pod", "container") or place.observed is None or periods < FEWEST_PERIODS:
            continue
        quota = _quota(place)
        if throttled < THROTTLED_SHARE * periods or quota is None:
            continue
        milli, period_us = quota
        busy = counters.get("cpu.stat:usage_usec", 0) / (periods * period_us) * 1000
        threads = sum(process.threads for process in view.processes_in.get(place.path, ()))
        if busy >= BUSY_SHARE * milli:
            cause = "the quota is too small: it is used up in nearly every period"
            advice = "raise the CPU limit, or remove it and rely on the request"
        else:
            cause = f"bursts: on average {busy:.0f}m of {milli:.0f}m in the periods in which it ran"
            crowd = (
                f"; {threads} threads use the quota of a period within "
                f"{milli * period_us / 1e6 / max(threads, 1):.1f} ms"
                if threads * 1000 > milli
                else ""
            )
            cause += crowd
            advice = (
                "raise the limit, start fewer threads (A20), or allow bursts (cpu.max.burst); the average is "
                "below the limit"
            )
        yield Finding(
            "A24",
            "warning",
            place.level,
            place.subject,
            "cpu.stat",
            declared="limits.cpu",
            expected=f"throttled in less than {THROTTLED_SHARE:.0%} of its periods",
            effective=f"{milli:.0f}m per {period_us // 1000} ms, burst {place.observed.get('cpu.max.burst', '0')}",
            observed=f"throttled in {throttled} of {periods} periods ({throttled / periods:.0%})",
            path=place.path,
            owner="kubelet" if place.level == "pod" else "container runtime",
            next_overwrite="counters since the cgroup exists",
            advice=advice,
            note=f"{cause}{_matters(view)}",
            node=view.evidence.name,
        )


def _quota(place: Place) -> tuple[float, int] | None:
    """The limit in milli-cores, and the period."""
    files = place.observed or {}
    quota, _, period = files.get("cpu.max", "").partition(" ")
    if not quota:
        quota, period = files.get("cpu.cfs_quota_us", ""), files.get("cpu.cfs_period_us", "")
    if not quota.isdecimal():
        return None
    period_us = int(period) if period.strip().isdecimal() else DEFAULT_PERIOD_US
    return int(quota) * 1000 / period_us, period_us


def _matters(view: ComparedNode) -> str:
    kernel = view.record.kernel
    if kernel is None or kernel.cpu_stall_percent is None:
        return ""
    if kernel.cpu_stall_percent < IDLE_STALL_PERCENT:
        return (
            f"; the node has idle CPUs (tasks waited {kernel.cpu_stall_percent:.1f} % of the last minute): only "
            "the limit slows it"
        )
    return (
        f"; the node is busy (tasks waited {kernel.cpu_stall_percent:.1f} % of the last minute): neighbours slow "
        "it as well"
    )


RULES = (
    Rule(
        "A08",
        "error",
        ("container",),
        "exclusive CPUs: a quota is left, or the cpuset is another one",
        "A container with exclusive CPUs must run on the CPUs of the CPU manager's state file, and all others only "
        "on the "
        "shared pool. A CFS quota on exclusive CPUs throttles them for nothing.",
        "Recreate the container; if the state file is wrong, drain the node and delete it.",
        ("kubernetes#70585", "02 §10", "02 §4.3"),
        ("pods", "configuration", "kernel", "cgroups", "cpu manager state"),
        _exclusive,
        _has_static_cpus,
    ),
    Rule(
        "A09",
        "warning",
        ("container",),
        "cpu.weight by two formulas among the containers of one node",
        "Newer runtimes convert CPU shares to cpu.weight by another formula. 1 CPU is 39 by the old one and 100 by the "
        "new one, so beside each other, old containers get less than half of their share.",
        "Recreate the containers that were created before the upgrade of the runtime.",
        ("runc#4896", "02 §4.2"),
        ("pods", "configuration", "kernel", "cgroups"),
        _mixed_weights,
        _on_v2,
    ),
    Rule(
        "A10",
        "warning",
        ("node",),
        "the weights of pods and system do not match what is reserved",
        "kubepods has a weight by the node's CPUs, system.slice always 100 (1024 shares). On small nodes, services "
        "outweigh all pods; on large ones, pods outweigh kubelet, runtime and sshd, whatever is reserved for them.",
        "Let the kubelet weight the reserved slices: enforceNodeAllocatable with system-reserved-compressible.",
        ("kubernetes#139790", "kubernetes#125409", "01 §10.4"),
        ("configuration", "kernel", "cgroups"),
        _against_system,
    ),
    Rule(
        "A24",
        "warning",
        ("pod", "container"),
        "a container is throttled: why, and whether it matters",
        "The alert CPUThrottlingHigh says that, not why. The quota may be too small for the work, or the work comes in "
        "bursts of many threads that use the quota of a period in a few milliseconds while CPUs are idle.",
        "Raise or remove the limit, start fewer threads, or allow bursts.",
        ("https://docs.kernel.org/scheduler/sched-bwc.html", "02 §4.3"),
        ("pods", "configuration", "kernel", "cgroups"),
        _throttled,
    ),
)
