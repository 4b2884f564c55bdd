"""What will come of a resize, in plain texts: one answer as JSON and as lines, for `explain resize` and `resize`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.cli.output import CLASS_COLOURS, Paint, inert, table
from plimsoll.rules.objects import CPU, MEMORY, Container, Pod
from plimsoll.rules.qos import qos_class
from plimsoll.rules.reasons import human_bytes
from plimsoll.rules.resize_forecast import Forecast, Outcome
from plimsoll.rules.resize_wish import patch_between
from plimsoll.rules.resize_writes import FileChange

DONE, NOT_NOW, REFUSED = 0, 1, 2
EXIT_CODES: dict[Outcome, int] = {
    "accepted": DONE,
    "unchanged": DONE,
    "deferred": NOT_NOW,
    "infeasible": NOT_NOW,
    "refused": REFUSED,
}
_COLOURS: dict[Outcome, str] = {
    "accepted": "green",
    "unchanged": "green",
    "deferred": "yellow",
    "infeasible": "red",
    "refused": "red",
}
_WORDS: dict[Outcome, str] = {
    "accepted": "the node has room: accepted",
    "unchanged": "nothing changes: the pod has these amounts already",
    "deferred": "Deferred: the node has no room now, the resize waits",
    "infeasible": "Infeasible: this node can never do it",
    "refused": "refused by the API server",
}


class AmountChange(msgspec.Struct, frozen=True):
    container: str
    resource: str
    list: str  # requests, limits
    before: str | None
    after: str | None


class Room(msgspec.Struct, frozen=True):
    """What must go for a deferred resize: these pods, or nobody's going would do."""

    resource: str
    short: str
    pods: tuple[str, ...]
    freed: str


class ResizeAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pod: str
    qos_class: str
    outcome: Outcome
    message: str = ""
    errors: tuple[str, ...] = ()
    nearest: dict[str, Any] | None = None  # a patch that the API would take
    changes: tuple[AmountChange, ...] = ()
    restarts: tuple[str, ...] = ()
    unsafe: tuple[dict[str, str], ...] = ()
    room: tuple[Room, ...] = ()
    largest: dict[str, str] = {}
    writes: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    @property
    def risky(self) -> bool:
        """Worth a question before it is sent."""
        return self.outcome in ("deferred", "infeasible") or bool(self.restarts or self.unsafe)


def resize_answer(
    found: Forecast, old: Pod, new: Pod, writes: Sequence[FileChange] = (), notes: Sequence[str] = ()
) -> ResizeAnswer:
    title = f"{old.metadata.namespace}/{old.metadata.name}" if old.metadata.namespace else old.metadata.name
    return ResizeAnswer(
        title,
        str(qos_class(old)),
        found.outcome,
        found.message,
        tuple(map(str, found.errors)),
        None if found.nearest is None else patch_between(old, found.nearest),
        tuple(_changes(old, new)),
        found.restarts,
        tuple({"container": each.container, "limit": str(each.limit), "used": str(each.used)} for each in found.unsafe),
        tuple(Room(each.resource, str(each.short), each.pods, str(each.freed)) for each in found.helps),
        {name: str(amount) for name, amount in found.largest.items()},
        tuple(writes),
        tuple(notes),
    )


def _changes(old: Pod, new: Pod) -> Iterator[AmountChange]:
    after = {each.name: each for each in (*new.spec.init_containers, *new.spec.containers)}
    for container in (*old.spec.init_containers, *old.spec.containers):
        if container.name not in after:
            continue
        for resource in (CPU, MEMORY):
            for kind in ("requests", "limits"):
                was, now = _amount(container, kind, resource), _amount(after[container.name], kind, resource)
                if was != now:
                    yield AmountChange(container.name, resource, kind, was, now)


def _amount(container: Container, kind: str, resource: str) -> str | None:
    amount = ((container.resources.requests if kind == "requests" else container.resources.limits) or {}).get(resource)
    return None if amount is None else str(amount)


def lines(answer: ResizeAnswer, paint: Paint) -> Iterator[str]:
    qos = paint(answer.qos_class, CLASS_COLOURS.get(answer.qos_class, "bold"))
    yield f"pod {paint(inert(answer.pod), 'bold')}  {qos}"
    rows = [
        [
            f"  {inert(each.container)}",
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
    for name in answer.restarts:
        yield f"{paint('restart', 'yellow')}: container {inert(name)} is started anew, its resize policy asks for it"
    for each in answer.unsafe:
        yield (
            f"{paint('unsafe shrink', 'red')}: container {inert(each['container'])} uses {each['used']} now, its new "
            f"limit is {each['limit']}; the node will refuse or wait rather than kill it"
        )
    yield from _written(answer, paint)
    for note in answer.notes:
        yield f"note: {inert(note)}"


def _remedies(answer: ResizeAnswer) -> Iterator[str]:
    for each in answer.room:
        if each.pods:
            pods = ", ".join(map(inert, each.pods))
            yield f"  {each.resource} is short by {each.short}: it fits once {pods} is gone (frees {each.freed})"
        else:
            yield f"  {each.resource} is short by {each.short}: all other pods together free only {each.freed}"
    if answer.largest:
        most = ", ".join(f"{name} {inert(amount)}" for name, amount in answer.largest.items())
        yield f"  the most that a pod can ask for here: {most}"
    if answer.nearest is not None:
        patch = msgspec.json.encode(answer.nearest).decode()
        yield f"  the nearest that it would take: {inert(patch)}"


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
