"""plimsoll.codec.yaml.reader against the tables Y1–Y3 of spec 06."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.yaml.reader import YamlDocument, read
from tests.unit.codec.yaml.reading import (
    Y1_VALUES,
    Y2_ERRORS,
    Y2_VALUES,
    Y3_KEYS,
    bomb,
    error_of,
    one,
    outcomes,
    value_of,
)

pytestmark = pytest.mark.filterwarnings("error")


def same(found: Any, expected: Any) -> bool:
    """Equal, and of one type: 1, 1.0 and True are three values."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and {k: (type(v), v) for k, v in found.items()} == {
            k: (type(v), v) for k, v in expected.items()
        }
    return type(found) is type(expected) and found == expected


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


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in Y2_VALUES], ids=[row[0] for row in Y2_VALUES])
def test_y2_value(text: str, expected: Any) -> None:
    assert same(value_of(f"v: {text}"), {"v": expected})


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in Y2_ERRORS], ids=[row[0] for row in Y2_ERRORS])
def test_y2_error(text: str, message: str) -> None:
    assert str(error_of(f"u: 1\nv: {text}\n")) == f"line 2: {message}"


def test_y2_escaped_slash_is_an_error_only_as_an_escape() -> None:
    assert value_of("a: '\\/'\nb: \\/\nc: \"\\\\/\"\n") == {"a": "\\/", "b": "\\/", "c": "\\/"}


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
