"""plimsoll.codec.yaml.reader against the tables Y1–Y4 of spec 06, against hostile input, and against kubectl itself."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.codec.yaml import reader as codec
from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("error")


def one(text: str | bytes) -> YamlDocument | YamlError:
    """The only document of an input."""
    (result,) = read(text.encode() if isinstance(text, str) else text)
    return result


def value_of(text: str | bytes) -> Any:
    result = one(text)
    assert isinstance(result, YamlDocument), str(result)
    return result.value


def error_of(text: str | bytes) -> YamlError:
    result = one(text)
    assert isinstance(result, YamlError), result.value
    return result


def outcomes(text: str | bytes) -> list[Any]:
    """Values, and the text of errors."""
    results = read(text.encode() if isinstance(text, str) else text)
    return [str(result) if isinstance(result, YamlError) else result.value for result in results]


def same(found: Any, expected: Any) -> bool:
    """Equal, and of one type: 1, 1.0 and True are three values."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and {k: (type(v), v) for k, v in found.items()} == {
            k: (type(v), v) for k, v in expected.items()
        }
    return type(found) is type(expected) and found == expected


# ── Y1. Plain scalars ────────────────────────────────────────────────────────────────────────────────────────────────

Y1_VALUES: dict[str, Any] = {
    **dict.fromkeys(["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"], True),
    **dict.fromkeys(["false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"], False),
    **{word: word for word in ["tRue", "oFF", "nO", "nULL", "yEs"]},
    **dict.fromkeys(["null", "Null", "NULL", "~", ""]),
    "0": 0,
    "10": 10,
    "+10": 10,
    "-5": -5,
    "0644": 420,
    "0o644": 420,
    "0O644": 420,
    "-010": -8,
    "00": 0,
    "0" * 80 + "17": 15,
    "08": 8,
    "09": 9,
    "01.5": 1.5,
    "00.5": 0.5,
    "0x1F": 31,
    "0X1f": 31,
    "-0x1F": -31,
    "+0x1F": 31,
    "0b101": 5,
    "0B1": 1,
    "-0b11": -3,
    "0b-11": -3,
    "1_000": 1000,
    "1__000": 1000,
    "1_": 1,
    "0_7": 7,
    "07_7": 63,
    "0x1_F": 31,
    "0b_1": 1,
    "1_000.5": 1000.5,
    **{
        text: text for text in ["_1", "1,000", "0x", "0o", "0o9", "0b12", "1e", "e3", "--1", "1h", "5m", ".", "+", "0b"]
    },
    "1e3": 1000,
    "1E3": 1000,
    "+1e3": 1000,
    "12e03": 12000,
    "1.e3": 1000,
    ".5e1": 5,
    "1e-3": 0.001,
    ".5": 0.5,
    "-.5": -0.5,
    "+.5": 0.5,
    "1.": 1,
    "1.0": 1,
    "1.10": 1.1,
    "-0": 0,
    "-0.0": 0,
    ".5_0": 0.5,
    ".5_": ".5_",
    "._5": "._5",
    "+.5_": 0.5,
    "9223372036854775807": 2**63 - 1,
    "-9223372036854775808": -(2**63),
    "9223372036854775808": 9223372036854775808.0,
    "18446744073709551615": 18446744073709551615.0,
    "123456789012345678901234567890": 1.2345678901234568e29,
    "-9223372036854775809": -9223372036854775809.0,
    "9223372036854775807.0": 2.0**63,
    "-9223372036854775808.0": -(2.0**63),
    "0xFFFFFFFFFFFFFFFF": 2.0**64,
    "9007199254740992.0": 2**53,
    "1000000000000000128.0": 1000000000000000100,
    "-1e18": -(10**18),
    "1e19": 1e19,
    "1e400": "1e400",
    "-1e400": "-1e400",
    "1e999999999": "1e999999999",
    "0x1ffffffffffffffffff": "0x1ffffffffffffffffff",
    **{text: text for text in ["nan", "NaN", "inf", "Infinity"]},
    **{text: text for text in ["2001-01-01", "2001-12-14t21:59:43.10-05:00", "190:20:30", "190:20:30.15"]},
    "=": "=",
    "<<": "<<",
    "a#b": "a#b",
    "a #b": "a",
    "http://x:80/y": "http://x:80/y",
    "a:b": "a:b",
    "'5'": "5",
    '"true"': "true",
    '""': "",
    "'~'": "~",
}


@pytest.mark.parametrize(("text", "expected"), Y1_VALUES.items(), ids=[key or "empty" for key in Y1_VALUES])
def test_y1_plain_scalar(text: str, expected: Any) -> None:
    assert same(value_of(f"a: {text}\n"), {"a": expected})


Y1_ERRORS = {
    **dict.fromkeys([".nan", ".NaN", ".NAN"], "NaN"),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf"], "+Inf"),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], "-Inf"),
}


@pytest.mark.parametrize(("text", "name"), Y1_ERRORS.items(), ids=Y1_ERRORS)
def test_y1_not_a_json_number(text: str, name: str) -> None:
    error = error_of(f"\na:\n  b: [1, {text}]\n")
    assert error.message == f"error converting YAML to JSON: json: unsupported value: {name}"
    assert error.line == 3


@pytest.mark.parametrize("text", ["@a", "`a`", "%a"])
def test_y1_character_that_starts_no_token(text: str) -> None:
    assert str(error_of(f"a: 1\nb: {text}\n")) == "line 2: found character that cannot start any token"


@pytest.mark.parametrize("text", ["a: b", "a:", "http: //x"])
def test_y1_colon_inside_a_value(text: str) -> None:
    assert str(error_of(f"a: {text}\n")) == "line 1: mapping values are not allowed in this context"


# ── Y2. Tags, quotes, blocks ─────────────────────────────────────────────────────────────────────────────────────────

Y2_VALUES: list[tuple[str, str, Any]] = [
    ("str-tag", "!!str 5", "5"),
    ("str-tag-on-nothing", "!!str", ""),
    ("int-tag", '!!int "5"', 5),
    ("float-tag", "!!float 5", 5),
    ("float-tag-on-hex", "!!float 0x10", 16),
    ("bool-tag", '!!bool "yes"', True),
    ("null-tag", '!!null ""', None),
    ("binary", "!!binary aGVsbG8=", "hello"),
    ("binary-over-lines", '!!binary "aGVs\\nbG8="', "hello"),
    ("binary-not-utf8", "!!binary /w==", "\ufffd"),
    ("timestamp", "!!timestamp 2001-01-01", "2001-01-01"),
    ("timestamp-leap-day", "!!timestamp 2024-02-29T1:02:03.5Z", "2024-02-29T1:02:03.5Z"),
    ("timestamp-with-blank", "!!timestamp 2001-1-31 10:20:30", "2001-1-31 10:20:30"),
    ("unknown-tag", "!foo x", "x"),
    ("unknown-tag-keeps-text", "!!foo 5", "5"),
    ("bare-tag-keeps-text", "! 5", "5"),
    ("verbatim-tag", "!<tag:yaml.org,2002:int> '7'", 7),
    ("set", "!!set {x, z}", {"x": None, "z": None}),
    ("omap", "!!omap [x: 1, z: 2]", [{"x": 1}, {"z": 2}]),
    ("tag-on-map", "!!str {x: z}", {"x": "z"}),
    ("escapes", '"\\x41 \\u00e9 \\n \\0 \\t \\U0001F600"', "A é \n \0 \t 😀"),
    ("escaped-single-quote", '"it\\\'s"', "it's"),
    ("raw-tab", '"a\tb"', "a\tb"),
    ("single-quotes", "'it''s'", "it's"),
    ("literal", "|\n  a\n   b\n", "a\n b\n"),
    ("literal-strip", "|-\n  a\n\n", "a"),
    ("literal-keep", "|+\n  a\n\n", "a\n\n"),
    ("literal-indent", "|2\n    a\n", "  a\n"),
    ("literal-at-the-end-of-file", "|\n  a", "a\n"),
    ("folded", ">\n  a\n  b\n\n  c\n", "a b\nc\n"),
    ("folded-strip", ">-\n  a\n  b\n", "a b"),
    ("plain-over-lines", "a\n  b\n\n  c", "a b\nc"),
    ("quoted-over-lines", '"a\n  b\\\n  c"', "a bc"),
    ("separator-in-block", "|\n  ---\n  x\n", "---\nx\n"),
    ("trailing-comma", "[1,]", [1]),
    ("key-alone", "{a}", {"a": None}),
    ("key-without-value", "{a: }", {"a": None}),
    ("pair-in-list", "[a: b]", [{"a": "b"}]),
    ("question-mark", "\n  ? a\n  : b", {"a": "b"}),
    ("json-in-flow", '{"a":1,"b":[true,null]}', {"a": 1, "b": [True, None]}),
    ("colon-ends-flow-scalar", "[a:, {b:}, c :]", ["a:", {"b:": None}, "c :"]),
    ("stand-ins-in-the-text", '["\uf5f5\uf5f6\uf5f7"]', ["\uf5f5\uf5f6\uf5f7"]),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in Y2_VALUES], ids=[row[0] for row in Y2_VALUES])
def test_y2_value(text: str, expected: Any) -> None:
    assert same(value_of(f"v: {text}"), {"v": expected})


Y2_ERRORS: list[tuple[str, str, str]] = [
    ("int-tag", '!!int "abc"', "yaml: cannot decode !!str `abc` as a !!int"),
    ("null-tag", "!!null x", "yaml: cannot decode !!str `x` as a !!null"),
    ("int-tag-on-nothing", "!!int", "yaml: cannot decode !!null `` as a !!int"),
    ("bool-tag", "!!bool 1", "yaml: cannot decode !!int `1` as a !!bool"),
    (
        "float-tag-on-uint64",
        "!!float 9223372036854775808",
        "yaml: cannot decode !!int `9223372036854775808` as a !!float",
    ),
    ("timestamp-tag", "!!timestamp 2001-02-29", "yaml: cannot decode !!str `2001-02-29` as a !!timestamp"),
    ("base64", "!!binary aGVs bG8=", "!!binary value contains invalid base64 data"),
    ("base64-padding", "!!binary aGVsbG8", "!!binary value contains invalid base64 data"),
    ("escaped-slash", '"a\\/b"', "found unknown escape character"),
    ("unknown-escape", '"a\\qb"', "found unknown escape character"),
    ("surrogates", '"\\ud83d\\ude00"', "found invalid Unicode character escape code"),
    ("question-mark-in-flow", "[http://x?y=1]", "did not find expected ',' or ']'"),
    ("question-mark-in-flow-map", "{a: b?}", "did not find expected ',' or '}'"),
    ("colon-before-bracket", "{emptyDir:{}}", "did not find expected ',' or '}'"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in Y2_ERRORS], ids=[row[0] for row in Y2_ERRORS])
def test_y2_error(text: str, message: str) -> None:
    assert str(error_of(f"u: 1\nv: {text}\n")) == f"line 2: {message}"


def test_y2_escaped_slash_is_an_error_only_as_an_escape() -> None:
    assert value_of("a: '\\/'\nb: \\/\nc: \"\\\\/\"\n") == {"a": "\\/", "b": "\\/", "c": "\\/"}


# ── Y3. Maps, anchors, merge ─────────────────────────────────────────────────────────────────────────────────────────

Y3_KEYS = {
    "1": "1",
    "0x10": "16",
    "1e3": "1000",
    "1.5": "1.5",
    "1.0": "1",
    "1e21": "1e+21",
    "1e6": "1e+06",
    "1.23456789": "1.2345679",
    "123456789.0": "1.2345679e+08",
    "1e-7": "1e-07",
    "1e300": ".inf",
    "-0.0": "-0",
    "y": "true",
    "on": "true",
    "n": "false",
    "off": "false",
    "True": "true",
    ".nan": ".nan",
    ".inf": ".inf",
    "-.inf": "-.inf",
    "2001-01-01": "2001-01-01",
    "!!binary aGVsbG8=": "hello",
    '"<<"': "<<",
    "!!str 1": "1",
}


@pytest.mark.parametrize(("text", "key"), Y3_KEYS.items(), ids=Y3_KEYS)
def test_y3_key(text: str, key: str) -> None:
    assert value_of(f"? {text}\n: v\n") == {key: "v"}


Y3_VALUES: list[tuple[str, str, Any]] = [
    ("duplicate", "a: 1\na: 2\n", {"a": 2}),
    ("duplicate-of-other-type", '1: a\n"1": b\n', {"1": "b"}),
    ("duplicate-bool", "yes: a\ntrue: b\n", {"true": "b"}),
    ("merge-alias", "b: &b {x: 1, z: 2}\nc: {<<: *b, z: 3}\n", {"b": {"x": 1, "z": 2}, "c": {"x": 1, "z": 3}}),
    ("merge-overwrites-keys-before-it", "c: {x: 0, <<: {x: 1}}\n", {"c": {"x": 1}}),
    ("merge-list-earlier-wins", "c: {<<: [{x: 1}, {x: 2, z: 3}]}\n", {"c": {"x": 1, "z": 3}}),
    ("several-merges", "c: {<<: {x: 1}, <<: {x: 2}}\n", {"c": {"x": 2}}),
    ("merge-within-merge", "c: {<<: {<<: {x: 1}, z: 2}}\n", {"c": {"x": 1, "z": 2}}),
    ("quoted-merge", 'c: {"<<": {x: 1}}\n', {"c": {"<<": {"x": 1}}}),
    ("tagged-merge", 'c: {!!merge "<<": {x: 1}}\n', {"c": {"x": 1}}),
    ("alias", "a: &a [1]\nb: *a\n", {"a": [1], "b": [1]}),
    ("alias-as-key", "a: &a x\n*a : z\n", {"a": "x", "x": "z"}),
    ("anchor-redefined", "a: &a 1\nb: &a 2\nc: *a\n", {"a": 1, "b": 2, "c": 2}),
    ("overwritten-nan", "a: .nan\na: 1\n", {"a": 1}),
    ("overwritten-null-key", "a: {~: 1}\na: 1\n", {"a": 1}),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in Y3_VALUES], ids=[row[0] for row in Y3_VALUES])
def test_y3_value(text: str, expected: Any) -> None:
    assert same(value_of(text), expected)


Y3_ERRORS: list[tuple[str, str, str]] = [
    ("null-key", "a: 1\n~: 2\n", "line 2: unsupported map key of type: null"),
    ("empty-key", "a: 1\n?\n: 2\n", "line 2: unsupported map key of type: null"),
    (
        "uint64-key",
        "a: 1\n18446744073709551615: 2\n",
        "line 2: unsupported map key of type: uint64, key: 18446744073709551615",
    ),
    ("list-key", "a: 1\n[x]: 2\n", "line 2: invalid map key: [x]: 2"),
    ("map-key", "a: 1\n{x: z}: 2\n", "line 2: invalid map key: {x: z}: 2"),
    ("merge-of-scalar", "a: 1\nb: {<<: 5}\n", "line 2: map merge requires map or sequence of maps as the value"),
    ("merge-of-scalars", "a: 1\nb: {<<: [5]}\n", "line 2: map merge requires map or sequence of maps as the value"),
    (
        "merge-of-list-alias",
        "a: &a [{}]\nb: {<<: *a}\n",
        "line 2: map merge requires map or sequence of maps as the value",
    ),
    ("unknown-anchor", "a: 1\nb: *x\n", "line 2: unknown anchor 'x' referenced"),
    ("alias-before-anchor", "b: *x\na: &x 1\n", "line 1: unknown anchor 'x' referenced"),
    ("self-reference", "a: 1\nb: &x [*x]\n", "line 2: anchor 'x' value contains itself"),
    ("self-merge", "b: &x {<<: *x}\n", "line 1: anchor 'x' value contains itself"),
    ("long-implicit-key", "a: 1\n" + "k" * 1025 + ": 2\n", "line 2: could not find expected ':'"),
    (
        "long-implicit-key-in-map",
        "a:\n  " + "k" * 1025 + ": 2\n",
        "line 2: mapping values are not allowed in this context",
    ),
    ("syntax-error-comes-first", "a: *a\nb: [\n", "line 1: unknown anchor 'a' referenced"),
    ("syntax-error-hides-failure", "a: !!int x\nb: [\n", "line 2: did not find expected node content"),
    ("failure-hides-nan", "a: .nan\nb: !!int x\n", "line 2: yaml: cannot decode !!str `x` as a !!int"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in Y3_ERRORS], ids=[row[0] for row in Y3_ERRORS])
def test_y3_error(text: str, message: str) -> None:
    assert str(error_of(text)) == message


def test_y3_anchors_do_not_cross_documents() -> None:
    assert outcomes("a: &x 1\n---\nb: *x\n") == [{"a": 1}, "line 3: unknown anchor 'x' referenced"]


def test_y3_an_alias_is_a_value_of_its_own() -> None:
    value = value_of("a: &a {x: [1]}\nb: *a\n")
    value["a"]["x"].append(2)
    assert value["b"] == {"x": [1]}


def bomb(width: int, levels: int) -> str:
    names = "abcdefghij"
    lines = [f"a: &a [{', '.join('x' * width)}]"]
    for below, name in itertools.pairwise(names[:levels]):
        lines.append(f"{name}: &{name} [{', '.join([f'*{below}'] * width)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("width", "levels"), [(10, 4), (10, 10), (100, 3)])
def test_y3_alias_bomb(width: int, levels: int) -> None:
    assert error_of(bomb(width, levels)).message == "document contains excessive aliasing"


# Where kubectl 1.32 begins to refuse `a: &a [x, … n times], b: [*a, … m times]`.
@pytest.mark.parametrize(
    ("elements", "aliases", "is_read"), [(300, 98, True), (300, 99, True), (10, 80, True), (1000, 200, False)]
)
def test_y3_alias_budget(elements: int, aliases: int, is_read: bool) -> None:
    text = f"a: &a [{','.join('x' * elements)}]\nb: [{','.join(['*a'] * aliases)}]\n"
    assert isinstance(one(text), YamlDocument) is is_read


def depth(value: Any) -> int:
    """Of containers that hold only one another."""
    found = 0
    while isinstance(value, (dict, list)):
        found += 1
        value = next(iter(value.values() if isinstance(value, dict) else value), None)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 9999 + "]" * 9999,
        "a:\n " + "- " * 9999 + "x",
        "a: " + "{a: " * 9999 + "1" + "}" * 9999,
        '{"a":' + "[" * 9999 + "]" * 9999 + "}",
    ],
    ids=["flow-list", "block-list", "flow-map", "json"],
)
def test_y3_deepest(text: str) -> None:
    assert depth(value_of(text)) == 10_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 10000 + "]" * 10000, "exceeded max depth of 10000"),
        ("a: " + "[" * 100_000, "exceeded max depth of 10000"),
        ("a:\n " + "- " * 100_000 + "x", "exceeded max depth of 10000"),
        ("a: &a " + "[" * 6000 + "]" * 6000 + "\nb: " + "[" * 6000 + "*a" + "]" * 6000, "exceeded max depth of 10000"),
        ('{"a":' + "[" * 10000 + "]" * 10000 + "}", "invalid character '[' exceeded max depth"),
        ('{"a":' * 100_000, "invalid character '{' exceeded max depth"),
    ],
    ids=["flow", "open-flow", "block", "by-alias", "json", "open-json"],
)
def test_y3_too_deep(text: str, message: str) -> None:
    assert error_of(text).message == message


def test_y3_depth_can_be_limited_further() -> None:
    assert [str(result) for result in read(b"a: [[1]]\n", max_depth=2)] == ["line 1: exceeded max depth of 2"]
    assert [str(result) for result in read(b'{"a":\n[[1]]}', max_depth=2)] == [
        "line 2: invalid character '[' exceeded max depth"
    ]
    assert len(list(read(b"a: [[1]]\n", max_depth=3))) == len(list(read(b'{"a": [[1]]}', max_depth=3))) == 1


# ── Y4. Bytes, lines, documents ──────────────────────────────────────────────────────────────────────────────────────

Y4_OUTCOMES: list[tuple[str, str | bytes, list[Any]]] = [
    ("json-stream", ' \n\t{"a": 1}{"b": 2}\n{"c": 3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
    ("json-numbers", '{"a": [1.0, -0.0, 1e3, 0.5, 9223372036854775808]}', [{"a": [1, 0, 1000, 0.5, 2.0**63]}]),
    ("json-duplicate", '{"a": 1, "a": 2}', [{"a": 2}]),
    ("json-null-skipped", '{"a": 1} null {"b": 2}', [{"a": 1}, {"b": 2}]),
    ("json-surrogates", '{"a": "\\ud83d\\ude00", "b": "\\ud800x\\\\ud83d\\ude00"}', [{"a": "😀", "b": "�x\\ud83d�"}]),
    ("json-unquoted", "{apiVersion: v1}", ["line 1: invalid character 'a' looking for beginning of object key string"]),
    ("json-comment", '{"a": 1} # c', [{"a": 1}, "line 1: invalid character '#' looking for beginning of value"]),
    (
        "json-separator",
        '{"a": 1}\n---\n{"b": 2}',
        [{"a": 1}, "line 2: invalid character '-' in numeric literal", {"b": 2}],
    ),
    (
        "json-scalar",
        '{"a": 1} 5',
        [{"a": 1}, "line 1: json: cannot unmarshal number into Go value of type unstructured.detector"],
    ),
    ("json-after-bom", b'\xef\xbb\xbf{"a": 1.0}', [{"a": 1}]),
    ("comment-first-is-yaml", "# c\n{a: 1, b: [x,]}", [{"a": 1, "b": ["x"]}]),
    ("yaml-first-is-yaml", "a: 1\n---\n{b: 2}", [{"a": 1}, {"b": 2}]),
    ("tab-indentation", "a:\n\tb: 1\n", ["line 2: found character that cannot start any token"]),
    ("tab-on-blank-line", "a:\n  b\n\t\n", ["line 3: found a tab character that violates indentation"]),
    ("tab-after-colon", "a:\tb\n", [{"a": "b"}]),
    ("tab-in-flow", "a: [\t1,\n\t2]\n", [{"a": [1, 2]}]),
    ("tab-before-comment", "a: b\t# c\n", [{"a": "b"}]),
    ("crlf", "a: |\r\n  x\r\n  y\r\nb: 1\r\n---\r\nc: 2\r\n", [{"a": "x\ny\n", "b": 1}, {"c": 2}]),
    ("cr", "a: |\r  x\r  y\rb: 1\r", [{"a": "x\ny\n", "b": 1}]),
    ("utf8-bom", b"\xef\xbb\xbfa: 1\n", [{"a": 1}]),
    ("bom-in-second-document", "a: 1\n---\n\ufeffb: 2\n", [{"a": 1}, {"b": 2}]),
    ("utf16-le", b"\xff\xfe" + "a: é\n".encode("utf-16-le"), [{"a": "é"}]),
    ("utf16-be", b"\xfe\xff" + "a: é\n".encode("utf-16-be"), [{"a": "é"}]),
    ("utf16-without-bom", "a: b\n".encode("utf-16-le"), ["line 1: control characters are not allowed"]),
    ("bom-inside", "a: x\ufeffy\n\ufeffb: 1\n", [{"a": "x\ufeffy", "\ufeffb": 1}]),
    ("invalid-utf8", b'a: "\xff\xe2\x82x"\n', [{"a": "\ufffd\ufffdx"}]),
    ("nul", "a: 1\nb: \0\n", ["line 2: control characters are not allowed"]),
    ("control", "a: 1\nb: \x01\n", ["line 2: control characters are not allowed"]),
    ("del", "a: 1\nb: \x7f\n", ["line 2: control characters are not allowed"]),
    ("next-line", "a: |\n  x\x85  z\n", [{"a": "x\nz\n"}]),
    ("separator-with-comment", "a: 1\n--- # c\nb: 2\n---\t \nc: 3\n", [{"a": 1}, {"b": 2}, {"c": 3}]),
    ("separator-at-start", "---\na: 1\n", [{"a": 1}]),
    (
        "separator-with-content",
        "a: 1\n--- {b: 2}\n---\nc: 3\n",
        [{"a": 1}, "line 2: invalid Yaml document separator: {b: 2}", {"c": 3}],
    ),
    ("separator-with-letter", "---x\na: 1\n", ["line 1: invalid Yaml document separator: x"]),
    ("indented-separator", "a:\n ---\n", [{"a": "---"}]),
    ("separator-cuts-quotes", "a: 'x\n---\nz: 1\n", ["line 1: found unexpected end of stream", {"z": 1}]),
    ("directive", "%YAML 1.1\n---\na: 1\n", ["line 1: did not find expected <document start>", {"a": 1}]),
    ("tag-directive", "%TAG ! x\n---\na: 1\n", ["line 1: did not find expected <document start>", {"a": 1}]),
    ("nothing", "", []),
    ("empty-documents", "---\n# only this\n---\nnull\n---\n---\n~\n---\n\n", []),
    ("document-end", "a: 1\n...\nb: ]\n---\nc: 2\n", [{"a": 1}, {"c": 2}]),
    ("string", "abc\n", ["line 1: json: cannot unmarshal string into Go value of type unstructured.detector"]),
    ("list", "\n- a\n", ["line 2: json: cannot unmarshal array into Go value of type unstructured.detector"]),
    ("number", "5\n", ["line 1: json: cannot unmarshal number into Go value of type unstructured.detector"]),
    ("bool", "y\n", ["line 1: json: cannot unmarshal bool into Go value of type unstructured.detector"]),
    ("kind-missing-is-for-the-caller", "a: 1\n", [{"a": 1}]),
    ("list-is-for-the-caller", "kind: List\nitems: [{a: 1}]\n", [{"kind": "List", "items": [{"a": 1}]}]),
    (
        "all-errors-at-once",
        "a: 1\n---\nb: [\n---\nc: .nan\n---\nd: 1\n",
        [
            {"a": 1},
            "line 3: did not find expected node content",
            "line 5: error converting YAML to JSON: json: unsupported value: NaN",
            {"d": 1},
        ],
    ),
]


@pytest.mark.parametrize(("data", "expected"), [row[1:] for row in Y4_OUTCOMES], ids=[row[0] for row in Y4_OUTCOMES])
def test_y4_outcomes(data: str | bytes, expected: list[Any]) -> None:
    assert outcomes(data) == expected


def test_y4_documents_are_numbered_without_the_empty_ones() -> None:
    results = list(read(b"---\n---\na: 1\n---\n# c\n---\n]\n---\n\n# c\nd: 1\n"))
    numbers = [result.document if isinstance(result, YamlError) else result.index for result in results]
    assert numbers == [1, 2, 3]
    assert [result.line for result in results] == [3, 7, 11]


def test_y4_large_documents_are_read() -> None:
    text = "a:\n" + "- {name: app, image: 'nginx:1.25', n: 5}\n" * 20_000
    assert len(value_of(text)["a"]) == 20_000


def test_input_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_BYTES", 1 << 20)
    error = error_of(b"a" * ((1 << 20) + 1))
    assert (str(error), error.document, error.line) == ("the input is larger than 1 MiB", 1, None)


# ── JSON streams ─────────────────────────────────────────────────────────────────────────────────────────────────────

JSON_ERRORS = {
    "NaN": "invalid character 'N' looking for beginning of value",
    "-Infinity": "invalid character 'I' in numeric literal",
    "01": "invalid character '1' after object key:value pair",
    "1.": "invalid character '}' after decimal point in numeric literal",
    "1e+": "invalid character '}' in exponent of numeric literal",
    "tru": "invalid character '}' in literal true (expecting 'e')",
    '"a\nb"': "invalid character '\\n' in string literal",
    '"a\\qb"': "invalid character 'q' in string escape code",
    '"\\u12x4"': "invalid character 'x' in \\u hexadecimal character escape",
    "[1,]": "invalid character ']' looking for beginning of value",
    '{"b" 1}': "invalid character '1' after object key",
    '{"b":1,}': "invalid character '}' looking for beginning of object key string",
    '{"b":1 "c"}': "invalid character '\"' after object key:value pair",
    "{'b':1}": "invalid character '\\'' looking for beginning of object key string",
    "[1 2]": "invalid character '2' after array element",
    '"abc': "unexpected EOF",
    "[": "invalid character '}' looking for beginning of value",
    "1e400": "json: cannot unmarshal number 1e400 into Go value of type float64",
    "1" * 400: f"json: cannot unmarshal number {'1' * 60}… into Go value of type float64",
}


@pytest.mark.parametrize(("text", "message"), JSON_ERRORS.items(), ids=[key[:12] for key in JSON_ERRORS])
def test_json_error(text: str, message: str) -> None:
    assert str(error_of(f'{{\n"a": {text}}}')) == f"line 2: {message}"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "',
        '{"a": "\\',
        '{"a": "\\u1',
        '{"a": -',
        '{"a": 1.',
        '{"a": 1e',
        '{"a": 1',
        '{"a": tr',
        '{"a"',
        '{"a":',
        "{",
        '{"a": [1',
        '{"a": [1,',
    ],
)
def test_json_cut_off(text: str) -> None:
    assert str(error_of(f"\n{text}")) == "line 2: unexpected EOF"


def test_json_continues_after_an_error() -> None:
    text = '{"a": 1}\n{"b": }\n{\n  "c": {\n}\n{"d": 1e999} {"e": 2}\n{"f":\n'
    assert outcomes(text) == [
        {"a": 1},
        "line 2: invalid character '}' looking for beginning of value",
        "line 6: invalid character '{' after object key:value pair",
        "line 6: json: cannot unmarshal number 1e999 into Go value of type float64",
        {"e": 2},
        "line 7: unexpected EOF",
    ]


def test_json_stops_at_text_that_is_not_json() -> None:
    assert len(list(read(b"{\n" * 1000))) == 51


# ── Lines and duplicates ─────────────────────────────────────────────────────────────────────────────────────────────

PLACES = """\
# comment
a: 1
b: &b
  c:
  - x
  - z: 5
    w: |
      text

  -
    - v
d: *b
e: {<<: *b, f: 1,
  g: 2}
"""
PLACES_JSON = '\n{"a": 1,\n "b": {"c": [\n  "x", {\n  "z": []},\n  [\n"v"]]}}'


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        (PLACES, (), 2),
        (PLACES, ("b",), 3),
        (PLACES, ("b", "c"), 4),
        (PLACES, ("b", "c", 0), 5),
        (PLACES, ("b", "c", 1, "z"), 6),
        (PLACES, ("b", "c", 1, "w"), 7),
        (PLACES, ("b", "c", 2, 0), 11),
        (PLACES, ("d", "c", 1, "w"), 7),
        (PLACES, ("e", "c", 1), 6),
        (PLACES, ("e", "g"), 14),
        (PLACES, ("b", "c", 7, "q"), 4),
        (PLACES, ("b", "c", "q"), 4),
        (PLACES, ("a", "q"), 2),
        (PLACES, ("q", "r"), 2),
        (PLACES_JSON, (), 2),
        (PLACES_JSON, ("a",), 2),
        (PLACES_JSON, ("b", "c"), 3),
        (PLACES_JSON, ("b", "c", 1), 4),
        (PLACES_JSON, ("b", "c", 1, "z"), 5),
        (PLACES_JSON, ("b", "c", 2), 6),
        (PLACES_JSON, ("b", "c", 2, 0), 7),
        (PLACES_JSON, ("b", "c", 2, 1), 6),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_line_of(text: str, path: tuple[str | int, ...], line: int, end: str) -> None:
    result = one(text.replace("\n", end))
    assert isinstance(result, YamlDocument)
    assert result.line_of(path) == line


def test_lines_count_in_the_file_as_an_editor_does() -> None:
    first, second = read("a: 'x\u2028y\x85z'\r\nb: 1\r\n---\r\n\r\nc: 1\r\nd: 2\r\n".encode())
    assert isinstance(first, YamlDocument) and isinstance(second, YamlDocument)
    assert (first.line_of(("b",)), second.line, second.line_of(("d",))) == (2, 5, 6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", [(("a",), 3)]),
        ("l:\n- x: 1\n- x: 1\n  z: 2\n  x: 3\n", [(("l", 1, "x"), 5)]),
        ("1: a\n'1': b\n", [(("1",), 2)]),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n", []),
        ("b:\n  x: 1\n  <<: {x: 2}\n", []),
        ("b:\n  <<: {x: 2}\n  x: 1\n  x: 3\n", [(("b", "x"), 4)]),
        ('{"a": [{}, {"b": 1,\n"b": 2}],\n"a": 3}', [(("a", 1, "b"), 2), (("a",), 3)]),
    ],
    ids=["map", "in-list", "other-type", "merge-then-key", "key-then-merge", "twice-after-merge", "json"],
)
def test_duplicates(text: str, expected: list[Any]) -> None:
    result = one(text)
    assert isinstance(result, YamlDocument)
    assert result.duplicates == expected


# ── Properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

printable = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x2027, exclude_characters="\x7f", exclude_categories=["Cc", "Cs"]),
    max_size=12,
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | printable
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(printable, inner, max_size=4), max_leaves=20
)
objects = st.dictionaries(printable, values, max_size=5)


def as_json(value: Any) -> Any:
    """The number rule, written down a second time."""
    if isinstance(value, dict):
        return {key: as_json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [as_json(member) for member in value]
    if isinstance(value, float) and value == math.floor(value):
        written = int(Decimal(repr(value)))
        return written if -(2**63) <= written < 2**63 else value
    return value


@given(objects)
@settings(max_examples=examples(60), deadline=None)
def test_json_and_flow_yaml_agree(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert repr(value_of(text)) == repr(value_of("# YAML\n" + text)) == repr(as_json(value))


def block(value: Any, path: tuple[str | int, ...], lines: list[str], places: dict[tuple[str | int, ...], int]) -> None:
    """Write a value in block style, and down the line of each of its parts."""
    indent = "  " * len(path)
    for step, member in value.items() if isinstance(value, dict) else enumerate(value):
        # The line of an element is where its content starts, not its dash.
        places[(*path, step)] = (
            len(lines) + 1 + (isinstance(value, list) and isinstance(member, (dict, list)) and bool(member))
        )
        head = indent + (json.dumps(step, ensure_ascii=False) + ":" if isinstance(value, dict) else "-")
        if isinstance(member, (dict, list)) and member:
            lines.append(head)
            block(member, (*path, step), lines, places)
        else:
            lines.append(f"{head} {json.dumps(member, ensure_ascii=False)}")


@given(objects.filter(bool), st.integers(0, 3))
@settings(max_examples=examples(40), deadline=None)
def test_every_part_has_its_line(value: dict[str, Any], blank_lines: int) -> None:
    lines = ["", "# comment", "---"][:blank_lines]
    places: dict[tuple[str | int, ...], int] = {}
    block(value, (), lines, places)
    document = one("\n".join(lines))
    assert isinstance(document, YamlDocument)
    assert repr(document.value) == repr(as_json(value))
    assert {path: document.line_of(path) for path in places} == places


# ── Hostile input ────────────────────────────────────────────────────────────────────────────────────────────────────


def assert_sound(data: bytes) -> None:
    """Whatever comes in: documents of JSON types with a line for each part, or errors with a line, and nothing raised."""
    last_line = len(re.findall(rb"\r\n|\r|\n", data)) + 1
    for number, result in enumerate(read(data), 1):
        assert result.line is not None and result.line >= 1
        if isinstance(result, YamlError):
            assert result.document == number and result.message
        else:
            assert result.index == number and isinstance(result.value, dict)
            assert_json(result.value)
            key = next(iter(result.value), "")
            assert result.line_of((key, 0, "x")) >= 1
            assert all(isinstance(line, int) for _, line in result.duplicates)
        if not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            assert result.line <= last_line


def assert_json(value: Any) -> None:
    found = [value]
    while found:
        part = found.pop()
        if isinstance(part, dict):
            assert all(type(key) is str for key in part)
            found.extend(part)
            found.extend(part.values())
        elif isinstance(part, list):
            found.extend(part)
        else:
            assert part is None or type(part) in (bool, int, float, str)
            if isinstance(part, str):
                part.encode()
            elif type(part) is int:
                assert -(2**63) <= part < 2**63
            elif isinstance(part, float):
                assert math.isfinite(part)


MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: "web", 'tier': front}}
spec:
  base: &base {cpu: 500m, memory: 128Mi}
  containers:
  - name: app  # first
    image: nginx:1.25
    args: ["--a", -b, c: d]
    command:
    - sh
    - |
      echo hi

      exit 0
    resources:
      requests: *base
      limits:
        <<: *base
        memory: 1Gi
    env:
    - {name: A, value: "x\\n\\u00e9"}
    ? note
    : >-
      folded
      text
---
{"kind": "Node", "n": [1, 2.0, true, null]}
"""
FRAGMENTS = [
    *[
        "\n",
        "\n  ",
        "\n- ",
        ": ",
        ":",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "#",
        " #",
        "&a ",
        "*a",
        "*base",
        "!",
        "!!str ",
        "!!int ",
    ],
    *[
        "|\n",
        ">-",
        "'",
        '"',
        "\\",
        "\t",
        "%",
        "@",
        "`",
        "<<: ",
        "...\n",
        "---\n",
        "--- x\n",
        "\r",
        "\x85",
        "\u2028",
        "\ufeff",
        "~",
        "\0",
        "\x7f",
    ],
    *[
        "\\/",
        "\\'",
        "\\ud800",
        "{a:}",
        "[a?]",
        ".nan",
        "1e999999999",
        "9" * 30,
        "0x",
        "\uf5f5",
        "é",
        "😀",
        '{"a":',
        "\n---\n{",
    ],
]


@st.composite
def mutated_manifests(draw: st.DrawFn) -> bytes:
    text = (
        MANIFEST
        if draw(st.booleans())
        else json.dumps({"kind": "Pod", "spec": {"a": [1, 2.5, {"b": None}]}}, indent=1) * 2
    )
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 5))
        text = text[:start] + draw(st.sampled_from(FRAGMENTS)) + text[end:]
    return text.encode()


@given(mutated_manifests())
@settings(max_examples=examples(300), deadline=None)
def test_fuzz_manifests(data: bytes) -> None:
    assert_sound(data)


@given(st.lists(st.sampled_from(FRAGMENTS) | printable, max_size=30).map(lambda parts: "".join(parts).encode()))
@settings(max_examples=examples(200), deadline=None)
def test_fuzz_fragments(data: bytes) -> None:
    assert_sound(data)


@given(st.sampled_from([b"", b"{", b"a: ", b'{"a":', b"\xff\xfe", b"\xef\xbb\xbf"]), st.binary(max_size=200))
@settings(max_examples=examples(200), deadline=None)
def test_fuzz_bytes(prefix: bytes, data: bytes) -> None:
    assert_sound(prefix + data)


@given(
    st.sampled_from(["[", "{", "- ", "? ", "{a: ", "[[", '{"a":', '[{"a":', "&a [", "!!x ", "'", '"']),
    st.integers(1, 30_000),
    st.booleans(),
)
@settings(max_examples=examples(12), deadline=None)
def test_fuzz_nesting(opening: str, count: int, as_value: bool) -> None:
    assert_sound((("a: " if as_value else "") + opening * count).encode())


@given(
    st.text("0123456789.eE+-_xobn", min_size=1, max_size=40),
    st.sampled_from([0, 0, 0, 5_000, 100_000]),
    st.sampled_from(["a: {}", "{}: a", '{{"a": {}}}', "? {}\n: b"]),
)
@settings(max_examples=examples(150), deadline=None)
def test_fuzz_numbers(text: str, zeros: int, template: str) -> None:
    assert_sound(template.format(text[:1] + "1" * zeros + text[1:]).encode())


HOSTILE = {
    "deep-and-wide": "a: " + "[" * 4_000 + "1," * 5_000 + "]" * 4_000,
    "unclosed-flow": "a: " + "[" * 300_000,
    "alias-bomb": bomb(9, 10),
    "merge-bomb": "a: &a {"
    + ",".join(f"k{n}: v" for n in range(5_000))
    + "}\n"
    + "".join(f"m{n}: {{<<: *a}}\n" for n in range(3_000)),
    "alias-chain": "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3_000)),
    "stray-colons": "a: [" + "a:, " * 100_000 + "]",
    "separators": "---\n" * 300_000,
    "bad-separators": "---x\n" * 20_000,
    "json-errors": '{"a":\n' * 100_000,
    "duplicates": "a:\n" + "  b: 1\n" * 20_000,
    "digits": "a: " + "1" * 1_000_000,
    "fraction": "a: 0." + "1" * 1_000_000,
    "json-digits": '{"a": ' + "1" * 1_000_000 + "}",
    "exponent": "a: 1e999999999\nb: 1e-999999999\nc: 0e999999999\n",
    "underscores": "a: 1" + "_" * 1_000_000,
    "base64": "a: !!binary " + "a" * 1_000_001,
    "escapes": 'a: "' + "\\/" * 500_000 + '"',
    "blanks": " " * 1_000_000 + "{",
    "comment": "#" * 1_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_input_takes_no_time(text: str) -> None:
    start = time.process_time()
    assert_sound(text.encode())
    assert time.process_time() - start < 10


# ── kubectl itself ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def kubectl(exercised: Callable[[str, str], None]) -> str:
    path = shutil.which("kubectl")
    if path is None:
        pytest.skip("kubectl is not in PATH")
    version = subprocess.run([path, "version", "--client", "-o", "json"], capture_output=True, check=False)
    found = re.search(rb'"gitVersion": "v1\.(\d+)', version.stdout)
    if found is None or int(found[1]) < 30:
        pytest.skip("kubectl in PATH is older than 1.30, or says no version")
    exercised("kubectl", f"1.{found[1].decode()}, offline, as a judge of YAML")
    return path


HEAD = "apiVersion: x/v1\nkind: Foo\nmetadata: {{name: f{}}}\n"
GRAMMAR = [
    "a",
    "1",
    "y",
    "~",
    "0x1F",
    "1_0",
    ".5",
    "'q'",
    '"d\\n"',
    "*b ",
    "&b ",
    "!!str ",
    "!!int ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ": ",
    ":",
    "? ",
    "\n  - ",
    "\n  ",
    "\n",
    "|\n  x",
    ">-\n  y",
    " #c",
    "<<: ",
    "-",
    "\t",
    "http://x?y",
]


def random_bodies(seed: int) -> list[str]:
    chance = random.Random(seed)
    numbers = ["".join(chance.choices("0011279.+-_eExobB:", k=chance.randint(1, 9))) for _ in range(300)]
    tagged = [f"{chance.choice(['!!int', '!!float', '!!str', '!!bool', '!'])} '{number}'" for number in numbers[:60]]
    texts = ["".join(chance.choices(GRAMMAR, k=chance.randint(1, 9))) for _ in range(300)]
    lines = MANIFEST.partition("---")[0].partition("spec:\n")[2].splitlines()
    cut = [[line for line in lines if chance.random() > 0.08] for _ in range(60)]
    return [
        *(f"spec: {text}\n" for text in [*Y1_VALUES, *numbers, *tagged, *texts]),
        *(f"spec:\n  ? {text}\n  : v\n" for text in [*Y3_KEYS, *numbers]),
        *(f"spec: {row[1]}\n" for row in [*Y2_VALUES, *Y2_ERRORS]),
        *("spec:\n" + "\n".join(kept) + "\n" for kept in cut),
    ]


def test_kubectl_reads_the_same(kubectl: str, tmp_path: Path) -> None:
    bodies = random_bodies(seed=7)
    for number, body in enumerate(bodies):
        (tmp_path / f"{number:06}.yaml").write_text(HEAD.format(number) + body, newline="")
    command = [kubectl, "label", "--local", "-f", str(tmp_path), "-o", "json", "read-by=kubectl"]
    output = subprocess.run(command, capture_output=True, check=False, text=True).stdout
    # Several objects are printed one after the other: a JSON stream.
    theirs = {
        result.value["metadata"]["name"]: result.value
        for result in read(output.encode())
        if isinstance(result, YamlDocument)
    }
    for value in theirs.values():
        value["metadata"].pop("labels")
    ours = {}
    for number, body in enumerate(bodies):
        result = one(HEAD.format(number) + body)
        if isinstance(result, YamlDocument):
            ours[f"f{number}"] = result.value
    assert len(theirs) > 500
    differing = [bodies[int(name[1:])] for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)]
    assert differing == []
