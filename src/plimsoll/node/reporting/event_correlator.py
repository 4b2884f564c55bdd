"""Which events are told how: anew, as one more of the same, as one of many alike, or not at all (as client-go does it).

Three stages, in this order. Events that differ in nothing but the message become one text after ten of them within ten
minutes: `(combined from similar events): …`. Each object has a budget of 25 events, and one more every five minutes;
beyond it they are dropped. What is left and was told before is counted up in the event that is there.

Nothing here talks to anybody; the time is given.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, TypeVar

import msgspec

KNOWN_MOST = 1024  # client-go keeps 4096; a node has at most some hundred pods
ALIKE_MOST, ALIKE_S = 10, 600.0
BURST, REFILL_S = 25, 300.0
COMBINED = "(combined from similar events): "

EventType = Literal["Normal", "Warning"]
Key = TypeVar("Key")
Value = TypeVar("Value")


class ObjectReference(msgspec.Struct, frozen=True):
    """The object that an event is about, as the event names it."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    api_version: str = "v1"
    field_path: str = ""  # spec.containers{c}


class EventKey(msgspec.Struct, frozen=True):
    about: ObjectReference
    type: EventType
    reason: str
    message: str
    annotations: tuple[tuple[str, str], ...] = ()  # of the event


class CorrelatedEvent(msgspec.Struct, frozen=True):
    """An event that is to be told: `count` 1 is a new one, more is one that was told before under the same key."""

    key: EventKey
    message: str
    count: int
    first_s: float
    last_s: float


class Correlation:
    def __init__(self) -> None:
        self._told: OrderedDict[EventKey, tuple[int, float]] = OrderedDict()  # → count, first time
        self._alike: OrderedDict[EventKey, tuple[set[str], float]] = OrderedDict()  # → messages, when last
        self._budgets: OrderedDict[ObjectReference, tuple[float, float]] = OrderedDict()  # → tokens, when

    def told(self, happening: EventKey, now_s: float) -> CorrelatedEvent | None:
        """None: one too many about this object."""
        key = happening = _unversioned(happening)
        message = happening.message
        if self._is_one_of_many(happening, now_s):
            message = COMBINED + message
            key = msgspec.structs.replace(happening, message=COMBINED)
        if not self._afforded(happening.about, now_s):
            return None
        count, first_s = self._told.get(key, (0, now_s))
        _kept(self._told, key, (count + 1, first_s))
        return CorrelatedEvent(key, message, count + 1, first_s, now_s)

    def lost(self, key: EventKey) -> None:
        """The event that was told is not there any more: the next one is new."""
        self._told.pop(key, None)

    def _is_one_of_many(self, happening: EventKey, now_s: float) -> bool:
        group = msgspec.structs.replace(happening, message="")
        messages, last_s = self._alike.get(group, (set(), now_s))
        if now_s - last_s > ALIKE_S:
            messages = set()
        if len(messages) < ALIKE_MOST:
            messages.add(happening.message)
        _kept(self._alike, group, (messages, now_s))
        return len(messages) >= ALIKE_MOST

    def _afforded(self, about: ObjectReference, now_s: float) -> bool:
        whole = msgspec.structs.replace(about, field_path="")
        tokens, since_s = self._budgets.get(whole, (float(BURST), now_s))
        tokens = min(float(BURST), tokens + (now_s - since_s) / REFILL_S)
        is_enough = tokens >= 1
        _kept(self._budgets, whole, (tokens - 1 if is_enough else tokens, now_s))
        return is_enough


def _unversioned(happening: EventKey) -> EventKey:
    about = msgspec.structs.replace(happening.about, resource_version="")
    return msgspec.structs.replace(happening, about=about)


def _kept(known: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > KNOWN_MOST:
        known.popitem(last=False)
