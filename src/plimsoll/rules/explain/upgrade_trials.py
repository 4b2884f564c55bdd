"""The cause of a changed value: the parts of the upgrade are tried on the node, one at a time.

The old side is explained with one new part, the new side without it. A part that the rules did not read for a pod is
not tried (`upgrade_reads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.cgroups.desired import EVERYTHING, Shown, defaulted_on, defaulted_workload
from plimsoll.rules.explain.differences import ABSENT, Difference, Facts, facts, value_of
from plimsoll.rules.explain.explanation import explanation
from plimsoll.rules.explain.resize_probes import RESIZE, Resizable, resize_facts
from plimsoll.rules.explain.upgrade_causes import Cause, Part, Side, cause_of, parts, taken
from plimsoll.rules.explain.upgrade_reads import Setting, differing, recorded
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.allocated_status import allocated_from_status

WITHOUT_REASONS = Shown(reasons=False)
ALONE = Shown(reasons=False, contention=False)


class NamedPod(msgspec.Struct, frozen=True):
    title: str  # unique on the node
    pod: Pod


def value_facts(pods: Iterable[NamedPod], setting: NodeConfig, shown: Shown = EVERYTHING) -> Facts:
    works = [defaulted_workload(defaulted_on(each.pod, setting), setting, title=each.title) for each in pods]
    return facts(explanation(works, setting, shown=shown))


def answers(pods: Iterable[NamedPod], setting: NodeConfig) -> Facts:
    """To resizes."""
    desired = ((each.title, defaulted_on(each.pod, setting)) for each in pods)
    return dict(resize_facts((Resizable(title, allocated_from_status(pod), pod) for title, pod in desired), setting))


class Trials:
    """Of one node. `title` is the only pod that matters for a fact; empty if all pods of the node do."""

    def __init__(self, old: Side, new: Side, pods: Mapping[str, NamedPod]) -> None:
        self._pods = pods
        self._sides = old, new
        self._settings = old.setting(), new.setting()
        self.parts = tuple(parts(old, new))
        self._read: dict[tuple[str, bool, int], set[Setting]] = {}
        self._tried: dict[tuple[Part, int], tuple[NodeConfig | None, set[Setting]]] = {}
        self._facts: dict[tuple[str, bool, Part, int], Facts] = {}

    def causes(self, row: Difference, title: str, likely: Iterable[Part]) -> tuple[Part, ...]:
        """The part that alone gives the new value and without which the old one stays; else all parts without which
        there is another value; else all that alone give another one. `likely` parts are tried first."""
        order = dict.fromkeys((*likely, *self.parts))
        needed = []
        for part in order:
            without_it = self._value(row, title, part, 1)
            if without_it == row.first and self._value(row, title, part, 0) == row.second:
                return (part,)
            if without_it != row.second:
                needed.append(part)
        found = needed or [part for part in order if self._value(row, title, part, 0) != row.first]
        return tuple(part for part in self.parts if part in found)

    def cause_of(self, part: Part) -> Cause:
        return cause_of(part, *self._sides)

    def _value(self, row: Difference, title: str, part: Part, side: int) -> str:
        """On side 0 with the part, on side 1 without it."""
        resizes = row.what.startswith(RESIZE)
        setting, changed = self._with(part, side)
        if setting is None:
            return ABSENT
        if changed.isdisjoint(self._reads(title, resizes, side)):
            return row.second if side else row.first
        key = (title, resizes, part, side)
        if key not in self._facts:
            self._facts[key] = self._found(title, resizes, setting)
        return value_of(self._facts[key], (row.where, row.what))

    def _with(self, part: Part, side: int) -> tuple[NodeConfig | None, set[Setting]]:
        """The node, and what differs from the side as it is; None if the part does not go together with the rest."""
        key = (part, side)
        if key not in self._tried:
            usual = self._settings[side]
            try:
                tried = taken(self._sides[side], part, self._sides[1 - side]).setting()
                self._tried[key] = tried, differing(usual, tried)
            except InvalidConfigError:
                self._tried[key] = None, set()
        return self._tried[key]

    def _reads(self, title: str, resizes: bool, side: int) -> set[Setting]:
        key = (title, resizes, side)
        if key not in self._read:
            setting, self._read[key] = recorded(self._settings[side])
            self._found(title, resizes, setting)
        return self._read[key]

    def _found(self, title: str, resizes: bool, setting: NodeConfig) -> Facts:
        pods = [self._pods[title]] if title else self._pods.values()
        if resizes:
            return answers(pods, setting)
        return value_facts(pods, setting, ALONE if title else WITHOUT_REASONS)
