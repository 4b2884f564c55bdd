"""`./dev docs`: write the pages and sections that are generated from the code; `--check` only compares.

A whole page comes from one function (`PAGES`). A section of a page that people write is generated between the comments
`<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from plimsoll.rules.config import table as config_table

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PACKAGE = ROOT / "src" / "plimsoll"
SECTION = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def layer_lines() -> str:
    """The layers contracts of pyproject.toml, one line each, in the direction in which imports point."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = []
    for contract in contracts:
        if contract["type"] != "layers":
            continue
        container = contract["containers"][0].replace(".", "/")
        layers = [layer for layer in map(existing, contract["layers"]) if layer]
        lines.append(f"- **`{container}`**: {' → '.join(layers)}\n")
    return "\n" + "".join(lines) + "\n"


def existing(layer: str) -> str:
    """A layer as text. `(name)` is optional in a contract, and is left out while there is no such part."""
    parts = [(part.strip().strip("()"), "(" in part) for part in layer.split("|")]
    names = [name for name, optional in parts if not optional or list(PACKAGE.glob(f"{name}*"))]
    return " \\| ".join(f"`{name}`" for name in names)


def package_table() -> str:
    """One row for each package: its path and the first paragraph of its docstring."""
    packages = {path.parent.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("__init__.py")}
    rows = [f"| `{name}` | {first_paragraph(path)} |\n" for name, path in sorted(packages.items()) if name != "."]
    return "\n| package | purpose |\n|---|---|\n" + "".join(rows) + "\n"


def first_paragraph(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")


SECTIONS: dict[str, Callable[[], str]] = {"layers": layer_lines, "packages": package_table}


def architecture() -> str:
    text = (DOCS / "architecture.md").read_text()
    return SECTION.sub(lambda part: part[1] + SECTIONS[part[2]]() + part[3], text)


PAGES: dict[str, Callable[[], str]] = {"kubelet-config.md": config_table.markdown, "architecture.md": architecture}


def main(check: bool) -> int:
    stale = []
    for name, page in PAGES.items():
        text = page()
        path = DOCS / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text)
    if stale:
        print(("out of date, run ./dev docs: " if check else "written: ") + ", ".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
