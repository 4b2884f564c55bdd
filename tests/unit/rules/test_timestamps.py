"""Timestamps as seconds and as text; the standard library knows the calendar."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.timestamps import epoch_seconds, rfc3339, rfc3339_micro, unix_seconds


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001
def test_agrees_with_datetime(moment: datetime) -> None:
    whole = moment.replace(microsecond=0)
    text = whole.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    assert rfc3339(whole.timestamp()) == text
    assert epoch_seconds(text) == whole.timestamp()


@given(st.integers(-700_000, 2_900_000), st.integers(0, 86_399))
def test_round_trip_from_the_year_53_to_9909(days: int, second: int) -> None:
    text = rfc3339(days * 86_400 + second)
    date, _, clock = text.removesuffix("Z").partition("T")
    assert unix_seconds(*map(int, date.split("-")), *map(int, clock.split(":"))) == days * 86_400 + second  # type: ignore[call-arg]


YEARS = [
    (unix_seconds(0, 1, 1, 0, 0, 0), "0000-01-01T00:00:00Z"),
    (unix_seconds(0, 2, 29, 23, 59, 59), "0000-02-29T23:59:59Z"),  # a leap year, and before datetime's first
    (unix_seconds(10_000, 3, 1, 0, 0, 0), "10000-03-01T00:00:00Z"),
    (253_402_300_799, "9999-12-31T23:59:59Z"),
    (253_402_300_800, "10000-01-01T00:00:00Z"),
    (-62_135_596_801, "0000-12-31T23:59:59Z"),
]


@pytest.mark.parametrize(("seconds", "text"), YEARS)
def test_years_that_datetime_does_not_have(seconds: int, text: str) -> None:
    assert rfc3339(seconds) == text


TEXTS = [
    ("1970-01-01T00:00:00Z", 0.0),
    ("1970-01-01T01:00:00.5+01:00", 0.5),
    ("1969-12-31T23:30:00-00:30", 0.0),
    ("2000-02-29T12:00:00Z", 951_825_600.0),
    ("2001-02-29T12:00:00Z", None),
    ("", None),
    (None, None),
    (7, None),
    ("yesterday", None),
    ("1970-01-01T00:00:00", None),
]


@pytest.mark.parametrize(("text", "seconds"), TEXTS)
def test_texts(text: object, seconds: float | None) -> None:
    assert epoch_seconds(text) == seconds


def test_parts_of_a_second_are_cut_off() -> None:
    assert rfc3339(59.999) == "1970-01-01T00:00:59Z"
    assert rfc3339(-0.5) == "1969-12-31T23:59:59Z"


def test_six_decimals() -> None:
    assert rfc3339_micro(1.5) == "1970-01-01T00:00:01.500000Z"
