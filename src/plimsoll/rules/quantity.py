"""Exact Kubernetes quantities (01 §1): `250m` is 250,000,000 nano-units, `milli` 250, `value` 1.

A quantity is a whole number of nano-units (10^-9, the finest that Kubernetes stores, Q-5) plus the *format* its text
was written in. Python's integers are unbounded, so sums and comparisons are exact and there is only one representation.
Parsing keeps the original text if Kubernetes prints it unchanged (Q-11); arithmetic drops it.

`milli` and `value` are the two roundings that everything else is computed from (Q-13): up to a thousandth, up to a
whole unit. They are stored, not derived, because the rules read them several times per container.

`QUANTITIES[text]` is a bounded cache of parsed texts: a fleet repeats the same few hundred texts.

Kubernetes: staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import ClassVar, Literal

from plimsoll.errors import InvalidQuantityError

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent", ""]

NANO_PER_UNIT = 10**9
NANO_PER_MILLI = 10**6
MAX_INT64 = 2**63 - 1
BEYOND_INT64 = 2**80

FORMAT_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_ERROR = "unable to parse quantity's suffix"
NUMERIC_ERROR = "unable to parse numeric part of quantity"

# Q-3, the scanner as one expression: sign, leading zeros (dropped), digits, fraction, suffix letters, sign, digits.
# Possessive (`*+`): no backtracking, so the time is linear in the length of the text.
_SCANNER = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII)
_EXPONENT = r"[eE]([+-]?[0-9]+)"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

# Longer texts are refused: Kubernetes accepts more and then computes for minutes (exponents) or overflows (digits).
_MAX_DIGITS = 1000
_MAX_EXPONENT = 1000


class Quantity:
    """An exact amount. Equality, order and hash are by value; the format matters only when printing (Q-17)."""

    __class_getitem__: ClassVar[Callable[[str], Quantity]]

    __slots__ = ("_text", "format", "is_fine", "milli", "nanos", "tally", "value")

    nanos: int
    format: Format
    milli: int
    value: int
    is_fine: bool  # finer than a thousandth, so R-2 rounds it
    tally: int  # `milli` for sums; a negative amount is beyond all bounds here, so that no sum can hide it

    def __init__(self, nanos: int, format: Format = "DecimalSI", text: str | None = None) -> None:
        self.nanos = nanos
        self.format = format
        self._text = text
        if nanos >= 0:
            self.milli = self.tally = milli = -(-nanos // 1_000_000)
            self.value = -(-milli // 1000)
        else:
            self.milli = milli = nanos // 1_000_000
            self.tally = BEYOND_INT64
            self.value = milli // 1000
        self.is_fine = milli * 1_000_000 != nanos

    @staticmethod
    def parse(text: str) -> Quantity:
        """`Quantity.parse("250m").milli` is 250; raises InvalidQuantityError."""
        return QUANTITIES[text]

    def __add__(self, other: Quantity) -> Quantity:
        nanos = self.nanos
        return Quantity(nanos + other.nanos, self.format if nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: Quantity) -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: Quantity) -> bool:
        return self.nanos >= other.nanos

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __str__(self) -> str:
        return self._text if self._text is not None and self.nanos else _canonical(self.nanos, self.format)

    def rounded_to_milli(self) -> Quantity:
        """Rounded away from zero to a whole thousandth; the same object if it is one (Q-15)."""
        if not self.is_fine:
            return self
        return Quantity(self.milli * NANO_PER_MILLI, self.format)


@lru_cache(4096)
def _canonical(nanos: int, format: Format) -> str:
    """The text that Kubernetes prints (Q-9); beyond the largest suffix it has more digits (Q-12)."""
    if nanos == 0:
        return "0"
    if format == "BinarySI" and nanos % NANO_PER_UNIT == 0 and abs(nanos) >= 1024 * NANO_PER_UNIT:
        amount, step = nanos // NANO_PER_UNIT, 0
        while amount % 1024 == 0 and abs(amount) >= 1024 and step < len(_BINARY_SUFFIX) - 1:
            amount, step = amount // 1024, step + 1
        return f"{amount}{_BINARY_SUFFIX[step]}"
    amount, exponent = nanos, -9
    while amount % 1000 == 0 and (exponent < 18 or format == "DecimalExponent" or format == ""):
        amount, exponent = amount // 1000, exponent + 3
    if format in ("DecimalSI", "BinarySI"):
        return f"{amount}{_DECIMAL_SUFFIX[exponent]}"
    return f"{amount}e{exponent}" if exponent else str(amount)


def parse(text: str) -> Quantity:
    """Parse one text; raises InvalidQuantityError with Kubernetes' message."""
    match = _SCANNER.fullmatch(text)
    if not text or match is None:
        raise InvalidQuantityError(text, FORMAT_ERROR)
    sign, whole, fraction, suffix = match.groups()
    whole, fraction = whole or "0", fraction or ""
    if len(whole) + len(fraction) > _MAX_DIGITS:
        raise InvalidQuantityError(text, f"{NUMERIC_ERROR}: more than {_MAX_DIGITS} digits")
    if suffix in _BINARY:
        return _parsed_binary(text, sign, whole, fraction, _BINARY[suffix])
    format: Format = "DecimalSI"
    exponent = _DECIMAL.get(suffix)
    if exponent is None:
        match = re.fullmatch(_EXPONENT, suffix, re.ASCII)
        if match is None or len(match[1]) > 19:
            raise InvalidQuantityError(text, SUFFIX_ERROR)
        format, exponent = "DecimalExponent", int(match[1])
    return _parsed_decimal(text, sign, whole, fraction, exponent, format)


def _parsed_decimal(text: str, sign: str, whole: str, fraction: str, exponent: int, format: Format) -> Quantity:
    digits = whole + fraction
    scale = exponent - len(fraction)
    number = int(digits)
    if number == 0:
        return Quantity(0, format)
    if exponent > _MAX_EXPONENT:
        raise InvalidQuantityError(text, f"{NUMERIC_ERROR}: exponent above {_MAX_EXPONENT}")
    if scale >= -9:
        nanos = int(number * 10 ** (scale + 9))
    elif scale < -_MAX_DIGITS - 18:
        nanos = 1
    else:
        nanos = -(-number // 10 ** (-9 - scale))
    kept = len(digits) <= 18 and scale >= -9 and scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return Quantity(-nanos if sign == "-" else nanos, format, text if kept else None)


def _parsed_binary(text: str, sign: str, whole: str, fraction: str, power: int) -> Quantity:
    number = int(whole + fraction) << power
    nanos = min(-(-number * NANO_PER_UNIT // 10 ** len(fraction)), MAX_INT64 * NANO_PER_UNIT)
    format: Format = "DecimalSI" if 0 < nanos < NANO_PER_UNIT else "BinarySI"
    small = not fraction and 15 - len(whole) - power * 3 // 10 - 1 >= 0
    kept = small and int(whole) % 8 != 0
    return Quantity(-nanos if sign == "-" else nanos, format, text if kept else None)


class _Memo(dict[str, Quantity]):
    """A JSON string → Quantity, without surrounding blanks (Q-1); cleared when full."""

    bound = 32768

    def __missing__(self, text: str) -> Quantity:
        if text.__class__ is not str:
            raise TypeError("a quantity is read from its text")
        quantity = parse(text.strip())
        if len(self) >= self.bound:
            self.clear()
        self[text] = quantity
        return quantity


QUANTITIES: Mapping[str, Quantity] = _Memo()
# `Quantity[text]` is the same cache, for decoders that call it without a Python function in between.
Quantity.__class_getitem__ = QUANTITIES.__getitem__

ZERO = Quantity(0)
ZERO_BYTES = Quantity(0, "BinarySI")


def from_units(amount: int, format: Format = "DecimalSI") -> Quantity:
    """A whole number of units: cores, bytes, pods."""
    return Quantity(amount * NANO_PER_UNIT, format)


def from_milli(amount: int, format: Format = "DecimalSI") -> Quantity:
    return Quantity(amount * NANO_PER_MILLI, format)
