"""One event as one line, for `events` and `describe`."""

from __future__ import annotations

from typing import Any

from plimsoll.api.ages import age, epoch_seconds
from plimsoll.cli.output import inert

Document = dict[str, Any]
HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


def last_seen(event: Document) -> float:
    return epoch_seconds(_time(event)) or 0.0


def _time(event: Document) -> object:
    series = event.get("series") or {}
    return (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or (event.get("metadata") or {}).get("creationTimestamp")
    )


def when(event: Document, now_s: float) -> str:
    """`5s`, or `5s (x3 over 2m)`."""
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    last = age(_time(event), now_s)
    if count < 2:
        return last
    first = event.get("firstTimestamp") or event.get("eventTime") or _time(event)
    return f"{last} (x{count} over {age(first, now_s)})"


def row(event: Document, now_s: float, *, namespace: bool = False) -> list[str]:
    about = event.get("involvedObject") or {}
    cells = [
        when(event, now_s),
        inert(str(event.get("type") or "")),
        inert(str(event.get("reason") or "")),
        inert(f"{str(about.get('kind') or '').lower()}/{about.get('name') or ''}"),
        message(event),
    ]
    return [inert(str((event.get("metadata") or {}).get("namespace") or "")), *cells] if namespace else cells


def message(event: Document) -> str:
    return inert(" ".join(str(event.get("message") or "").split()))
