"""The text formats of cgroup files and /proc. Unknown keys are ignored; an absent value is None, never zero."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from plimsoll.errors import StructuredError

Keyed = dict[str, int]
_OCTAL = re.compile(r"\\([0-7]{3})", re.ASCII)


class KernelTextError(StructuredError):
    """A kernel file in an unknown format."""

    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: cannot read {self.text[:120]!r}"


def flat_keyed(text: str | bytes) -> Keyed:
    """`memory.stat`, `memory.events`, `cpu.stat`, `cgroup.events`: a key and a number per line."""
    words = (text if isinstance(text, str) else text.decode("utf-8", "replace")).split()
    return {key: int(number) for key, number in zip(words[::2], words[1::2], strict=False) if number.isdecimal()}


class SomeKeys:
    """A few keys of such a file by names of ours, without parsing the others: memory.stat has more than fifty."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Key of the kernel → name."""
        self._found_by = tuple((b"\n%b " % key.encode(), name) for key, name in names.items())

    def of(self, text: bytes) -> Keyed:
        values, lines = {}, b"\n%b\n" % text
        for start, name in self._found_by:
            begin = lines.find(start)
            if begin >= 0:
                begin += len(start)
                values[name] = int(lines[begin : lines.find(b"\n", begin)])
        return values


def number_or_max(text: str | bytes) -> int | None:
    """A limit; None for `max` (no limit)."""
    return None if text.strip() in (b"max", "max") else int(text)


class CpuMax(msgspec.Struct, frozen=True):
    quota_us: int | None  # None: unlimited
    period_us: int


def cpu_max(text: str) -> CpuMax:
    """`<quota|max> <period>`."""
    quota, _, period = text.strip().partition(" ")
    if not period.isdecimal() or not (quota == "max" or quota.isdecimal()):
        raise KernelTextError("cpu.max", text)
    return CpuMax(None if quota == "max" else int(quota), int(period))


class PressureLine(msgspec.Struct, frozen=True, gc=False):
    """Shares of time in percent over 10, 60 and 300 seconds, and the total in µs since boot."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


class PressureStall(msgspec.Struct, frozen=True, gc=False):
    some: PressureLine | None = None
    full: PressureLine | None = None  # cpu has none before kernel 5.13


_SHARE = r"([0-9]+(?:\.[0-9]+)?)"
_STALL = rf" avg10={_SHARE} avg60={_SHARE} avg300={_SHARE} total=([0-9]+)\n?"
_PRESSURE = re.compile(rf"(?:some{_STALL})?(?:full{_STALL})?".encode(), re.ASCII)


def pressure(text: str | bytes) -> PressureStall:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=0` and the same for `full`."""
    lines = _PRESSURE.fullmatch(text if isinstance(text, bytes) else text.encode())  # three files for every cgroup
    if lines is None:
        raise KernelTextError("pressure", text if isinstance(text, str) else text.decode("utf-8", "replace"))
    figures = lines.groups()
    return PressureStall(_pressure_line(*figures[:4]), _pressure_line(*figures[4:]))


def _pressure_line(ten: bytes | None, sixty: bytes, longest: bytes, total: bytes) -> PressureLine | None:
    return None if ten is None else PressureLine(float(ten), float(sixty), float(longest), int(total))


class MountLine(msgspec.Struct, frozen=True):
    root: str  # the mounted part of the file system; `/` is the whole
    mount_point: str
    read_only: bool
    file_system: str
    super_options: tuple[str, ...]
    device: str  # major:minor, the same for every mount of one hierarchy


def mountinfo(text: str) -> list[MountLine]:
    """/proc/PID/mountinfo: fixed fields, then optional ones up to a single `-`, then type, source, super options."""
    found = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 3:
            raise KernelTextError("mountinfo", line)
        options, super_options = fields[5].split(","), tuple(rest[2].split(","))
        read_only = "ro" in options or "ro" in super_options
        found.append(
            MountLine(_unescaped(fields[3]), _unescaped(fields[4]), read_only, rest[0], super_options, fields[2])
        )
    return found


def _unescaped(text: str) -> str:
    """Space, tab, newline and backslash are octal escapes."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text


class OwnCgroup(msgspec.Struct, frozen=True):
    """One line of /proc/PID/cgroup. The unified hierarchy is number 0 with no controllers."""

    hierarchy: int
    controllers: tuple[str, ...]  # a named hierarchy has (`name=systemd`,)
    path: str
    removed: bool = False  # the cgroup of an exiting process may be removed already


def own_cgroups(text: str) -> list[OwnCgroup]:
    found = []
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or not parts[0].isdecimal():
            raise KernelTextError("/proc/PID/cgroup", line)
        controllers = tuple(filter(None, parts[1].split(",")))
        path = parts[2].removesuffix(" (deleted)")
        found.append(OwnCgroup(int(parts[0]), controllers, path, path != parts[2]))
    return found


def below_mount(path: str, root: str) -> str | None:
    """A path of /proc/PID/cgroup, relative to a mount with this `root` (of mountinfo).

    None for a path that is not below it; `/../x` is outside the reader's cgroup namespace.
    """
    if root == "/":
        return None if path == "/.." or path.startswith("/../") else path
    if path == root:
        return "/"
    return path.removeprefix(root) if path.startswith(root + "/") else None


def enabled_controllers(proc_cgroups: str) -> dict[str, bool]:
    """/proc/cgroups: whether each built-in controller is enabled (`cgroup_disable=memory` disables one)."""
    found = {}
    for line in proc_cgroups.splitlines():
        words = line.split()
        if len(words) == 4 and not line.startswith("#"):
            found[words[0]] = words[3] == "1"
    return found


class ProcessStat(msgspec.Struct, frozen=True):
    pid: int
    name: str
    state: str
    parent: int
    start_ticks: int  # since boot: with the pid it identifies one process


def process_stat(text: str) -> ProcessStat:
    """/proc/PID/stat: the name is in parentheses and may contain spaces, parentheses and newlines."""
    pid, opening, rest = text.partition(" (")
    name, closing, tail = rest.rpartition(") ")
    fields = tail.split()
    if not opening or not closing or len(fields) < 20:
        raise KernelTextError("/proc/PID/stat", text)
    return ProcessStat(int(pid), name, fields[0], int(fields[1]), int(fields[19]))
