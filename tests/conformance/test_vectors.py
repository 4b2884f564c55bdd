"""Every topic of the project's vectors agrees in full; `./dev conformance` shows the same with its details."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import run
import topics


@pytest.mark.parametrize("topic", run.TOPICS)
def test_topic(topic: str) -> None:
    wrong, agreed = [], 0
    for number, (given, expected) in enumerate(run.cases(run.VECTORS / f"{topic}.jsonl.gz"), 1):
        found = run.differences(run.TOPICS[topic], given, expected)
        if not found:
            agreed += 1
        elif not topics.counted_apart(topic, given):
            wrong.append(f"line {number}: {found}")
    assert not wrong, wrong[: run.SHOWN]
    assert agreed > 1000  # the file was really read


def test_a_wrong_answer_is_noticed() -> None:
    given, expected = next(run.cases(run.VECTORS / "k_convert.jsonl.gz"))
    assert run.differences(topics.convert, given, {**expected, "shares": expected["shares"] + 1})


def test_every_file_is_a_topic() -> None:
    assert {path.name.removesuffix(".jsonl.gz") for path in run.VECTORS.iterdir()} == set(run.TOPICS)
