"""The tree: sizes of modules and folders, docstrings of packages, and an import contract for every room."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.project_files import PACKAGE, ROOT, python_files, web_files

MOST_LINES, MOST_MODULES = 450, 24
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def modules(package: Path) -> list[Path]:
    return [path for path in package.glob("*.py") if not path.name.startswith("__")]


def test_no_file_is_too_long() -> None:
    files = [path for path in [*python_files(), *web_files()] if path != ROOT / "dev"]
    sizes = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert len(sizes) > 1000
    assert {path: lines for path, lines in sizes.items() if lines > MOST_LINES} == {}


def test_no_folder_has_too_many_modules() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert folders == set(PACKAGES)  # none without an __init__
    assert {path: count for path in folders if (count := len(modules(path))) > MOST_MODULES} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(PACKAGE.parent).as_posix())
def test_a_package_says_what_it_is_for(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    assert docstring is not None
    first = docstring.partition("\n\n")[0]
    assert first.endswith(".") and len(first) > 20


def test_every_room_has_a_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layered = {name for each in contracts if each["type"] == "layers" for name in each["containers"]}
    rooms = {f"plimsoll.{path.name}" for path in PACKAGES if path.parent == PACKAGE and len(parts(path)) > 1}
    assert {"plimsoll.rules", "plimsoll.web", "plimsoll.node"} <= rooms
    assert rooms - layered == set()


def parts(package: Path) -> list[Path]:
    return [*modules(package), *(path for path in PACKAGES if path.parent == package)]
