"""`./dev docs --screenshots`: the pictures of the dashboard, made by its browser tests against a running cluster.

docs/dashboard/made-from.json has a checksum of the files that the browser loads. While it is that of the present files,
the pictures are up to date; `./dev docs --check`, and so `./dev test`, says so when it is not.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "dashboard"
RECORD = PLACE / "made-from.json"
TESTS = ("tests/e2e/test_dashboard.py", "tests/e2e/test_dashboard_resize.py")
# The picture in the documentation ← the one that a test saves.
PICTURES = {
    "hull": "hull-light",
    "hull-dark": "hull-dark",
    "node": "node-light",
    "order": "next-light",
    "phone": "hull-320",
    "pod": "resize-timeline",
}


def checksum() -> str:
    static = ROOT / "src" / "plimsoll" / "web" / "static"
    digest = hashlib.sha256()
    for path in sorted(path for path in static.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")):
        digest.update(path.relative_to(static).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def is_current() -> bool:
    missing = [name for name in PICTURES if not (PLACE / f"{name}.png").exists()]
    return not missing and RECORD.exists() and json.loads(RECORD.read_text())["sha256"] == checksum()


def make() -> int:
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PLIMSOLL_SCREENSHOTS": directory}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        made = {name: Path(directory) / f"{source}.png" for name, source in PICTURES.items()}
        missing = [name for name, path in made.items() if not path.exists()]
        if done.returncode or missing:
            print(f"no new pictures: pytest ended with {done.returncode}; not made: {', '.join(missing) or 'none'}")
            return 1
        for name, path in made.items():
            (PLACE / f"{name}.png").write_bytes(path.read_bytes())
    RECORD.write_text(json.dumps({"sha256": checksum()}) + "\n")
    print(f"written: {', '.join(f'{name}.png' for name in PICTURES)}")
    return 0
