"""Is a history of requests to several API servers linearizable, and did every watch see all of it in order?

etcd gives every write a revision of its own, so the order of writes is known: it is that of their resourceVersions. A
history of one key is linearizable if that order agrees with real time (what ended before another began comes first), if
every read shows a state between those that were complete when it began and those that had begun when it ended, and if a
conditional write follows the version that it names. The reference is etcd's own history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec


class Operation(msgspec.Struct, frozen=True):
    """One request on one key; `version` is that of the answer, 0 if there was none or it was refused."""

    kind: Literal["write", "read"]
    key: str
    began: float
    ended: float
    version: int
    value: str = ""
    based_on: int = 0


class Event(msgspec.Struct, frozen=True):
    version: int
    key: str
    value: str | None  # None: deleted


def linearizability_faults(history: Sequence[Event], operations: Sequence[Operation]) -> list[str]:
    faults: list[str] = []
    by_key: dict[str, list[Event]] = {}
    for event in history:
        by_key.setdefault(event.key, []).append(event)
    grouped: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.version:
            grouped.setdefault(operation.key, []).append(operation)
    for key, some in grouped.items():
        faults += _faults_of_key(key, by_key.get(key, []), some)
    return faults


def _faults_of_key(key: str, events: Sequence[Event], operations: Sequence[Operation]) -> list[str]:
    faults = []
    position = {event.version: index for index, event in enumerate(events)}
    values: dict[str, int] = {}
    for event in events:
        if event.value is not None:
            if event.value in values:
                faults.append(f"{key}: {event.value!r} was written twice, at {values[event.value]} and {event.version}")
            values[event.value] = event.version
    for each in operations:
        if each.kind == "write":
            index = position.get(each.version)
            if index is None or events[index].value != each.value:
                faults.append(f"{key}: the acknowledged write {each.value!r} at {each.version} is lost")
            elif each.based_on and (index == 0 or events[index - 1].version != each.based_on):
                faults.append(f"{key}: the write at {each.version} did not follow {each.based_on}")
        elif each.version not in position or events[position[each.version]].value != each.value:
            faults.append(f"{key}: a read showed {each.value!r} at {each.version}, which never was")
    # In real time: sweep over the ends and beginnings.
    marks = sorted(
        [(each.ended, 0, each.version, each) for each in operations]
        + [(each.began, 1, each.version, each) for each in operations],
        key=lambda mark: mark[:2],
    )
    newest = 0
    for _, is_begin, version, each in marks:
        if not is_begin:
            newest = max(newest, version)
        elif version < newest or (each.kind == "write" and version == newest):
            faults.append(f"{key}: a {each.kind} at {version} began after {newest} was acknowledged")
    return faults


def watch_faults(history: Sequence[Event], seen: Mapping[str, tuple[int, Sequence[Event]]]) -> list[str]:
    """By watcher: the version it began after, and what it saw until the end."""
    faults = []
    for name, (start, events) in seen.items():
        expected = [event for event in history if event.version > start]
        if list(events) == expected:
            continue
        versions = [event.version for event in events]
        if versions != sorted(versions):
            faults.append(f"{name}: out of order")
        if len(set(versions)) != len(versions):
            faults.append(f"{name}: seen twice")
        missing = {event.version for event in expected} - set(versions)
        other = [each for each in events if each not in expected]
        faults.append(f"{name}: {len(missing)} events missing ({sorted(missing)[:3]}), {len(other)} others {other[:2]}")
    return faults
