"""`plimsoll` itself: help, version, unknown commands, exit codes, closed streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import plimsoll
from plimsoll.cli.main import VERBS
from plimsoll.cli.terminal import Paint, colourful, display_width, inert, table
from tests.unit.console import run

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_names_every_verb(word: str) -> None:
    ran = run(word)
    assert (ran.code, ran.err) == (0, "")
    assert all(verb in ran.out and line in " ".join(ran.out.split()) for verb, (_, _, line) in VERBS.items())


@pytest.mark.parametrize("verb", list(VERBS))
@pytest.mark.parametrize("word", ["--help", "-h"])
def test_every_verb_has_help(verb: str, word: str) -> None:
    ran = run(verb, word)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: plimsoll")


def test_version() -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"plimsoll, version {plimsoll.__version__}\n")


WRONG = [
    ("no verb", [], "Usage"),
    ("a verb with a typing error", ["explian"], "did you mean explain or plan?"),
    ("an unknown verb", ["xyz"], "explain, plan, "),
    ("an unknown option", ["--nope"], "No such option"),
    ("an unknown option of a verb", ["explain", "x.yaml", "--nope"], "No such option"),
    ("no file", ["explain"], "specify a file"),
    ("an unknown value", ["explain", "x.yaml", "-o", "xml"], "xml"),
]


@pytest.mark.parametrize(("words", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_usage_exits_with_2_and_a_message(words: list[str], text: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert text in ran.err
    assert "Traceback" not in ran.err


def test_wrong_usage_is_one_line_and_a_hint() -> None:
    ran = run("explain", "x.yaml", "--capacty", "cpu=4")
    assert ran.err.splitlines() == [
        "plimsoll: No such option '--capacty'. Did you mean '--capacity'?",
        "See `plimsoll explain --help`.",
    ]


def test_verbs_are_imported_when_used() -> None:
    """`--help` must not import the rules."""
    code = "import sys; from plimsoll.cli.main import main; main(['--help']); print('plimsoll.rules.cgroups.desired' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def shell(pipeline: str) -> subprocess.CompletedProcess[str]:
    words = f"{sys.executable} -m plimsoll.cli.main explain {EXAMPLES / 'three-classes.yaml'}"
    many = " ".join([str(EXAMPLES / "batch-list.yaml")] * 60)
    command = f"{words} {many} -o json --capacity cpu=4,memory=8Gi {pipeline}"
    return subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)


def test_a_closed_pipe_is_no_error() -> None:
    done = shell("| head -c 1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_one_line() -> None:
    done = shell("> /dev/full")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("words", ["- <&-", ">&-", ">&- 2>&-"])
def test_closed_standard_streams(words: str) -> None:
    done = shell(words)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_the_tour_runs() -> None:
    ran = run("up", "--tour")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("$ plimsoll explain") == 4


# --- text output ---

INERT = [
    ("plain", "web-1", "web-1"),
    ("umlaut", "größe", "größe"),
    ("wide", "名前", "名前"),
    ("escape", "a\x1b[31mb", "a\\x1b[31mb"),
    ("bell and title", "\x1b]0;x\x07", "\\x1b]0;x\\x07"),
    ("newline", "a\nb", "a\\nb"),
    ("C1 control", "a\x9bb", "a\\x9bb"),
    ("right to left override", "a\u202eb", "a\\u202eb"),
    ("zero width joiner", "a\u200db", "a\\u200db"),
    ("lone surrogate", "a\ud800b", "a\\ud800b"),
    ("NUL", "a\0b", "a\\x00b"),
    ("line separator", "a\u2028b", "a\\u2028b"),
]


@pytest.mark.parametrize(("text", "shown"), [row[1:] for row in INERT], ids=[row[0] for row in INERT])
def test_inert(text: str, shown: str) -> None:
    assert inert(text) == shown


COLOURS = [
    ("a terminal", {}, True, True),
    ("no terminal", {}, False, False),
    ("NO_COLOR", {"NO_COLOR": "1"}, True, False),
    ("an empty NO_COLOR is none", {"NO_COLOR": ""}, True, True),
    ("FORCE_COLOR", {"FORCE_COLOR": "1"}, False, True),
    ("NO_COLOR wins", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ("a dumb terminal", {"TERM": "dumb"}, True, False),
]


@pytest.mark.parametrize(
    ("environment", "terminal", "expected"), [row[1:] for row in COLOURS], ids=[row[0] for row in COLOURS]
)
def test_colourful(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], terminal: bool, expected: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    class Stream:
        def isatty(self) -> bool:
            return terminal

    assert colourful(Stream()) is expected


def test_paint() -> None:
    assert Paint(True)("x", "bold", "cyan") == "\x1b[1;36mx\x1b[0m"
    assert Paint(False)("x", "bold") == "x"
    assert Paint(True)("", "bold") == ""


def test_table() -> None:
    assert list(table([("a", "1"), ("名前", "22")], ("NAME", "N"))) == ["NAME  N", "a     1", "名前  22"]
    assert list(table([])) == []
    assert display_width("名前") == 4
    assert display_width("e\u0301") == 1


@pytest.mark.parametrize("group", ["node", "cgroup"])
def test_a_group_alone_shows_its_help_once(group: str) -> None:
    ran = run(group)
    assert ran.code == 2 and ran.err.count("Usage:") == 1 and "Commands:" in ran.err
