"""The kernel's log as /dev/kmsg gives it, and the out-of-memory reports in it.

A record is `priority,sequence,microseconds,flags;text`, with continuation lines that begin with a space. One OOM report
is many records, of one moment: who asked for memory, the limit that was hit and what it held, the processes that could
have been chosen, and then the choice. `OomReports` is fed text by text and gives a report when the kernel has named its
victim; with memory.oom.group every process of the cgroup gets a line of its own, and a report each.

The kernel writes few reports when kills come fast, but always the line that names the victim. Such a line alone does
not say whose limit it was, and must not be put together with an earlier report: it gives nothing.
"""

from __future__ import annotations

import re

import msgspec

_INVOKED = re.compile(r"(?P<name>.+) invoked oom-killer:")
_CONSTRAINT = re.compile(r"oom-kill:constraint=(?P<constraint>\w+),(?P<rest>.*)")
_KILLED = re.compile(r"(?:.*: )?Killed process (?P<pid>\d+) \((?P<name>.*?)\),? (?P<rest>.*)")
_STATS_FOR = re.compile(r"Memory cgroup stats for (?P<path>.+):")
_USAGE = re.compile(r"memory: usage (?P<used>\d+)kB, limit (?P<limit>\d+)kB")
# `[   3816]     0  3816    19566     4064     4064 …   98304        0           500 python`
_CANDIDATE = re.compile(r"\[ *(?P<pid>\d+)\] +(?P<uid>\d+) +\d+ +\d+ +(?P<rss>\d+) .* (?P<score>-?\d+) (?P<name>\S.*)")
_STAT = re.compile(r"(?P<key>[a-z_]+) (?P<number>\d+)")
_GROUP = re.compile(r"Tasks in (?P<path>.+) are going to be killed due to memory\.oom\.group set")
_LINE_END = r"\x0a"
MOST_CANDIDATES = 64
GROUP_US = 1_000_000  # within this the processes of one cgroup are named


class KernelRecord(msgspec.Struct, frozen=True):
    sequence: int
    time_us: int  # since the start of the machine
    text: str


class KillCandidate(msgspec.Struct, frozen=True, rename="camel"):
    pid: int
    name: str
    resident_pages: int
    oom_score_adj: int


class KernelOomKill(msgspec.Struct, frozen=True, rename="camel"):
    """One killed process. `limit_cgroup` is None where the whole machine was out of memory."""

    pid: int
    name: str
    time_us: int
    sequence: int
    asked_by: str = ""
    limit_cgroup: str | None = None
    victim_cgroup: str = ""
    anon_bytes: int | None = None
    file_bytes: int | None = None
    oom_score_adj: int | None = None
    usage_bytes: int | None = None
    limit_bytes: int | None = None
    group: bool = False  # with its whole cgroup (memory.oom.group)
    stat: dict[str, int] = {}
    candidates: tuple[KillCandidate, ...] = ()


def kernel_record(data: bytes) -> KernelRecord | None:
    """One read of /dev/kmsg; None for what is no record."""
    head, semicolon, text = data.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not (fields[1].isdecimal() and fields[2].isdecimal()):
        return None
    return KernelRecord(int(fields[1]), int(fields[2]), text.partition("\n")[0])


class OomReports:
    """The state of reading one report; a new report begins with `invoked oom-killer`."""

    def __init__(self) -> None:
        self._start("")

    def _start(self, asked_by: str) -> None:
        self._asked_by = asked_by
        self._constraint: dict[str, str] = {}
        self._stat: dict[str, int] = {}
        self._in_stat = False
        self._usage: tuple[int, int] | None = None
        self._candidates: list[KillCandidate] = []
        self._group_us: int | None = None  # when a whole cgroup was announced to go

    def take(self, record: KernelRecord) -> KernelOomKill | None:
        text = record.text.strip()
        if (found := _INVOKED.fullmatch(text.partition("gfp_mask")[0].strip())) is not None:
            self._start(found["name"])
        elif (found := _CONSTRAINT.match(text)) is not None:
            self._in_stat = False
            self._constraint = dict(part.split("=", 1) for part in found["rest"].split(",") if "=" in part)
            if "global_oom" in found["rest"].split(","):
                self._constraint["global_oom"] = ""
        elif (found := _KILLED.fullmatch(text)) is not None:
            return self._killed(record, found)
        elif (found := _USAGE.match(text)) is not None:
            self._usage = int(found["used"]) << 10, int(found["limit"]) << 10
        elif _STATS_FOR.fullmatch(text):
            self._in_stat = True
        elif _GROUP.fullmatch(text):
            self._group_us = record.time_us
        elif (found := _CANDIDATE.fullmatch(text)) is not None:
            self._in_stat = False
            if len(self._candidates) < MOST_CANDIDATES:
                self._candidates.append(
                    KillCandidate(int(found["pid"]), found["name"], int(found["rss"]), int(found["score"]))
                )
        elif self._in_stat:
            # One record per line, or on v2 all of them in one, whose line ends the device has written as \\x0a.
            for line in text.split(_LINE_END):
                if (found := _STAT.fullmatch(line.strip())) is not None:
                    self._stat[found["key"]] = int(found["number"])
        return None

    def _killed(self, record: KernelRecord, found: re.Match[str]) -> KernelOomKill | None:
        is_group = self._group_us is not None and record.time_us - self._group_us < GROUP_US
        if self._constraint.get("pid") != found["pid"] and not is_group:
            return None
        amounts = dict(part.split(":", 1) for part in found["rest"].replace(",", " ").split() if ":" in part)
        usage, limit = self._usage or (None, None)
        return KernelOomKill(
            int(found["pid"]),
            found["name"],
            record.time_us,
            record.sequence,
            self._asked_by,
            None if "global_oom" in self._constraint else self._constraint.get("oom_memcg", "/"),
            self._constraint.get("task_memcg", ""),
            _kilobytes(amounts.get("anon-rss")),
            _kilobytes(amounts.get("file-rss")),
            int(amounts["oom_score_adj"]) if "oom_score_adj" in amounts else None,
            usage,
            limit,
            is_group,
            dict(self._stat),
            tuple(self._candidates),
        )


def _kilobytes(text: str | None) -> int | None:
    digits = (text or "").removesuffix("kB")
    return int(digits) << 10 if digits.isdecimal() else None
