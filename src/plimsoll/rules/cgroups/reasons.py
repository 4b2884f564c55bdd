"""Why a control file holds its value: the formula with the numbers filled in, and the manifest field it comes from.

A formula is one or more steps, `expression = result`, joined by `; `. Brackets ⌊ ⌋ and ⌈ ⌉ round down and up, so each
step can be checked with a calculator; the tests evaluate every formula that is printed. The numbers come from the
functions that computed the value; this module only formats them.
"""

from __future__ import annotations

import math

import msgspec

from plimsoll.rules.model.kernel import Weight
from plimsoll.rules.resources.cpu import (
    MAX_SHARES,
    MIN_QUOTA_US,
    MIN_SHARES,
    quota_us,
    shares,
    systemd_quota_us,
    weight_linear,
    weight_quadratic,
)
from plimsoll.rules.resources.node_policy import NodePolicy


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    formula: str = ""
    source: str = ""  # the field of the manifest or configuration
    note: str = ""


def shares_formula(cpu_milli: int) -> str:
    if cpu_milli <= 0:
        return f"no cpu request: {MIN_SHARES}, the least"
    plain = cpu_milli * 1024 // 1000
    text = f"⌊{cpu_milli} · 1024 / 1000⌋ = {plain}"
    if plain < MIN_SHARES:
        text += f"; max({plain}, {MIN_SHARES}) = {MIN_SHARES}"
    elif plain > MAX_SHARES:
        text += f"; min({plain}, {MAX_SHARES}) = {MAX_SHARES}"
    return text


def weight_formula(cpu_milli: int, weight: Weight) -> str:
    cpu_shares = shares(cpu_milli)
    if weight == "linear":
        step = f"1 + ⌊({cpu_shares} − 2) · 9999 / 262142⌋ = {weight_linear(cpu_shares)}"
        if cpu_shares >= MAX_SHARES:
            step = "the most: 10000"
    elif cpu_shares <= MIN_SHARES:
        step = "the least: 1"
    elif cpu_shares >= MAX_SHARES:
        step = "the most: 10000"
    else:
        log = repr(math.log2(cpu_shares))
        step = f"⌈10^(({log}² + 125 · {log}) / 612 − 7 / 34)⌉ = {weight_quadratic(cpu_shares)}"
    return f"{shares_formula(cpu_milli)}; {step}"


def quota_formula(cpu_milli: int, policy: NodePolicy, *, systemd: bool) -> str:
    period = policy.quota_period_us
    if cpu_milli <= 0:
        return "no cpu limit: max"
    plain = cpu_milli * period // 1000
    text = f"⌊{cpu_milli} · {period} / 1000⌋ = {plain}"
    quota = quota_us(cpu_milli, period)
    if plain < MIN_QUOTA_US:
        text += f"; max({plain}, {MIN_QUOTA_US}) = {quota}"
    if systemd and (rounded := systemd_quota_us(quota, policy.period_us)) != quota:
        period = policy.period_us
        per_second = quota * 1_000_000 // period
        kept = -(-per_second // 10_000) * 10_000
        text += f"; systemd keeps whole percents of a second: ⌊{quota} · 1000000 / {period}⌋ = {per_second}"
        text += f"; ⌈{per_second} / 10000⌉ · 10000 = {kept}; ⌊{kept} · {period} / 1000000⌋ = {rounded}"
    return text


def memory_high_formula(request_bytes: int, limit_bytes: int, high: int, policy: NodePolicy) -> str:
    base = limit_bytes or policy.allocatable_memory_bytes or 0
    factor, page = policy.throttling_factor, policy.page_size
    return f"⌊({request_bytes} + ({base} − {request_bytes}) · {factor}) / {page}⌋ · {page} = {high}"


def memory_high_1_22_formula(limit_bytes: int, policy: NodePolicy) -> str:
    base, factor = limit_bytes or policy.allocatable_memory_bytes or 0, policy.throttling_factor or 0.0
    return f"⌊{base} · {factor}⌋ = {int(float(base) * factor)}"


def sum_formula(terms: list[int], total: int) -> str:
    """A sum; it shows its terms if they are few."""
    if len(terms) <= 1:
        return f"{total}"
    if len(terms) > 8:
        return f"sum of {len(terms)} = {total}"
    return f"{' + '.join(map(str, terms))} = {total}"


def human_bytes(amount: int) -> str:
    """1073741824 → `1.0 GiB`, truncated after one digit."""
    if amount < 1024:
        return f"{amount} B"
    power = min((amount.bit_length() - 1) // 10, len(_UNITS) - 1)
    tenths = amount * 10 >> 10 * power
    return f"{tenths // 10}.{tenths % 10} {_UNITS[power]}"


def human_cores(cpu_milli: int) -> str:
    """250 → `0.25 CPU`."""
    whole, rest = divmod(cpu_milli, 1000)
    return f"{whole}{f'.{rest:03d}'.rstrip('0') if rest else ''} CPU"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
