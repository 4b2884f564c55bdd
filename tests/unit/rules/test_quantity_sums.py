"""Texts of sums, differences and maxima against a model of the real Quantity (`tests.go_quantity`), formats mixed.

The model keeps both representations of the real type, so it takes other ways to a text than `rules.quantity` does.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.rules.quantity import MAX_INT64, Quantity, parse
from plimsoll.rules.resources.effective import aggregate, with_overhead
from tests import go_quantity
from tests.examples import examples

SUMS = [
    # terms, text
    (("1E1", "1m"), "10001e-3"),
    (("10001e-3", "0"), "10001e-3"),
    (("0", "10001e-3"), "10001e-3"),
    (("0e0", "10001m"), "10001m"),
    (("0Ki", "1e1", "1m"), "10001e-3"),
    (("1e1", "0.0001"), "10000100e-6"),
    (("5e-9", "1"), "1000000005e-9"),
    (("1Ki", "1e3"), "2024"),
    (("1e3", "1Ki"), "2024"),
    (("1e3", "24"), "1024"),
    (("1Ki", "0.5"), "1024500m"),
    (("0.5Gi", "1e9"), "1536870912"),
    (("9223372036854775807", "1e0"), "9223372036854775808"),
    (("9e18", "9e18"), "18e18"),
]


@pytest.mark.parametrize(("terms", "text"), SUMS, ids=[" + ".join(terms) for terms, _ in SUMS])
def test_text_of_a_sum(terms: tuple[str, ...], text: str) -> None:
    assert str(reduce(add, map(go_quantity.parse, terms))) == text
    assert str(reduce(add, map(parse, terms))) == text


digits = st.integers(0, 9999999).map(str) | st.sampled_from(["0", "00", "01", "1000", "123456789012345678"])
fractions = st.integers(0, 10**11).map(lambda number: f".{number}") | st.sampled_from(["", ".", ".0", ".001"])
suffixes = st.sampled_from(
    [
        "",
        "n",
        "u",
        "m",
        "k",
        "M",
        "G",
        "T",
        "P",
        "Ki",
        "Mi",
        "Gi",
        "Ti",
        "Pi",
        "e0",
        "E1",
        "e-1",
        "e-3",
        "e-7",
        "e3",
        "e10",
        "E+2",
    ]
)
texts = st.builds("".join, st.tuples(st.sampled_from(["", "", "", "+"]), digits, fractions, suffixes))
signed = st.builds("".join, st.tuples(st.sampled_from(["", "-"]), texts.filter(lambda text: text[0] != "+")))
LARGEST = {"DecimalSI": 10**21, "BinarySI": 1 << 70}  # beyond, the real code prints no suffix


def assert_same(own: Quantity, real: go_quantity.GoQuantity) -> None:
    assume(abs(own.value) < LARGEST.get(own.format, 1 << 200))
    assert (str(own), own.format) == (str(real), real.format)
    if 0 <= own.milli <= MAX_INT64:
        assert (own.value, own.milli) == (real.as_int64(), real.as_int64(go_quantity.MILLI))
    rounded = real.rounded_to_milli()
    assert str(own.rounded_to_milli()) == str(rounded)


@settings(max_examples=examples(900), deadline=None)
@given(st.lists(texts, min_size=1, max_size=4))
def test_sums(terms: list[str]) -> None:
    assert_same(reduce(add, map(parse, terms)), reduce(add, map(go_quantity.parse, terms)))


@settings(max_examples=examples(900), deadline=None)
@given(signed, signed, signed)
def test_differences(first: str, second: str, third: str) -> None:
    own = parse(first) - parse(second) + parse(third)
    assert_same(own, go_quantity.parse(first) - go_quantity.parse(second) + go_quantity.parse(third))


Amounts = list[tuple[bool, str | None]]


def real_peak(regular: list[str | None], init: Amounts, overhead: str | None) -> go_quantity.GoQuantity | None:
    """addResourceList and maxResourceList for one resource: the first amount is a copy and keeps its text."""

    def plus(total: go_quantity.GoQuantity | None, text: str | None) -> go_quantity.GoQuantity | None:
        if text is None:
            return total
        amount = go_quantity.parse(text).rounded_to_milli()
        return amount if total is None else total + amount

    total, sidecars, largest = reduce(plus, regular, None), None, None
    for sidecar, text in init:
        if sidecar:
            total, sidecars = plus(total, text), plus(sidecars, text)
            moment = sidecars
        else:
            moment = plus(None, text)
            if sidecars is not None:
                moment = sidecars if moment is None else moment + sidecars
        if moment is not None and (largest is None or largest < moment):
            largest = moment
    if largest is not None and (total is None or total < largest):
        total = largest
    return total if total is None or total.is_zero else plus(total, overhead)


maybe = st.none() | texts


@settings(max_examples=examples(600), deadline=None)
@given(st.lists(maybe, max_size=3), st.lists(st.tuples(st.booleans(), maybe), max_size=3), maybe)
def test_aggregates(regular: list[str | None], init: Amounts, overhead: str | None) -> None:
    """Of limits: sums over containers, sidecars beside init containers, the largest moment, and overhead."""

    def listed(text: str | None) -> dict[str, Quantity]:
        return {} if text is None else {"cpu": parse(text).rounded_to_milli()}

    own = aggregate([listed(each) for each in regular], [(sidecar, listed(each)) for sidecar, each in init])
    own = with_overhead(own, listed(overhead))
    real = real_peak(regular, init, overhead)
    assert own.keys() == ({"cpu"} if real is not None else set())
    if real is not None:
        assert_same(own["cpu"], real)
