"""A13, A14, A18, A19: reservations, evictions, the kernel's features, and ways out of a container through cgroups."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.finding import Finding, Owner, Rule, Severity, Unknown
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.objects import HUGEPAGES_PREFIX
from plimsoll.rules.node.node_config import withheld_hugepages
from plimsoll.rules.profile import DOCUMENTS, minor

NEEDED_V2 = ("cpu", "cpuset", "memory", "pids")
NEEDED_V1 = ("cpu", "cpuacct", "cpuset", "memory", "pids")
V1_REFUSED = 35  # failCgroupV1 is true by default from this release on


def _node_finding(
    view: ComparedNode,
    rule: str,
    severity: Severity,
    field: str,
    *,
    declared: str = "",
    expected: str,
    observed: str,
    advice: str,
    note: str = "",
    effective: str = "",
    path: str = "",
    owner: Owner = "kubelet",
) -> Finding:
    again = "when the kubelet starts" if owner == "kubelet" else ""
    name = view.evidence.name
    return Finding(
        rule,
        severity,
        "node",
        name,
        field,
        declared,
        expected,
        effective,
        observed,
        path,
        owner,
        again,
        advice,
        note,
        name,
    )


def _reservations(view: ComparedNode) -> Iterator[Finding | Unknown]:
    config = view.parsed.config
    if view.setting is None:
        if "Allocatable" in view.problem:
            yield _node_finding(
                view,
                "A13",
                "error",
                "systemReserved, kubeReserved, evictionHard",
                expected="less than the capacity together",
                observed=view.problem,
                advice="lower the reservations: the kubelet does not start with these",
            )
        else:
            yield Unknown(view.evidence.name, view.problem)
    for owner, amounts, cgroup in (
        ("system", config.system_reserved, config.system_reserved_cgroup),
        ("kube", config.kube_reserved, config.kube_reserved_cgroup),
    ):
        enforced = {f"{owner}-reserved", f"{owner}-reserved-compressible"} & set(config.enforce_node_allocatable)
        declared = ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))
        if amounts and not enforced:
            yield _node_finding(
                view,
                "A13",
                "note",
                f"{owner}Reserved",
                declared=declared,
                expected=f"enforceNodeAllocatable contains {owner}-reserved-compressible",
                observed=", ".join(config.enforce_node_allocatable) or "none",
                advice=f"set {owner}ReservedCgroup and enforce {owner}-reserved-compressible, if these daemons must "
                "not take more",
                note="pods cannot use what is reserved, but the daemons are not limited to it",
            )
        elif enforced and view.record.cgroups is not None and not _exists(view, cgroup):
            yield _node_finding(
                view,
                "A13",
                "error",
                f"{owner}ReservedCgroup",
                declared=cgroup,
                expected="an existing cgroup",
                observed="none",
                advice="create the slice before the kubelet starts: it does not create it",
                path=cgroup,
            )
    yield from _lost_thresholds(view)


def _exists(view: ComparedNode, cgroup: str) -> bool:
    path = "/" + cgroup.strip("/")
    return any(known in view.observed for known in (path, f"{path}.slice"))


def _lost_thresholds(view: ComparedNode) -> Iterator[Finding]:
    """A map that names some signals replaces all defaults (N-6)."""
    config = view.parsed.config
    defaults = default_config(view.chosen.profile).eviction_hard
    lost = [signal for signal in defaults if signal not in config.eviction_hard]
    if not lost:
        return
    memory = "memory.available" in lost
    yield _node_finding(
        view,
        "A13",
        "warning",
        "evictionHard",
        declared=", ".join(f"{signal}<{value}" for signal, value in config.eviction_hard.items()) or "none",
        expected=", ".join(f"{signal}<{defaults[signal]}" for signal in lost) + " as well (the defaults)",
        observed="no threshold",
        advice="name every signal, or set mergeDefaultEvictionSettings: true (since 1.33)",
        note="the kubelet never evicts for memory: the kernel's OOM killer decides" if memory else "",
    )


def _hugepages(view: ComparedNode) -> Iterator[Finding]:
    setting = view.setting
    node = view.evidence.node
    capacity = (node.status.capacity if node is not None else None) or {}
    total = sum(amount.value for name, amount in capacity.items() if name.startswith(HUGEPAGES_PREFIX))
    if setting is None or not total or withheld_hugepages(setting):
        return
    yield _node_finding(
        view,
        "A14",
        "warning",
        "memory.available",
        declared=", ".join(
            f"{name}={amount}"
            for name, amount in sorted(capacity.items())
            if name.startswith(HUGEPAGES_PREFIX) and amount
        ),
        expected="without the memory of huge pages",
        observed=f"{human_bytes(total)} too much",
        advice=f"raise evictionHard memory.available by {human_bytes(total)}, or use 1.37 with HugepageAwareEviction",
        note="evictions for memory come too late by this amount, and the OOM killer comes first",
    )


def _kernel_features(view: ComparedNode) -> Iterator[Finding | Unknown]:
    kernel = view.record.kernel
    assert kernel is not None
    needed = NEEDED_V2 if kernel.cgroup_version == 2 else NEEDED_V1
    missing = [name for name in needed if name not in kernel.controllers]
    if missing:
        yield _node_finding(
            view,
            "A18",
            "error" if {"cpu", "memory"} & set(missing) else "warning",
            "cgroup controllers",
            expected=", ".join(needed),
            observed=", ".join(kernel.controllers) or "none",
            advice="remove cgroup_disable= from the kernel's command line, or use a kernel that has these controllers",
            note=f"missing: {', '.join(missing)}; limits of these are not enforced",
            owner="kernel",
        )
    if kernel.psi is False:
        yield _node_finding(
            view,
            "A18",
            "note",
            "PSI",
            expected="/proc/pressure",
            observed="none",
            advice="boot with psi=1",
            note="neither the kubelet's PSI metrics nor pressure in `plimsoll top` are available",
            owner="kernel",
        )
    if kernel.cgroup_version == 2 and kernel.reclaim is False:
        yield _node_finding(
            view,
            "A18",
            "note",
            "memory.reclaim",
            expected="the file exists (Linux 5.19)",
            observed=f"Linux {kernel.release}",
            advice="use a newer kernel if memory is to be reclaimed before eviction",
            owner="kernel",
        )
    release = view.chosen.profile.release
    if kernel.cgroup_version == 1 and view.chosen.profile.name != DOCUMENTS and minor(release) >= V1_REFUSED:
        yield _node_finding(
            view,
            "A18",
            "warning",
            "cgroup version",
            declared=f"failCgroupV1: {str(view.parsed.config.fail_cgroup_v1).lower()}",
            expected="v2",
            observed=f"v1 with kubelet {release}",
            advice="boot with systemd.unified_cgroup_hierarchy=1; a kubelet from 1.35 on refuses v1 by default",
            note="no Memory QoS, no swap for pods, no whole-container OOM kill",
            owner="kernel",
        )


def _escapes(view: ComparedNode) -> Iterator[Finding | Unknown]:
    kernel = view.record.kernel
    notified = [path for path, files in view.observed.items() if files.get("notify_on_release", "0") == "1"]
    for hierarchy, program in (kernel.release_agents if kernel is not None else {}).items():
        if hierarchy == "name=systemd":  # systemd's own agent
            continue
        yield _node_finding(
            view,
            "A19",
            "error" if notified else "warning",
            "release_agent",
            expected="empty",
            observed=f"{program} ({hierarchy})",
            advice="empty it, and find out who has set it: the kernel runs this program as root when a cgroup gets "
            "empty",
            note=f"notify_on_release is set in {', '.join(notified[:3])}"
            if notified
            else "notify_on_release is set nowhere",
            owner="person",
        )
    if view.record.processes is None:
        yield Unknown(view.evidence.name, f"whether containers may write cgroups: {view.evidence.lacks('processes')}")
        return
    for place in view.places:
        if place.level != "container" or place.pod is None or place.container in place.pod.privileged:
            continue
        if any(process.cgroups_writable for process in view.processes_in.get(place.path, ())):
            yield Finding(
                "A19",
                "error",
                "container",
                place.subject,
                "/sys/fs/cgroup",
                declared="not privileged",
                expected="mounted read-only",
                observed="mounted writable",
                path=place.path,
                owner="container runtime",
                next_overwrite="when the container restarts",
                advice="remove the hostPath or the runtime's setting that makes it writable (cgroup_writable)",
                note="the container can raise its own limits",
                node=view.evidence.name,
            )


RULES = (
    Rule(
        "A13",
        "warning",
        ("node",),
        "reserved resources and eviction thresholds are not what they look like",
        "Reserved resources only limit pods, unless they are enforced on the daemons. And an evictionHard that names "
        "some "
        "signals switches off the defaults of all others, so that the kubelet may never evict for memory or disk.",
        "Enforce what must hold, and name every eviction signal.",
        ("01 §10.4", "N-6", "kubernetes#127874"),
        ("configuration",),
        _reservations,
    ),
    Rule(
        "A14",
        "warning",
        ("node",),
        "huge pages are counted as available memory",
        "Up to 1.36 memory.available contains the pages that are reserved as huge pages, which no pod can use as "
        "memory.",
        "Raise the threshold by the size of the huge pages.",
        ("kubernetes#138127", "04 §1"),
        ("node", "configuration"),
        _hugepages,
    ),
    Rule(
        "A18",
        "error",
        ("node",),
        "the kernel lacks what this kubelet needs",
        "A controller that is disabled limits nothing; without PSI there are no pressure figures; cgroup v1 has no "
        "Memory QoS and is refused by default from 1.35 on.",
        "Change the kernel's command line, or the kernel.",
        ("02 §3", "KEP-4569", "KEP-5573"),
        ("kernel",),
        _kernel_features,
    ),
    Rule(
        "A19",
        "error",
        ("node", "container"),
        "cgroups can be used to leave a container",
        "On cgroup v1 the kernel starts the program of release_agent as root of the host. A container that may write "
        "cgroups can set it, or at least raise its own limits.",
        "Empty release_agent; keep /sys/fs/cgroup read-only in containers.",
        ("CVE-2022-0492",),
        ("pods", "kernel", "cgroups"),
        _escapes,
    ),
)
