"""Control files as systemd's unit properties (spec 02 §2.3): a value that systemd does not know, it takes back.

systemd writes what its units say whenever it looks at them again (`daemon-reload`), so a value has to be told to it
and not only to the kernel. Unlimited is 2^64 − 1. A quota is kept as µs per second, whole percents, beside its period;
on v1 quota and period are two files, so each one's properties need the other's text. Files without a property
(memory.oom.group, hugetlb, memsw) are nobody's but the kernel's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.errors import InvalidName
from plimsoll.rules.cpu import DEFAULT_PERIOD_US, systemd_quota_per_second_us
from plimsoll.rules.cpu_list import cpu_numbers
from plimsoll.rules.files import MAX
from plimsoll.rules.policy import CgroupVersion

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
        raise InvalidName(f"{value!r} is no list for {file}")
    bits = sum(1 << number for number in numbers)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _quota(quota_us: int, period_us: int) -> tuple[Property, ...]:
    if period_us in (0, INFINITY):
        raise InvalidName(f"a period of {period_us} µs is none")
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
        raise InvalidName(f"{text!r} is no number for {file}") from None
    if number >= INFINITY:
        raise InvalidName(f"{text!r} is too large for {file}")
    return number if number >= 0 else INFINITY
