"""The tutorials, each typed as a reader types it: every command works and prints what the page shows.

In the pages, `…` stands for what differs between machines: times, ids, ages. A line of `…` alone stands for any lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.terminals import Reader, commands, own_namespace, user_environment
from tests.e2e.up_process import ROOT

PAGES = sorted((ROOT / "docs" / "tutorials").glob("[!R]*.md"))


def like(shown: str, printed: str) -> bool:
    """Whether the output is as shown: same words in the same lines; empty lines and the width of columns do not count."""
    wanted = [re.sub(r"(\\ )+", r"\\s+", re.escape(line.strip())) for line in shown.splitlines() if line.strip()]
    parts = [r"(?:.*\n)*?" if part == "…" else part.replace("…", ".*") + r"\n" for part in wanted]
    lines = "".join(f"{line.strip()}\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch("".join(parts), lines) is not None


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  b\n", "a b\n\n", True),
        ("a … s\n", "a 1.5 s\n", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", "a\nb\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_like(shown: str, printed: str, same: bool) -> None:
    assert like(shown, printed) is same


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], Path]]:
    directory = tmp_path_factory.mktemp("tutorials")
    (directory / "examples").symlink_to(ROOT / "examples")
    with own_namespace(directory) as found:
        yield found, directory


@pytest.fixture
def reader(place: tuple[list[str], Path], tmp_path: Path) -> Iterator[Reader]:
    words, directory = place
    reader = Reader(words, directory, user_environment(tmp_path, ROOT / ".venv" / "bin"))
    try:
        yield reader
        reader.stop_up()
    finally:
        reader.close()
        for log in directory.glob("*.log"):  # pytest prints them if the test has failed
            print(f"--- {log.name}\n{log.read_text()[-5000:]}")
            log.unlink()


@pytest.mark.xdist_group("port 6443")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_prints_what_is_shown(page: Path, reader: Reader) -> None:
    """One page after the other on one machine, as a reader follows them: what a page leaves must not disturb the next."""
    try:
        follow(page, reader)
    except AssertionError:
        print(reader.second.run("kubectl get nodes,pods -o wide; plimsoll reset --yes")[1])  # pods outlive their agent
        raise


def follow(page: Path, reader: Reader) -> None:
    for command in commands(page):
        if command.words.startswith("plimsoll up "):
            assert like(command.output + "…\n", reader.start_up(command.words)), command.words
        elif command.words == "^C":
            reader.stop_up()
        else:
            shown = command.output
            reader.type(command.words, lambda printed, shown=shown: not shown or like(shown, printed))  # type: ignore[misc]
