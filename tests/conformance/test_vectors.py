"""Every topic of the project's vectors agrees in full; `./dev conformance` shows the same with its details."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import run
import topics

from plimsoll.rules.profile import RELEASES, profile_named

FILES = [(release, path) for release in RELEASES for path in sorted((run.VECTORS / release).glob("*.jsonl.gz"))]
LEAST = 60  # vectors of a topic


@pytest.mark.parametrize(("release", "path"), FILES, ids=[f"{each}-{path.name[0:12]}" for each, path in FILES])
def test_topic(release: str, path: Path) -> None:
    topic, profile = path.name.removesuffix(".jsonl.gz"), profile_named(release)
    wrong, agreed = [], 0
    for number, (given, expected) in enumerate(run.cases(path), 1):
        found = run.differences(run.TOPICS[topic], given, expected, profile)
        if not found:
            agreed += 1
        elif not topics.counted_apart(topic, given):
            wrong.append(f"line {number}: {found}")
    assert not wrong, wrong[: run.SHOWN]
    assert agreed >= LEAST - 5  # the file was really read


@pytest.mark.parametrize("release", RELEASES)
def test_a_wrong_answer_is_noticed(release: str) -> None:
    given, expected = next(run.cases(run.VECTORS / release / "k_convert.jsonl.gz"))
    wrong = {**expected, "shares": expected["shares"] + 1}
    assert run.differences(topics.convert, given, wrong, profile_named(release))


# A release's vectors notice that another release answers otherwise: topics that changed with it.
CHANGED = [
    ("1.27", "1.28", "e_container"),
    ("1.29", "1.28", "a_qos"),
    ("1.30", "1.29", "e_container"),
    ("1.32", "1.31", "c_oom"),
    ("1.33", "1.32", "b_aggregate"),
    ("1.34", "1.33", "i_eviction"),
    ("1.35", "1.34", "j_resize_api"),
    ("1.36", "1.35", "j_resize_kubelet"),
    ("1.37", "1.36", "h_node"),
]


@pytest.mark.parametrize(("release", "other", "topic"), CHANGED)
def test_releases_differ(release: str, other: str, topic: str) -> None:
    cases = run.cases(run.VECTORS / release / f"{topic}.jsonl.gz")
    assert any(run.differences(run.TOPICS[topic], *case, profile_named(other)) for case in cases)


def test_every_file_is_a_topic() -> None:
    assert {path.name for path in run.VECTORS.iterdir()} == set(RELEASES)
    for release in RELEASES:
        assert {path.name.removesuffix(".jsonl.gz") for path in (run.VECTORS / release).iterdir()} <= set(run.TOPICS)
