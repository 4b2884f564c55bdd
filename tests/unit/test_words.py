"""The check of words in `./dev lint`: it reads the glossary, and it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import words
from tests.project_files import web_files

GLOSSARY = words.GLOSSARY.read_text(encoding="utf-8")
REJECTED = words.Rejected({"wish": "request", "for ever": "until cancelled", "nobody": "none"})
IN_NAMES = words.Rejected(REJECTED.say | {"turn": "sync"})


def test_the_glossary_has_both_tables() -> None:
    everywhere, in_names = (words.rejected(GLOSSARY, table) for table in (words.ENFORCED, words.IN_NAMES))
    assert {"whoever", "nobody", "told", "for ever"} <= set(everywhere)
    assert {"held", "turn", "look"} <= set(in_names)
    assert "goes" not in everywhere | in_names  # only a recommendation


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("A wish of the pod.", ["wish"]),
        ("Wishes, wished", ["wish", "wish"]),
        ("It runs for ever.", ["for ever"]),
        ("wishful swish forevermore", []),
        ("the user `nobody` or 'nobody' has uid 65534", []),
        ("nobody's child", ["nobody"]),
    ],
)
def test_prose(line: str, found: list[str]) -> None:
    assert REJECTED.in_prose(line) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [("resize_wish", ["wish"]), ("PodWishes", ["wish"]), ("HTTPWish", ["wish"]), ("swish", []), ("return_value", [])],
)
def test_identifiers(name: str, found: list[str]) -> None:
    assert IN_NAMES.in_name(name) == found


def test_a_file_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "semantics" / "module.py"
    path.parent.mkdir()
    path.write_text('"""A wish."""\n\nwish = 1  # for ever\nturn = "nobody"\n')
    monkeypatch.setattr(words, "ROOT", tmp_path)
    assert words.problems(path, REJECTED, IN_NAMES) == [
        "semantics/module.py:1: not 'wish'; say: request",
        "semantics/module.py:3: not 'for ever'; say: until cancelled",
        "semantics/module.py:3: not 'wish'; say: request",
        "semantics/module.py:4: not 'turn'; say: sync",
    ]
    page = path.with_suffix(".md")
    page.write_text('The API answers "wish not granted". A wish.\n')
    assert words.problems(page, REJECTED, IN_NAMES) == ["semantics/module.md:1: not 'wish'; say: request"]


def test_the_dashboard_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"app.js", "index.html", "style.css"} <= {path.name for path in web_files()}
    assert not any("vendor" in path.parts for path in web_files())
    path = tmp_path / "page.js"
    path.write_text("// a wish\nconst nextTurn = () => `<p>It runs for ever</p>`;\nreturn taken;\n")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    assert words.problems(path, REJECTED, IN_NAMES) == [
        "page.js:1: not 'wish'; say: request",
        "page.js:2: not 'for ever'; say: until cancelled",
        "page.js:2: not 'turn'; say: sync",
    ]
