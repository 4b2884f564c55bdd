"""Command lines: which words become which values, and what is said about the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli import console
from plimsoll.cli.console.completion import asked, completed, printed


@console.group(invoke_without_command=True)
@console.option("-v", "--verbose", is_flag=True)
@console.pass_context
def program(context: console.Context, verbose: bool) -> str:
    """A program. The second sentence is not in lists."""
    context.obj = verbose
    return "alone"


@program.command()
@console.argument("files", nargs=-1, required=True, metavar="FILE...")
@console.argument("target", type=console.Path(file_okay=False))
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text", show_default=True, help="How.")
@console.option("-j", "--jobs", type=console.IntRange(1, 8), default=2)
@console.option("--each", "-e", "labels", multiple=True)
@console.option("--wait/--no-wait", default=None)
@console.option("-q", is_flag=True, hidden=True)
@console.pass_obj
def copy(verbose: bool, **options: Any) -> dict[str, Any]:
    """Copy files.

    \b
    copy a b c
      keeps these lines
    """
    return {"verbose": verbose, **options}


@program.command("exec", ignore_unknown_options=True)
@console.argument("words", nargs=-1)
def execute(words: tuple[str, ...]) -> tuple[str, ...]:
    """Pass unknown options on."""
    return words


def run(*words: str) -> Any:
    return program.main("program", words)


DEFAULTS = {
    "verbose": False,
    "files": ("a",),
    "target": Path("/b"),
    "output": "text",
    "jobs": 2,
    "labels": (),
    "wait": None,
    "q": False,
}


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("copy a /b", {}),
        ("-v copy a /b", {"verbose": True}),
        ("copy a c d /b", {"files": ("a", "c", "d")}),
        ("copy -ojson a /b", {"output": "json"}),
        ("copy --output=json a /b", {"output": "json"}),
        ("copy a --output json /b", {"output": "json"}),
        ("copy -qj3 a /b", {"q": True, "jobs": 3}),
        ("copy -e x --each=y= a /b", {"labels": ("x", "y=")}),
        ("copy --wait a /b", {"wait": True}),
        ("copy --wait --no-wait a /b", {"wait": False}),
        ("copy -- -q /b", {"files": ("-q",)}),
        ("copy - /b", {"files": ("-",)}),
    ],
)
def test_values(words: str, changed: dict[str, Any]) -> None:
    assert run(*words.split()) == {**DEFAULTS, **changed}


def test_a_group_may_run_alone() -> None:
    assert run() == "alone"


def test_unknown_options_may_be_words() -> None:
    assert run("exec", "--all", "-xy", "a", "--", "--help") == ("--all", "-xy", "a", "--help")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("copy", "Missing argument 'FILE...'."),
        ("copy a /b -o xml", "Invalid value for '-o' / '--output': 'xml' is not one of 'text', 'json'."),
        ("copy a /b -j 9", "Invalid value for '-j' / '--jobs': 9 is not in the range 1<=x<=8."),
        ("copy a /b -j x", "Invalid value for '-j' / '--jobs': 'x' is not a whole number."),
        ("copy a /b -j", "Option '-j' requires an argument."),
        ("copy a /b -q=1", "No such option '-='."),
        ("copy a /b --wait=1", "Option '--wait' does not take a value."),
        ("copy a /b --outptu json", "No such option '--outptu'. Did you mean '--output'?"),
        ("copy a /etc/passwd", "Invalid value for 'TARGET': Directory '/etc/passwd' is a file."),
        ("move", "No such command 'move'."),
    ],
)
def test_mistakes(words: str, message: str) -> None:
    with pytest.raises(console.UsageError) as caught:
        run(*words.split())
    assert caught.value.text() == message
    assert caught.value.ctx is not None  # so there is a hint where to find help


def test_the_first_mistake_is_reported_first() -> None:
    with pytest.raises(console.UsageError) as caught:
        run("copy", "-j", "0", "-o", "xml", "a", "/b")
    assert "--jobs" in caught.value.text()


def test_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        run("copy", "--help")
    assert capsys.readouterr().out.splitlines() == [
        "Usage: program copy [OPTIONS] FILE... TARGET",
        "",
        "  Copy files.",
        "",
        "  copy a b c",
        "    keeps these lines",
        "",
        "Options:",
        "  -o, --output [text|json]  How.  [default: text]",
        "  -j, --jobs INTEGER RANGE  [1<=x<=8]",
        "  -e, --each TEXT",
        "  --wait / --no-wait",
        "  -h, --help                Show this message and exit.",
    ]
    with pytest.raises(SystemExit):
        run("-h")
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "Commands:",
        "  copy  Copy files.",
        "  exec  Pass unknown options on.",
    ]


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        ([], "c", ["copy"]),
        ([], "", ["copy", "exec"]),
        (["copy"], "--o", ["--output"]),
        (["copy", "-o", "text"], "--o", []),
        (["copy", "-o"], "j", ["json"]),
        (["copy"], "--output=t", ["text"]),
        (["copy", "--output", "="], "t", ["text"]),
        (["copy", "--wrong"], "--w", ["--wait"]),
    ],
)
def test_completion(words: list[str], incomplete: str, found: list[str]) -> None:
    assert [each.word for each in completed(program, "program", words, incomplete)] == found


def test_what_a_shell_asks_and_gets() -> None:
    line = {"_PLIMSOLL_COMPLETE": "bash_complete", "COMP_WORDS": "plimsoll get 'a b' po", "COMP_CWORD": "3"}
    assert asked(line) == ("bash", ["get", "a b"], "po")
    assert asked({**line, "COMP_WORDS": "plimsoll get 'a b"})[1:] == (["get", "a b"], "")
    fish = {"_PLIMSOLL_COMPLETE": "fish_complete", "COMP_WORDS": "plimsoll get po", "COMP_CWORD": "po"}
    assert asked(fish) == ("fish", ["get"], "po")
    item = console.Completion("a:b", "Help.")
    assert [printed(item, shell) for shell in ("bash", "zsh", "fish")] == [
        "plain,a:b",
        "plain,a\\:b:Help.",
        "plain,a:b\tHelp.",
    ]
