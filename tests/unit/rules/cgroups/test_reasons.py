"""The formulas that `explain` prints, alone: each step is true, and the last one is the value."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll.rules.cgroups.reasons import (
    human_bytes,
    human_cores,
    memory_high_formula,
    quota_formula,
    shares_formula,
    sum_formula,
    weight_formula,
)
from plimsoll.rules.resources.cpu import quota_us, shares, systemd_quota_us, weight_linear, weight_quadratic
from plimsoll.rules.resources.memory import memory_high
from plimsoll.rules.resources.node_policy import NodePolicy
from tests.examples import examples
from tests.unit.formulas import outcome, steps, value_of

GI = 1 << 30


def check(formula: str, result: int, *, doubles: bool = False) -> None:
    for step in steps(formula):
        assert value_of(step.expression, doubles=doubles) == value_of(step.result, doubles=doubles), (formula, step)
    assert outcome(formula) == str(result), formula


milli_cores = st.integers(0, 400_000)


@settings(max_examples=examples(200), deadline=None)
@given(milli_cores)
@example(0)
@example(1)
@example(256_000)
@example(256_001)
def test_shares(milli: int) -> None:
    check(shares_formula(milli), shares(milli))


@settings(max_examples=examples(200), deadline=None)
@given(milli_cores)
@example(256_000)
def test_linear_weight(milli: int) -> None:
    check(weight_formula(milli, "linear"), weight_linear(shares(milli)))


@settings(max_examples=examples(300), deadline=None)
@given(milli_cores)
@example(1000)
@example(11106)  # the curve at 11372 shares lies just above 696: six decimals of the logarithm lose that
@example(3)
@example(256_000)
def test_quadratic_weight(milli: int) -> None:
    check(weight_formula(milli, "quadratic"), weight_quadratic(shares(milli)), doubles=True)


@settings(max_examples=examples(200), deadline=None)
@given(milli_cores.filter(bool), st.integers(1000, 1_000_000))
def test_quota(milli: int, period: int) -> None:
    check(quota_formula(milli, NodePolicy(1, period_us=period), systemd=False), quota_us(milli, period))


@settings(max_examples=examples(300), deadline=None)
@given(milli_cores.filter(bool), st.sampled_from((100_000, 50_000, 10_000, 1000, 1_000_000)))
@example(255, 100_000)
def test_quota_as_systemd_keeps_it(milli: int, period: int) -> None:
    kept = systemd_quota_us(quota_us(milli, period), period)
    check(quota_formula(milli, NodePolicy(1, period_us=period), systemd=True), kept)


@settings(max_examples=examples(300), deadline=None)
@given(milli_cores.filter(bool), st.integers(1000, 1_000_000))
def test_quota_as_systemd_keeps_it_in_odd_periods(milli: int, period: int) -> None:
    kept = systemd_quota_us(quota_us(milli, period), period)
    check(quota_formula(milli, NodePolicy(1, period_us=period), systemd=True), kept)


def test_no_limit() -> None:
    assert outcome(quota_formula(0, NodePolicy(1), systemd=True)) == "max"


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(0, 1 << 40),
    st.integers(1, 1 << 40),
    st.booleans(),
    st.floats(0.01, 1.0),
    st.sampled_from((4096, 65536)),
)
def test_memory_high(request_bytes: int, more: int, limited: bool, factor: float, page: int) -> None:
    base = request_bytes + more
    policy = NodePolicy(1 << 41, None if limited else base, throttling_factor=factor, page_size=page)
    limit = base if limited else 0
    high = memory_high(
        request_bytes, limit, policy.allocatable_memory_bytes, factor, page_size=page, without_request=True
    )
    if high is not None:
        check(memory_high_formula(request_bytes, limit, high, policy), high, doubles=True)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 1 << 40), max_size=12))
def test_sum(terms: list[int]) -> None:
    formula = sum_formula(terms, sum(terms))
    assert outcome(formula) == str(sum(terms))
    if 2 <= len(terms) <= 8:
        check(formula, sum(terms))
    elif len(terms) > 8:
        assert formula == f"sum of {len(terms)} = {sum(terms)}"


BYTES = [
    (0, "0 B"),
    (1023, "1023 B"),
    (1024, "1.0 KiB"),
    (GI, "1.0 GiB"),
    (408944640, "390.0 MiB"),
    (1 << 50, "1.0 PiB"),
    (1 << 61, "2.0 EiB"),
]


@pytest.mark.parametrize(("amount", "text"), BYTES, ids=[row[1] for row in BYTES])
def test_human_bytes(amount: int, text: str) -> None:
    assert human_bytes(amount) == text


CORES = [(0, "0 CPU"), (100, "0.1 CPU"), (1000, "1 CPU"), (1500, "1.5 CPU"), (46000, "46 CPU")]


@pytest.mark.parametrize(("milli", "text"), CORES, ids=[row[1] for row in CORES])
def test_human_cores(milli: int, text: str) -> None:
    assert human_cores(milli) == text
