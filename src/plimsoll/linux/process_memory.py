"""The figures by which the OOM killer ranks a process: resident memory, swap, page tables, and oom_score_adj."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

_COUNTED = ("VmRSS", "VmSwap", "VmPTE")
_KIB = 1024


class ProcessMemory(msgspec.Struct, frozen=True):
    pid: int
    name: str
    used_bytes: int
    oom_score_adj: int
    oom_score: int


def every_process(proc: str = "/proc") -> Iterator[ProcessMemory]:
    """All processes with memory of their own, so without kernel threads and those that end meanwhile."""
    for entry in os.listdir(proc):
        if entry.isdecimal() and (process := process_memory(int(entry), proc)) is not None:
            yield process


def process_memory(pid: int, proc: str = "/proc") -> ProcessMemory | None:
    try:
        status = _text(f"{proc}/{pid}/status")
        adj, score = int(_text(f"{proc}/{pid}/oom_score_adj")), int(_text(f"{proc}/{pid}/oom_score"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in status.splitlines())}
    if "VmRSS" not in fields:
        return None
    used = sum(int(fields[key].split()[0]) for key in _COUNTED if key in fields) * _KIB
    return ProcessMemory(pid, fields.get("Name", ""), used, adj, score)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
