"""Random lives of a node inside a guest: PROFILE LIVES STEPS SEED. What came of them goes to the job's directory."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)]

from tests.kernel.guest import JOB_VARIABLE  # noqa: E402
from tests.kernel.node_life import run  # noqa: E402


def main() -> None:
    profile, lives, steps, number = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        counts = run(Path(directory) / profile, profile, int(lives), int(steps), int(number))
    Path(os.environ[JOB_VARIABLE], "life.json").write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
