"""The texts of I/O limits and latency targets, as an annotation or a ceiling has them.

    rbps=20Mi wbps=10Mi                      on every device that the node controls
    wbps=10Mi; /dev/vdb wbps=max riops=500   … and something else on one of them

The words are the kernel's, from io.max and io.latency; a device is named by its path, because its number differs
between nodes. Bytes per second are quantities, operations per second whole numbers, a target is a duration; `max` is
no limit. A later entry for the same device and key overrides an earlier one.

Kernel: Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

import msgspec

from plimsoll.errors import InvalidConfigError, InvalidQuantityError, PlimsollError
from plimsoll.rules.gotext import duration_nanos
from plimsoll.rules.quantity import MAX_INT64, QUANTITIES

MAX = "max"
LIMIT_KEYS = ("rbps", "wbps", "riops", "wiops")
TARGET = "target"
MAX_OPERATIONS = 2**32 - 2  # the kernel keeps 32 bits, and takes the largest number for no limit
MAX_TARGET_US = 60_000_000
LONGEST_TEXT = 4096
MOST_SHOWN = 80  # characters of it in a message
_DEVICE = re.compile(r"/dev/[A-Za-z0-9_.+:@/-]{1,200}", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_UNITS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|ms|s)", re.ASCII)
_POWERS = {  # unit → base and exponent; a target is in µs
    **{f"{letter}i": (2, 10 * power) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: (10, 3 * power) for power, letter in enumerate("kMGTPE", 1)},
    "ms": (10, 3),
    "s": (10, 6),
}


class IoTextError(PlimsollError):
    """A text that is not of this form; `str()` says which part, and what is expected."""


class IoEntry(msgspec.Struct, frozen=True):
    """`device`: its path, "" for every device. `values`: key → amount; None is `max`. `texts`: as written."""

    device: str
    values: dict[str, int | None]
    texts: dict[str, str] = {}


Entries = tuple[IoEntry, ...]
ByDevice = dict[str, dict[str, int | None]]  # path → key → amount


def is_device_path(text: str) -> bool:
    return _DEVICE.fullmatch(text) is not None and "/." not in text and "//" not in text


def shortened(text: str) -> str:
    """A text of a pod's author in a message."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def limit_entries(text: str) -> Entries:
    """Of io.max. Raises IoTextError."""
    return _entries(text, dict.fromkeys(("rbps", "wbps"), _rate) | dict.fromkeys(("riops", "wiops"), _operations))


def latency_entries(text: str) -> Entries:
    """Of io.latency, in µs. Raises IoTextError."""
    return _entries(text, {TARGET: _target})


def by_device(entries: Iterable[IoEntry], devices: Iterable[str]) -> ByDevice:
    """What the entries say about each of these devices. Raises IoTextError for an entry with another one."""
    found: ByDevice = {device: {} for device in devices}
    for entry in entries:
        if entry.device and entry.device not in found:
            listed = ", ".join(found) or "none"
            raise IoTextError(f"{entry.device} is not a device that this node controls (ioControl.devices: {listed})")
        for device in [entry.device] if entry.device else found:
            found[device].update(entry.values)
    return found


def amount_formula(key: str, text: str, amount: int) -> str:
    """`wbps: 10 · 2^20 = 10485760`; empty where the text is the number."""
    match = _UNITS.fullmatch(text)
    if match is None:
        return ""
    base, power = _POWERS[match[2]]
    expression = f"{match[1]} · {base}^{power}"
    exact = Fraction(match[1]) * base**power
    return f"{key}: {expression if exact == amount else f'⌈{expression}⌉'} = {amount}"


def _entries(text: str, readers: Mapping[str, Callable[[str], int]]) -> Entries:
    if len(text) > LONGEST_TEXT:
        raise IoTextError(f"longer than {LONGEST_TEXT} characters")
    found = tuple(_entry(part, readers) for part in re.split(r"[;\n]", text) if part.strip())
    if not found:
        raise IoTextError(f"empty: expected {_example(readers)}")
    return found


def _entry(text: str, readers: Mapping[str, Callable[[str], int]]) -> IoEntry:
    words = text.split()
    device = ""
    if "=" not in words[0]:
        device, words = words[0], words[1:]
        if not is_device_path(device):
            raise IoTextError(f"{shortened(device)!r} is not the path of a device, such as /dev/vda")
        if not words:
            raise IoTextError(f"{device} without a value: expected {_example(readers)}")
    values: dict[str, int | None] = {}
    texts: dict[str, str] = {}
    for word in words:
        key, equals, amount = word.partition("=")
        if not equals or key not in readers:
            raise IoTextError(f"{shortened(word)!r}: expected KEY=VALUE with one of {', '.join(readers)}")
        if key in values:
            raise IoTextError(f"{key} is set twice in one entry")
        values[key] = None if amount == MAX else readers[key](amount)
        texts[key] = amount
    return IoEntry(device, values, texts)


def _example(readers: Mapping[str, object]) -> str:
    return "target=10ms" if TARGET in readers else "rbps=20Mi wbps=10Mi riops=500 wiops=500"


def _rate(text: str) -> int:
    try:
        amount = QUANTITIES[text]
    except InvalidQuantityError:
        raise IoTextError(f"{shortened(text)!r} is not a number of bytes per second, such as 10Mi, or max") from None
    if not 1 <= amount.value <= MAX_INT64:
        raise IoTextError(f"{shortened(text)!r}: must be at least 1 byte per second, and fit 63 bits")
    return amount.value


def _operations(text: str) -> int:
    if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= MAX_OPERATIONS:
        raise IoTextError(
            f"{shortened(text)!r} is not a number of operations per second from 1 to {MAX_OPERATIONS}, or max"
        )
    return int(text)


def _target(text: str) -> int:
    try:
        nanos = duration_nanos(text)
    except InvalidConfigError:
        nanos = 0
    if nanos % 1000 or not 1 <= nanos // 1000 <= MAX_TARGET_US:
        raise IoTextError(f"{shortened(text)!r} is not a target such as 500us or 10ms, from 1us to 1m, or max")
    return nanos // 1000
