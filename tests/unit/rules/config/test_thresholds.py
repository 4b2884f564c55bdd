"""Eviction thresholds: grammar, defaults, derived ones, reservation (spec 04 §2, 01 N-5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    CONTAINERFS_AVAILABLE,
    CONTAINERFS_INODES_FREE,
    DEFAULT_EVICTION_HARD,
    IMAGEFS_AVAILABLE,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    SIGNALS,
    Threshold,
    ThresholdValue,
    eviction_hard,
    eviction_reservation,
    flag_map,
    fs_layout,
    parsed_thresholds,
    with_containerfs,
)
from plimsoll.rules.quantity import QUANTITIES, from_units

MEM = MEMORY_AVAILABLE


def quantity(text: str) -> ThresholdValue:
    return ThresholdValue(QUANTITIES[text])


def refusal(**maps: Any) -> InvalidConfigError:
    with pytest.raises(InvalidConfigError) as caught:
        parsed_thresholds(
            maps.get("hard", {}), maps.get("soft", {}), maps.get("grace", {}), maps.get("reclaim", {}), ["pods"]
        )
    return caught.value


@pytest.mark.parametrize("signal", sorted(SIGNALS))
def test_every_signal_in_every_map(signal: str) -> None:
    found = parsed_thresholds({signal: "1Gi"}, {signal: "2Gi"}, {signal: "1m30s"}, {signal: "5Mi"})
    assert found == (
        Threshold(signal, quantity("1Gi"), 0.0, quantity("5Mi")),
        Threshold(signal, quantity("2Gi"), 90.0, quantity("5Mi")),
    )
    assert [each.hard for each in found] == [True, False]


@pytest.mark.parametrize("signal", ["", "foo", "memory.Available", "nodefs", "memory", " memory.available"])
@pytest.mark.parametrize("where", ["hard", "soft", "grace", "reclaim"])
def test_an_unknown_signal(where: str, signal: str) -> None:
    assert refusal(**{where: {signal: "1s"}}).reason == f"unsupported eviction signal {signal}"


_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_THRESHOLD_ERRORS = {
    "abc": _FORMAT,
    "": _FORMAT,
    " 1Gi": _FORMAT,
    "1Gi ": _FORMAT,
    "%": 'strconv.ParseFloat: parsing "": invalid syntax',
    "1.2.3%": 'strconv.ParseFloat: parsing "1.2.3": invalid syntax',
    "abc%": 'strconv.ParseFloat: parsing "abc": invalid syntax',
    "-5%": f"eviction percentage threshold {MEM} must be >= 0%: -5%",
    "-0.1%": f"eviction percentage threshold {MEM} must be >= 0%: -0.1%",
    "101%": f"eviction percentage threshold {MEM} must be <= 100%: 101%",
    "inf%": f"eviction percentage threshold {MEM} must be <= 100%: inf%",
    "0": f"eviction threshold {MEM} must be positive: 0",
    "0Mi": f"eviction threshold {MEM} must be positive: 0",
    "-1Gi": f"eviction threshold {MEM} must be positive: -1Gi",
    "-1024Mi": f"eviction threshold {MEM} must be positive: -1Gi",
}


@pytest.mark.parametrize("text", _THRESHOLD_ERRORS)
@pytest.mark.parametrize(("where", "path"), [("hard", "evictionHard"), ("soft", "evictionSoft")])
def test_a_refused_threshold(where: str, path: str, text: str) -> None:
    error = refusal(**{where: {MEM: text}})
    assert error.reason == _THRESHOLD_ERRORS[text]
    assert error.path == f"{path}[{MEM}]"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-30s", "invalid eviction grace period specified: -30s, must be a positive value"),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("30", 'time: missing unit in duration "30"'),
        ("", 'time: invalid duration ""'),
    ],
)
def test_a_refused_grace_period(text: str, reason: str) -> None:
    assert refusal(grace={MEM: text}).reason == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0%", f"eviction percentage minimum reclaim {MEM} must be positive: 0%"),
        ("-5%", f"eviction percentage minimum reclaim {MEM} must be positive: -5%"),
        ("inf%", f"eviction percentage minimum reclaim {MEM} must be finite: inf%"),
        ("x%", 'strconv.ParseFloat: parsing "x": invalid syntax'),
        ("-1", f"negative eviction minimum reclaim specified for {MEM}"),
        ("x", _FORMAT),
    ],
)
def test_a_refused_minimum_reclaim(text: str, reason: str) -> None:
    assert refusal(reclaim={MEM: text}).reason == reason


@pytest.mark.parametrize("text", ["0", "0Mi", "1Gi", "150%"])
def test_minimum_reclaim_may_be_nothing_or_more_than_all(text: str) -> None:
    (found,) = parsed_thresholds({MEM: "1Gi"}, minimum_reclaim={MEM: text})
    assert found.min_reclaim == (ThresholdValue(percentage=1.5) if text == "150%" else quantity(text))


def test_a_soft_threshold_needs_a_grace_period() -> None:
    error = refusal(soft={MEM: "1Gi"}, grace={NODEFS_AVAILABLE: "1s"})
    assert error.reason == f"grace period must be specified for the soft eviction threshold {MEM}"


def test_a_dropped_soft_threshold_needs_none() -> None:
    assert parsed_thresholds({}, {MEM: "0%", NODEFS_AVAILABLE: "100%"}) == ()


def test_the_maps_are_read_in_order() -> None:
    maps: dict[str, dict[str, str]] = {
        "hard": {MEM: "bad hard"},
        "soft": {MEM: "bad soft%"},
        "grace": {MEM: "x"},
        "reclaim": {MEM: "-1"},
    }
    reasons = []
    for name in tuple(maps):
        reasons.append(refusal(**maps).reason)
        maps[name] = {}
    assert reasons == [
        _FORMAT,
        'strconv.ParseFloat: parsing "bad soft": invalid syntax',
        'time: invalid duration "x"',
        f"negative eviction minimum reclaim specified for {MEM}",
    ]


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_only_the_exact_texts_switch_a_signal_off(text: str) -> None:
    assert parsed_thresholds({MEM: text}) == ()


@pytest.mark.parametrize(("text", "share"), [("0.0%", 0.0), ("00%", 0.0), ("100.0%", 1.0), ("50%%", 0.5)])
def test_other_spellings_are_thresholds(text: str, share: float) -> None:
    assert parsed_thresholds({MEM: text}) == (Threshold(MEM, ThresholdValue(percentage=share)),)


# N-5 and §13a: the percentage is a float32.
@pytest.mark.parametrize(
    ("percent", "capacity", "amount"),
    [
        pytest.param("5%", 269509181440, 13475459272, id="N-5"),
        pytest.param("10%", 107374182400, 10737418400, id="13a"),
        pytest.param("50%", 101, 50, id="truncated"),
        pytest.param("100.0%", 12345, 12345, id="everything"),
    ],
)
def test_a_share_of_the_capacity(percent: str, capacity: int, amount: int) -> None:
    (found,) = parsed_thresholds({MEM: percent})
    assert found.value.of(from_units(capacity)) == from_units(amount)


def test_a_share_prints_as_binary_and_a_quantity_unchanged() -> None:
    share, absolute = ThresholdValue(percentage=0.5), quantity("1Gi")
    assert str(share.of(from_units(4096))) == "2Ki"
    assert str(absolute.of(from_units(1))) == "1Gi"


def test_capacity_beyond_any_machine_does_not_overflow() -> None:
    assert ThresholdValue(percentage=0.5).of(QUANTITIES["1e400"]).value == 2**62


@given(st.integers(0, 100), st.integers(0, 2**50))
def test_a_share_is_within_the_capacity(percent: int, capacity: int) -> None:
    found = parsed_thresholds({MEM: f"{percent}.0%"})
    value = found[0].value.of(from_units(capacity)).value
    assert 0 <= value <= capacity
    assert abs(value - capacity * percent // 100) <= 1 + (capacity >> 22)


# §2.4


def test_hard_memory_is_doubled_for_the_pods() -> None:
    found = parsed_thresholds(
        {MEM: "100Mi", NODEFS_AVAILABLE: "10%"}, {MEM: "1Gi"}, {MEM: "90s"}, {MEM: "500Mi"}, ["pods"]
    )
    assert found[-1] == Threshold(ALLOCATABLE_MEMORY_AVAILABLE, quantity("100Mi"), 0.0, quantity("500Mi"))
    assert [each.signal for each in found] == [MEM, NODEFS_AVAILABLE, MEM, ALLOCATABLE_MEMORY_AVAILABLE]


def test_a_soft_threshold_without_grace_is_hard_and_doubled_too() -> None:
    found = parsed_thresholds({MEM: "100Mi"}, {MEM: "1Gi"}, {MEM: "0s"}, None, ["none", "pods"])
    assert [(each.signal, str(each.value.quantity)) for each in found if each.hard] == [
        (MEM, "100Mi"),
        (MEM, "1Gi"),
        (ALLOCATABLE_MEMORY_AVAILABLE, "100Mi"),
        (ALLOCATABLE_MEMORY_AVAILABLE, "1Gi"),
    ]


@pytest.mark.parametrize("enforced", [[], ["none"], ["kube-reserved"]])
def test_without_enforcement_there_is_nothing_to_derive(enforced: list[str]) -> None:
    assert [each.signal for each in parsed_thresholds({MEM: "1Gi"}, enforce_node_allocatable=enforced)] == [MEM]


# §2.2


def test_default_maps() -> None:
    assert eviction_hard(None) == DEFAULT_EVICTION_HARD
    assert dict(DEFAULT_EVICTION_HARD) == {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }
    assert eviction_hard({}) == {}
    assert eviction_hard({MEM: "1Gi"}) == {MEM: "1Gi"}
    assert eviction_hard({MEM: "1Gi"}, merge_defaults=True) == {**DEFAULT_EVICTION_HARD, MEM: "1Gi"}


@pytest.mark.parametrize(
    ("text", "separator", "found"),
    [
        ("memory.available<500Mi,nodefs.available<10%", "<", {MEM: "500Mi", NODEFS_AVAILABLE: "10%"}),
        ("memory.available=1m30s", "=", {MEM: "1m30s"}),
        (" memory.available = 0Mi ,", "=", {MEM: "0Mi"}),
        ("", "<", {}),
    ],
)
def test_the_form_of_flags(text: str, separator: Any, found: dict[str, str]) -> None:
    assert flag_map(text, separator) == found


def test_a_malformed_flag() -> None:
    with pytest.raises(InvalidConfigError, match="malformed pair, expect string<string"):
        flag_map("memory.available=1Gi", "<")


# §1: containerfs


@pytest.mark.parametrize(
    ("dedicated", "split", "layout", "source"),
    [
        (False, False, "single", "nodefs"),
        (False, True, "single", "nodefs"),
        (True, False, "dedicated", "imagefs"),
        (True, True, "split", "nodefs"),
    ],
)
def test_containerfs_follows_the_file_system_it_lies_on(dedicated: bool, split: bool, layout: str, source: str) -> None:
    given_ = {
        NODEFS_AVAILABLE: "1Gi",
        IMAGEFS_AVAILABLE: "2Gi",
        CONTAINERFS_AVAILABLE: "7Gi",
        CONTAINERFS_INODES_FREE: "9",
    }
    soft = {NODEFS_AVAILABLE: "3Gi", IMAGEFS_AVAILABLE: "4Gi"}
    thresholds = parsed_thresholds(given_, soft, dict.fromkeys(soft, "1m"))
    assert fs_layout(dedicated, split) == layout
    derived = [
        each for each in with_containerfs(thresholds, fs_layout(dedicated, split)) if "containerfs" in each.signal
    ]
    hard, soft_text = ("2Gi", "4Gi") if source == "imagefs" else ("1Gi", "3Gi")
    assert derived == [
        Threshold(CONTAINERFS_AVAILABLE, quantity(hard)),
        Threshold(CONTAINERFS_AVAILABLE, quantity(soft_text), 60.0),
    ]


def test_containerfs_of_inodes() -> None:
    thresholds = with_containerfs(parsed_thresholds({NODEFS_INODES_FREE: "5%"}), "single")
    assert [each.signal for each in thresholds] == [NODEFS_INODES_FREE, CONTAINERFS_INODES_FREE]


# N-5


def test_what_hard_thresholds_reserve() -> None:
    capacity = {"memory": QUANTITIES["8Gi"], "ephemeral-storage": QUANTITIES["100Gi"], "cpu": QUANTITIES["4"]}
    found = eviction_reservation(parsed_thresholds(DEFAULT_EVICTION_HARD), capacity)
    assert {name: str(value) for name, value in found.items()} == {
        "memory": "100Mi",
        "ephemeral-storage": "10737418400",
    }


def test_a_share_of_what_the_node_lacks_is_nothing() -> None:
    assert eviction_reservation(parsed_thresholds({NODEFS_AVAILABLE: "10%"}), {}) == {
        "ephemeral-storage": from_units(0)
    }
    assert eviction_reservation(parsed_thresholds({MEM: "100%"}), {"memory": QUANTITIES["1Gi"]}) == {}
