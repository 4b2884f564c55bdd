"""Go's durations and float32 figures."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.gotext import LARGEST_FLOAT32, duration_nanos, duration_seconds, nearest_float32, parsed_float32

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        pytest.param("0", 0, id="the only number without a unit"),
        pytest.param("-0", 0, id="even with a sign"),
        pytest.param("0s", 0, id="zero seconds"),
        pytest.param("90s", 90 * SECOND, id="seconds"),
        pytest.param("1m30s", 90 * SECOND, id="two parts"),
        pytest.param("30s1m", 90 * SECOND, id="parts in any order"),
        pytest.param("1.5h", 5400 * SECOND, id="a fraction"),
        pytest.param(".5s", SECOND // 2, id="a fraction without digits before it"),
        pytest.param("1.s", SECOND, id="a point without digits after it"),
        pytest.param("500ms", SECOND // 2, id="milliseconds"),
        pytest.param("7us", 7000, id="microseconds"),
        pytest.param("7\u00b5s", 7000, id="micro sign"),
        pytest.param("7\u03bcs", 7000, id="Greek mu"),
        pytest.param("3ns", 3, id="nanoseconds"),
        pytest.param("0.3ns", 0, id="less than a nanosecond"),
        pytest.param("-30s", -30 * SECOND, id="negative"),
        pytest.param("+30s", 30 * SECOND, id="plus"),
        pytest.param("9223372036854775807ns", 2**63 - 1, id="the largest"),
        pytest.param("00000000000000000000001s", SECOND, id="leading zeros"),
        pytest.param("2562047h", 2562047 * 3600 * SECOND, id="nearly the largest"),
    ],
)
def test_a_duration(text: str, nanos: int) -> None:
    assert duration_nanos(text) == nanos
    assert duration_seconds(text) == pytest.approx(nanos / SECOND)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("abc", 'time: invalid duration "abc"'),
        (".s", 'time: invalid duration ".s"'),
        ("1m30", 'time: missing unit in duration "1m30"'),
        ("30", 'time: missing unit in duration "30"'),
        ("1..s", 'time: missing unit in duration "1..s"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1m-5s", 'time: unknown unit "m-" in duration "1m-5s"'),
        ("1 s", 'time: unknown unit " s" in duration "1 s"'),
        ('1"', 'time: unknown unit "\\"" in duration "1\\""'),
        ("1µ", 'time: unknown unit "\\xc2\\xb5" in duration "1\\xc2\\xb5"'),
        ("2562048h", 'time: invalid duration "2562048h"'),
        ("99999999999999999999s", 'time: invalid duration "99999999999999999999s"'),
    ],
    ids=repr,
)
def test_a_refused_duration(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        duration_nanos(text, "evictionSoftGracePeriod[memory.available]")
    assert caught.value.reason == reason
    assert caught.value.path == "evictionSoftGracePeriod[memory.available]"


@given(st.integers(0, 2**40), st.integers(0, 59), st.integers(0, 999))
def test_whole_parts_add_up(hours: int, seconds: int, millis: int) -> None:
    hours %= 100_000
    assert duration_nanos(f"{hours}h{seconds}s{millis}ms") == (hours * 3600 + seconds) * SECOND + millis * 10**6


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10.0),
        ("7.25", 7.25),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e2", 100.0),
        ("-0.5", -0.5),
        ("1_0", 10.0),
        ("0", 0.0),
        ("1e-400", 0.0),
        ("inf", float("inf")),
        ("-Infinity", float("-inf")),
        ("1.00000005960464477539063", 1.0000001192092896),  # just above half way: float64 first would round it down
    ],
)
def test_a_float32(text: str, value: float) -> None:
    assert parsed_float32(text) == value


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", ".", "1e", "1__0", "_1", " 1", "1 ", "0x1p-2", "nan", "１"])
def test_no_float32(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^evictionHard: strconv\.ParseFloat: parsing .*: invalid syntax$"):
        parsed_float32(text, "evictionHard")


@pytest.mark.parametrize("text", ["1e39", "-1e39", "1e999999999", "340282356779733661637539395458142568448"])
def test_a_float32_out_of_range(text: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parsed_float32(text)
    assert caught.value.reason == f'strconv.ParseFloat: parsing "{text}": value out of range'


def test_odd_letters_are_quoted_as_go_does() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parsed_float32('a"\\\n\x01é')
    assert caught.value.reason == 'strconv.ParseFloat: parsing "a\\"\\\\\\n\\x01é": invalid syntax'


@given(st.floats(-LARGEST_FLOAT32, LARGEST_FLOAT32))
def test_rounding_agrees_with_the_machine(value: float) -> None:
    assert nearest_float32(*value.as_integer_ratio()) == struct.unpack("<f", struct.pack("<f", value))[0]
