"""Moments as seconds and as text; the standard library knows the calendar."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.timestamps import date_of, days_of, epoch_s, utc_text


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001
def test_as_the_calendar(moment: datetime) -> None:
    whole = moment.replace(microsecond=0)
    text = whole.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    assert utc_text(whole.timestamp()) == text
    assert epoch_s(text) == whole.timestamp()


@given(st.integers(-700_000, 2_900_000))
def test_there_and_back(days: int) -> None:
    assert days_of(*date_of(days)) == days


TEXTS = [
    ("1970-01-01T00:00:00Z", 0.0),
    ("1970-01-01T01:00:00.5+01:00", 0.5),
    ("1969-12-31T23:30:00-00:30", 0.0),
    ("2000-02-29T12:00:00Z", 951_825_600.0),
    ("", None),
    (None, None),
    ("yesterday", None),
    ("1970-01-01T00:00:00", None),
]


@pytest.mark.parametrize(("text", "seconds"), TEXTS)
def test_texts(text: str | None, seconds: float | None) -> None:
    assert epoch_s(text) == seconds


def test_parts_of_a_second_are_cut_off() -> None:
    assert utc_text(59.999) == "1970-01-01T00:00:59Z"
    assert utc_text(-0.5) == "1969-12-31T23:59:59Z"
