"""`./dev docs --site`: builds the documentation site from the pages in docs/, offline. Any warning is an error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SITE_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
# Pages beside docs/ that pages of docs/ link to, and their names in the site.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "overview.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "examples.md",
}
IN_SITE = (".md", ".svg", ".png")


def build_site(target: Path) -> int:
    """Build the site in `target` from a copy in which links to pages beside docs/ lead to their copies."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-site-") as folder:
        root = Path(folder)
        for source in sorted(path for path in DOCS.rglob("*") if path.suffix in IN_SITE):
            copy(source, root / "docs" / source.relative_to(DOCS), root / "docs")
        for name, shown_as in OUTSIDE.items():
            copy(ROOT / name, root / "docs" / shown_as, root / "docs")
        (root / "mkdocs.yml").write_bytes((ROOT / "mkdocs.yml").read_bytes())
        command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
        environment = {**os.environ, "NO_COLOR": "1"}
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            print(done.stdout + done.stderr, file=sys.stderr)
            return 1
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(root / "site", target)
    print(f"the documentation site: {target / 'index.html'}")
    return 0


def copy(source: Path, target: Path, pages: Path) -> None:
    """A picture as it is; a page with its links as they are in the site. Links to other files become plain text."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix != ".md":
        target.write_bytes(source.read_bytes())
        return

    def moved(link: re.Match[str]) -> str:
        text, address, anchor = link[1], link[2], link[3] or ""
        if "://" in address or not address:
            return link[0]
        named = (source.parent / address).resolve()
        if named.is_relative_to(DOCS):
            place = pages / named.relative_to(DOCS)
            place = place / "README.md" if named.is_dir() else place
        elif named.is_relative_to(ROOT) and named.relative_to(ROOT).as_posix() in OUTSIDE:
            place = pages / OUTSIDE[named.relative_to(ROOT).as_posix()]
        else:
            return text
        if place.suffix not in IN_SITE:
            return text
        return f"[{text}]({os.path.relpath(place, target.parent)}{anchor})"

    target.write_text(SITE_LINK.sub(moved, source.read_text()))
