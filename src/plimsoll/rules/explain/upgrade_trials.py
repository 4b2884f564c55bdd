"""The cause of a changed value: the parts of the upgrade are tried on the node, one at a time.

The old side is explained with one new part, the new side without it. A part that the rules did not read for a pod is
not tried (`upgrade_reads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.cgroups.desired import EVERYTHING, Shown, defaulted_on, defaulted_workload, desired_pod
from plimsoll.rules.explain.differences import ABSENT, Difference, Facts, facts, pod_facts, value_of
from plimsoll.rules.explain.explanation import explanation, pod_explanation
from plimsoll.rules.explain.resize_probes import RESIZE, Resizable, resize_facts
from plimsoll.rules.explain.upgrade_causes import Part, Side, parts, taken
from plimsoll.rules.explain.upgrade_reads import Setting, differing, recorded
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.allocated_status import allocated_from_status

WITHOUT_REASONS = Shown(reasons=False)


class NamedPod(msgspec.Struct, frozen=True):
    title: str  # unique on the node
    pod: Pod


def stored(given: NamedPod, node: NodeConfig) -> NamedPod:
    """As the API server of that node's release stores it."""
    return NamedPod(given.title, defaulted_on(given.pod, node))


def value_facts(pods: Iterable[NamedPod], node: NodeConfig, shown: Shown = EVERYTHING) -> Facts:
    """Of stored pods."""
    works = [defaulted_workload(each.pod, node, title=each.title) for each in pods]
    return facts(explanation(works, node, shown=shown))


def _single_facts(given: NamedPod, node: NodeConfig) -> Facts:
    """Of one stored pod, without what depends on the pods beside it."""
    work = defaulted_workload(given.pod, node, title=given.title)
    return pod_facts(pod_explanation(work, node, reasons=False), desired_pod(work, node, WITHOUT_REASONS))


def answers(pods: Iterable[NamedPod], node: NodeConfig) -> Facts:
    """To resizes of stored pods."""
    return dict(resize_facts((Resizable(each.title, allocated_from_status(each.pod), each.pod) for each in pods), node))


class Changed(msgspec.Struct, frozen=True):
    """A node with one part changed, and the settings that differ then. No node: the part does not go with the rest."""

    node: NodeConfig | None
    settings: frozenset[Setting] = frozenset()


class Upgrade:
    """Both sides of a node, and each with single parts of the other. Equal nodes share it."""

    def __init__(self, old: Side, new: Side) -> None:
        self.sides = old, new
        self.nodes = old.setting(), new.setting()
        self.parts = tuple(parts(old, new))
        self._changed: dict[tuple[Part, int], Changed] = {}
        # Where one part is the whole upgrade, it is the cause of everything: nothing has to be tried.
        self.is_single = len(self.parts) == 1 and self.changed(self.parts[0], 0).node == self.nodes[1]

    def changed(self, part: Part, side: int) -> Changed:
        """Side 0 with the part, side 1 without it."""
        key = (part, side)
        if key not in self._changed:
            try:
                node = taken(self.sides[side], part, self.sides[1 - side]).setting()
                self._changed[key] = Changed(node, differing(self.nodes[side], node))
            except InvalidConfigError:
                self._changed[key] = Changed(None)
        return self._changed[key]


class Trials:
    """Of the pods of one node. `title` is the only pod that matters for a fact; empty if all pods of the node do."""

    def __init__(self, upgrade: Upgrade, pods: Mapping[str, NamedPod]) -> None:
        self.upgrade, self._pods = upgrade, pods
        self._read: dict[tuple[str, bool, int], set[Setting]] = {}
        self._facts: dict[tuple[str, bool, Part, int], Facts] = {}

    def causes(self, row: Difference, title: str, likely: Iterable[Part]) -> tuple[Part, ...]:
        """The part that alone gives the new value and without which the old one stays; else all parts without which
        there is another value; else all that alone give another one. `likely` parts are tried first."""
        if self.upgrade.is_single:
            return self.upgrade.parts
        order = dict.fromkeys((*likely, *self.upgrade.parts))
        needed = []
        for part in order:
            without_it = self._value(row, title, part, 1)
            if without_it == row.first and self._value(row, title, part, 0) == row.second:
                return (part,)
            if without_it != row.second:
                needed.append(part)
        found = needed or [part for part in order if self._value(row, title, part, 0) != row.first]
        return tuple(part for part in self.upgrade.parts if part in found)

    def _value(self, row: Difference, title: str, part: Part, side: int) -> str:
        changed = self.upgrade.changed(part, side)
        if changed.node is None:
            return ABSENT
        resizes = row.what.startswith(RESIZE)
        if changed.settings.isdisjoint(self._reads(title, resizes, side)):
            return row.second if side else row.first
        key = (title, resizes, part, side)
        if key not in self._facts:
            self._facts[key] = self._found(title, resizes, changed.node)
        return value_of(self._facts[key], (row.where, row.what))

    def _reads(self, title: str, resizes: bool, side: int) -> set[Setting]:
        key = (title, resizes, side)
        if key not in self._read:
            node, self._read[key] = recorded(self.upgrade.nodes[side])
            self._found(title, resizes, node)
        return self._read[key]

    def _found(self, title: str, resizes: bool, node: NodeConfig) -> Facts:
        pods = [stored(each, node) for each in ([self._pods[title]] if title else self._pods.values())]
        if resizes:
            return answers(pods, node)
        return _single_facts(pods[0], node) if title else value_facts(pods, node, WITHOUT_REASONS)
