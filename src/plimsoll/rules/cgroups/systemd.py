"""Control files as systemd unit properties, and the systemd unit of a cgroup (02 §2.1, §2.3).

systemd rewrites the properties of its units on `daemon-reload`, so a value must be set in systemd as well as in the
kernel. Unlimited is 2^64 − 1. A quota is stored as µs per second, in whole percents, beside its period; on v1 quota and
period are two files, so the properties of each need the other's text. Files without a property (memory.oom.group,
hugetlb, memsw, blkio.bfq.weight) are written to the kernel only. I/O limits are lists of device paths and amounts; a
device whose path is not known has none.

Under the systemd driver a path is a chain of slices, each named after its ancestors, with a scope at the end for a
container: `/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope`. systemd allows further characters in names (`@`
for templates, `\x2d` as an escape) and other kinds of units; Plimsoll uses none of them and refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from plimsoll.errors import InvalidNameError
from plimsoll.rules.blockio.files import THROTTLE_V1, is_keyed, lines_of
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US, CgroupVersion
from plimsoll.rules.resources.cpu import systemd_quota_per_second_us
from plimsoll.rules.resources.files import MAX

INFINITY = 2**64 - 1

_NUMBERS: dict[CgroupVersion, dict[str, str]] = {
    2: {
        "cpu.weight": "CPUWeight",
        "io.weight": "IOWeight",
        "memory.min": "MemoryMin",
        "memory.low": "MemoryLow",
        "memory.high": "MemoryHigh",
        "memory.max": "MemoryMax",
        "memory.swap.max": "MemorySwapMax",
        "pids.max": "TasksMax",
    },
    1: {
        "cpu.shares": "CPUShares",
        "memory.limit_in_bytes": "MemoryLimit",
        "pids.max": "TasksMax",
    },
}
_MASKS = {"cpuset.cpus": "AllowedCPUs", "cpuset.mems": "AllowedMemoryNodes"}
_QUOTA_V1, _PERIOD_V1, _QUOTA_V2 = "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max"


# file and key → property, a list of device path and amount
_DEVICES: dict[tuple[str, str], str] = {
    ("io.max", "rbps"): "IOReadBandwidthMax",
    ("io.max", "wbps"): "IOWriteBandwidthMax",
    ("io.max", "riops"): "IOReadIOPSMax",
    ("io.max", "wiops"): "IOWriteIOPSMax",
    ("io.latency", "target"): "IODeviceLatencyTargetUSec",
    (THROTTLE_V1["rbps"], ""): "BlockIOReadBandwidth",
    (THROTTLE_V1["wbps"], ""): "BlockIOWriteBandwidth",
}


class Property(msgspec.Struct, frozen=True):
    """A name, a D-Bus signature and a value of that type."""

    name: str
    signature: str
    value: int | bytes | list[list[str | int]]


def files_beside(file: str, version: CgroupVersion) -> tuple[str, ...]:
    """The other files whose texts the properties of this file need."""
    if version == 2:
        return (_QUOTA_V2,) if file == _QUOTA_V2 else ()  # a quota alone keeps the current period
    return {_QUOTA_V1: (_PERIOD_V1,), _PERIOD_V1: (_QUOTA_V1,)}.get(file, ())


def properties(
    file: str,
    value: str,
    version: CgroupVersion,
    beside: Mapping[str, str],
    device_path: Callable[[str], str] = lambda _number: "",
) -> tuple[Property, ...]:
    """Empty if systemd has no property for the file; raises InvalidNameError for an invalid text.

    `device_path`: MAJOR:MINOR → the path of that device, "" if it has none."""
    if is_keyed(file):
        return tuple(_device_lists(file, value, device_path))
    if name := _NUMBERS[version].get(file):
        number = _number(file, value)
        if name == "TasksMax" and number == 0:
            number = 1  # systemd refuses 0; with either value no process can start (02 §2.3)
        return (Property(name, "t", number),)
    if name := _MASKS.get(file):
        return (Property(name, "ay", mask(file, value)),)
    if version == 2 and file == _QUOTA_V2:
        quota, _, period = value.partition(" ")
        return _quota(_number(file, quota), _number(file, period or _period_of(beside.get(file, ""))))
    if version == 1 and file == _QUOTA_V1:
        return _quota(_number(file, value), _number(file, beside.get(_PERIOD_V1) or str(DEFAULT_PERIOD_US)))
    if version == 1 and file == _PERIOD_V1:
        return _quota(_number(file, beside.get(_QUOTA_V1) or "-1"), _number(file, value))
    return ()


def _device_lists(file: str, value: str, device_path: Callable[[str], str]) -> Iterator[Property]:
    """An empty list first: systemd adds to the list that it has."""
    lines = {device_path(device): values for device, values in lines_of(file, value).items()}
    for (of_file, key), name in _DEVICES.items():
        if of_file == file:
            pairs: list[list[str | int]] = [
                [path, _number(file, values[key])] for path, values in lines.items() if path and key in values
            ]
            yield Property(name, "a(st)", [])
            if pairs:
                yield Property(name, "a(st)", pairs)


def mask(file: str, value: str) -> bytes:
    """`0-2,9` as bits, lowest byte first; an empty list is an empty mask: systemd inherits the parent's."""
    numbers = cpu_numbers(value.strip())
    if numbers is None:
        raise InvalidNameError(f"{value!r} is not a valid list for {file}")
    bits = sum(1 << number for number in numbers)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _quota(quota_us: int, period_us: int) -> tuple[Property, ...]:
    if period_us in (0, INFINITY):
        raise InvalidNameError(f"a period of {period_us} µs is not valid")
    per_second = INFINITY if quota_us == INFINITY else systemd_quota_per_second_us(quota_us, period_us)
    return Property("CPUQuotaPerSecUSec", "t", per_second), Property("CPUQuotaPeriodUSec", "t", period_us)


def _period_of(cpu_max: str) -> str:
    return cpu_max.partition(" ")[2] or str(DEFAULT_PERIOD_US)


def _number(file: str, text: str) -> int:
    """`max` and negative numbers are unlimited."""
    if text == MAX:
        return INFINITY
    try:
        number = int(text)
    except ValueError:
        raise InvalidNameError(f"{text!r} is not a number for {file}") from None
    if number >= INFINITY:
        raise InvalidNameError(f"{text!r} is too large for {file}")
    return number if number >= 0 else INFINITY


ROOT_SLICE = "-.slice"
LONGEST_NAME = 255
# Units of the machine: values may be written to them, but they are never created, removed or stopped.
MACHINE_UNITS = frozenset({ROOT_SLICE, "system.slice", "user.slice", "machine.slice", "init.scope"})

_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*\.(?:slice|scope)", re.ASCII)


class Unit(msgspec.Struct, frozen=True):
    name: str
    parent: str  # its slice; `-.slice` at the top
    is_scope: bool = False

    @property
    def is_machines_own(self) -> bool:
        return self.name in MACHINE_UNITS


def unit_of(path: str) -> Unit | None:
    """The unit of a cgroup; None below a scope, which is delegated. Raises InvalidNameError for an invalid name."""
    if path == "/":
        return Unit(ROOT_SLICE, "")
    parent = ROOT_SLICE
    names = path.removeprefix("/").split("/")
    for depth, name in enumerate(names):
        _check_name(name, path)
        if name.endswith(".scope"):
            return Unit(name, parent, is_scope=True) if depth == len(names) - 1 else None
        if _parent_slice(name, path) != parent:
            raise InvalidNameError(f"{name!r} of {path!r} is not a slice of {parent}: systemd would put it elsewhere")
        parent = name
    return Unit(names[-1], _parent_slice(names[-1], path))


def _check_name(name: str, path: str) -> None:
    if len(name) > LONGEST_NAME:
        raise InvalidNameError(f"{name[:40]!r}… is too long for a systemd unit: more than {LONGEST_NAME} characters")
    if not _NAME.fullmatch(name):
        rule = "letters, digits and _ . : - only, ending in .slice or .scope"
        raise InvalidNameError(f"{name!r} of {path[:LONGEST_NAME]!r} is not a valid name for a systemd unit: {rule}")


def _parent_slice(name: str, path: str) -> str:
    parts = name.removesuffix(".slice").split("-")
    if "" in parts:
        raise InvalidNameError(f"invalid slice name: {name} (of {path!r}): an empty part between dashes")
    return "-".join(parts[:-1]) + ".slice" if len(parts) > 1 else ROOT_SLICE
