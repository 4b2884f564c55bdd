"""Times as Go parses and the API prints them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.golang.times import TimeError, from_unix, utc_micro_time, utc_time

# Without a zone, as Hypothesis makes them; all are meant as UTC.
EPOCH, EARLIEST, LATEST = map(dt.datetime.fromisoformat, ("1970-01-01", "0001-01-02", "9999-12-30"))

GOOD = [
    ("2026-11-15T20:38:46Z", "2026-11-15T20:38:46Z"),
    ("2026-11-15T20:38:46.999Z", "2026-11-15T20:38:46Z"),
    ("2026-01-01T00:30:00+02:00", "2025-12-31T22:30:00Z"),
    ("2024-02-28T23:30:00-01:00", "2024-02-29T00:30:00Z"),
    ("2025-12-31T23:00:00-24:00", "2026-01-01T23:00:00Z"),
    ("2026-11-15T2:38:46Z", "2026-11-15T02:38:46Z"),
]


@pytest.mark.parametrize(("text", "expected"), GOOD)
def test_read(text: str, expected: str) -> None:
    assert utc_time(text) == expected


BAD = [
    ("x", ' as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
    ("", ' as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
    ("2026-1-1", ' as "2006-01-02T15:04:05Z07:00": cannot parse "1-1" as "01"'),
    ("2026-01-01 00:00:00Z", ' as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T"'),
    ("2026-13-01T00:00:00Z", ": month out of range"),
    ("2026-02-30T00:00:00Z", ": day out of range"),
    ("2026-01-01T25:00:00Z", ": hour out of range"),
    ("2026-01-01T00:00:60Z", ": second out of range"),
    ("2026-01-01T00:00:00", ' as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"'),
    ("2026-01-01T00:00:00Zx", ': extra text: "x"'),
    ("2026-01-01T00:00:00+25:00", ": time zone offset hour out of range"),
]


@pytest.mark.parametrize(("text", "words"), BAD, ids=[row[0] or "empty" for row in BAD])
def test_refused(text: str, words: str) -> None:
    with pytest.raises(TimeError) as error:
        utc_time(text)
    assert str(error.value) == f'parsing time "{text}"{words}'


def test_six_decimals() -> None:
    assert utc_micro_time("2026-11-15T20:30:00.123456+01:00") == "2026-11-15T19:30:00.123456Z"
    with pytest.raises(TimeError, match=r'cannot parse "Z" as "\.000000"'):
        utc_micro_time("2026-11-15T20:30:00Z")


@given(st.datetimes(min_value=EARLIEST, max_value=LATEST), st.integers(-24 * 60, 24 * 60))
def test_offsets(moment: dt.datetime, minutes: int) -> None:
    sign = "-" if minutes < 0 else "+"
    offset = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    expected = (moment - dt.timedelta(minutes=minutes)).replace(microsecond=0)
    assert utc_time(moment.isoformat(timespec="seconds") + offset) == expected.isoformat() + "Z"


@given(st.datetimes())
def test_seconds_since_1970(moment: dt.datetime) -> None:
    moment = moment.replace(microsecond=0)
    seconds = (moment - EPOCH) // dt.timedelta(seconds=1)
    assert from_unix(seconds) == moment.isoformat() + "Z"
    assert from_unix(seconds, 7) == moment.isoformat() + ".000007Z"
