"""Pages, docstrings and comments name only modules and files that exist, and cite only clauses that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.project_files import PACKAGE, ROOT, pages, prose, python_files

ROOMS = "|".join(sorted(path.stem for path in PACKAGE.iterdir() if not path.name.startswith("_")))
# Not the names of others: `node.kubernetes.io`, `metrics.k8s.io`, `runtime.v1`, `api.proto`.
MODULE = re.compile(rf"(?:`(?:plimsoll\.)?|\bplimsoll\.)((?:{ROOMS})(?!\.(?:kubernetes|k8s|v1|proto|py)\b)(?:\.\w+)+)")
FILE = re.compile(r"(?<![\w/.{}*-])((?:[\w.-]+/)*[a-z_][\w-]*\.py)\b(?!/)")
Check = Callable[[Path, str], list[str]]  # what is wrong with a line of a file
pytestmark = pytest.mark.xdist_group("references")  # in one worker, which reads the files once
SEMANTICS = sorted((ROOT / "docs" / "semantics").glob("0*.md"))


@cache
def files() -> dict[Path, list[str]]:
    """The lines of all pages and modules of the project, except this one with its samples."""
    paths = [path for path in [*pages(), *python_files()] if path != Path(__file__)]
    return {path: path.read_text(encoding="utf-8").splitlines() for path in paths}


def found_in(check: Check) -> dict[str, list[str]]:
    """What is wrong in pages, comments and strings. Tokens are read only of files with something to find."""
    return {
        f"{path.relative_to(ROOT)}:{number}": wrong
        for path, lines in files().items()
        if any(check(path, line) for line in lines)
        for number, line in prose(path)
        if (wrong := check(path, line))
    }


# --- modules and files


@cache
def defined(module: Path) -> frozenset[str]:
    """Every name that a module binds at its top, in a class or as an attribute."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add(name)
    return frozenset(names)


@cache
def is_module(dotted: str) -> bool:
    """Whether `room.package.module` exists, or `room.module.name` is a name in a module that exists."""
    path = PACKAGE
    parts = dotted.split(".")
    for index, part in enumerate(parts):
        if (path / part).is_dir():
            path /= part
        elif (path / f"{part}.py").exists():
            rest = set(parts[index + 1 :])
            return not rest or rest <= defined(path / f"{part}.py")
        else:
            return part in defined(path / "__init__.py")
    return True


@cache
def file_names() -> frozenset[str]:
    return frozenset(path.name for path in [*python_files(), *(ROOT / "docs").glob("*.py")])


def is_file(name: str, page: Path) -> bool:
    if "/" not in name:
        return name in file_names()
    return any((folder / name).exists() for folder in (ROOT, PACKAGE, ROOT / "tests", ROOT / "tests/unit", page.parent))


def missing_references(path: Path, line: str) -> list[str]:
    if "." not in line:
        return []
    missing = [name for name in MODULE.findall(line) if not is_module(name)]
    # A string in the code may name a file that a test creates.
    return missing + [name for name in FILE.findall(line) if line[:1] not in "'\"" and not is_file(name, path)]


def test_modules_and_files_that_are_named_exist() -> None:
    assert found_in(missing_references) == {}


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("see `rules.quantity`", False),
        ("see `rules.quantity.Quantity`", False),
        ("see `rules.quantity.Wuantity`", True),
        ("see `rules.amounts`", True),
        ("python -m plimsoll.runtime.supervisor", False),
        ("python -m plimsoll.runtime.host", True),
        ("see `rules/quantity.py` and tests/conftest.py", False),
        ("see `rules/amounts.py`", True),
        ("see amounts.py", True),
        ("https://example.org/a/b.html", False),
    ],
)
def test_the_check_of_modules_can_fail(line: str, missing: bool) -> None:
    assert bool(missing_references(ROOT / "README.md", line)) == missing


# --- clauses


@cache
def anchors() -> dict[str, frozenset[str]]:
    """Document number → its anchors."""
    return {path.name[:2]: frozenset(re.findall(r'<a id="([^"]+)"', path.read_text())) for path in SEMANTICS}


@cache
def families() -> frozenset[str]:
    """The letters before the hyphen of clause ids: Q, QC, O, …"""
    ids = {anchor for found in anchors().values() for anchor in found}
    return frozenset(anchor.partition("-")[0] for anchor in ids if re.fullmatch(r"[A-Z]+-\d+[a-z]?", anchor))


SECTION = re.compile(r"\b(0[1-7]),? ((?:§§?\d[\d.]*[ab]?|[A-Y]\d+)(?:(?:, | and |/|–)(?:§\d[\d.]*[ab]?|[ABEY]\d+))*)")
CLAUSE = re.compile(r"(?<![\w-])([A-Z]{1,2})-(\d+[a-z]?)(?![\w-]|\.\d)")


def unknown_clauses(line: str) -> list[str]:
    unknown = []
    for document, cited in SECTION.findall(line):
        for part in re.findall(r"§?(?:\d|[A-Y]\d)[\w.]*", cited.replace("§§", "§")):
            name = part.rstrip(".")
            anchor = f"s{name[1:]}" if name.startswith("§") else name
            if anchor not in anchors().get(document, ()):
                unknown.append(f"{document} {name}")
    for family, number in CLAUSE.findall(line):
        clause = f"{family}-{number}"
        if family in families() and not any(clause in found for found in anchors().values()):
            unknown.append(clause)
    return unknown


def test_every_clause_that_is_cited_has_an_anchor() -> None:
    assert found_in(lambda _, line: unknown_clauses(line)) == {}


def test_an_anchor_is_defined_once() -> None:
    ids = [
        anchor for path in SEMANTICS for anchor in re.findall(r'<a id="([A-Z]+-\d+[a-z]?|[AB]\d+)"', path.read_text())
    ]
    assert sorted(ids) == sorted(set(ids))
    assert len(families()) >= 10


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("as 02 §4.1 says", []),
        ("as 02 §4.99 says", ["02 §4.99"]),
        ("02 §4.1, §99", ["02 §99"]),
        ("05 B6, 05 B77", ["05 B77"]),
        ("O-3 step 5, QC-2", []),
        ("O-33", ["O-33"]),
        ("UTF-8, SHA-1, X-509, 1E-9", []),
    ],
)
def test_the_check_of_clauses_can_fail(line: str, unknown: list[str]) -> None:
    assert unknown_clauses(line) == unknown
