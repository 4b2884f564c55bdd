"""The differences between two explanations of the same pods: profiles, drivers, cgroup versions."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from plimsoll.cli.terminal import Paint, inert, table
from plimsoll.rules.cgroups.desired import Cgroup
from plimsoll.rules.explain.explanation import Explanation

# Files of v1 and v2 with the same meaning (02 §4.6): one row of the comparison.
MEANINGS = {
    "cpu.shares": "cpu weight",
    "cpu.weight": "cpu weight",
    "cpu.cfs_quota_us": "cpu limit",
    "cpu.cfs_period_us": "cpu limit",
    "cpu.max": "cpu limit",
    "memory.limit_in_bytes": "memory limit",
    "memory.max": "memory limit",
    "memory.memsw.limit_in_bytes": "swap limit",
    "memory.swap.max": "swap limit",
}


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    where: str
    what: str
    first: str
    second: str
    note: str = ""


def differences(first: Explanation, second: Explanation) -> list[Difference]:
    left, right = _facts(first), _facts(second)
    places = {where: index for index, where in enumerate(dict.fromkeys(where for where, _ in [*left, *right]))}
    rows = []
    for key in sorted(dict.fromkeys([*left, *right]), key=lambda key: places[key[0]]):
        before, note = left.get(key, ("–", ""))
        after, other_note = right.get(key, ("–", ""))
        if before != after:
            rows.append(Difference(*key, before, after, note or other_note))
    return rows


def _facts(found: Explanation) -> dict[tuple[str, str], tuple[str, str]]:
    """(where, what) → (value, note), in the order of the tree."""
    facts: dict[tuple[str, str], tuple[str, str]] = {}
    for name, text in found.node.allocatable.items():
        facts["node", f"allocatable {name}"] = (text, "")
    for pod in found.pods:
        facts[pod.name, "QoS class"] = (pod.qos_class, "")
    _collect(found.tree, "", facts)
    return facts


def _collect(cgroup: Cgroup, above: str, facts: dict[tuple[str, str], tuple[str, str]]) -> None:
    where = {"pods": "node", "class": cgroup.name, "pod": cgroup.name}.get(cgroup.level, f"{above} / {cgroup.name}")
    if cgroup.level != "node":
        facts[where, "path"] = (cgroup.path, "")
        if cgroup.oom_score_adj is not None:
            facts[where, "oom_score_adj"] = (str(cgroup.oom_score_adj), "")
        for file in cgroup.files:
            key = (where, MEANINGS.get(file.name, file.name))
            text = f"{file.name} {file.value}" if key[1] != file.name else str(file.value)
            if key in facts:  # on v1, quota and period are two files
                text = f"{facts[key][0]}, {text}"
            facts[key] = (text, file.reason.note)
    for child in cgroup.children:
        _collect(child, where, facts)


def print_differences(rows: Sequence[Difference], first: str, second: str, paint: Paint) -> None:
    if not rows:
        click.echo(f"no differences between {first} and {second}")
        return
    lines = table([(row.where, row.what, row.first, row.second) for row in rows], ("WHERE", "WHAT", first, second))
    for index, line in enumerate(lines):
        click.echo(inert(line) if index else paint(inert(line), "bold"), color=paint.colour)
    notes = dict.fromkeys((row.what, row.note) for row in rows if row.note)
    for what, note in notes:
        click.echo(paint(f"{what}: {note}", "dim"), color=paint.colour)
