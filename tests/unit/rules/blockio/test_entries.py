"""The texts of limits and targets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.blockio.entries import (
    IoEntry,
    IoTextError,
    amount_formula,
    by_device,
    latency_entries,
    limit_entries,
)
from tests.unit.formulas import steps, value_of


def found(entries: tuple[IoEntry, ...]) -> list[tuple[str, dict[str, int | None]]]:
    return [(entry.device, entry.values) for entry in entries]


FINE = [
    ("one", "wbps=10485760", [("", {"wbps": 10485760})]),
    ("a quantity", "rbps=20Mi wbps=1.5M", [("", {"rbps": 20 << 20, "wbps": 1_500_000})]),
    ("operations", "riops=100 wiops=4294967294", [("", {"riops": 100, "wiops": 4294967294})]),
    ("no limit", "rbps=max", [("", {"rbps": None})]),
    ("a device", "/dev/vdb wbps=1", [("/dev/vdb", {"wbps": 1})]),
    ("two entries", "wbps=1k; /dev/mapper/a-b wbps=max", [("", {"wbps": 1000}), ("/dev/mapper/a-b", {"wbps": None})]),
    ("lines", "wbps=1\n/dev/vdb wbps=2\n", [("", {"wbps": 1}), ("/dev/vdb", {"wbps": 2})]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), [row[1:] for row in FINE], ids=[row[0] for row in FINE])
def test_limits(text: str, wanted: list[tuple[str, dict[str, int | None]]]) -> None:
    assert found(limit_entries(text)) == wanted


WRONG = [
    ("empty", "", "empty: expected rbps=20Mi"),
    ("only separators", " ; ", "empty"),
    ("a word", "fast", "'fast' is not the path of a device"),
    ("a path out of dev", "/dev/../etc/passwd wbps=1", "is not the path of a device"),
    ("a device alone", "/dev/vda", "/dev/vda without a value"),
    ("an unknown key", "bps=1", "expected KEY=VALUE with one of rbps, wbps, riops, wiops"),
    ("a number alone", "wbps=1 5", "expected KEY=VALUE"),
    ("twice", "wbps=1 wbps=2", "wbps is set twice"),
    ("nothing", "wbps=", "'' is not a number of bytes"),
    ("zero", "wbps=0", "at least 1 byte"),
    ("negative", "wbps=-1", "at least 1 byte"),
    ("too large", "wbps=9e19", "63 bits"),
    ("a fraction of an operation", "riops=1.5", "is not a number of operations"),
    ("more operations than the kernel counts", "riops=4294967295", "is not a number of operations"),
    ("long", "wbps=1;" * 1000, "longer than 4096"),
]


@pytest.mark.parametrize(("text", "reason"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(IoTextError) as raised:
        limit_entries(text)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("text", "target_us"), [("target=10ms", 10_000), ("target=1s", 1_000_000), ("target=500us", 500), ("target=max", None)]
)  # fmt: skip
def test_targets(text: str, target_us: int | None) -> None:
    assert found(latency_entries(text)) == [("", {"target": target_us})]


@pytest.mark.parametrize("text", ["target=10", "target=0ms", "target=1ns", "target=2m", "wbps=1", "target=-1ms"])
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(IoTextError):
        latency_entries(text)


def test_a_later_entry_overrides_an_earlier_one() -> None:
    entries = limit_entries("wbps=1 rbps=5; /dev/vdb wbps=max riops=3")
    assert by_device(entries, ["/dev/vda", "/dev/vdb"]) == {
        "/dev/vda": {"wbps": 1, "rbps": 5},
        "/dev/vdb": {"wbps": None, "rbps": 5, "riops": 3},
    }


def test_a_device_that_the_node_does_not_control() -> None:
    with pytest.raises(IoTextError, match=r"/dev/vdc is not a device that this node controls .*devices: /dev/vda"):
        by_device(limit_entries("/dev/vdc wbps=1"), ["/dev/vda"])


@given(st.integers(1, 10**6), st.sampled_from(["Ki", "Mi", "Gi", "k", "M", "G", ""]), st.booleans())
def test_a_formula_comes_to_its_amount(number: int, unit: str, tenths: bool) -> None:
    text = f"{number}.3{unit}" if tenths and unit else f"{number}{unit}"
    ((_, values),) = found(limit_entries(f"wbps={text}"))
    amount = values["wbps"]
    assert amount is not None
    formula = amount_formula("wbps", text, amount)
    assert bool(formula) == bool(unit)
    for step in steps(formula):
        assert value_of(step.expression) == value_of(step.result) == amount
