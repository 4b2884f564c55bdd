"""A22: values that change between observations although nothing was requested, how often, and who does it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.evidence import NodeEvidence, Overwrite
from plimsoll.rules.audit.finding import Finding, Owner, Rule
from plimsoll.rules.cgroups.rounding import same_value

HOUR_S = 3600.0
MOST_KEPT = 10_000


def overwrites_between(before: ComparedNode, after: ComparedNode) -> tuple[Overwrite, ...]:
    """Control files that changed while the expected value did not: a resize or a new pod is no overwrite."""
    found = []
    for place in after.places:
        old = before.place_at.get(place.path)
        if old is None or old.observed is None or place.observed is None:
            continue
        for file in place.cgroup.files:
            was, now = old.observed.get(file.name), place.observed.get(file.name)
            if was is None or now is None or old.cgroup.value(file.name) != file.value:
                continue
            if not same_value(file.name, was, now, after.page_size):
                found.append(Overwrite(place.path, file.name, was, now, after.record.time_s))
    return tuple(found)


def with_overwrites(before: NodeEvidence, after: NodeEvidence) -> NodeEvidence:
    """The later evidence, with what changed since the earlier and what had changed before that."""
    fresh = overwrites_between(ComparedNode(before), ComparedNode(after))
    old, new = before.record, after.record
    watched_s = old.watched_s + max(0.0, new.time_s - old.time_s)
    record = msgspec.structs.replace(new, overwrites=((old.overwrites or ()) + fresh)[-MOST_KEPT:], watched_s=watched_s)
    return msgspec.structs.replace(after, record=record)


def _changes(view: ComparedNode) -> Iterator[Finding]:
    by_file: dict[tuple[str, str], list[Overwrite]] = {}
    for each in view.record.overwrites or ():
        by_file.setdefault((each.path, each.file), []).append(each)
    hours = max(view.record.watched_s, 1.0) / HOUR_S
    for (path, file), changes in by_file.items():
        place = view.place_at.get(path)
        last = changes[-1]
        wanted = place.cgroup.value(file) if place is not None else None
        restored = wanted is not None and same_value(file, str(wanted), last.after, view.page_size)
        owner: Owner = "person"
        if restored:
            owner = "container runtime" if place is not None and place.level == "container" else "kubelet"
        yield Finding(
            "A22",
            "warning",
            place.level if place is not None else "node",
            place.subject if place is not None else path,
            file,
            expected="" if wanted is None else str(wanted),
            observed=f"{last.before} → {last.after}",
            path=path,
            owner=owner,
            next_overwrite=f"{len(changes) / hours:.1f} times an hour so far ({len(changes)} seen)",
            advice=(
                "the program that wrote the value before must write it in the owner's way (a resize, a systemd "
                "property), or "
                "not at all"
                if restored
                else "find the writer: systemd drop-ins, node tuning tools, scripts; `auditctl -w` on the file names "
                "the process"
            ),
            note="the owner has restored its value" if restored else "another writer has changed the value",
            node=view.evidence.name,
        )


def _was_watched(view: ComparedNode) -> str:
    if view.record.overwrites is not None:
        return ""
    return "one observation does not show changes: use --watch, or --since with an earlier dump"


RULES = (
    Rule(
        "A22",
        "warning",
        ("node", "class", "pod", "container"),
        "values are written again and again",
        "systemd restores its properties at daemon-reload, the kubelet its classes every minute and kubepods when it "
        "starts. A tool that writes control files beside them is undone, or undoes them. Only two observations show "
        "it.",
        "Use one writer: D-Bus properties under systemd, resizes for pods and containers.",
        ("02 §2.3", "kubernetes e2e cgroup_reconciliation"),
        ("pods", "configuration", "kernel", "cgroups"),
        _changes,
        _was_watched,
    ),
)
