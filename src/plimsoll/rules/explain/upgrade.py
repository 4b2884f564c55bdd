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
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.cgroups.desired import defaulted_on
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
from plimsoll.rules.explain.upgrade_causes import SEVERAL, Cause, Part, Side
from plimsoll.rules.explain.upgrade_trials import NamedPod, Trials, answers, value_facts
from plimsoll.rules.model.objects import Container, Pod, is_critical, is_sidecar
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.effective import pod_level_set
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
_AMOUNT = re.compile(r"[0-9]+")
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

    def changes(self, node: str, old: Side, new: Side, given: Sequence[NamedPod]) -> Iterator[Change]:
        """Of the pods on one node, and of the cgroups above them. Raises InvalidConfigError if a side cannot run."""
        settings = old.setting(), new.setting()
        pods = []
        for each in given:
            refused = [_refusal(each.pod, setting) for setting in settings]
            if not any(refused):
                pods.append(msgspec.structs.replace(each, pod=as_created(each.pod)))
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
        left, right = ({**value_facts(pods, setting), **answers(pods, setting)} for setting in settings)
        rows = differing(left, right)
        if not rows:
            return
        trials = Trials(old, new, {each.title: each for each in pods})
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

    def _change(self, row: Difference, node: str, forms: dict[str, _Form], trials: Trials) -> Change:
        title, _, container = row.where.partition(" / ")
        form = forms.get(title)
        # Node and class cgroups have no form: their own name stands for it. What a pod gets under contention depends
        # on the pods beside it.
        alone = form is not None and row.what not in _CONTENDED
        distinct: object = form if alone else form.coarse if form else row.where
        if form and row.what == CPU_FLOOR:  # every pod of a node may have another: one answer for all
            distinct = None
        # Of amounts it matters whether there are any; an answer to a resize is one of a few texts with amounts.
        texts = _without_amounts((row.first, row.second)) if row.what.startswith(RESIZE) else ()
        key = (trials.parts, distinct, bool(container), row.what, row.first == ABSENT, row.second == ABSENT, texts)
        if key not in self._known:
            likely = self._likely.setdefault((trials.parts, row.what, bool(container)), {})
            found = trials.causes(row, title if alone else "", likely)
            if len(found) == 1:
                likely[found[0]] = True
            causes = [self._cause(part, trials) for part in found] or [SEVERAL]
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

    def _cause(self, part: Part, trials: Trials) -> Cause:
        key = (trials.parts, part)
        if key not in self._named:
            self._named[key] = trials.cause_of(part)
        return self._named[key]


_REFUSED = Cause(
    "validation",
    "the new API server refuses the pod",
    "a running pod stays; it cannot be created again",
    "correct the manifest before the upgrade",
)


def _without_amounts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(_AMOUNT.sub("", text) for text in texts)


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


def _refusal(pod: Pod, setting: NodeConfig) -> str:
    errors = refusal_errors(defaulted_on(pod, setting), (), setting.policy.gates)
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
    """Pods of one form change for the same reasons: only their amounts differ."""

    coarse: tuple[str, str, bool, bool]  # both classes, whether pod-level resources are present, and set
    fine: tuple[object, ...]


def _form(pod: Pod, old_class: str, new_class: str) -> _Form:
    spec = pod.spec
    return _Form(
        (old_class, new_class, spec.resources is not None, pod_level_set(spec.resources)),
        (
            frozenset(map(_names, spec.containers)),
            frozenset(map(_names, spec.init_containers)),
            any(map(is_sidecar, spec.init_containers)),
            is_critical(pod),
            is_plain(pod),
            bool(spec.overhead),
            pod.status.resize,
        ),
    )


def _names(container: Container) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(container.resources.requests or ()), frozenset(container.resources.limits or ())
