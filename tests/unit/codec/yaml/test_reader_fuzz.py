"""plimsoll.codec.yaml.reader against hostile input and random manifests, and against kubectl itself."""

from __future__ import annotations

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

from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read
from tests.examples import examples
from tests.unit.codec.yaml.reading import (
    Y1_VALUES,
    Y2_ERRORS,
    Y2_VALUES,
    Y3_KEYS,
    bomb,
    one,
    value_of,
)

pytestmark = pytest.mark.filterwarnings("error")


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
