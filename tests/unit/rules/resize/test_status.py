"""What a container's status says of its resources (spec 03 §9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.model.objects import Resources
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resize.status import status_resources
from plimsoll.rules.resources.cpu import quota_us, shares
from plimsoll.rules.resources.values import Values

GI = 2**30


def resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> Resources:
    return Resources(
        *(
            {key: QUANTITIES[text] for key, text in each.items()} if each is not None else None
            for each in (requests, limits)
        )
    )


def texts(found: Resources) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    shown = [
        None if each is None else {key: str(value) for key, value in each.items()}
        for each in (found.requests, found.limits)
    ]
    return shown[0], shown[1]


A = resources({"cpu": "2", "memory": "2Gi", "example.com/gpu": "1"}, {"cpu": "2", "memory": "2Gi"})


def test_not_running_shows_what_is_allocated() -> None:
    assert status_resources(A, running=False, reported=Values(2, 1000, 100000, 1)) is A


def test_reported_values_replace_allocated_ones() -> None:
    found = status_resources(
        A, running=True, reported=Values(1024, 100000, 100000, GI), actuated=resources({"memory": "1Gi"})
    )
    assert texts(found) == (
        {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
        {"cpu": "1", "memory": "1Gi"},
    )


# §9's table and its examples
@pytest.mark.parametrize(
    ("allocated", "reported", "expected"),
    [
        pytest.param({"cpu": "1600m"}, 1638, "1600m", id="1638 shares"),
        pytest.param({"cpu": "3m"}, 3, "3m", id="3 shares"),
        pytest.param({"cpu": "100m"}, 102, "100m", id="102 shares"),
        pytest.param({"cpu": "1m"}, 2, "1m", id="1m is kept"),
        pytest.param({"cpu": "0"}, 2, "0", id="0 is kept"),
        pytest.param({"cpu": "1"}, 2, "2m", id="the allocated one is larger"),
        pytest.param({"cpu": "1m"}, 1024, "1", id="the reported one is larger"),
        pytest.param({"cpu": "500m"}, 0, "500m", id="unknown"),
        pytest.param({"memory": "1Gi"}, 2, None, id="no cpu request, least shares"),
        pytest.param({"memory": "1Gi"}, 1024, "1", id="no cpu request, but shares"),
    ],
)
def test_the_cpu_request(allocated: dict[str, str], reported: int, expected: str | None) -> None:
    found = status_resources(resources(allocated), running=True, reported=Values(cpu_shares=reported))
    assert (texts(found)[0] or {}).get("cpu") == expected


@pytest.mark.parametrize(
    ("allocated", "quota", "period", "expected"),
    [
        pytest.param("2", 150000, 100000, "1500m", id="quota of a period"),
        pytest.param("1", 33333, 100000, "333m", id="truncated"),
        pytest.param("5m", 1000, 100000, "5m", id="both at the least: kept"),
        pytest.param("10m", 1000, 100000, "10m", id="exactly the least"),
        pytest.param("11m", 1000, 100000, "10m", id="the allocated one is larger"),
        pytest.param("5m", 1100, 100000, "11m", id="the reported one is larger"),
        pytest.param("2", -1, 100000, "2", id="unlimited is unknown"),
        pytest.param("2", 100000, 0, "2", id="no period is unknown"),
    ],
)
def test_the_cpu_limit(allocated: str, quota: int, period: int, expected: str) -> None:
    found = status_resources(
        resources(None, {"cpu": allocated}),
        running=True,
        reported=Values(cpu_quota_us=quota, cpu_period_us=period, cpu_shares=1024),
    )
    assert texts(found) == (None, {"cpu": expected})


@pytest.mark.parametrize(("reported", "expected"), [(GI, "1Gi"), (0, "2Gi"), (-1, "2Gi"), (None, "2Gi")])
def test_the_memory_limit(reported: int | None, expected: str) -> None:
    found = status_resources(resources(None, {"memory": "2Gi"}), running=True, reported=Values(memory_bytes=reported))
    assert texts(found)[1] == {"memory": expected}


@pytest.mark.parametrize(
    ("actuated", "expected"), [({"memory": "1Gi"}, "1Gi"), ({"memory": "0"}, "2Gi"), ({}, "2Gi"), (None, "2Gi")]
)
def test_the_memory_request_is_the_actuated_one(actuated: dict[str, str] | None, expected: str) -> None:
    last = None if actuated is None else resources(actuated)
    found = status_resources(resources({"memory": "2Gi"}), running=True, reported=Values(), actuated=last)
    assert texts(found)[0] == {"memory": expected}


def test_a_runtime_that_reports_nothing() -> None:
    actuated = resources({"cpu": "1", "memory": "1Gi"}, {"cpu": "1500m"})
    found = status_resources(A, running=True, actuated=actuated)
    assert texts(found) == (
        {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
        {"cpu": "1500m", "memory": "2Gi"},
    )


def test_the_unknown_is_taken_from_the_previous_status() -> None:
    previous = resources({"cpu": "700m", "memory": "3Gi"}, {"cpu": "900m", "memory": "4Gi", "example.com/gpu": "9"})
    found = status_resources(A, running=True, reported=Values(), previous=previous)
    assert texts(found) == (
        {"cpu": "700m", "memory": "3Gi", "example.com/gpu": "1"},
        {"cpu": "900m", "memory": "4Gi"},
    )


def test_only_lists_that_were_allocated_are_filled() -> None:
    everything: dict[str, Any] = {"reported": Values(1024, 100000, 100000, GI), "actuated": A, "previous": A}
    assert texts(status_resources(resources(), running=True, **everything)) == (None, None)
    assert texts(status_resources(resources({}, None), running=True, **everything))[1] is None


@given(st.integers(3, 250_000))
def test_a_request_survives_the_way_through_the_kernel_nearly(milli: int) -> None:
    allocated = resources({"cpu": f"{milli}m"}, {"cpu": f"{milli}m"})
    reported = Values(shares(milli), quota_us(milli), 100_000)
    found = status_resources(allocated, running=True, reported=reported)
    assert found.requests is not None and found.limits is not None
    assert 0 <= milli - found.requests["cpu"].milli <= 1
    assert found.limits["cpu"].milli == milli
