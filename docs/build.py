"""`./dev docs`: write the documentation pages that are made from tables in the code; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from plimsoll.rules.config import table as config_table

HERE = Path(__file__).parent
PAGES = {"kubelet-config.md": config_table.markdown}


def main(check: bool) -> int:
    stale = []
    for name, page in PAGES.items():
        text = page()
        path = HERE / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text)
    if stale:
        print(("differs: " if check else "written: ") + ", ".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
