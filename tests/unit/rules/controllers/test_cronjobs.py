"""Schedules and CronJobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from plimsoll.rules.controllers.cron_schedule import ScheduleError, parsed_schedule
from plimsoll.rules.controllers.cronjobs import cron_step, due
from tests.unit.rules.controllers.documents import NOW_S, REFERENCE, Json, ago

BERLIN = ZoneInfo("Europe/Berlin")


def _at(text: str, zone: Any = UTC) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("*/15 * * * *", "2026-11-16 00:00", "2026-11-16 00:15"),
        ("0 0 * * *", "2026-11-16 00:00", "2026-11-17 00:00"),
        ("30 3 1 * *", "2026-11-16 00:00", "2026-12-01 03:30"),
        ("0 12 * * MON-FRI", "2026-11-13 12:00", "2026-11-16 12:00"),
        ("0 0 13 * FRI", "2026-11-16 00:00", "2026-11-20 00:00"),  # one of the two is enough
        ("0 0 13 */1 ?", "2026-11-16 00:00", "2026-12-13 00:00"),
        ("5/20 * * * *", "2026-11-16 00:30", "2026-11-16 00:45"),
        ("0 0 29 feb *", "2026-11-16 00:00", "2028-02-29 00:00"),
        ("@yearly", "2026-11-16 00:00", "2027-01-01 00:00"),
        ("@weekly", "2026-11-16 00:00", "2026-11-22 00:00"),
        ("@every 90s", "2026-11-16 00:00", "2026-11-16 00:01:30"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert parsed_schedule(schedule).after(_at(after)) == _at(expected)


def test_time_zones() -> None:
    daily = parsed_schedule("30 2 * * *")
    # On 2026-03-29 the clock goes from 02:00 to 03:00 there: 02:30 does not exist.
    assert daily.after(_at("2026-03-28 12:00", BERLIN), BERLIN) == _at("2026-03-30 02:30", BERLIN)
    assert daily.after(_at("2026-07-01 00:00"), BERLIN) == _at("2026-07-01 00:30")
    assert parsed_schedule("0 0 30 2 *").after(NOW_S) is None


@given(st.integers(0, 59), st.integers(0, 23), st.integers(0, 10**7))
def test_a_daily_time_is_at_most_a_day_away(minute: int, hour: int, offset: int) -> None:
    found = parsed_schedule(f"{minute} {hour} * * *").after(NOW_S + offset)
    assert found is not None and 0 < found - NOW_S - offset <= 86400
    local = datetime.fromtimestamp(found, UTC)
    assert (local.minute, local.hour, local.second) == (minute, hour, 0)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("error", "expected exactly 5 fields, found 1: [error]"),
        ("", "empty spec string"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@now", "unrecognized descriptor: @now"),
    ],
)
def test_no_schedule(schedule: str, message: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        parsed_schedule(schedule)
    assert str(raised.value) == message


@example(7380, "* * * * *")
@given(st.integers(0, 10**6), st.sampled_from(["* * * * *", "*/7 * * * *", "0 */3 * * *", "13 4 * * *"]))
def test_only_the_last_missed_time_counts(elapsed_s: int, text: str) -> None:
    schedule, now_s = parsed_schedule(text), NOW_S + elapsed_s
    last, missed = due(schedule, NOW_S, now_s, UTC)
    assume(missed > 0)
    following = None if last is None else schedule.after(last)
    assert last is not None and last <= now_s and following is not None and following > now_s


def _cron(**spec: Any) -> Json:
    metadata = {"name": "c", "creationTimestamp": ago(3600)}
    return {"metadata": metadata, "spec": {"schedule": "* * * * *", "jobTemplate": {}, **spec}}


def _job(name: str, type_: str = "", started_s: float = 30) -> Json:
    conditions = [{"type": type_, "status": "True"}] if type_ else []
    status = {"startTime": ago(started_s), "completionTime": ago(10), "conditions": conditions}
    return {"metadata": {"name": name, "uid": name}, "status": status}


def _step(cron: Json, jobs: list[Json]) -> Any:
    return cron_step(cron, jobs, parsed_schedule(cron["spec"]["schedule"]), UTC, NOW_S, REFERENCE)


@pytest.mark.parametrize(
    ("spec", "jobs", "starts", "deleted"),
    [
        ({}, [], True, []),
        ({"suspend": True}, [], False, []),
        ({"concurrencyPolicy": "Allow"}, [_job("x")], True, []),
        ({"concurrencyPolicy": "Forbid"}, [_job("x")], False, []),
        ({"concurrencyPolicy": "Replace"}, [_job("x")], True, ["x"]),
        ({"concurrencyPolicy": "Forbid"}, [_job("x", "Complete")], True, []),
        ({}, [_job(f"c-{int(NOW_S) // 60}")], False, []),
        (
            {"suspend": True, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0},
            [_job("a", "Complete", 90), _job("b", "Complete", 30), _job("d", "Failed")],
            False,
            ["a", "d"],
        ),
    ],
)
def test_steps(spec: Json, jobs: list[Json], starts: bool, deleted: list[str]) -> None:
    step = _step(_cron(**spec), jobs)
    assert (step.create is not None) == starts
    assert sorted(each["metadata"]["name"] for each in step.delete) == deleted


def test_a_job_is_named_by_its_minute() -> None:
    step = _step(_cron(), [])
    assert step.create["metadata"]["name"] == f"c-{int(NOW_S) // 60}"
    assert step.create["metadata"]["annotations"] == {"batch.kubernetes.io/cronjob-scheduled-timestamp": ago(0)}
    assert step.requeue_s == pytest.approx(60.1)
    late = _step(_cron(schedule="0 12 * * *", startingDeadlineSeconds=60), [])
    assert late.create is None
