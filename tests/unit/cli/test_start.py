"""What short commands import: most of their time is imports, and a count of modules does not depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Each takes milliseconds, and a command that prints help or explains a manifest needs none of them.
HEAVY = {"argparse", "asyncio", "click", "dataclasses", "inspect", "json", "logging", "pathlib", "socket", "subprocess"}
HEAVY |= {"platform", "tempfile", "textwrap", "threading", "typing_extensions", "urllib.parse", "yaml"}
MANIFEST = Path(__file__).resolve().parents[3] / "examples" / "burstable.yaml"
START = """
import sys
from plimsoll.cli.main import main
code = main(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""


def imported(*words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-I", "-c", START, *words], capture_output=True, text=True, check=True)
    code, *modules = done.stderr.splitlines()[-1].split()
    assert code == "0"
    return set(modules)


def test_help_imports_next_to_nothing() -> None:
    modules = imported("--help")
    assert not modules & {*HEAVY, "collections", "enum", "functools", "msgspec", "re", "typing"}
    ours = {name for name in modules if name.startswith("plimsoll.")}
    assert ours == {"plimsoll.cli", "plimsoll.cli.help", "plimsoll.cli.main"}


@pytest.mark.parametrize(
    "words",
    [
        ["explain", str(MANIFEST), "--capacity", "cpu=4,memory=8Gi"],
        ["explain", str(MANIFEST), "--capacity", "cpu=4,memory=8Gi", "--diff", "1.36,1.37"],
        ["explain", "weight", "250m"],
        ["explain", "--help"],
    ],
    ids=["explain", "diff", "weight", "explain --help"],
)
def test_no_heavy_module(words: list[str]) -> None:
    assert imported(*words) & HEAVY == set()


def test_upgrade_check_waits_for_nothing_that_files_do_not_need() -> None:
    assert imported("upgrade-check", "--help") & HEAVY <= {"pathlib", "urllib.parse"}


def test_explain_imports_only_the_rules_that_it_needs() -> None:
    """A new import at the top of a module of this path costs every call: import it where it is used."""
    ours = {
        name for name in imported("explain", str(MANIFEST), "--capacity", "cpu=4,memory=8Gi") if "plimsoll." in name
    }
    assert not {
        name for name in ours if name.startswith(("plimsoll.rules.scheduling.", "plimsoll.kube", "plimsoll.api"))
    }
    assert "plimsoll.codec.yaml.json_stream" not in ours
    assert len(ours) <= 95, sorted(ours)


@pytest.mark.parametrize(
    "code", ["import plimsoll.cli.server.up_cluster", "from plimsoll.api.auth.ca import node_kubeconfig"]
)
def test_up_does_not_import_the_server_that_it_starts(code: str) -> None:
    """It is another process, and its imports take longer than all others of `up`."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = done.stdout.split()
    assert "plimsoll.api.server.server" not in modules and "uvicorn" not in modules
    assert [name for name in modules if name.startswith(("plimsoll.scheduler", "plimsoll.web"))] == []


def test_msgspec_finds_the_modules_that_were_left_out() -> None:
    """They are imported when something of them is used, and `import` finds the real ones."""
    code = (
        "from plimsoll.cli.quick_msgspec import import_msgspec; import_msgspec()\n"
        "import sys, msgspec, uuid\n"
        "assert not {'platform', 'textwrap', 'typing_extensions'} & sys.modules.keys()\n"
        "class Point(msgspec.Struct):\n"
        "    '''A point.'''\n"
        "    x: int\n"
        "    at: uuid.UUID\n"
        "one = uuid.uuid4()\n"
        "assert msgspec.json.decode(msgspec.json.encode(Point(1, one)), type=Point) == Point(1, one)\n"
        "print(msgspec.json.schema(Point)['$defs']['Point']['description'])\n"
        "import platform, textwrap; print(platform.python_implementation(), textwrap.shorten('a b', 9))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["A point.", "CPython a b"]


def test_the_program_ends_with_the_code_of_the_command(tmp_path: Path) -> None:
    """It skips the end of the interpreter, but no output."""
    program = [sys.executable, "-I", "-m", "plimsoll"]
    done = subprocess.run(
        [*program, "explain", str(tmp_path / "none.yaml")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such file or directory" in done.stderr
    shown = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("plimsoll, version ")
