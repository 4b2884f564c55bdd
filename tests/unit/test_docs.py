"""Every page can be reached by links, and the page about what is missing agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

from plimsoll.codec.schema.schema import KINDS
from tests.project_files import ROOT, pages

LINK = re.compile(r"\]\(([^)#\s]+)")


def linked(page: Path) -> set[Path]:
    found = (page.parent / target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target)
    return {path.resolve() for path in found if path.suffix == ".md"}


def reached(start: Path) -> set[Path]:
    seen, todo = set(), [start]
    while todo:
        page = todo.pop()
        if page not in seen and page.exists():
            seen.add(page)
            todo += linked(page)
    return seen


def test_every_page_can_be_reached_from_the_readme() -> None:
    templates = {ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md"}
    assert set(pages()) - templates - reached(ROOT / "README.md") == set()


def test_the_index_links_every_page_of_its_directory() -> None:
    index = ROOT / "docs" / "README.md"
    here = {path for path in (ROOT / "docs").glob("*.md") if path != index}
    assert here - linked(index) == set()


def test_every_link_leads_somewhere() -> None:
    broken = {(page.name, path.name) for page in pages() for path in linked(page) if not path.exists()}
    assert broken == set()


def test_no_kind_that_is_served_is_listed_as_missing() -> None:
    rows = [line.split("|") for line in (ROOT / "docs" / "limits.md").read_text().splitlines() if line.startswith("| ")]
    served = {kind.strip() for row in rows[1:] for kind in row[2].split(",")}
    missing = {kind.strip() for row in rows[1:] for kind in row[3].split(",")}
    names = {kind.name for kind in KINDS}
    assert not names & missing
    assert served - names <= {"–"} and {"Pod", "Node", "Deployment"} <= served and "Ingress" in missing
