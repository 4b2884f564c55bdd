"""The supervisor stays small because of what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import plimsoll

HEAVY = {
    "msgspec",
    "click",
    "yaml",
    "asyncio",
    "dataclasses",
    "inspect",
    "re",
    "argparse",
    "subprocess",
    "logging",
    "enum",
}
NEEDED = {"enum", "re"}  # `signal` and `json` bring them


def test_only_the_standard_library_and_little_of_it() -> None:
    code = "import json, sys; import plimsoll.runtime.supervisor.__main__; print(json.dumps(sorted(sys.modules)))"
    source = str(Path(plimsoll.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    modules = set(json.loads(done.stdout))
    assert not modules & (HEAVY - NEEDED)
    outside = {name for name in (module.partition(".")[0] for module in modules) if name not in sys.stdlib_module_names}
    assert outside <= {"plimsoll", "__main__"}
    ours = {name for name in modules if name.startswith("plimsoll.")}
    assert {name.split(".")[1] for name in ours} == {"runtime", "linux"}
