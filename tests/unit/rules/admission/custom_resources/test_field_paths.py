"""Paths to fields: which are valid, and what kube-apiserver says about the others."""

from __future__ import annotations

import pytest

from plimsoll.rules.admission.custom_resources.field_paths import FieldPathError, field_schema

TEXT = {"type": "string"}
SCHEMA = {
    "type": "object",
    "properties": {
        "a-b": TEXT,
        "it's": TEXT,
        "m": {"type": "object", "additionalProperties": TEXT},
        "any": {"type": "object", "additionalProperties": True},
    },
}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        (".a-b", ("a-b",)),
        ("['a-b']", ("a-b",)),
        (r"['it\'s']", ("it's",)),
        (".m.x", ("m", "x")),
        (".m['x.y']", ("m", "x.y")),
    ],
)
def test_valid_paths(path: str, steps: tuple[str, ...]) -> None:
    assert field_schema(SCHEMA, path) == (steps, TEXT)


def test_a_field_without_a_schema() -> None:
    assert field_schema(SCHEMA, ".any.x") == (("any", "x"), None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a", "expected [ or . but got: a"),
        (".z", "does not refer to a valid field"),
        (".a-b.c", "does not refer to a valid field"),
        (".", "unexpected end of JSON path"),
        ("['m'", "unexpected end of JSON path"),
        ("[0]", "expected single quoted string but got 0"),
        ("['m'.x", "expected ] but got ."),
        (r"['\q']", r"invalid string literal: invalid escape char \q"),
    ],
)
def test_other_paths(path: str, message: str) -> None:
    with pytest.raises(FieldPathError) as found:
        field_schema(SCHEMA, path)
    assert str(found.value) == message


def test_brackets_that_are_not_allowed() -> None:
    with pytest.raises(FieldPathError, match="array notation is not allowed"):
        field_schema(SCHEMA, "['m']", brackets=False)
