"""The forecast of a resize as JSON and as text, for `explain resize` and `resize`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.cli.terminal import CLASS_COLOURS, Paint, inert, table
from plimsoll.rules.admission.comparison import LISTS
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.model.objects import CPU, MEMORY, NO_RESOURCES, Pod, Resources
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.resize.allocation import all_containers
from plimsoll.rules.resize.forecast import Forecast, Outcome
from plimsoll.rules.resize.headroom import PodRemoval
from plimsoll.rules.resize.predicted_cpus import CpuChange
from plimsoll.rules.resize.request import patch_between
from plimsoll.rules.resize.steps import FileChange
from plimsoll.rules.resources.qos import qos_class

DONE, NOT_NOW, REFUSED = 0, 1, 2
EXIT_CODES: dict[Outcome, int] = {
    "accepted": DONE,
    "unchanged": DONE,
    "deferred": NOT_NOW,
    "infeasible": NOT_NOW,
    "refused": REFUSED,
    "ended": NOT_NOW,
    "unscheduled": DONE,
    "unknown": DONE,
}
_COLOURS: dict[Outcome, str] = {
    "accepted": "green",
    "unchanged": "green",
    "deferred": "yellow",
    "infeasible": "red",
    "refused": "red",
    "ended": "yellow",
    "unscheduled": "green",
    "unknown": "yellow",
}
_VERDICTS: dict[Outcome, str] = {
    "accepted": "accepted: the node has enough free resources",
    "unchanged": "no change: the pod already has these resources",
    "deferred": "Deferred: the node does not have enough free resources now, the resize waits",
    "infeasible": "Infeasible: the resize does not fit on this node",
    "refused": "rejected by the API server",
    "ended": "the pod has no active node: only its spec would change",
    "unscheduled": "not scheduled yet: the scheduler will use the new resources",
    "unknown": "unknown: the node decides, and its state cannot be read",
}


class AmountChange(msgspec.Struct, frozen=True):
    container: str  # "": pod-level resources
    resource: str
    list: str  # requests, limits
    before: str | None
    after: str | None


class Room(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a deferred resize waits for: the removal of all these pods; empty if no removal is enough."""

    short: dict[str, str]
    pods: tuple[str, ...] = ()
    freed: dict[str, str] = {}  # by these pods, or by all others if that is not enough
    then: str = ""  # the remaining obstacle


class Largest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The largest request of a container ("": of the pod) that this node could accept at all, and now."""

    container: str
    resource: str
    ever: str | None = None
    now: str | None = None


class ResizeAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pod: str
    qos_class: str
    outcome: Outcome
    message: str = ""
    hint: str = ""
    errors: tuple[str, ...] = ()
    nearest: dict[str, Any] | None = None  # a patch that the API server would accept
    changes: tuple[AmountChange, ...] = ()
    restarts: tuple[str, ...] = ()
    unsafe: tuple[dict[str, str], ...] = ()
    victims: tuple[str, ...] = ()  # pods that the node would terminate for it
    room: Room | None = None
    largest: tuple[Largest, ...] = ()
    writes: tuple[FileChange, ...] = ()
    cpus: tuple[CpuChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    @property
    def risky(self) -> bool:
        """Whether to ask for confirmation."""
        return self.exit_code == NOT_NOW or bool(self.restarts or self.unsafe or self.victims)


def resize_answer(
    found: Forecast,
    old: Pod,
    new: Pod,
    writes: Sequence[FileChange] = (),
    notes: Sequence[str] = (),
    cpus: Sequence[CpuChange] = (),
) -> ResizeAnswer:
    changes = tuple(_changes(old, new))
    title = f"{old.metadata.namespace}/{old.metadata.name}" if old.metadata.namespace else old.metadata.name
    return ResizeAnswer(
        title,
        str(qos_class(old)),
        found.outcome,
        found.message,
        found.hint,
        tuple(map(str, found.errors)),
        None if found.nearest is None else patch_between(old, found.nearest),
        changes,
        found.restarts,
        tuple({"container": each.container, "limit": str(each.limit), "used": str(each.used)} for each in found.unsafe),
        found.victims,
        _room(found),
        tuple(Largest(each.container, each.resource, _text(each.ever), _text(each.now)) for each in found.most),
        tuple(writes),
        tuple(cpus),
        (*notes, *_zero_limits(changes)),
    )


def _zero_limits(changes: Sequence[AmountChange]) -> Iterator[str]:
    for change in changes:
        if change.list == "limits" and change.after is not None and not QUANTITIES[change.after]:
            yield f"a {change.resource} limit of 0 means no limit: {_subject(change.container)} is not limited"


def _room(found: Forecast) -> Room | None:
    if found.outcome != "deferred" or not found.short:
        return None
    gone = found.leaving or PodRemoval((), {})
    return Room(_texts(found.short), gone.pods, _texts(gone.freed), gone.then)


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _text(amount: Quantity | None) -> str | None:
    return None if amount is None else str(amount)


def _changes(old: Pod, new: Pod) -> Iterator[AmountChange]:
    after = {each.name: each.resources for each in all_containers(new.spec)}
    pairs = [(each.name, each.resources, after[each.name]) for each in all_containers(old.spec) if each.name in after]
    for name, had, has in (("", old.spec.resources or NO_RESOURCES, new.spec.resources or NO_RESOURCES), *pairs):
        for resource in (CPU, MEMORY):
            for kind in LISTS:
                was, now = _amount(had, kind, resource), _amount(has, kind, resource)
                if was != now:
                    yield AmountChange(name, resource, kind, was, now)


def _amount(resources: Resources, kind: str, resource: str) -> str | None:
    return _text(((resources.requests if kind == "requests" else resources.limits) or {}).get(resource))


def lines(answer: ResizeAnswer, paint: Paint) -> Iterator[str]:
    qos = paint(answer.qos_class, CLASS_COLOURS.get(answer.qos_class, "bold"))
    yield f"pod {paint(inert(answer.pod), 'bold')}  {qos}"
    rows = [
        [
            f"  {inert(each.container) or 'the pod'}",
            each.resource,
            each.list.removesuffix("s"),
            f"{inert(each.before or 'none')} → {inert(each.after or 'none')}",
        ]
        for each in answer.changes
    ]
    yield from table(rows)
    yield paint(_VERDICTS[answer.outcome], "bold", _COLOURS[answer.outcome])
    if answer.message and not answer.errors:
        yield f"  {inert(answer.message)}"
    for error in answer.errors:
        yield f"  {inert(error)}"
    yield from _remedies(answer)
    for name in answer.victims:
        yield f"{paint('terminates', 'red')} pod {inert(name)}: the resized pod is critical"
    for name in answer.restarts:
        yield f"{paint('restart', 'yellow')}: container {inert(name)} is restarted, as its resize policy requires"
    for each in answer.unsafe:
        yield (
            f"{paint('unsafe shrink', 'red')}: {_subject(each['container'])} uses {each['used']} now, its new limit is "
            f"{each['limit']}; the node rejects or delays such a resize"
        )
    yield from _written(answer, paint)
    if answer.cpus:
        yield paint("exclusive CPUs", "dim")
        yield from table(
            [[f"  {inert(each.name)}", "cpuset.cpus", f"{each.before} → {each.after}"] for each in answer.cpus]
        )
    for note in answer.notes:
        yield f"note: {inert(note)}"


def _remedies(answer: ResizeAnswer) -> Iterator[str]:
    if answer.hint:
        yield f"  {inert(answer.hint)}"
    if answer.room is not None:
        yield from _missing_room(answer.room)
    for each in answer.largest:
        yield f"  {_largest_line(each)}"
    if answer.nearest is not None:
        patch = msgspec.json.encode(answer.nearest).decode()
        yield f"  the nearest accepted patch: {inert(patch)}"


def _missing_room(room: Room) -> Iterator[str]:
    short = _listed(room.short)
    if room.pods:
        pods = ", ".join(map(inert, room.pods))
        removed = f"after removal of {pods} (frees {_listed(room.freed)})"
        fits = f"does not fit {removed}: {inert(room.then)}" if room.then else f"fits {removed}"
        yield f"  short of {short}: {fits}"
    elif room.freed:
        yield f"  short of {short}: removal of all other pods frees only {_listed(room.freed)}"
    else:
        yield f"  short of {short}: more than the node has without other pods"


def _largest_line(largest: Largest) -> str:
    subject = _subject(largest.container)
    if largest.ever is None:
        return f"{largest.resource}: no amount for {subject} fits with the rest of the pod"
    now = "no increase" if largest.now is None else largest.now
    same = largest.now == largest.ever
    return f"{largest.resource}: the maximum for {subject} on this node is {largest.ever}" + (
        "" if same else f"; now: {now}"
    )


def _subject(container: str) -> str:
    return f"container {inert(container)}" if container else "the pod"


def _listed(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {inert(amount)}" for name, amount in amounts.items())


def _written(answer: ResizeAnswer, paint: Paint) -> Iterator[str]:
    for how, title in (
        ("resize", "cgroup writes, in this order"),
        ("restart", "at the restart of the container"),
        ("follows", "then, dependent values"),
    ):
        rows = [
            [
                f"  {each.level}",
                inert(each.name),
                each.file,
                f"{_value(each, each.before)} → {_value(each, each.after)}",
            ]
            for each in answer.writes
            if each.how == how
        ]
        if rows:
            yield paint(title, "dim")
            yield from table(rows)


def _value(change: FileChange, value: int | str | None) -> str:
    if value is None:
        return "default"
    if isinstance(value, int) and change.file.startswith("memory.") and 1024 <= value < 1 << 62:
        return f"{value} ({human_bytes(value)})"
    return str(value)
