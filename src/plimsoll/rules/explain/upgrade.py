"""What an upgrade changes for the pods of a fleet, and why: the differences of two explanations, with their causes.

Each node is explained as it runs before and after (`differences`). A changed value is then explained again with single
parts of the change (`upgrade_trials`): a part is the cause if it alone gives the new value, and the value returns to
the old one without it. Pods of one form on nodes that change in the same parts share the answer, so a fleet costs
little more than its explanation.

A pod is compared as each release stores and runs it when it is created: the class in its status is not used.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.explain.differences import (
    ABSENT,
    CLASS,
    COUNTED,
    CPU_FLOOR,
    EVICTION,
    LIMITS,
    NODE,
    PATH,
    PROTECTED,
    SCORE,
    STORAGE,
    Difference,
    Facts,
    differing,
)
from plimsoll.rules.explain.refusal import refusal_errors
from plimsoll.rules.explain.resize_probes import RESIZE
from plimsoll.rules.explain.upgrade_causes import SEVERAL, Cause, Part, Side, cause_of
from plimsoll.rules.explain.upgrade_trials import NamedPod, Trials, Upgrade, answers, stored, value_facts
from plimsoll.rules.model.objects import (
    CPU,
    MEMORY,
    Container,
    Pod,
    Resources,
    container_fields,
    is_critical,
    is_sidecar,
)
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.defaulting import defaulted, rounded_list
from plimsoll.rules.resources.effective import container_limits, container_requests, pod_level_set
from plimsoll.rules.resources.node_policy import is_plain

Kind = Literal[
    "value", "path", "class", "oom score", "oom order", "eviction", "scheduling", "protection", "cpu share", "resize",
    "refused", "start", "configuration", "metric",
]  # fmt: skip
_KINDS: dict[str, Kind] = {
    CLASS: "class",
    SCORE: "oom score",
    EVICTION: "eviction",
    STORAGE: "eviction",
    PATH: "path",
    PROTECTED: "protection",
    CPU_FLOOR: "cpu share",
}
_CONTENDED = frozenset({PROTECTED, CPU_FLOOR})
OOM_ORDER = "OOM order at equal use"
_AMOUNT = re.compile(r"(?<![a-zA-Z0-9.])[1-9][0-9.]*(?:[numkMGTPE]i?|Ki)?\b")
# What the kernel has in a new cgroup: writing it changes nothing by itself.
_KERNEL_DEFAULTS = {("memory.min", "0"), ("memory.low", "0"), ("memory.high", "max")}
KERNEL_DEFAULT = "the kernel's own default: no effect unless something else has written the file"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact that the upgrade changes. `subject`: `namespace/pod`, `namespace/pod / container`, or a node."""

    kind: Kind
    subject: str
    what: str
    old: str
    new: str
    causes: tuple[str, ...]  # ids
    node: str = ""
    pod: str = ""  # empty for a change of a node, a quota or a rule
    formula: str = ""
    note: str = ""
    breaks: bool = False

    @property
    def is_kernel_default(self) -> bool:
        return self.note == KERNEL_DEFAULT


class Comparison:
    """Compares the nodes of one fleet, and keeps what it has learned about causes."""

    def __init__(self) -> None:
        self.causes: dict[str, Cause] = {}
        self.left_out: dict[str, str] = {}  # pods that the old release refuses already, and why
        self._known: dict[object, tuple[str, ...]] = {}
        self._likely: dict[object, dict[Part, bool]] = {}  # which parts alone were causes of a fact before
        self._named: dict[tuple[tuple[Part, ...], Part], Cause] = {}
        self._upgrades: list[Upgrade] = []  # of nodes that differ in more than their names

    def changes(self, node: str, old: Side, new: Side, given: Sequence[NamedPod]) -> Iterator[Change]:
        """Of the pods on one node, and of the cgroups above them. Raises InvalidConfigError if a side cannot run."""
        upgrade = self._upgrade(old, new)
        pods, both = [], []
        for each in given:
            created = NamedPod(each.title, as_created(each.pod))
            on_both = [stored(created, side) for side in upgrade.nodes]
            refused = [_refusal(pod, side) for pod, side in zip(on_both, upgrade.nodes, strict=True)]
            if not any(refused):
                pods.append(created)
                both.append(on_both)
            elif refused[0]:
                self.left_out[each.title] = refused[0]
            else:
                self.causes.setdefault(_REFUSED.id, _REFUSED)
                yield Change(
                    "refused",
                    each.title,
                    "create",
                    "accepted",
                    refused[1],
                    (_REFUSED.id,),
                    node,
                    each.title,
                    breaks=True,
                )
        left, right = (
            {**value_facts(on_side, side), **answers(on_side, side)}
            for on_side, side in zip(zip(*both, strict=True) if both else ((), ()), upgrade.nodes, strict=True)
        )
        rows = differing(left, right)
        if not rows:
            return
        trials = Trials(upgrade, {each.title: each for each in pods})
        forms = {
            each.title: _form(each.pod, left[each.title, CLASS].value, right[each.title, CLASS].value) for each in pods
        }
        before, after = _Places(left), _Places(right)
        for row in rows:
            change = self._change(row, node, forms, trials)
            yield change
            if row.what == SCORE and (was := before.of(row.first)) != (becomes := after.of(row.second)):
                yield msgspec.structs.replace(
                    change, kind="oom order", what=OOM_ORDER, old=was, new=becomes, formula=""
                )

    def _upgrade(self, old: Side, new: Side) -> Upgrade:
        sides = _unnamed(old), _unnamed(new)
        for known in self._upgrades:
            if known.sides == sides:
                return known
        self._upgrades.append(Upgrade(*sides))
        return self._upgrades[-1]

    def _change(self, row: Difference, node: str, forms: dict[str, _Form], trials: Trials) -> Change:
        title, _, container = row.where.partition(" / ")
        form = forms.get(title)
        # Node and class cgroups have no form: their own name stands for it, and what is roughly true of the pods below
        # them. What a pod gets under contention depends on the pods beside it.
        alone = form is not None and row.what not in _CONTENDED
        distinct: object = (row.where, frozenset(each.in_sums for each in forms.values()))
        if form:
            distinct = form.about(row.what, container) if alone else form.coarse
        if form and row.what == CPU_FLOOR:  # every pod of a node may have another: one answer for all
            distinct = None
        texts = (row.first, row.second, row.formula if row.what.startswith(RESIZE) else "")
        parts = trials.upgrade.parts
        key = (parts, distinct, row.what, *map(_without_amounts, texts))
        if key not in self._known:
            likely = self._likely.setdefault((parts, row.what, bool(container)), {})
            found = trials.causes(row, title if alone else "", likely)
            if len(found) == 1:
                likely[found[0]] = True
            causes = [self._cause(part, trials.upgrade) for part in found] or [SEVERAL]
            self.causes.update((cause.id, cause) for cause in causes if cause.id not in self.causes)
            self._known[key] = tuple(cause.id for cause in causes)
        return Change(
            _kind(row.what),
            row.where if form else f"{node}: {'all pods' if row.where == NODE else row.where}",
            row.what,
            row.first,
            row.second,
            self._known[key],
            node,
            title if form else "",
            row.formula,
            KERNEL_DEFAULT if row.first == ABSENT and (row.what, row.second) in _KERNEL_DEFAULTS else row.note,
        )

    def _cause(self, part: Part, upgrade: Upgrade) -> Cause:
        key = (upgrade.parts, part)
        if key not in self._named:
            self._named[key] = cause_of(part, *upgrade.sides)
        return self._named[key]


_REFUSED = Cause(
    "validation",
    "the new API server refuses the pod",
    "a running pod stays; it cannot be created again",
    "correct the manifest before the upgrade",
)


def _unnamed(side: Side) -> Side:
    return msgspec.structs.replace(side, machine=msgspec.structs.replace(side.machine, name=""))


def _without_amounts(text: str) -> str:
    """It matters whether there is any amount, not which."""
    return _AMOUNT.sub("n", text)


def _kind(what: str) -> Kind:
    if what.startswith((f"{COUNTED} ", f"{LIMITS} ")):
        return "scheduling"
    if what.startswith(RESIZE):
        return "resize"
    return _KINDS.get(what, "value")


def as_created(pod: Pod) -> Pod:
    """Without the class that an API server has stored."""
    if pod.status.qos_class is None:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, qos_class=None))


def _refusal(pod: NamedPod, node: NodeConfig) -> str:
    errors = refusal_errors(pod.pod, (), node.policy.gates)
    return f"{errors[0].field}: {errors[0].message()}" if errors else ""


class _Places:
    """The place of a score among those of the node: 1 is killed first if all use the same."""

    def __init__(self, found: Facts) -> None:
        self._scores = sorted(int(fact.value) for (_, what), fact in found.items() if what == SCORE)

    def of(self, score: str) -> str:
        if score == ABSENT:
            return ABSENT
        return f"place {len(self._scores) - bisect_right(self._scores, int(score)) + 1} of {len(self._scores)}"


class _Form(msgspec.Struct, frozen=True):
    """What the causes of a pod's changes depend on: pods of one form differ in amounts only."""

    coarse: tuple[str, str, bool, bool]  # both classes, whether pod-level resources are present, and set
    rest: tuple[object, ...]
    level: _Named
    containers: dict[str, _Named]

    @property
    def in_sums(self) -> tuple[object, ...]:
        """What the sums over pods depend on: a release that drops the pod level counts the containers instead."""
        return self.coarse, self.level, self.rest[-1]

    def about(self, what: str, container: str) -> tuple[object, ...]:
        """Only the resources that the fact is about, and of a container's own fact only this container: its memory does
        not depend on the CPU of others. Its score depends on their memory, and an answer to a resize on none of them.
        """
        if what.startswith(RESIZE):
            return self.coarse, self.rest, self.level
        names = _resources(what)
        pod = (self.coarse, self.rest, self.level.only(names))
        if container and what != SCORE:
            return *pod, self.containers[container].only(names)
        return *pod, bool(container), frozenset(each.only(names) for each in self.containers.values())


class _Named(msgspec.Struct, frozen=True):
    """The resources that a container or pod level names."""

    stage: str
    requests: frozenset[str]
    limits: frozenset[str]

    def only(self, names: frozenset[str] | None) -> _Named:
        return self if names is None else _Named(self.stage, self.requests & names, self.limits & names)


def _form(pod: Pod, old_class: str, new_class: str) -> _Form:
    spec = pod.spec
    return _Form(
        (old_class, new_class, spec.resources is not None, pod_level_set(spec.resources)),
        (is_critical(pod), is_plain(pod), bool(spec.overhead), pod.status.resize, _without_difference(pod)),
        _named("pod", spec.resources or Resources()),
        {
            container.name: _named(_stage(field, container), container.resources)
            for field, container in container_fields(spec)
        },
    )


def _without_difference(pod: Pod) -> frozenset[tuple[str, str]]:
    """Pod-level amounts that are what the containers add up to: whether a release counts them makes no difference."""
    whole = pod.spec.resources
    if whole is None:
        return frozenset()
    bare = defaulted(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=None)))
    kinds = (
        ("requests", whole.requests, container_requests(bare)),
        ("limits", whole.limits, container_limits(bare)),
    )
    return frozenset(
        (kind, name)
        for kind, amounts, sums in kinds
        for name, amount in (rounded_list(amounts) or {}).items()
        if sums.get(name) == amount
    )


def _stage(field: str, container: Container) -> str:
    return "sidecar" if is_sidecar(container) else field.partition("[")[0]


def _named(stage: str, resources: Resources) -> _Named:
    return _Named(stage, frozenset(resources.requests or ()), frozenset(resources.limits or ()))


_OF_MEMORY, _OF_CPU, _OF_BOTH = frozenset({MEMORY}), frozenset({CPU}), frozenset({CPU, MEMORY})


def _resources(what: str) -> frozenset[str] | None:
    """That the fact is about; None: any."""
    if what.startswith((f"{COUNTED} ", f"{LIMITS} ")):
        return frozenset({what.partition(" ")[2]})
    if what in (CLASS, EVICTION, PATH):
        return _OF_BOTH
    if what.startswith(("memory", "swap", SCORE)):
        return _OF_MEMORY
    return _OF_CPU if what.startswith("cpu") else None
