"""Every page can be reached by links, and the page about what is missing agrees with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
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
    assert served - names <= {"–"} and {"Pod", "Node", "Deployment"} <= served and "FlowSchema" in missing


def test_the_navigation_of_the_site_names_every_page() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    docs = ROOT / "docs"
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if not path.name.startswith("00")}
    assert written - named == set()


class Loaded(HTMLParser):
    """The addresses that a page loads without a click: scripts, styles, pictures, frames."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        named = found.get("href") if tag == "link" else found.get("src")
        if named and found.get("rel") != "canonical":
            self.addresses.append(named)


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--site", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) > 50
    remote = {(page.name, each) for page in built for each in Loaded(page).addresses if "//" in each}
    assert remote == set()
