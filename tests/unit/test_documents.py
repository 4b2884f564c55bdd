"""The five documents, row by row: each `test_row[ID]` that docs/documents.md names, and no other.

A row is checked by everything that carries its id. In the folder documents/ beside this module, `cases` and `formulas` run
what examples/documents/expected.yaml holds, all worked out by hand, and `rows_000` … `rows_004` have functions marked `@row`
for what no table contains. The last tests compare the page, the examples and these checks.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.config.parse import reading
from plimsoll.rules.profile import profile_named
from tests.unit.documents import rows_000, rows_001, rows_002, rows_003, rows_004
from tests.unit.documents.cases import case_checks
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import (
    DOCUMENTS,
    EXAMPLES,
    EXPECTED,
    ROOT,
    amount,
    amount_list,
    container,
    documents_in,
    explained,
    lean,
    manifest,
    work,
)
from tests.unit.documents.formulas import FORMULAS, WAITING, formula_checks

PAGE = ROOT / "docs" / "documents.md"


def all_checks() -> Checks:
    found = Checks()
    documents = (rows_000, rows_001, rows_002, rows_003, rows_004)
    for checks in (case_checks(), formula_checks(), *(each.CHECKS for each in documents)):
        for row_id, more in checks.items():
            found[row_id] += more
    return found


CHECKS = all_checks()


# --- the rows ---


@pytest.mark.parametrize("row_id", sorted(CHECKS))
def test_row(row_id: str) -> None:
    for check in CHECKS[row_id]:
        check()


# --- the page ---

_ROW = re.compile(r"^\| (\d{3}-\d{2}) \|(.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`tests/unit/test_documents\.py::test_row\[(\d{3}-\d{2})\]`")


@cache
def page_rows() -> dict[str, list[str]]:
    """Row id → its other columns."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(found) == len(dict(found)), "a row id occurs twice"
    return {row_id: [column.strip() for column in re.split(r"(?<!\\)\|", rest)] for row_id, rest in found}


def test_page_has_three_columns_beside_the_id_in_every_row() -> None:
    assert {row_id: len(columns) for row_id, columns in page_rows().items() if len(columns) != 3} == {}


def test_page_names_the_tests_that_exist() -> None:
    named = _TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert set(named) == set(CHECKS)


def test_page_has_a_row_for_each_test_and_that_row_names_it() -> None:
    silent = [row_id for row_id in CHECKS if row_id not in _TEST.findall(page_rows()[row_id][2])]
    assert silent == []


def test_page_mentions_no_test_in_another_form() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("`tests/unit/test_documents.py::test_row[ID]`", "")
    assert len(re.findall(r"test_documents(?!_)", text)) == len(_TEST.findall(text))


def test_page_names_other_tests_that_exist() -> None:
    text = _TEST.sub("", " ".join(columns[2] for columns in page_rows().values()))
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)(?:\[(\w+)\])?`", text)
    assert named and len(named) == text.count("::"), "a test is named in another form"
    for file, name, check in sorted(set(named)):
        assert defines(ROOT / file, name), f"{file}::{name}"
        # What runs on several kernels is a function of a module beside the tests.
        modules = (ROOT / "tests" / "kernel").glob("*_checks.py")
        assert not check or any(defines(each, check) for each in modules), f"{file}::{name}[{check}]"


def defines(file: Path, name: str) -> bool:
    return bool(re.search(rf"(?m)^(async )?def {name}\(", file.read_text(encoding="utf-8")))


def test_page_refers_to_rows_that_exist_and_has_no_open_rows() -> None:
    for row_id, columns in page_rows().items():
        for other in re.findall(r"(?<![\w-])00[0-4]-\d{2}(?![\w-])", " ".join(columns)):
            assert other in page_rows(), row_id
        assert "later (" not in columns[2], row_id


def test_page_names_files_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:examples/)?([\w./-]+\.(?:yaml|json))`", text))
    assert {name for name in named if not (DOCUMENTS / name).exists() and not (EXAMPLES / name).exists()} == set()
    links = set(re.findall(r"\]\(([^)#]+)\)", text))
    assert {link for link in links if not (PAGE.parent / link).exists()} == set()


def test_page_names_every_example_of_the_documents() -> None:
    text = PAGE.read_text(encoding="utf-8")
    unnamed = {each.name for each in DOCUMENTS.glob("00*") if f"`{each.name}`" not in text}
    assert unnamed == set()


def test_every_formula_table_is_checked() -> None:
    (expected,) = documents_in(EXPECTED)
    assert set(expected["formulas"]) == set(FORMULAS) | WAITING
    assert not any(expected["formulas"][name]["ids"] for name in WAITING)
    unread = [name for name, table in expected["formulas"].items() if name not in WAITING and not table["ids"]]
    assert unread == []


# --- the examples ---

_NO_PODS = {"KubeletConfiguration", "Node"}


def yaml_examples() -> dict[str, str]:
    """File (below examples/) → kind of its first document. Every YAML file is one or the other of what follows."""
    files = [each for folder in (EXAMPLES, DOCUMENTS) for each in sorted(folder.glob("*.yaml")) if each != EXPECTED]
    return {str(each.relative_to(EXAMPLES)): documents_in(each)[0]["kind"] for each in files}


def examples_of(*kinds: str) -> list[str]:
    return [file for file, kind in yaml_examples().items() if kind in kinds]


@pytest.mark.parametrize("profile", ["documents", "1.36"])
@pytest.mark.parametrize("file", [file for file, kind in yaml_examples().items() if kind not in _NO_PODS])
def test_explain_accepts_pod_examples(file: str, profile: str) -> None:
    asked = (str(EXAMPLES / file), "--node", str(EXAMPLES / "node-48.yaml"), "--profile", profile)
    found = json.loads(explained(*asked, "--cgroup", "v1", "-o", "json"))
    assert found["pods"]
    for_people = explained(*asked)
    for pod in found["pods"]:
        assert pod["name"] in for_people and f"{pod['qosClass']} because {pod['because']}" in for_people


@pytest.mark.parametrize("profile", ["documents", "1.36"])
@pytest.mark.parametrize("file", examples_of("KubeletConfiguration"))
def test_kubelet_accepts_configuration_examples(file: str, profile: str) -> None:
    (document,) = documents_in(EXAMPLES / file)
    assert reading(document, profile_named(profile)).config
    pod, machine = str(DOCUMENTS / "004-busybox.yaml"), str(EXAMPLES / "node-48.yaml")
    assert explained(pod, "--node", machine, "--config", str(EXAMPLES / file), "--profile", profile)


@pytest.mark.parametrize("file", examples_of("Node"))
def test_explain_accepts_node_examples(file: str) -> None:
    (document,) = documents_in(EXAMPLES / file)
    pod = str(DOCUMENTS / "002-besteffort.yaml")
    found = json.loads(explained(pod, "--node", str(EXAMPLES / file), "-o", "json"))
    assert found["node"]["name"] == document["metadata"]["name"]
    for name in ("cpu", "memory"):
        assert found["node"]["capacity"][name] == str(amount(document["status"]["capacity"][name]))


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        ("003-demo", "cpu-2", "003-demo-resized-cpu-2"),
        ("003-demo", "cpu-3", "003-demo-resized-cpu-3"),
        ("003-demo", "memory-500mi", "003-demo-resized-memory-500mi"),
        ("003-demo-resized-cpu-2", "qos-change", "003-demo-refused-qos-change"),
    ],
)
def test_patch_example_leads_to_its_result(base: str, patch: str, result: str) -> None:
    document = patched(manifest(f"{base}.yaml"), patch)
    assert lean(document) == lean(manifest(f"{result}.yaml"))


@pytest.mark.parametrize(("number", "cpu"), [(1, "1.5"), (2, "2"), (3, "1.6"), (4, "100")])
def test_timeline_patch_matches_the_timeline(number: int, cpu: str) -> None:
    document = patched(manifest("003-timeline.yaml"), f"timeline-{number}")
    assert work(document).requests == amount_list({"cpu": cpu})
    (expected,) = documents_in(EXPECTED)
    proposed = [line["spec"] for line in expected["formulas"]["timeline"]["lines"] if line["resize"] == "Proposed"]
    assert proposed[number - 1] == cpu


def patched(document: Any, name: str) -> Any:
    """The patches touch resources of containers by name and nothing else."""
    patch = json.loads((DOCUMENTS / f"003-patch-{name}.json").read_text(encoding="utf-8"))
    assert patch.keys() == {"spec"} and patch["spec"].keys() == {"containers"}
    for change in patch["spec"]["containers"]:
        assert change.keys() == {"name", "resources"}
        for kind, values in change["resources"].items():
            container(document, change["name"])["resources"][kind].update(values)
    return document
