"""Control files as systemd's unit properties (spec 02 §2.3): a value that systemd does not know, it takes back.

systemd writes what its units say whenever it looks at them again (`daemon-reload`), so a value has to be told to it
and not only to the kernel. Unlimited is 2^64 − 1. A quota is kept as µs per second, whole percents, beside its period;
on v1 quota and period are two files, so each one's properties need the other's text. Files without a property
(memory.oom.group, hugetlb, memsw) are nobody's but the kernel's.

Which systemd unit a cgroup is, and whether its name may be given to systemd at all (spec 02 §2.1, §2.3).

Under the systemd driver a path is a chain of slices, each named after all above it, and at its end perhaps a scope:
`/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope`. systemd knows more characters than these in names
(`@` for templates, `\x2d` as an escape) and other kinds of units; we never mean any of them, so they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from plimsoll.errors import InvalidNameError
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US, CgroupVersion
from plimsoll.rules.resources.cpu import systemd_quota_per_second_us
from plimsoll.rules.resources.files import MAX

INFINITY = 2**64 - 1

_NUMBERS: dict[CgroupVersion, dict[str, str]] = {
    2: {
        "cpu.weight": "CPUWeight",
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


class Property(msgspec.Struct, frozen=True):
    """A name, a D-Bus signature and the value in that form."""

    name: str
    signature: str
    value: int | bytes


def files_beside(file: str, version: CgroupVersion) -> tuple[str, ...]:
    """The other files whose text is needed to say this one in properties."""
    if version == 2:
        return (_QUOTA_V2,) if file == _QUOTA_V2 else ()  # a lone quota keeps the period that is there
    return {_QUOTA_V1: (_PERIOD_V1,), _PERIOD_V1: (_QUOTA_V1,)}.get(file, ())


def properties(file: str, value: str, version: CgroupVersion, beside: Mapping[str, str]) -> tuple[Property, ...]:
    """Empty where systemd has no property for the file. InvalidName for a text that is none of the file's."""
    if name := _NUMBERS[version].get(file):
        number = _number(file, value)
        if name == "TasksMax" and number == 0:
            number = 1  # systemd refuses 0; nobody can start anything with either (02 §2.3)
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


def mask(file: str, value: str) -> bytes:
    """`0-2,9` as bits, lowest byte first; an empty list is an empty mask, which is systemd's `as the parent`."""
    numbers = cpu_numbers(value.strip())
    if numbers is None:
        raise InvalidNameError(f"{value!r} is no list for {file}")
    bits = sum(1 << number for number in numbers)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _quota(quota_us: int, period_us: int) -> tuple[Property, ...]:
    if period_us in (0, INFINITY):
        raise InvalidNameError(f"a period of {period_us} µs is none")
    per_second = INFINITY if quota_us == INFINITY else systemd_quota_per_second_us(quota_us, period_us)
    return Property("CPUQuotaPerSecUSec", "t", per_second), Property("CPUQuotaPeriodUSec", "t", period_us)


def _period_of(cpu_max: str) -> str:
    return cpu_max.partition(" ")[2] or str(DEFAULT_PERIOD_US)


def _number(file: str, text: str) -> int:
    """`max` and everything negative is unlimited."""
    if text == MAX:
        return INFINITY
    try:
        number = int(text)
    except ValueError:
        raise InvalidNameError(f"{text!r} is no number for {file}") from None
    if number >= INFINITY:
        raise InvalidNameError(f"{text!r} is too large for {file}")
    return number if number >= 0 else INFINITY


ROOT_SLICE = "-.slice"
LONGEST_NAME = 255
# Units of the machine itself: values may be written to them, but they are neither made nor removed nor stopped.
MACHINE_UNITS = frozenset({ROOT_SLICE, "system.slice", "user.slice", "machine.slice", "init.scope"})

_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*\.(?:slice|scope)", re.ASCII)


class Unit(msgspec.Struct, frozen=True):
    name: str
    parent: str  # the slice it lives in; `-.slice` at the top
    is_scope: bool = False

    @property
    def is_machines_own(self) -> bool:
        return self.name in MACHINE_UNITS


def unit_of(path: str) -> Unit | None:
    """The unit of a cgroup; None below a scope, whose inside is delegated. InvalidName where it can be none."""
    if path == "/":
        return Unit(ROOT_SLICE, "")
    parent = ROOT_SLICE
    names = path.removeprefix("/").split("/")
    for depth, name in enumerate(names):
        _check_name(name, path)
        if name.endswith(".scope"):
            return Unit(name, parent, is_scope=True) if depth == len(names) - 1 else None
        if _parent_slice(name, path) != parent:
            raise InvalidNameError(f"{name!r} of {path!r} is no slice of {parent}: systemd would put it elsewhere")
        parent = name
    return Unit(names[-1], _parent_slice(names[-1], path))


def _check_name(name: str, path: str) -> None:
    if len(name) > LONGEST_NAME:
        raise InvalidNameError(f"{name[:40]!r}… is longer than {LONGEST_NAME} characters: no name for a systemd unit")
    if not _NAME.fullmatch(name):
        rule = "letters, digits and _ . : - only, ending in .slice or .scope"
        raise InvalidNameError(f"{name!r} of {path[:LONGEST_NAME]!r} is no name for a systemd unit of ours: {rule}")


def _parent_slice(name: str, path: str) -> str:
    parts = name.removesuffix(".slice").split("-")
    if "" in parts:
        raise InvalidNameError(f"invalid slice name: {name} (of {path!r}): an empty part between dashes")
    return "-".join(parts[:-1]) + ".slice" if len(parts) > 1 else ROOT_SLICE
