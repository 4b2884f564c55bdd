"""Broken and hostile manifests are explained or refused: never a traceback, never a hang, never a control code.

PLIMSOLL_FUZZ sets the number of cases (default 150) and PLIMSOLL_FUZZ_SEED the seed; `./dev prove fuzz` runs 20,000.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.mutation import NODE, Case, case, corpus, fuzz, report, wrong_with

CASES = int(os.environ.get("PLIMSOLL_FUZZ", "150"))
SEED = int(os.environ.get("PLIMSOLL_FUZZ_SEED", "1"))


def test_mutated_manifests(tmp_path: Path) -> None:
    outcome = fuzz(SEED, CASES, tmp_path)
    assert not outcome.failures, "\n" + report(SEED, outcome.failures)
    assert outcome.counts["explained"] > CASES // 20, "most mutations must not be so wild that only refusals are tested"
    assert outcome.counts["refused"] > CASES // 20


def test_cases_can_be_repeated() -> None:
    assert [case(3, number) for number in range(20)] == [case(3, number) for number in range(20)]
    assert case(3, 1) != case(4, 1)


def test_every_example_is_answered_unmutated(tmp_path: Path) -> None:
    for data in corpus()[0]:
        assert wrong_with(Case(data, ("explain", "{}", *NODE), "none"), tmp_path / "m.yaml")[0] == ""


POD = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {limits: {%s}}}]}\n"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{k}: &{k} [{','.join([f'*{j}'] * 9)}]\n" for j, k in ("ab", "bc", "cd", "de", "ef", "fg", "gh", "hi")
)

SHAPES = [
    ("an alias bomb", BOMB),
    ("an alias bomb in a pod", BOMB + "kind: Pod\nmetadata: {name: p}\nspec: *i\n"),
    ("an alias of itself", "a: &a [*a]\n"),
    ("depth: lists", "[" * 9999 + "]" * 9999),
    ("depth: beyond the limit", "[" * 20_000),
    ("depth: JSON", '{"a":' * 20_000),
    ("depth: block", "".join(f"{' ' * n}a:\n" for n in range(1000))),
    ("depth: Lists of Lists", '{"kind": "List", "items": [' * 3000 + "]}" * 3000),
    ("depth: metadata", "kind: Pod\nmetadata: " + "[" * 3000 + "]" * 3000),
    ("depth: a quantity", POD % ("cpu: " + "[" * 3000 + "]" * 3000)),
    ("NUL", "kind: Pod\0\n"),
    ("NUL, escaped", 'kind: Pod\nmetadata: {name: "a\\0b"}\n'),
    ("NULs", "\0" * 10_000),
    ("a giant number", POD % f"cpu: {'9' * 10_000}"),
    ("a giant number in quotes", POD % f"cpu: '{'9' * 10_000}'"),
    ("a giant number with a stranger", POD % f"cpu: '{'0' * 1000}x'"),
    ("a giant exponent", POD % "cpu: 1e999999999"),
    ("a giant exponent in quotes", POD % "cpu: '1e999999999'"),
    ("a giant amount", POD % "cpu: '1e400', memory: '1e400'"),
    ("a tiny amount", POD % "cpu: '1e-999999999'"),
    ("duplicate keys", POD % "cpu: 1, cpu: 2, cpu: 3"),
    ("ten thousand duplicate keys", "a: 1\n" * 10_000),
    ("a long key", "a" * 100_000 + ": 1\n"),
    ("a long name", "kind: Pod\nmetadata: {name: " + "a" * 1_000_000 + "}\n"),
    ("two thousand containers", '{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [' + ",".join(['{"name": "c", "image": "i"}'] * 2_000) + "]}}"),
    ("a thousand documents", "kind: Pod\n---\n" * 1_000),
    ("nothing but separators", "---\n" * 50_000),
    ("UTF-16 without a mark", "kind: Pod\n".encode("utf-16-le")),
    ("half a character", b"kind: \xf0\x9f\n"),
    ("lone surrogates", b'{"kind": "Pod", "metadata": {"name": "\\ud800"}}'),
    ("a merge of everything", "a: &a {kind: Pod}\n<<: [*a, *a, *a]\nspec: {<<: *a}\n"),
    ("tabs", "kind:\tPod\n\tmetadata: 1\n"),
    ("one quote", '"'),
    ("one bracket", "{"),
]  # fmt: skip


@pytest.mark.parametrize("text", [row[1] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_known_shapes(tmp_path: Path, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    for words in (
        ("explain", "{}", *NODE),
        ("explain", "{}", *NODE, "--profile", "1.36", "--feature-gates", "MemoryQoS=true", "-o", "sh"),
    ):
        assert wrong_with(Case(data, words, "shape"), tmp_path / "m.yaml")[0] == ""
