"""plimsoll.codec.yaml.reader: streams of documents (Y4), JSON, line numbers and duplicate keys."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.yaml import reader as codec
from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read
from tests.unit.codec.yaml.reading import (
    error_of,
    one,
    outcomes,
    value_of,
)

pytestmark = pytest.mark.filterwarnings("error")


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
