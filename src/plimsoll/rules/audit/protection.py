"""A02, A03, A04: memory protection that has no effect, protection that kills, and memory.high that is out of date."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.audit.differences import PROTECTIONS, ComparedNode, found_difference, owner_and_overwrite
from plimsoll.rules.audit.evidence import Part
from plimsoll.rules.audit.finding import Finding, Rule
from plimsoll.rules.audit.view import Place
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.cgroups.reasons import human_bytes

_NEEDED: tuple[Part, ...] = ("pods", "configuration", "kernel", "cgroups")


def _ineffective(view: ComparedNode) -> Iterator[Finding]:
    for place in view.places:
        if place.level not in ("pod", "container", "class") or place.observed is None or place.effective is None:
            continue
        for file in PROTECTIONS:
            own = _bytes(place, file)
            effective = place.effective.memory_min_bytes if file == "memory.min" else place.effective.memory_low_bytes
            above = _bytes_at(view, parent_path(place.path), file)
            if own and effective < own:
                why = f"its parent has {file} {human_bytes(above)}: the kernel caps protection by every ancestor's"
                yield _finding(view, place, file, str(own), str(effective), why)
            elif not own and place.level == "container" and above and _is_unshared(view):
                why = (
                    "cgroup2 is mounted without memory_recursiveprot: the pod's protection does not reach its "
                    "containers"
                )
                yield _finding(view, place, file, "0", "0", why)


def _is_unshared(view: ComparedNode) -> bool:
    return view.record.kernel is not None and view.record.kernel.recursive_protection is False


def _finding(view: ComparedNode, place: Place, file: str, own: str, effective: str, why: str) -> Finding:
    owner, again = owner_and_overwrite(view, place, file)
    reason = view.reason(place.path, file)
    return Finding(
        "A02",
        "warning",
        place.level,
        place.subject,
        file,
        declared=reason.source or "protection by Memory QoS",
        expected=own,
        effective=effective,
        observed=own,
        path=place.path,
        owner=owner,
        next_overwrite=again,
        advice=(
            f"give every ancestor at least the sum of its children's {file}; up to 1.36 the kubelet leaves kubepods "
            "without memory.low, 1.37 sets it"
        ),
        note=why,
        node=view.evidence.name,
    )


def _bytes(place: Place, file: str) -> int:
    text = (place.observed or {}).get(file, "0")
    return int(text) if text.isdecimal() else 0


def _bytes_at(view: ComparedNode, path: str, file: str) -> int:
    text = view.observed.get(path, {}).get(file, "0")
    return int(text) if text.isdecimal() else 0


def _trap(view: ComparedNode) -> Iterator[Finding]:
    for place in view.places:
        if place.level not in ("pod", "container") or place.observed is None:
            continue
        least, most = _bytes(place, "memory.min"), _bytes(place, "memory.max")
        counters = view.record.counters.get(place.path, {})
        cache, reached = counters.get("memory.stat:file", 0), counters.get("memory.events:max", 0)
        if not least or not most or least < most or not (cache or reached):
            continue
        reason = view.reason(place.path, "memory.min")
        yield Finding(
            "A03",
            "error",
            place.level,
            place.subject,
            "memory.min",
            declared=reason.source or "request equals limit",
            expected=f"less than memory.max, {most}",
            effective=str(place.effective.memory_min_bytes) if place.effective is not None else "",
            observed=str(least),
            path=place.path,
            owner="container runtime" if place.level == "container" else "kubelet",
            next_overwrite=owner_and_overwrite(view, place, "memory.min")[1],
            advice="use memoryReservationPolicy None, or a memory limit above the request, for pods that read or "
            "write files",
            note=f"page cache {human_bytes(cache)}, reached memory.max {reached} times: protected cache cannot be "
            "reclaimed, "
            "so the kernel kills at the limit",
            node=view.evidence.name,
        )


def _stale_high(view: ComparedNode) -> Iterator[Finding]:
    setting = view.setting
    on = setting is not None and setting.policy.memory_qos
    for each in view.differences.get("A04", ()):
        if on:
            note = "the feature gate or the factor changed after the container was created, or an update left it out"
        else:
            note = (
                "the feature gate MemoryQoS is off: the value is left from a time when it was on, or from another "
                "writer"
            )
        yield found_difference(view, "A04", "warning", each, "recreate the container", note=note)


def _on_v2(view: ComparedNode) -> str:
    return "" if view.version == 2 else "cgroup v1 has no memory.min, memory.low and memory.high"


RULES = (
    Rule(
        "A02",
        "warning",
        ("class", "pod", "container"),
        "memory protection has no effect",
        "The kernel caps memory.min and memory.low of a cgroup by the same file of every ancestor, and divides it "
        "among "
        "siblings that claim more. A value without the same sum above it protects nothing. Up to 1.36 the kubelet "
        "writes "
        "memory.low for containers and pods but not for kubepods, so it is never effective.",
        "Raise the protection of every ancestor to the sum of its children, or use a release that does so.",
        ("kubernetes#140267", "02 §6.2", "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory"),
        _NEEDED,
        _ineffective,
        _on_v2,
    ),
    Rule(
        "A03",
        "error",
        ("pod", "container"),
        "memory.min equals memory.max, and the container uses files",
        "Page cache counts toward memory.max, but below memory.min the kernel reclaims nothing. With both equal, a "
        "container that reads or writes files fills its limit with cache that cannot be dropped, and is killed.",
        "Leave a gap between request and limit, or protect with memory.low (memoryReservationPolicy).",
        ("kubernetes#137880", "02 §6.2"),
        _NEEDED,
        _trap,
        _on_v2,
    ),
    Rule(
        "A04",
        "warning",
        ("container",),
        "memory.high is out of date",
        "memory.high is written when a container is created. When the feature gate MemoryQoS or memoryThrottlingFactor "
        "changes, running containers keep the old value and are throttled by a limit that is configured nowhere.",
        "Recreate the container. 1.37 resets the value when the feature gate is off.",
        ("kubernetes#139377", "cri-o#9816", "02 §6.1"),
        _NEEDED,
        _stale_high,
        _on_v2,
    ),
)
