"""The kernel log as /dev/kmsg shows it, and the out-of-memory reports in it.

A record is `priority,sequence,microseconds,flags;text`, with continuation lines that begin with a space. One OOM report
is many records of the same time: the process that requested memory, the limit that was hit and the usage, the candidate
processes, and then the victim. `OomReports` takes record by record and returns a report when the kernel has named the
victim; with memory.oom.group every process of the cgroup has a line of its own, and a report.

The kernel rate-limits reports, but always writes the line that names the victim. That line alone does not name the
limit, and must not be combined with an earlier report: it is ignored.
"""

from __future__ import annotations

import re

import msgspec

# A process chooses its own name, up to 15 bytes, and the names of cgroups are arbitrary too. So such text is never
# taken for a field: what the kernel wrote before it is matched from the start, what follows it from the end.
_INVOKED = re.compile(r"(?P<name>.*?) invoked oom-killer: gfp_mask=")
_CONSTRAINT = re.compile(r"oom-kill:constraint=(?P<constraint>\w+),(?P<where>.*?),task=.*,pid=(?P<pid>\d+),uid=\d+")
_KILLED = re.compile(
    r"(?:[^:]*: )?Killed process (?P<pid>\d+) \((?P<name>.*)\),? (?P<rest>(?:UID:? ?\d+, )?total-vm:\d+kB.*)"
)
_STATS_FOR = re.compile(r"Memory cgroup stats for (?P<path>.+):")
_USAGE = re.compile(r"memory: usage (?P<used>\d+)kB, limit (?P<limit>\d+)kB")
# `[  pid  ]   uid  tgid total_vm      rss …  pgtables_bytes swapents oom_score_adj name`: more columns in newer kernels
_CANDIDATES = re.compile(r"\[ *pid *\] +uid +tgid +total_vm +rss (?P<more>[a-z_ ]*)oom_score_adj name")
# `[   3816]     0  3816    19566     4064     4064 …   98304        0           500 python`
_CANDIDATE = r"\[ *(?P<pid>\d+)\] +\d+ +\d+ +\d+ +(?P<rss>\d+)(?: +-?\d+){%d} +(?P<score>-?\d+) (?P<name>.*)"
_STAT = re.compile(r"(?P<key>[a-z_]+) (?P<number>\d+)")
_GROUP = re.compile(r"Tasks in (?P<path>.+) are going to be killed due to memory\.oom\.group set")
_LINE_END = r"\x0a"
_ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+")
_LIMIT, _VICTIM = ",oom_memcg=", ",task_memcg="
_KERNEL_FACILITY = 0
MOST_CANDIDATES = 64
GROUP_US = 1_000_000  # the processes of one cgroup are named within this time


class KernelRecord(msgspec.Struct, frozen=True):
    sequence: int
    time_us: int  # since boot
    text: str


class KillCandidate(msgspec.Struct, frozen=True, rename="camel"):
    pid: int
    name: str
    resident_pages: int
    oom_score_adj: int


class KernelOomKill(msgspec.Struct, frozen=True, rename="camel"):
    """One killed process. `limit_cgroup` is None if the whole machine was out of memory."""

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
    """One read of /dev/kmsg; None for anything else, and for records that a process wrote."""
    head, semicolon, text = data.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not all(field.isdecimal() for field in fields[:3]):
        return None
    if int(fields[0]) >> 3 != _KERNEL_FACILITY:
        return None
    return KernelRecord(int(fields[1]), int(fields[2]), text.partition("\n")[0])


class _Chosen(msgspec.Struct, frozen=True):
    """The victim in the line `oom-kill:`."""

    pid: int
    limit_cgroup: str | None
    victim_cgroup: str


class OomReports:
    """The state while reading one report; a new report begins with `invoked oom-killer`."""

    def __init__(self) -> None:
        self._start("")

    def _start(self, asked_by: str) -> None:
        self._asked_by = asked_by
        self._chosen: _Chosen | None = None
        self._stat: dict[str, int] = {}
        self._in_stat = False
        self._usage: tuple[int, int] | None = None
        self._candidate: re.Pattern[str] | None = None  # how this kernel prints a candidate
        self._candidates: list[KillCandidate] = []
        self._group_us: int | None = None  # when the kill of a whole cgroup was announced

    def take(self, record: KernelRecord) -> KernelOomKill | None:
        text = record.text
        if (match := _INVOKED.match(text)) is not None:
            self._start(_plain(match["name"]))
        elif (match := _CONSTRAINT.fullmatch(text)) is not None:
            self._in_stat = False
            self._chosen = _chosen(match)
        elif (match := _KILLED.fullmatch(text)) is not None:
            return self._killed(record, match)
        elif (match := _USAGE.match(text)) is not None:
            self._usage = int(match["used"]) << 10, int(match["limit"]) << 10
        elif _STATS_FOR.fullmatch(text):
            self._in_stat = True
        elif _GROUP.fullmatch(text):
            self._group_us = record.time_us
        elif (match := _CANDIDATES.fullmatch(text)) is not None:
            self._in_stat = False
            self._candidate = re.compile(_CANDIDATE % len(match["more"].split()))
        elif self._candidate is not None and (match := self._candidate.fullmatch(text)) is not None:
            if len(self._candidates) < MOST_CANDIDATES:
                self._candidates.append(
                    KillCandidate(int(match["pid"]), _plain(match["name"]), int(match["rss"]), int(match["score"]))
                )
        elif self._in_stat:
            # One record per line, or on v2 one record with line ends escaped as \\x0a.
            for line in text.split(_LINE_END):
                if (match := _STAT.fullmatch(line.strip())) is not None:
                    self._stat[match["key"]] = int(match["number"])
        return None

    def _killed(self, record: KernelRecord, match: re.Match[str]) -> KernelOomKill | None:
        is_group = self._group_us is not None and record.time_us - self._group_us < GROUP_US
        chosen = self._chosen
        if chosen is None or (chosen.pid != int(match["pid"]) and not is_group):
            return None
        amounts = dict(part.split(":", 1) for part in match["rest"].replace(",", " ").split() if ":" in part)
        usage, limit = self._usage or (None, None)
        return KernelOomKill(
            int(match["pid"]),
            _plain(match["name"]),
            record.time_us,
            record.sequence,
            self._asked_by,
            chosen.limit_cgroup,
            chosen.victim_cgroup,
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


def _chosen(match: re.Match[str]) -> _Chosen:
    """`constraint` comes first and is written by the kernel: it shows whether a cgroup's limit or the machine's was
    hit."""
    pid, where = int(match["pid"]), match["where"]
    if match["constraint"] != "CONSTRAINT_MEMCG":
        _, _, victim = where.partition(f"{_VICTIM}/")
        return _Chosen(pid, None, _plain(f"/{victim}") if victim else "")
    _, _, paths = where.partition(f"{_LIMIT}/")  # it follows a name, which has no slash
    parts = f"/{paths}".split(_VICTIM)
    for at in range(1, len(parts)):
        limit, victim = _VICTIM.join(parts[:at]), _VICTIM.join(parts[at:])
        if victim == limit or victim.startswith(f"{limit.rstrip('/')}/"):  # the victim is never outside the limit
            return _Chosen(pid, _plain(limit), _plain(victim))
    return _Chosen(pid, _plain(parts[0]), "")


def _plain(text: str) -> str:
    """The device escapes the backslash, and all but printable ASCII, as \\xNN."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[0].replace("\\x", "")).decode("utf-8", "replace"), text)
