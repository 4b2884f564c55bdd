"""`plimsoll plan`: JSON lines in, one result per line out, in order, for any input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.console import Ran, run
from tests.unit.strategies import Json, valid_pods

NODE = ("--capacity", "cpu=4,memory=8Gi")


def pod(name: str, uid: str = "u", **limits: Any) -> Json:
    return {
        "metadata": {"name": name, "uid": uid},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
    }


def plan(*lines: Any, words: tuple[str, ...] = (), end: str = "\n") -> Ran:
    text = end.join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end
    return run("plan", "-", *NODE, *words, stdin=text)


def results(ran: Ran) -> list[Json]:
    return [json.loads(line) for line in ran.out.splitlines()]


def test_one_result_per_line_in_order() -> None:
    ran = plan(*(pod(f"p{i}", cpu="1", memory="1Gi") for i in range(5)))
    assert (ran.code, ran.err.count("\n"), ran.err[:8]) == (0, 1, "profile ")
    assert [each["name"] for each in results(ran)] == [f"p{i}" for i in range(5)]
    first = results(ran)[0]
    assert (first["qosClass"], first["cgroup"], first["requests"]) == (
        "Guaranteed",
        "/kubepods/podu",
        {"cpu": 1000, "memory": 1 << 30},
    )
    assert first["containers"][0]["oomScoreAdj"] == -997


def test_two_processes_give_the_same_bytes_in_the_same_order() -> None:
    """More than a block (256 KiB), with invalid lines in several blocks."""
    lines = [json.dumps(pod(f"p{i}", cpu=f"{i % 900 + 1}m") | {"pad": "x" * 300}) for i in range(3000)]
    for broken in (0, 700, 1500, 2999):
        lines[broken] = '{"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}'
    one, two = plan(*lines), plan(*lines, words=("-j", "2"))
    assert one.out == two.out
    assert (one.code, two.code) == (2, 2)
    found = results(two)
    assert len(found) == 3000
    assert [(index + 1, each["line"]) for index, each in enumerate(found) if "line" in each] == [
        (1, 1),
        (701, 701),
        (1501, 1501),
        (3000, 3000),
    ]
    assert found[1]["name"] == "p1"


# line, then type and field of the first error
REFUSED = [
    ("no JSON", "{nope", "FieldValueInvalid", ""),
    ("a bad quantity", pod("p", cpu="x"), "FieldValueInvalid", "spec.containers[0].resources.limits[cpu]"),
    ("a wrong type", {"spec": 5}, "FieldValueInvalid", "spec"),
    ("a list", [], "FieldValueInvalid", "(document)"),
    ("null", "null", "FieldValueInvalid", "(document)"),
    ("an unknown class", {"status": {"qosClass": "Gold"}}, "FieldValueNotSupported", "status.qosClass"),
    ("a uid that is no cgroup name", pod("p", "a_b"), "FieldValueInvalid", "metadata.uid"),
    ("a uid with a slash", pod("p", "a/b"), "FieldValueInvalid", "metadata.uid"),
    ("an invalid huge page size", pod("p", **{"cpu": "1", "hugepages-x": "1"}), "FieldValueInvalid", "spec.containers[0].resources"),
    ("deep", '{"metadata": ' + "[" * 5000 + "]" * 5000 + "}", "FieldValueInvalid", ""),
    ("bottomless", "[" * 100_000, "FieldValueInvalid", ""),
    ("NUL", "\0", "FieldValueInvalid", ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "field"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_invalid_line_has_errors_in_its_place(line: Any, kind: str, field: str, jobs: str) -> None:
    ran = plan(pod("before"), line, pod("after"), words=("-j", jobs))
    assert ran.code == 2
    assert "1 invalid" in ran.err
    before, refused, after = results(ran)
    assert (before["name"], after["name"]) == ("before", "after")
    assert refused["line"] == 2
    assert refused["errors"][0]["type"] == kind
    if field:
        assert refused["errors"][0]["field"].startswith(field)


GIANTS = [
    ("cpu", pod("p", cpu="1e400")),
    ("memory", pod("p", memory="1e400")),
    (
        "a request",
        {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "1e400"}}}]},
        },
    ),
    ("8Ei", pod("p", cpu="8Ei", memory="8Ei")),
    ("negative", pod("p", cpu="-1", memory="-1Gi")),
]


@pytest.mark.parametrize("line", [row[1] for row in GIANTS], ids=[row[0] for row in GIANTS])
@pytest.mark.parametrize("words", [(), ("--feature-gates", "MemoryQoS=true"), ("--cgroup", "v1")], ids=" ".join)
def test_huge_amounts_are_planned_or_rejected(line: Json, words: tuple[str, ...]) -> None:
    ran = plan(pod("before"), line, pod("after"), words=words)
    assert ran.code in (0, 2)
    assert [each.get("name") for each in results(ran)][::2] == ["before", "after"]


def test_blank_lines_and_line_ends() -> None:
    ran = plan("", pod("a"), "   ", pod("b"), '{"spec": 1}')
    assert [each.get("name") for each in results(ran)] == ["a", "b", None]
    assert results(ran)[2]["line"] == 5, "counted in the input"
    assert [each["name"] for each in results(plan(pod("a"), pod("b"), end="\r\n"))] == ["a", "b"]
    assert [each["name"] for each in results(run("plan", "-", *NODE, stdin=json.dumps(pod("a"))))] == ["a"]


def test_empty_input_gives_empty_output() -> None:
    ran = run("plan", "-", *NODE)
    assert (ran.code, ran.out) == (0, "")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "pods.jsonl"
    file.write_text(json.dumps(pod("a")) + "\n")
    assert [each["name"] for each in results(run("plan", str(file), *NODE))] == ["a"]


def test_a_missing_file(tmp_path: Path) -> None:
    ran = run("plan", str(tmp_path / "none"), *NODE)
    assert ran.code == 2
    assert "none" in ran.err
    assert "Traceback" not in ran.err


OPTIONS = [
    (
        "v1",
        ("--cgroup", "v1"),
        {"cpu.shares": 1024, "cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 100000, "memory.limit_in_bytes": 1 << 30},
    ),
    ("systemd", ("--driver", "systemd"), {"cpu.weight": 39, "cpu.max": "100000 100000", "memory.max": 1 << 30}),
    (
        "Memory QoS",
        ("--feature-gates", "MemoryQoS=true"),
        {"cpu.weight": 39, "cpu.max": "100000 100000", "memory.min": 1 << 30, "memory.max": 1 << 30},
    ),
]


@pytest.mark.parametrize(("words", "files"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS])
def test_options(words: tuple[str, ...], files: Json) -> None:
    (found,) = results(plan(pod("p", cpu="1", memory="1Gi"), words=words))
    assert found["files"] == files


def test_notes_go_to_standard_error() -> None:
    ran = plan(pod("p"), words=("--feature-gates", "Unheard=true"))
    assert ran.code == 0
    assert "Unheard changes nothing here" in ran.err
    assert len(results(ran)) == 1


WRONG = [("no jobs", ("-j", "0")), ("a bad capacity", ("--capacity", "x")), ("an unknown option", ("--nope",))]


@pytest.mark.parametrize("words", [row[1] for row in WRONG], ids=[row[0] for row in WRONG])
def test_invalid_arguments(words: tuple[str, ...]) -> None:
    ran = plan(pod("p"), words=words)
    assert (ran.code, ran.out) == (2, "")


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(valid_pods(), min_size=1, max_size=4),
    st.sampled_from(("documents", "1.36")),
    st.sampled_from(("v1", "v2")),
)
def test_any_valid_pods(documents: list[Json], profile: str, version: str) -> None:
    ran = plan(*documents, words=("--profile", profile, "--cgroup", version))
    assert (ran.code, ran.err.count("\n"), ran.err[:8]) == (0, 1, "profile ")
    assert [each["uid"] for each in results(ran)] == [document["metadata"]["uid"] for document in documents]


MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 250m}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
"""


def test_a_manifest_is_read_as_explain_reads_it(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(MANIFEST)
    ran = run("plan", str(tmp_path / "pods.yaml"), *NODE)
    assert (ran.code, [(each["name"], each["qosClass"]) for each in results(ran)]) == (
        0,
        [("web", "Burstable"), ("d", "BestEffort")],
    )
    whole = {"apiVersion": "v1", "kind": "Pod", **pod("web", cpu="1")}
    assert plan(json.dumps(whole, indent=4)).out == plan(whole).out


def test_a_manifest_that_cannot_be_read_is_one_error() -> None:
    ran = run("plan", "-", *NODE, stdin="kind: Pod\nspec: {containers: [\n")
    assert (ran.code, ran.out) == (2, "")
    assert "plimsoll: no pod was planned:\n<stdin>:" in ran.err
