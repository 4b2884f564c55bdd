"""JSONPath templates: the examples of the Kubernetes documentation, and kubectl's errors.

https://kubernetes.io/docs/reference/kubectl/jsonpath/. `tests/e2e/test_verbs_like_kubectl.py` compares with kubectl.
"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.jsonpath.parser import TemplateError, relaxed
from plimsoll.codec.jsonpath.template import JsonPath

# The input of the documentation, shortened.
DOCUMENT: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]},
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"},
                    {"type": "another", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [{"name": "myself", "user": {}}, {"name": "e2e", "user": {"username": "admin", "password": "secret"}}],
}
PRINTED = [
    ("text", "kind is {.kind}", "kind is List"),
    ("the object", "{.kind}{@.kind}{$.kind}", "ListListList"),
    ("brackets", "{['kind']}", "List"),
    ("recursive descent", "{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
    ("a wildcard", "{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
    ("a union", "{.items[*]['metadata.name', 'status.capacity']}", '127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}'),
    ("a filter", '{.users[?(@.name=="e2e")].user.password}', "secret"),
    ("range", "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}", '[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] '),
    ("quoted text", "{range .items[*]}{.metadata.name}{'\\t'}{end}", "127.0.0.1\t127.0.0.2\t"),
    ("a backslash", "{.items[*].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
    ("the last one", "{.users[-1].name}", "e2e"),
    ("a step", "{.items[0:2:2].metadata.name}", "127.0.0.1"),
    ("nested ranges", "{range .items[*]}{range .status.addresses[*]}{.address},{end};{end}.", "127.0.0.1,;127.0.0.2,127.0.0.3,;."),
    ("nothing", "{.missing.field}", ""),
    ("an empty range", "{range .missing[*]}{.name}{end}after", "after"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "text"), [row[1:] for row in PRINTED], ids=[row[0] for row in PRINTED])
def test_the_documented_functions(template: str, text: str) -> None:
    assert JsonPath(template).printed(DOCUMENT) == text


REFUSED = [
    ("no brace", "{.kind", "unclosed action"),
    ("an index", "{.users[9]}", "array index out of bounds: index 9, length 2"),
    ("not a list", "{.kind[0]}", "string is not array or slice"),
    ("a word", "{nothing}", "unrecognized identifier nothing"),
    ("end alone", "{end}", "not in range, nothing to end"),
    ("dots", "{....name}", "invalid multiple recursive descent"),
    ("a quote", "{'a}", "unterminated quoted string"),
    ("and", '{.users[?(@.name=="a" && @.b)]}', "unrecognized character in action: U+0026 '&'"),
    ("types", "{.users[?(@.name==1)]}", "incompatible types for comparison"),
    ("several", '{.items[?(@..address=="x")]}', "can only compare one element at a time"),
    ("operator", "{.users[?(@.name=!1)]}", "unrecognized filter operator =!"),
    ("a slice", "{.users[a]}", "invalid array index a"),
]


@pytest.mark.parametrize(("template", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_errors_have_the_words_of_kubectl(template: str, message: str) -> None:
    with pytest.raises(TemplateError) as raised:
        JsonPath(template).printed(DOCUMENT)
    assert str(raised.value) == message


def test_a_missing_key_can_be_an_error() -> None:
    with pytest.raises(TemplateError, match=r"^nothing is not found$"):
        JsonPath("{.nothing}", allow_missing=False).printed(DOCUMENT)


@pytest.mark.parametrize("path", ["metadata.name", ".metadata.name", "{metadata.name}", "{.metadata.name}"])
def test_one_path_needs_no_braces(path: str) -> None:
    assert relaxed(path) == "{.metadata.name}"


def test_one_path_is_not_a_template() -> None:
    with pytest.raises(TemplateError, match="unexpected path string"):
        relaxed("{.a}{.b}")
