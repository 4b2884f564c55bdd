"""Kubernetes' Quantity with its two representations, for comparison with `plimsoll.rules.quantity`.

The real type keeps an int64 with a power of ten or, if that is not enough, a decimal of any size. Texts and sums are the
same in both; the roundings to int64 are not. So this model answers like the real code even where Plimsoll deliberately
does not (docs/quirks.md, Q-12 and Q-13), and it says which representation an amount has (E-5).

Kubernetes: staging/src/k8s.io/apimachinery/pkg/api/resource: quantity.go, amount.go, math.go, scale_int.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

MAX, NANO, MILLI = 2**63 - 1, -9, -3
DIGITS = 18  # of an int64
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
TEXT = re.compile(r"([+-]?)(0*)([0-9]*)(\.[0-9]*)?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)


class Dec(NamedTuple):
    """unscaled · 10^-scale."""

    unscaled: int
    scale: int

    def rescaled(self, scale: int) -> Dec:
        """Rounded away from zero."""
        if scale >= self.scale:
            return Dec(self.unscaled * 10 ** (scale - self.scale), scale)
        whole, rest = divmod(abs(self.unscaled), 10 ** (self.scale - scale))
        whole += rest > 0
        return Dec(-whole if self.unscaled < 0 else whole, scale)

    def __add__(self, other: Dec) -> Dec:  # type: ignore[override]
        scale = max(self.scale, other.scale)
        return Dec(self.rescaled(scale).unscaled + other.rescaled(scale).unscaled, scale)

    def __neg__(self) -> Dec:
        return Dec(-self.unscaled, self.scale)


def wrapped(number: int) -> int:
    """Go's int64 arithmetic."""
    return (number + 2**63) % 2**64 - 2**63


def low_bits(number: int) -> int:
    """big.Int.Int64."""
    low = wrapped(abs(number))
    return wrapped(-low) if number < 0 else low


def fits(number: int) -> bool:
    return -MAX - 1 <= number <= MAX


@dataclass(frozen=True)
class GoQuantity:
    format: str
    value: int = 0  # with `scale`, if there is no `dec`
    scale: int = 0
    dec: Dec | None = None
    text: str = ""  # that the parser has kept

    @property
    def is_big(self) -> bool:
        return self.dec is not None

    @property
    def exact(self) -> Dec:
        return self.dec if self.dec is not None else Dec(self.value, -self.scale)

    @property
    def is_zero(self) -> bool:
        return self.exact.unscaled == 0

    def __add__(self, other: GoQuantity) -> GoQuantity:
        format = other.format if self.is_zero else self.format
        if not self.is_big and not other.is_big:
            total = self._added(other)
            if total is not None:
                return GoQuantity(format, *total)
        return GoQuantity(format, dec=self.exact + other.exact)

    def __sub__(self, other: GoQuantity) -> GoQuantity:
        return self + replace(other, value=-other.value, dec=None if other.dec is None else -other.dec)

    def _added(self, other: GoQuantity) -> tuple[int, int] | None:
        """None: the int64 overflows."""
        if other.value == 0:
            return self.value, self.scale
        if self.value == 0:
            return other.value, other.scale
        scale = min(self.scale, other.scale)
        terms = [each.value * 10 ** (each.scale - scale) for each in (self, other)]
        return (sum(terms), scale) if all(map(fits, (*terms, sum(terms)))) else None

    def __lt__(self, other: GoQuantity) -> bool:
        return (self - other).exact.unscaled < 0

    def rounded_to_milli(self) -> GoQuantity:
        if self.dec is not None:
            return GoQuantity(self.format, dec=self.dec.rescaled(-MILLI))
        if self.scale >= MILLI:
            return self
        return GoQuantity(self.format, self.exact.rescaled(-MILLI).unscaled, MILLI)

    def as_int64(self, scale: int = 0) -> int:
        """`Value` (scale 0) and `MilliValue` (−3), with their errors."""
        if self.dec is not None:
            return _scaled(self.dec, -scale)
        if self.scale < scale:
            return self.exact.rescaled(-scale).unscaled
        power = self.scale - scale
        if power in (0, 1, 2, 3, 6, 9):
            return wrapped(self.value * 10**power)
        return self.value * 10**power if fits(self.value * 10**power) else 0

    def __str__(self) -> str:
        return self.text or self._canonical()

    def _canonical(self) -> str:
        unscaled, scale = self.exact
        if unscaled == 0:
            return "0"
        whole = self.exact.rescaled(0)
        is_whole = whole.rescaled(max(scale, 0)) == self.exact.rescaled(max(scale, 0))
        if self.format == "BinarySI" and is_whole and abs(whole.unscaled) >= 1024:
            amount, power = _without_factors(whole.unscaled, 1024)
            return f"{amount}{('', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei')[power] if power <= 6 else ''}"
        amount, times = _without_factors(unscaled, 10)
        exponent = times - scale
        while exponent % 3:
            amount, exponent = amount * 10, exponent - 1
        if self.format in ("DecimalSI", "BinarySI"):
            names = {power: suffix for suffix, power in DECIMAL.items()}
            return f"{amount}{names.get(exponent, '')}"
        return f"{amount}e{exponent}" if exponent else str(amount)


def _without_factors(number: int, factor: int) -> tuple[int, int]:
    times = 0
    while number % factor == 0:
        number, times = number // factor, times + 1
    return number, times


def _scaled(dec: Dec, scale: int) -> int:
    power = dec.scale - scale
    if power == 0:
        return low_bits(dec.unscaled)
    if power < 0:
        return wrapped(low_bits(dec.unscaled) * 10**-power)
    if dec.unscaled < MAX and power < 19:
        low = low_bits(dec.unscaled)
        whole, rest = divmod(abs(low), 10**power)
        return (-whole if low < 0 else whole) + (rest > 0)  # also of a negative one
    whole, rest = divmod(dec.unscaled, 10**power)
    return wrapped(low_bits(whole) + (rest > 0))


def parse(text: str) -> GoQuantity:
    """Of a valid text."""
    if text == "0":
        return GoQuantity("DecimalSI", text=text)
    match = TEXT.fullmatch(text)
    assert match is not None, text
    sign, _, number, fraction, suffix = match.groups()
    number, fraction = number or "0", (fraction or ".")[1:]
    is_binary = suffix in BINARY
    format = "BinarySI" if is_binary else "DecimalSI" if suffix in DECIMAL else "DecimalExponent"
    power = BINARY[suffix] if is_binary else DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])
    if is_binary:
        fast = not fraction and 15 - len(number) - power * 3 // 10 - 1 >= 0
    else:
        fast = len(number) + len(fraction) <= DIGITS and power - len(fraction) >= NANO
    if fast:
        digits = number + fraction
        value, scale = int(digits) << (power if is_binary else 0), 0 if is_binary else power - len(fraction)
        if fits(value):
            if is_binary:
                kept = int(digits) & 7 != 0
            else:
                kept = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
            return GoQuantity(format, -value if sign == "-" else value, scale, text=text if kept else "")
    dec = Dec(int(number + fraction) << (power if is_binary else 0), len(fraction) - (0 if is_binary else power))
    if dec.unscaled:
        dec = dec.rescaled(-NANO)
    if is_binary:
        dec = min(dec, Dec(MAX, 0), key=lambda each: each.rescaled(-NANO))
        if 0 < dec.rescaled(-NANO).unscaled < 10**-NANO:
            format = "DecimalSI"
    return GoQuantity(format, dec=-dec if sign == "-" else dec)
