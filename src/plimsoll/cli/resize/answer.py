"""What will come of a resize, in plain texts: one answer as JSON and as lines, for `explain resize` and `resize`."""

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
_WORDS: dict[Outcome, str] = {
    "accepted": "the node has room: accepted",
    "unchanged": "nothing changes: the pod has these amounts already",
    "deferred": "Deferred: the node has no room now, the resize waits",
    "infeasible": "Infeasible: this node can never do it",
    "refused": "refused by the API server",
    "ended": "no node judges this pod any more: the amounts would change and nothing else",
    "unscheduled": "not on a node yet: the scheduler will see the new size",
    "unknown": "whether the node has room is not known here: it will say",
}


class AmountChange(msgspec.Struct, frozen=True):
    container: str  # "" for the pod's own block
    resource: str
    list: str  # requests, limits
    before: str | None
    after: str | None


class Room(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must go for a deferred resize: all of these pods; none where nobody's going would do."""

    short: dict[str, str]
    pods: tuple[str, ...] = ()
    freed: dict[str, str] = {}  # by these pods, or by all others where they are not enough
    then: str = ""  # what would still speak against it


class Largest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The largest request of a container ("": of the pod) that would do: ever, and now."""

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
    nearest: dict[str, Any] | None = None  # a patch that the API would take
    changes: tuple[AmountChange, ...] = ()
    restarts: tuple[str, ...] = ()
    unsafe: tuple[dict[str, str], ...] = ()
    victims: tuple[str, ...] = ()  # pods that the node ends for it
    room: Room | None = None
    largest: tuple[Largest, ...] = ()
    writes: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    @property
    def risky(self) -> bool:
        """Worth a question before it is sent."""
        return self.exit_code == NOT_NOW or bool(self.restarts or self.unsafe or self.victims)


def resize_answer(
    found: Forecast, old: Pod, new: Pod, writes: Sequence[FileChange] = (), notes: Sequence[str] = ()
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
        (*notes, *_zero_limits(changes)),
    )


def _zero_limits(changes: Sequence[AmountChange]) -> Iterator[str]:
    for each in changes:
        if each.list == "limits" and each.after is not None and not QUANTITIES[each.after]:
            yield f"a {each.resource} limit of 0 is no limit: {_whose(each.container)} may use what there is"


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
    yield paint(_WORDS[answer.outcome], "bold", _COLOURS[answer.outcome])
    if answer.message and not answer.errors:
        yield f"  {inert(answer.message)}"
    for error in answer.errors:
        yield f"  {inert(error)}"
    yield from _remedies(answer)
    for name in answer.victims:
        yield f"{paint('ends', 'red')} pod {inert(name)}: a critical pod's room is made by ending others"
    for name in answer.restarts:
        yield f"{paint('restart', 'yellow')}: container {inert(name)} is started anew, its resize policy asks for it"
    for each in answer.unsafe:
        yield (
            f"{paint('unsafe shrink', 'red')}: {_whose(each['container'])} uses {each['used']} now, its new limit is "
            f"{each['limit']}; the node will refuse or wait rather than kill it"
        )
    yield from _written(answer, paint)
    for note in answer.notes:
        yield f"note: {inert(note)}"


def _remedies(answer: ResizeAnswer) -> Iterator[str]:
    if answer.hint:
        yield f"  {inert(answer.hint)}"
    if answer.room is not None:
        yield from _who_must_go(answer.room)
    for each in answer.largest:
        yield f"  {_largest_line(each)}"
    if answer.nearest is not None:
        patch = msgspec.json.encode(answer.nearest).decode()
        yield f"  the nearest that it would take: {inert(patch)}"


def _who_must_go(room: Room) -> Iterator[str]:
    short = _listed(room.short)
    if room.pods:
        pods = ", ".join(map(inert, room.pods))
        gone = f"once {pods} {'is' if len(room.pods) == 1 else 'are all'} gone (frees {_listed(room.freed)})"
        yield f"  short of {short}: " + (f"still not {gone}: {inert(room.then)}" if room.then else f"it fits {gone}")
    elif room.freed:
        yield f"  short of {short}: all other pods together free only {_listed(room.freed)}"
    else:
        yield f"  short of {short}: more than the whole node has, whoever goes"


def _largest_line(largest: Largest) -> str:
    whose = _whose(largest.container)
    if largest.ever is None:
        return f"{largest.resource}: no amount for {whose} would fit beside the rest of the pod"
    now = "no larger amount fits" if largest.now is None else f"{largest.now} fits"
    same = largest.now == largest.ever
    return f"{largest.resource}: the most for {whose} here is {largest.ever}" + ("" if same else f"; {now} now")


def _whose(container: str) -> str:
    return f"container {inert(container)}" if container else "the pod"


def _listed(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {inert(amount)}" for name, amount in amounts.items())


def _written(answer: ResizeAnswer, paint: Paint) -> Iterator[str]:
    for how, title in (
        ("resize", "written, in this order"),
        ("restart", "with the container's new start"),
        ("follows", "and then, since sums change"),
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
