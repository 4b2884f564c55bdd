"""CPU conversions (spec 02 §4.1–§4.3, 01 §11): the table of 02 §4.2 and one property per formula."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.resources.cpu import (
    milli_from_quota,
    milli_from_shares,
    quota_us,
    shares,
    shares_from_weight,
    systemd_quota_us,
    weight_linear,
    weight_quadratic,
)
from tests.examples import examples

# 02 §4.2: milli-cores, shares, weight linear, weight new, quota at 100 ms
TABLE = [
    (0, 2, 1, 1, 0),
    (1, 2, 1, 1, 1000),
    (10, 10, 1, 4, 1000),
    (50, 51, 2, 11, 5000),
    (100, 102, 4, 17, 10000),
    (250, 256, 10, 35, 25000),
    (500, 512, 20, 59, 50000),
    (1000, 1024, 39, 100, 100000),
    (1500, 1536, 59, 138, 150000),
    (2000, 2048, 79, 174, 200000),
    (4000, 4096, 157, 303, 400000),
    (8000, 8192, 313, 532, 800000),
    (16000, 16384, 625, 942, 1600000),
    (46000, 47104, 1797, 2284, None),
    (256000, 262144, 10000, 10000, 25600000),
]


@pytest.mark.parametrize(
    ("milli", "want", "linear", "quadratic", "quota"), TABLE, ids=[f"02 §4.2 {row[0]}m" for row in TABLE]
)
def test_table(milli: int, want: int, linear: int, quadratic: int, quota: int | None) -> None:
    assert shares(milli) == want
    assert weight_linear(want) == linear
    assert weight_quadratic(want) == quadratic
    if quota is not None:
        assert quota_us(milli) == quota


INVERSE = [(39, 998, 975), (79, 2046, 1999), (10, 237, 232)]


@pytest.mark.parametrize(("weight", "want", "milli"), INVERSE, ids=[f"02 §4.2 inverse {row[0]}" for row in INVERSE])
def test_inverse(weight: int, want: int, milli: int) -> None:
    assert shares_from_weight(weight) == want
    assert milli_from_shares(want) == milli


ROUND_TRIPS = [(100, 102), (250, 256), (1000, 1024)]


@pytest.mark.parametrize(("milli", "want"), ROUND_TRIPS, ids=[f"S-3 {row[0]}m" for row in ROUND_TRIPS])
def test_round_trip(milli: int, want: int) -> None:
    assert shares(milli) == want
    assert milli_from_shares(want) == milli


READ_BACK = [
    ("S-1 shares below 2", milli_from_shares(1), 0),
    ("S-1 shares 2", milli_from_shares(2), 2),
    ("S-1 unlimited", milli_from_quota(-1, 100_000), 0),
    ("S-1 truncated", milli_from_quota(1999, 100_000), 19),
    ("S-1 no period", milli_from_quota(1000, 0), 0),
    ("§4.3 least limit", milli_from_quota(quota_us(1), 100_000), 10),
    ("§4.3 another period", quota_us(500, 50_000), 25_000),
    ("§4.3 floor at a short period", quota_us(100, 5_000), 1000),
    ("§4.2 past the end", weight_linear(10**9), 10000),
    ("§4.2 past the end, new", weight_quadratic(10**9), 10000),
    ("§4.2 the least, new", weight_quadratic(2), 1),
    ("§2.3 255m", systemd_quota_us(25_500, 100_000), 26_000),
    ("§2.3 255m read back", milli_from_quota(26_000, 100_000), 260),
    ("§2.3 whole percents stay", systemd_quota_us(26_000, 100_000), 26_000),
    ("§2.3 none stays none", systemd_quota_us(0, 100_000), 0),
    ("§2.3 unlimited stays", systemd_quota_us(-1, 100_000), -1),
    ("§8 1850m", shares(250 + 100 + 1500), 1894),
    ("§8 1850m weight", weight_linear(1894), 73),
]


@pytest.mark.parametrize(("got", "want"), [row[1:] for row in READ_BACK], ids=[row[0] for row in READ_BACK])
def test_single_figures(got: int, want: int) -> None:
    assert got == want


milli_cores = st.integers(0, 400_000)


@settings(max_examples=examples(300), deadline=None)
@given(milli_cores, milli_cores)
def test_more_request_never_weighs_less(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert shares(low) <= shares(high)
    assert weight_linear(shares(low)) <= weight_linear(shares(high))
    assert weight_quadratic(shares(low)) <= weight_quadratic(shares(high))


@settings(max_examples=examples(300), deadline=None)
@given(milli_cores, milli_cores, st.integers(1000, 1_000_000))
def test_more_limit_never_gives_less_time(one: int, other: int, period: int) -> None:
    low, high = sorted((one, other))
    assert quota_us(low, period) <= quota_us(high, period)
    assert systemd_quota_us(quota_us(low, period), period) <= systemd_quota_us(quota_us(high, period), period)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 10**9))
def test_ranges(milli: int) -> None:
    assert 2 <= shares(milli) <= 262144
    assert 1 <= weight_linear(shares(milli)) <= 10000
    assert 1 <= weight_quadratic(shares(milli)) <= 10000
    assert quota_us(milli) == 0 if milli == 0 else quota_us(milli) >= 1000


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(1, 400_000), st.integers(1000, 1_000_000))
def test_quota_is_the_share_of_the_period(milli: int, period: int) -> None:
    quota = quota_us(milli, period)
    if quota > 1000:
        assert quota * 1000 <= milli * period < (quota + 1) * 1000
        assert milli - 1000 / period * 1000 <= milli_from_quota(quota, period) <= milli


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(1, 400_000))
def test_systemd_never_takes_time_away_nor_gives_more_than_a_percent(milli: int) -> None:
    quota = quota_us(milli)
    kept = systemd_quota_us(quota, 100_000)
    assert quota <= kept < quota + 1000
    assert kept % 1000 == 0
    assert systemd_quota_us(kept, 100_000) == kept


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(1, 10000))
def test_weight_survives_the_way_back(weight: int) -> None:
    """The inverse is lossy in shares, but never by more than one step of the weight."""
    assert weight_linear(shares_from_weight(weight)) in (weight - 1, weight)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(2, 256_000))
def test_milli_survives_shares(milli: int) -> None:
    assert abs(milli_from_shares(shares(milli)) - milli) <= 1


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(3, 262_143))
def test_quadratic_curve(cpu_shares: int) -> None:
    """w is the ceiling of the curve: the curve at `cpu_shares` lies in (w − 1, w], but for the last bit of a double."""
    log = math.log2(cpu_shares)
    curve = 10 ** ((log**2 + 125 * log) / 612 - 7 / 34)
    weight = weight_quadratic(cpu_shares)
    assert weight - 1 < curve * (1 + 1e-12)
    assert curve * (1 - 1e-12) <= weight
