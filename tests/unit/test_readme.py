"""What the README shows is what the commands print, in both languages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from plimsoll.cli.main import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def blocks(name: str) -> list[str]:
    return BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))


def shown() -> list[tuple[str, str]]:
    """Every command that is shown with its output: (command line, output)."""
    found = []
    for block in blocks("README.md"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if output:
                found.append((command, output))
    return found


def broken_manifest() -> str:
    return next(output for command, output in shown() if command == "cat broken.yaml")


@pytest.mark.parametrize(
    ("command", "output"), [each for each in shown() if each[0].startswith("plimsoll")], ids=lambda text: text[:60]
)
def test_output(
    command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "broken.yaml").write_text(broken_manifest())
    monkeypatch.chdir(tmp_path)
    code = main(shlex.split(command)[1:])
    printed = capsys.readouterr()
    lines = [line.rstrip() for line in (printed.out + printed.err).splitlines()]
    assert lines == output.splitlines()
    assert code == (2 if "broken" in command else 0)


def test_there_is_something_to_check() -> None:
    assert len([command for command, _ in shown() if command.startswith("plimsoll")]) >= 5


def test_both_languages_show_the_same() -> None:
    assert blocks("README.zh-CN.md") == blocks("README.md")
