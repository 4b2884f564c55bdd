"""Completion indexes of an Indexed job: their text form (`0,2-4`), and where pods carry them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from plimsoll.rules.scheduling.selectors import go_integer

INDEX = "batch.kubernetes.io/job-completion-index"


def is_indexed(job: Mapping[str, Any]) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Mapping[str, Any]) -> int | None:
    """None where there is none, or none that is valid."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    number = go_integer(text)
    return number if number is not None and number >= 0 else None


def valid_index(pod: Mapping[str, Any], completions: int) -> int | None:
    index = index_of(pod)
    return index if index is not None and index < completions else None


def intervals(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """{0, 2, 3, 4} is (0, 0), (2, 4)."""
    found: list[tuple[int, int]] = []
    for index in sorted(set(indexes)):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def indexes_text(indexes: Iterable[int]) -> str:
    """{0, 2, 3, 4, 6, 7} is `0,2-4,6,7`: two neighbours are no interval."""
    parts = []
    for first, last in intervals(indexes):
        parts.append(str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}")
    return ",".join(parts)


def parsed_indexes(text: str, completions: int) -> set[int]:
    """Of the status; indexes that the job no longer has are omitted."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        low, high = go_integer(first), go_integer(last or first)
        if low is not None and high is not None:
            found.update(range(max(low, 0), min(high, completions - 1) + 1))
    return found


def first_pending(count: int, completions: int, taken: Collection[int]) -> list[int]:
    """The lowest `count` indexes that are not taken."""
    found: list[int] = []
    for index in range(completions):
        if len(found) >= count:
            break
        if index not in taken:
            found.append(index)
    return found


def indexes_problem(text: str, completions: int) -> str:
    """Why a text is no set of indexes of the job, or empty."""
    last = -1
    for part in text.split(",") if text else ():
        first, dash, end = part.partition("-")
        for number in (first, end) if dash else (first,):
            if not number.isdecimal():
                return f'cannot convert string to integer for index: "{number}"'
            if int(number) >= completions:
                return f'too large index: "{number}"'
            if int(number) <= last:
                return f"non-increasing order, previous: {last}, current: {number}"
            last = int(number)
    return ""
