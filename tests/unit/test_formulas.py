"""The tests' own calculator: if it were wrong, every formula would pass."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.unit.formulas import outcome, steps, value_of

VALUES = [
    ("1 + 2 · 3", Fraction(7)),
    ("(1 + 2) · 3", Fraction(9)),
    ("7 − 2 − 1", Fraction(4)),
    ("⌊7 / 2⌋", Fraction(3)),
    ("⌈7 / 2⌉ · 2", Fraction(8)),
    ("1 / 3", Fraction(1, 3)),
    ("2^62", Fraction(1 << 62)),
    ("3² + 1", Fraction(10)),
    ("max(1 + 1, 5, 3)", Fraction(5)),
    ("min(−4, 2)", Fraction(-4)),
    ("1000 − ⌊1000 · (5 + 3) / 7⌋", Fraction(1000 - 1142)),
    ("0.1 + 0.2", Fraction(3, 10)),
    ("1e-3 · 1000", Fraction(1)),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[row[0] for row in VALUES])
def test_value(text: str, value: Fraction) -> None:
    assert value_of(text) == value


def test_doubles_round_as_doubles_do() -> None:
    assert value_of("0.1 + 0.2", doubles=True) == 0.1 + 0.2 != 0.3
    assert value_of("⌈10^((10.000000² + 125 · 10.000000) / 612 − 7 / 34)⌉", doubles=True) == 100


@pytest.mark.parametrize("text", ["1 +", "1 2", "(1", "max(1", "x", "⌊1)", ""])
def test_invalid_formulas_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"wanted|left over|Invalid|could not"):
        value_of(text)


def test_steps_and_outcome() -> None:
    formula = "1 + 1 = 2; whole percents: ⌈2 / 3⌉ = 1; the most: 10000"
    assert steps(formula) == [("1 + 1", "2"), ("⌈2 / 3⌉", "1")]
    assert outcome(formula) == "10000"
    assert outcome("1 + 1 = 2") == "2"
    assert outcome("no cpu request: 2, the least") == "2"
