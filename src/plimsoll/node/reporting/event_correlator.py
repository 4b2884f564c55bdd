"""How an event is recorded: as a new one, as one more of the same, as one of many similar, or not at all (client-go).

There are three stages, in this order. Events that differ only in the message are combined after ten of them within ten
minutes: `(combined from similar events): …`. Each object has a budget of 25 events, and one more every five minutes;
events beyond it are dropped. An event that was recorded before increases the count of the existing one.

There is no I/O here; the time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, TypeVar

import msgspec

MAX_KNOWN = 1024  # client-go keeps 4096; a node has at most some hundred pods
SIMILAR_MAX, SIMILAR_S = 10, 600.0
BURST, REFILL_S = 25, 300.0
COMBINED = "(combined from similar events): "

EventType = Literal["Normal", "Warning"]
Key = TypeVar("Key")
Value = TypeVar("Value")


class ObjectReference(msgspec.Struct, frozen=True):
    """The involvedObject of an event."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    api_version: str = "v1"
    field_path: str = ""  # spec.containers{c}


class EventKey(msgspec.Struct, frozen=True):
    reference: ObjectReference
    type: EventType
    reason: str
    message: str
    annotations: tuple[tuple[str, str], ...] = ()  # of the event


class CorrelatedEvent(msgspec.Struct, frozen=True):
    """An event to record: `count` 1 is a new one, more is one that was recorded before with the same key."""

    key: EventKey
    message: str
    count: int
    first_s: float
    last_s: float


class Correlation:
    def __init__(self) -> None:
        self._recorded: OrderedDict[EventKey, tuple[int, float]] = OrderedDict()  # → count, first time
        self._similar: OrderedDict[EventKey, tuple[set[str], float]] = OrderedDict()  # → messages, last time
        self._budgets: OrderedDict[ObjectReference, tuple[float, float]] = OrderedDict()  # → tokens, last time

    def correlate(self, event: EventKey, now_s: float) -> CorrelatedEvent | None:
        """None: the object has no budget left."""
        key = event = _unversioned(event)
        message = event.message
        if self._is_similar_to_many(event, now_s):
            message = COMBINED + message
            key = msgspec.structs.replace(event, message=COMBINED)
        if not self._has_budget(event.reference, now_s):
            return None
        count, first_s = self._recorded.get(key, (0, now_s))
        _put(self._recorded, key, (count + 1, first_s))
        return CorrelatedEvent(key, message, count + 1, first_s, now_s)

    def forget(self, key: EventKey) -> None:
        """The recorded event no longer exists: the next one is new."""
        self._recorded.pop(key, None)

    def _is_similar_to_many(self, event: EventKey, now_s: float) -> bool:
        group = msgspec.structs.replace(event, message="")
        messages, last_s = self._similar.get(group, (set(), now_s))
        if now_s - last_s > SIMILAR_S:
            messages = set()
        if len(messages) < SIMILAR_MAX:
            messages.add(event.message)
        _put(self._similar, group, (messages, now_s))
        return len(messages) >= SIMILAR_MAX

    def _has_budget(self, reference: ObjectReference, now_s: float) -> bool:
        whole = msgspec.structs.replace(reference, field_path="")
        tokens, since_s = self._budgets.get(whole, (float(BURST), now_s))
        tokens = min(float(BURST), tokens + (now_s - since_s) / REFILL_S)
        is_enough = tokens >= 1
        _put(self._budgets, whole, (tokens - 1 if is_enough else tokens, now_s))
        return is_enough


def _unversioned(event: EventKey) -> EventKey:
    reference = msgspec.structs.replace(event.reference, resource_version="")
    return msgspec.structs.replace(event, reference=reference)


def _put(known: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_KNOWN:
        known.popitem(last=False)
