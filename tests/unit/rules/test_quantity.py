"""Quantities (spec 01 §1): grammar, errors, value, canonical text, roundings, arithmetic."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.quantity import (
    FORMAT_ERROR,
    NUMERIC_ERROR,
    QUANTITIES,
    SUFFIX_ERROR,
    ZERO,
    ZERO_BYTES,
    Quantity,
    from_milli,
    from_units,
    parse,
)
from tests.examples import examples
from tests.unit.strategies import amounts, positive_texts, quantity_texts, wild_texts

NANO = 10**9
MAX_INT64 = 2**63 - 1

# --- tables ---

CANONICAL = [
    # the table of 01 §1.4
    ("Q-9", "1.5", "1500m"),
    ("Q-9", "0.5", "500m"),
    ("Q-9", "2000m", "2"),
    ("Q-9", "1000", "1k"),
    ("Q-9", "1500", "1500"),
    ("Q-9", "1000M", "1G"),
    ("Q-9", "1.08", "1080m"),
    ("Q-9", "1.5e3", "1500"),
    ("Q-9", "128974848000m", "128974848"),
    ("Q-9", "1024Mi", "1Gi"),
    ("Q-9", "1.5Gi", "1536Mi"),
    ("Q-9", "0.5Ki", "512"),
    ("Q-9", ".001Ki", "1024m"),
    ("Q-9", "100.035Ki", "102435840m"),
    ("Q-9", "0Ki", "0"),
    ("Q-9", "263192560Ki", "263192560Ki"),
    ("Q-9", "0.0001", "100u"),
    ("Q-10 sign only when negative", "-1.5", "-1500m"),
    ("Q-10 the same for binary", "-2048Ki", "-2Mi"),
    # the text that is kept
    ("Q-11 kept", "1.123", "1.123"),
    ("Q-11 kept", "100.035k", "100.035k"),
    ("Q-11 kept", "+5", "+5"),
    ("Q-11 kept", "1E3", "1E3"),
    ("Q-11 kept", "01Ki", "01Ki"),
    ("Q-11 kept", "1.500", "1.500"),
    ("Q-11 not a multiple of three", "1.5", "1500m"),
    ("Q-11 not a multiple of three", "1.08", "1080m"),
    ("Q-11 starts with zero", ".439535", "439535u"),
    ("Q-11 starts with zero", "0.683u", "683n"),
    ("Q-11 starts with zero", "0.3E-2", "3e-3"),
    ("Q-11 ends in 000", "1000m", "1"),
    ("Q-11 zero prints 0", "0.000", "0"),
    ("Q-11 18 digits are kept", "123456789012345678", "123456789012345678"),
    ("Q-11 finer than nano is not", "1.1234567891234", "1123456790n"),
    ("Q-11 binary multiple of 8", "8Ki", "8Ki"),
    ("Q-11 binary 016", "016Ki", "16Ki"),
    ("Q-11 binary digits for Ki: 11", "+12345678901Ki", "+12345678901Ki"),
    ("Q-11 binary digits for Ki: 12 are too many", "+123456789013Ki", "123456789013Ki"),
    ("Q-11 binary digits for Mi: 8", "+12345679Mi", "+12345679Mi"),
    ("Q-11 binary digits for Gi: 5", "+12345Gi", "+12345Gi"),
    ("Q-11 binary digits for Ti: 2", "+13Ti", "+13Ti"),
    ("Q-11 binary digits for Ti: 3 are too many", "+133Ti", "133Ti"),
    ("Q-11 never for Pi", "+1Pi", "1Pi"),
    ("Q-11 never for Ei", "+1Ei", "1Ei"),
    ("Q-12 exponents have no table to leave", "1000e18", "1e21"),
    ("Q-15 fractions of binary", "3.14159Gi", "3373256576860160u"),
]


@pytest.mark.parametrize(
    ("text", "canonical"), [row[1:] for row in CANONICAL], ids=[" ".join(row[:2]) for row in CANONICAL]
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


def test_canonical_binary_below_1024_and_odd() -> None:
    assert str(Quantity(1025 * NANO, "BinarySI")) == "1025"  # the table's `1025` BinarySI
    assert str(Quantity(1023 * NANO, "BinarySI")) == "1023"
    assert str(Quantity(1024 * NANO, "BinarySI")) == "1Ki"
    assert str(Quantity(-1024 * NANO, "BinarySI")) == "-1Ki"
    assert str(Quantity(5, "")) == "5e-9", "Q-8: an unknown format prints as an exponent"
    assert str(Quantity(0, "")) == "0"


ERRORS = [
    ("Q-4", "", FORMAT_ERROR),
    ("Q-1", " 1", FORMAT_ERROR),
    ("Q-1", "1 ", FORMAT_ERROR),
    ("§1.2", "1.1.M", FORMAT_ERROR),
    ("§1.2", "1+1.0M", FORMAT_ERROR),
    ("§1.2", "0x", FORMAT_ERROR),
    ("§1.2", "aoeu", FORMAT_ERROR),
    ("§1.2", "1i", SUFFIX_ERROR),
    ("§1.2", "1e", SUFFIX_ERROR),
    ("§1.2", "-3.01e-", SUFFIX_ERROR),
    ("§1.2", "0.1mi", SUFFIX_ERROR),
    ("Q-2", "1E+", SUFFIX_ERROR),
    ("Q-2", "1K", SUFFIX_ERROR),
    ("Q-2", "1mi", SUFFIX_ERROR),
    ("Q-3", "1+1", SUFFIX_ERROR),
    ("Q-3", "1m3", SUFFIX_ERROR),
    ("newline", "1\n", FORMAT_ERROR),
    ("other digits", "١", FORMAT_ERROR),
    ("NUL", "1\0", FORMAT_ERROR),
    ("too many digits", "1" * 1001, NUMERIC_ERROR),
    ("too large an exponent", "1e1001", NUMERIC_ERROR),
    ("an exponent beyond int64", "1e99999999999999999999", SUFFIX_ERROR),
]


@pytest.mark.parametrize(
    ("text", "sentence"), [row[1:] for row in ERRORS], ids=[f"{row[0]} {row[1][:20]!r}" for row in ERRORS]
)
def test_errors(text: str, sentence: str) -> None:
    with pytest.raises(InvalidQuantityError) as caught:
        parse(text)
    assert str(caught.value).startswith(sentence)
    assert caught.value.text == text


def test_the_three_sentences() -> None:
    """§1.2, literally."""
    assert FORMAT_ERROR == "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    assert SUFFIX_ERROR == "unable to parse quantity's suffix"
    assert NUMERIC_ERROR == "unable to parse numeric part of quantity"


VALUES = [
    ("Q-4", ".", 0, "DecimalSI"),
    ("Q-4", "+", 0, "DecimalSI"),
    ("Q-4", "-", 0, "DecimalSI"),
    ("Q-4", "00", 0, "DecimalSI"),
    ("Q-2 exa", "1E", 10**27, "DecimalSI"),
    ("Q-2 exponent", "1E3", 1000 * NANO, "DecimalExponent"),
    ("Q-2 exponent", "1E+3", 1000 * NANO, "DecimalExponent"),
    ("Q-2 exponent", "1e-3", NANO // 1000, "DecimalExponent"),
    ("Q-5 away from zero", "0.1n", 1, "DecimalSI"),
    ("Q-5 away from zero", "3.001n", 4, "DecimalSI"),
    ("Q-5 away from zero", "-0.1n", -1, "DecimalSI"),
    ("Q-5 far finer", "1e-500", 1, "DecimalExponent"),
    ("Q-5 far finer, negative", "-1e-999", -1, "DecimalExponent"),
    ("Q-6 cap", "8Ei", MAX_INT64 * NANO, "BinarySI"),
    ("Q-6 cap", "9Ei", MAX_INT64 * NANO, "BinarySI"),
    ("Q-6 cap", "9223372036854775807Ki", MAX_INT64 * NANO, "BinarySI"),
    ("Q-6 cap, negative", "-9Ei", -MAX_INT64 * NANO, "BinarySI"),
    ("Q-6 no cap for decimals", "12E", 12 * 10**27, "DecimalSI"),
    ("Q-7", ".000001Ki", 1024_000, "DecimalSI"),
    ("Q-7 negative", "-.000001Ki", -1024_000, "DecimalSI"),
    ("Q-7 one is not below one", "0.0009765625Ki", NANO, "BinarySI"),
    ("zero with a giant exponent", "0e999999", 0, "DecimalExponent"),
]


@pytest.mark.parametrize(
    ("text", "nanos", "format"), [row[1:] for row in VALUES], ids=[f"{row[0]} {row[1]}" for row in VALUES]
)
def test_value_and_format(text: str, nanos: int, format: str) -> None:
    quantity = parse(text)
    assert (quantity.nanos, quantity.format) == (nanos, format)


ROUNDED = [
    ("Q-13", "0.1", 1, 100),
    ("Q-13", "1n", 1, 1),
    ("Q-13", "100m", 1, 100),
    ("Q-13", "1500m", 2, 1500),
    ("Q-13 away from zero below it", "-1500m", -2, -1500),
    ("Q-13 whole", "2Gi", 2 << 30, 2000 << 30),
    ("Q-14 no overflow here", "12E", 12 * 10**18, 12 * 10**21),
]


@pytest.mark.parametrize(
    ("text", "value", "milli"), [row[1:] for row in ROUNDED], ids=[f"{row[0]} {row[1]}" for row in ROUNDED]
)
def test_accessors(text: str, value: int, milli: int) -> None:
    assert (parse(text).value, parse(text).milli) == (value, milli)


FORMATS = [
    ("Q-16 the receiver's format wins", "1Gi", "100M", "+", "1173741824"),
    ("Q-16 and is used where it divides", "1Gi", "1048576", "+", "1025Mi"),
    ("Q-16 zero adopts the other", "0", "1Gi", "+", "1Gi"),
    ("Q-16 zero adopts the other, minus", "0", "1Gi", "-", "-1Gi"),
    ("Q-16 minus", "1Gi", "512Mi", "-", "512Mi"),
    ("Q-11 arithmetic drops the kept text", "1.123", "0", "+", "1123m"),
    ("Q-11 the same", "+5", "1", "+", "6"),
]


@pytest.mark.parametrize(
    ("left", "right", "sign", "text"), [row[1:] for row in FORMATS], ids=[row[0] for row in FORMATS]
)
def test_arithmetic_and_formats(left: str, right: str, sign: str, text: str) -> None:
    a, b = parse(left), parse(right)
    assert str(a + b if sign == "+" else a - b) == text


def test_q17_comparison_is_by_value() -> None:
    assert parse("1") == parse("1000m") == parse("1e0")
    assert hash(parse("1")) == hash(parse("1000m"))
    assert parse("1") != parse("1001m")
    assert parse("1") != "1"
    assert bool(parse("0Ki")) is False
    assert bool(parse("1n")) is True
    assert (parse("0"), parse("0Ki")) == (ZERO, ZERO_BYTES)


def test_q15_rounding_keeps_text_and_format() -> None:
    exact = parse("1.123")
    assert exact.rounded_to_milli() is exact
    assert str(parse("0.1m").rounded_to_milli()) == "1m"
    assert str(parse("-0.1m").rounded_to_milli()) == "-1m"
    rounded = parse("3.14159Gi").rounded_to_milli()
    assert (rounded.format, str(rounded)) == ("BinarySI", "3373256576861m")


def test_q1_the_memo_trims_blanks_and_takes_only_text() -> None:
    assert QUANTITIES[" 1Gi\t\n"] == parse("1Gi")
    with pytest.raises(InvalidQuantityError):
        QUANTITIES["1 Gi"]
    for wrong in (1, 1.5, None, True):
        with pytest.raises(TypeError):
            QUANTITIES[wrong]  # type: ignore[index]


def test_the_memo_stays_bounded() -> None:
    for index in range(40_000):
        QUANTITIES[f"{index}k"]
    assert len(QUANTITIES) <= 40_000 - 5_000
    assert QUANTITIES["39999k"].value == 39_999_000


GIANTS = [
    ("zeros and a stranger", "0" * 1000 + "x"),
    ("zeros, a point and a stranger", "0" * 900 + "." + "0" * 900 + "x"),
    ("ones and a stranger", "1" * 20_000 + "x"),
    ("suffix letters", "1" + "m" * 20_000 + "!"),
    ("suffix letters and digits", "1e" + "0" * 20_000 + "!"),
    ("points", "." * 20_000),
    ("a million digits", "9" * 1_000_000),
    ("a million zeros", "0" * 1_000_000),
    ("a long exponent", "1e" + "9" * 100_000),
    ("a long fraction", "0." + "0" * 100_000 + "1"),
    ("int64 exponent", "1e9223372036854775807"),
    ("negative int64 exponent", "1e-9223372036854775808"),
]


@pytest.mark.parametrize("text", [row[1] for row in GIANTS], ids=[row[0] for row in GIANTS])
def test_a_giant_text_is_answered_at_once(text: str) -> None:
    """A manifest comes from anywhere: no text may keep the parser busy."""
    started = time.process_time()
    try:
        parse(text)
    except InvalidQuantityError:
        pass
    assert time.process_time() - started < 1.0


# --- properties ---


def exact(text: str) -> Fraction:
    """The grammar of §1.1 read with fractions, before any rounding or cap."""
    binary = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
    decimal = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    if text[-2:] in binary:
        return (
            Fraction("0" + text[:-2].strip("+-") if text[0] in ".+-" else text[:-2])
            * 2 ** binary[text[-2:]]
            * _sign(text)
        )
    if text[-1] in decimal:
        return Fraction("0" + text[:-1].strip("+-")) * Fraction(10) ** decimal[text[-1]] * _sign(text)
    mantissa, _, exponent = text.strip("+-").replace("E", "e").partition("e")
    return Fraction("0" + mantissa) * Fraction(10) ** int(exponent or 0) * _sign(text)


def _sign(text: str) -> int:
    return -1 if text[0] == "-" else 1


@settings(max_examples=examples(300), deadline=None)
@given(quantity_texts())
@example("0.5Ki")
@example("-1.5Gi")
def test_value_is_the_grammars_value(text: str) -> None:
    """Q-5, Q-6: exact, rounded away from zero to a nano, binary texts capped."""
    magnitude = abs(exact(text))
    if text.endswith("i"):
        magnitude = min(magnitude, Fraction(MAX_INT64))
    nanos = math.ceil(magnitude * NANO)
    assert parse(text).nanos == nanos * _sign(text)


@settings(max_examples=examples(300), deadline=None)
@given(quantity_texts())
def test_parse_of_format_is_the_identity(text: str) -> None:
    quantity = parse(text)
    again = parse(str(quantity))
    assert again == quantity
    assert (again.milli, again.value) == (quantity.milli, quantity.value)


@settings(max_examples=examples(200), deadline=None)
@given(amounts, st.sampled_from(("DecimalSI", "BinarySI", "DecimalExponent")))
def test_format_of_parse_is_the_identity_on_canonical_texts(nanos: int, format: str) -> None:
    """Q-9: canonical text has no fraction, no leading zero, and (decimal) reads back to itself."""
    text = str(Quantity(nanos, format))  # type: ignore[arg-type]
    assert parse(text).nanos == nanos
    assert "." not in text
    assert text == "0" or not text.startswith("0")
    if format == "DecimalSI":
        assert str(parse(text)) == text


@settings(max_examples=examples(200), deadline=None)
@given(quantity_texts(), quantity_texts())
def test_order_is_the_order_of_values(left: str, right: str) -> None:
    a, b = parse(left), parse(right)
    assert (a < b, a <= b, a == b, a > b, a >= b) == (
        a.nanos < b.nanos,
        a.nanos <= b.nanos,
        a.nanos == b.nanos,
        a.nanos > b.nanos,
        a.nanos >= b.nanos,
    )
    if a <= b and a.nanos >= 0:
        assert a.milli <= b.milli
        assert a.value <= b.value
    if a == b:
        assert hash(a) == hash(b)


@settings(max_examples=examples(200), deadline=None)
@given(quantity_texts(), quantity_texts(), quantity_texts())
def test_arithmetic_is_exact(first: str, second: str, third: str) -> None:
    a, b, c = parse(first), parse(second), parse(third)
    assert (a + b).nanos == a.nanos + b.nanos
    assert (a - b).nanos == a.nanos - b.nanos
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b) - b == a
    if abs((a + b).value) <= MAX_INT64:  # beyond that a binary text is capped when it is read
        assert parse(str(a + b)) == a + b


@settings(max_examples=examples(200), deadline=None)
@given(positive_texts())
def test_roundings_go_up_and_never_further(text: str) -> None:
    quantity = parse(text)
    assert (quantity.milli - 1) * 10**6 < quantity.nanos <= quantity.milli * 10**6
    assert (quantity.value - 1) * NANO < quantity.nanos <= quantity.value * NANO
    rounded = quantity.rounded_to_milli()
    assert (rounded.milli, rounded.value) == (quantity.milli, quantity.value)
    assert rounded.nanos == quantity.milli * 10**6
    assert rounded.rounded_to_milli() is rounded


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(-(10**15), 10**15))
def test_from_units_and_milli(amount: int) -> None:
    assert (from_units(amount).value, from_milli(amount).milli) == (amount, amount)
    assert from_units(amount) == from_milli(1000 * amount)
    assert from_units(amount, "BinarySI").format == "BinarySI"


@settings(max_examples=examples(300), deadline=None)
@given(wild_texts)
def test_any_text_is_a_quantity_or_one_of_three_errors(text: str) -> None:
    try:
        quantity = parse(text)
    except InvalidQuantityError as error:
        assert str(error).startswith((FORMAT_ERROR, SUFFIX_ERROR, NUMERIC_ERROR))
    else:
        assert parse(str(quantity)) == quantity
