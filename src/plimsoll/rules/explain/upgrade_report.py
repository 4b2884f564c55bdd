"""The report of an upgrade: a summary, and the changes in groups by cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from plimsoll.rules.admission.quota import used_by
from plimsoll.rules.explain.differences import ABSENT
from plimsoll.rules.explain.upgrade import KERNEL_DEFAULT, Change
from plimsoll.rules.explain.upgrade_causes import Cause
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import ResourceQuota
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resources.defaulting import defaulted

QUOTA = Cause(
    "resize_footprint",
    "quota counts pods otherwise",
    "a ResourceQuota counts what the scheduler counts for a pod: each release has its own rule for sidecars, pod-level "
    "resources and pods under resize",
    "raise the quota where the new use is above it: no pod can be created there meanwhile",
)


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    pods: int
    nodes: int
    changed_pods: int
    kernel_defaults_only: int  # of the changed pods: nothing but files that get the kernel's own default
    class_changes: int
    lose_protection: int
    gain_protection: int
    killed_earlier: int
    resize_changes: int
    refused_pods: int
    stopped_nodes: int
    changed_nodes: int
    broken_rules: int

    def sentence(self) -> str:
        """`3 of 1,204 pods change class, 17 lose protection, 1 of 12 nodes will not start`."""
        said = [
            (
                self.class_changes,
                f"{_of(self.class_changes, self.pods, 'pod')} {_s('change', self.class_changes)} class",
            ),
            (self.lose_protection, f"{self.lose_protection:,} {_s('lose', self.lose_protection)} protection"),
            (self.gain_protection, f"{self.gain_protection:,} {_s('gain', self.gain_protection)} protection"),
            (self.killed_earlier, f"{self.killed_earlier:,} sooner killed when memory is short"),
            (self.resize_changes, f"{self.resize_changes:,} with another answer to a resize"),
            (self.refused_pods, f"{self.refused_pods:,} can no longer be created"),
            (self.stopped_nodes, f"{_of(self.stopped_nodes, self.nodes, 'node')} will not start"),
            (self.broken_rules, f"{self.broken_rules:,} uses of metrics that disappear"),
        ]
        parts = [text for count, text in said if count]
        if self.changed_pods:
            text = f"{_of(self.changed_pods, self.pods, 'pod')} {_s('change', self.changed_pods)}"
            if self.kernel_defaults_only:
                text += f" ({self.kernel_defaults_only:,} only in files that get the kernel's own default)"
            parts.insert(0, text)
        elif not parts and self.changed_nodes:
            parts = [f"{_of(self.changed_nodes, self.nodes, 'node')} {_s('change', self.changed_nodes)}"]
        return ", ".join(parts) or f"nothing changes for {_plural(self.pods, 'pod')} on {_plural(self.nodes, 'node')}"


def _of(count: int, total: int, noun: str) -> str:
    return f"{count:,} of {_plural(total, noun)}"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _s(verb: str, count: int) -> str:
    return f"{verb}s" if count == 1 else verb


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """Equal changes of many subjects."""

    kind: str
    what: str
    subjects: tuple[str, ...]
    changes: tuple[tuple[str, str, int], ...]  # old, new, how often; the most frequent first
    formula: str = ""
    note: str = ""
    breaks: bool = False


class Section(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...]
    groups: tuple[Group, ...]

    @property
    def breaks(self) -> bool:
        return any(group.breaks for group in self.groups)


class Report(msgspec.Struct, frozen=True, rename="camel"):
    first: str
    second: str
    summary: Summary
    sections: tuple[Section, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """2: something breaks, 1: something changes."""
        if any(change.breaks for change in self.changes):
            return 2
        return 1 if self.changes else 0


def report(
    words: tuple[str, str],
    changes: Sequence[Change],
    causes: dict[str, Cause],
    *,
    pods: int,
    nodes: int,
    notes: Sequence[str] = (),
) -> Report:
    return Report(*words, summary(changes, pods, nodes), tuple(sections(changes, causes)), tuple(changes), tuple(notes))


def summary(changes: Sequence[Change], pods: int, nodes: int) -> Summary:
    def subjects(chosen: Iterable[Change]) -> int:
        return len({change.pod or change.node or change.subject for change in chosen})

    of_pods = [change for change in changes if change.pod]
    changed = {change.pod for change in of_pods}
    changed_more = {change.pod for change in of_pods if not change.is_kernel_default}
    protection = [change for change in of_pods if change.kind == "protection"]
    return Summary(
        pods=pods,
        nodes=nodes,
        changed_pods=len(changed),
        kernel_defaults_only=len(changed - changed_more),
        class_changes=subjects(change for change in of_pods if change.kind == "class"),
        lose_protection=subjects(change for change in protection if _number(change.new) < _number(change.old)),
        gain_protection=subjects(change for change in protection if _number(change.new) > _number(change.old)),
        killed_earlier=subjects(c for c in of_pods if c.kind == "oom score" and _number(c.new) > _number(c.old)),
        resize_changes=subjects(change for change in of_pods if change.kind == "resize"),
        refused_pods=subjects(change for change in of_pods if change.kind == "refused"),
        stopped_nodes=len({change.node for change in changes if change.kind == "start"}),
        changed_nodes=len({change.node for change in changes if not change.pod and change.node}),
        broken_rules=sum(change.kind == "metric" for change in changes),
    )


def _number(text: str) -> int:
    return 0 if text == ABSENT else int(text)


def sections(changes: Iterable[Change], causes: dict[str, Cause]) -> list[Section]:
    """By cause: first what breaks, then what concerns most; last what the kernel has anyway."""
    by_cause: dict[tuple[str, ...], dict[tuple[str, str], list[Change]]] = {}
    for change in changes:
        by_cause.setdefault(change.causes, {}).setdefault((change.kind, change.what), []).append(change)
    found = [
        Section(
            tuple(causes[each] for each in ids), tuple(_group(kind, what, each) for (kind, what), each in rows.items())
        )
        for ids, rows in by_cause.items()
    ]
    return sorted(found, key=_importance)


def _importance(section: Section) -> tuple[bool, bool, int]:
    only_defaults = all(group.note == KERNEL_DEFAULT for group in section.groups)
    return not section.breaks, only_defaults, -max(len(group.subjects) for group in section.groups)


def _group(kind: str, what: str, changes: Sequence[Change]) -> Group:
    counts: dict[tuple[str, str], int] = {}
    for change in changes:
        counts[change.old, change.new] = counts.get((change.old, change.new), 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    first = next(change for change in changes if (change.old, change.new) == ordered[0][0])
    return Group(
        kind,
        what,
        tuple(change.subject for change in changes),
        tuple((old, new, count) for (old, new), count in ordered),
        first.formula,
        first.note,
        any(change.breaks for change in changes),
    )


def quota_changes(quota: ResourceQuota, pods: Sequence[Pod], old: Profile, new: Profile) -> Iterator[Change]:
    """What the quota counts for the pods of its namespace. More than `hard` is no error, but no pod can be added."""
    stored = [defaulted(pod) for pod in pods]  # as the API server charges them: requests from limits, amounts rounded
    before, after = used_by(quota, stored, old), used_by(quota, stored, new)
    hard = quota.spec.hard or {}
    subject = f"quota {quota.metadata.namespace or 'default'}/{quota.metadata.name}"
    for name in dict.fromkeys([*before, *after]):
        was, becomes = before.get(name, ZERO), after.get(name, ZERO)
        if was != becomes:
            full = name in hard and was <= hard[name] < becomes
            note = f"above hard {hard[name]}" if full else ""
            yield Change(
                "scheduling", subject, f"used {name}", str(was), str(becomes), (QUOTA.id,), note=note, breaks=full
            )
