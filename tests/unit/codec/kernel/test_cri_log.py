"""CRI log lines: read, written, and their times; Python's own calendar is the judge of the latter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.kernel.cri_log import LogLine, fixed_time, log_line, parse
from plimsoll.rules.timestamps import unix_nanos

T = b"2016-10-06T00:17:09.669794202Z"


@pytest.mark.parametrize(
    ("line", "read"),
    [
        pytest.param(T + b" stdout F log content 1\n", LogLine(T, b"stdout", False, b"log content 1"), id="full"),
        pytest.param(T + b" stderr P half", LogLine(T, b"stderr", True, b"half"), id="partial without a line break"),
        pytest.param(T + b" stdout F:x:y tagged\n", LogLine(T, b"stdout", False, b"tagged"), id="more tags"),
        pytest.param(T + b" stdout P:x tagged\n", LogLine(T, b"stdout", True, b"tagged"), id="partial with more tags"),
        pytest.param(T + b" stdout F \n", LogLine(T, b"stdout", False, b""), id="empty"),
        pytest.param(T + b" stdout F  two  spaces \r\n", LogLine(T, b"stdout", False, b" two  spaces \r"), id="spaces"),
        pytest.param(
            b"2016-10-06T00:17:09+02:00 stdout F a\n",
            LogLine(b"2016-10-06T00:17:09+02:00", b"stdout", False, b"a"),
            id="offset",
        ),
        pytest.param(T + b" stdin F x\n", None, id="no such stream"),
        pytest.param(b"today stdout F x\n", None, id="no time"),
        pytest.param(T + b" stdout F", None, id="cut off"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b'{"log":"docker\\n","stream":"stdout"}\n', None, id="another format"),
    ],
)
def test_a_line_is_read_as_a_kubelet_reads_it(line: bytes, read: LogLine | None) -> None:
    assert parse(line) == read


@given(st.sampled_from([b"stdout", b"stderr"]), st.binary().filter(lambda data: b"\n" not in data), st.booleans())
def test_what_is_written_is_read_back(stream: bytes, content: bytes, partial: bool) -> None:
    assert parse(log_line(T, stream, content, partial=partial)) == LogLine(T, stream, partial, content)


@given(
    st.datetimes(datetime.fromisoformat("1601-01-01"), datetime.fromisoformat("9998-12-31")),
    st.integers(-23 * 60, 23 * 60),
    st.integers(0, 999),
)
def test_times_are_those_of_the_calendar(moment: datetime, offset_minutes: int, nanos: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    begin, zone = aware.strftime("%Y-%m-%dT%H:%M:%S"), aware.strftime("%z")
    text = f"{moment.year:04d}{begin[begin.index('-') :]}.{moment.microsecond:06d}{nanos:03d}{zone[:3]}:{zone[3:]}"
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000 + nanos
    assert unix_nanos(text) == expected
    assert unix_nanos(fixed_time(text.encode()).decode()) == expected


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        (b"2016-10-06T00:17:09Z", b"2016-10-06T00:17:09.000000000Z"),
        (b"2016-10-06T00:17:09.5+00:00", b"2016-10-06T00:17:09.500000000Z"),
        (b"2016-10-06T00:17:09.669794202-07:30", b"2016-10-06T00:17:09.669794202-07:30"),
        (T, T),
        (b"never", b"never"),
    ],
)
def test_times_are_shown_with_nine_decimals(time: bytes, shown: bytes) -> None:
    assert fixed_time(time) == shown


def test_what_is_no_time_has_no_number() -> None:
    assert unix_nanos("2016-10-06 00:17:09Z") is None
