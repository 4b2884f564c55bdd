"""Pods in the order of eviction as a table: each with the key that puts it before the next one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll.cli.output import Paint, inert, table
from plimsoll.errors import InvalidQuantity
from plimsoll.rules.eviction_decision import Candidate
from plimsoll.rules.objects import EPHEMERAL_STORAGE, MEMORY
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.ranking import PIDS
from plimsoll.rules.reasons import human_bytes

HEADER = ("#", "POD", "PRIORITY", "USES", "REQUESTS", "OVER", "BEFORE THE NEXT BECAUSE")


def order_lines(order: Sequence[Candidate], resource: str, paint: Paint, most: int | None = None) -> Iterator[str]:
    place, rows = 0, []
    for candidate in order[:most]:
        place += not candidate.critical
        rows.append(_row(candidate, place, resource))
    lines = list(table(rows, HEADER))
    yield paint(lines[0], "dim") if lines else "no pods"
    yield from lines[1:]
    if most is not None and len(order) > most:
        yield paint(f"and {len(order) - most} more", "dim")


def _row(candidate: Candidate, place: int, resource: str) -> list[str]:
    request = _number(candidate.request)
    over = candidate.usage - request
    before = "exempt: critical" if candidate.critical else candidate.before
    return [
        "-" if candidate.critical else str(place),
        inert(f"{candidate.namespace or 'default'}/{candidate.name}"),
        str(candidate.priority),
        _shown(candidate.usage, resource) if candidate.has_usage else "unknown",
        "-" if resource == PIDS else _shown(request, resource),
        "-" if resource == PIDS or over <= 0 or not candidate.has_usage else _shown(over, resource),
        inert(before),
    ]


def _number(text: str) -> int:
    try:
        return QUANTITIES[text].value
    except InvalidQuantity:
        return 0


def _shown(amount: int, resource: str) -> str:
    return human_bytes(amount) if resource in (MEMORY, EPHEMERAL_STORAGE) else str(amount)
