"""Shared by the tests of the reader: read one document, or the text of its error."""

from __future__ import annotations

import itertools
from typing import Any

from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read


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


def bomb(width: int, levels: int) -> str:
    names = "abcdefghij"
    lines = [f"a: &a [{', '.join('x' * width)}]"]
    for below, name in itertools.pairwise(names[:levels]):
        lines.append(f"{name}: &{name} [{', '.join([f'*{below}'] * width)}]")
    return "\n".join(lines) + "\n"
