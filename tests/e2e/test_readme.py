"""The commands of the README, each as a reader types them: in order, in a new checkout, in two terminals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.terminals import Reader, commands, own_namespace, user_environment
from tests.e2e.up_process import ROOT

NOT_RUN = {"./dev test": "runs this test"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of this tree that git knows or would add, and no others."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if os.path.lexists(ROOT / name):
            (tmp_path / "plimsoll" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / "plimsoll" / name, follow_symlinks=False)
    return tmp_path / "plimsoll"


@pytest.fixture
def reader(checkout: Path, tmp_path: Path) -> Iterator[Reader]:
    """With the downloads of ./dev, so that they are not fetched again."""
    cache = os.environ.get("UV_CACHE_DIR", str(ROOT / ".cache/uv"))
    environment = {**user_environment(tmp_path, ROOT / ".cache/uv-bin/bin"), "UV_CACHE_DIR": cache}
    with own_namespace(checkout) as place:
        reader = Reader(place, checkout, environment)
        try:
            yield reader
        finally:
            reader.close()


@pytest.mark.xdist_group("port 6443")
def test_every_command_works(checkout: Path, reader: Reader) -> None:
    for command in commands(ROOT / "README.md"):
        words = command.words
        plain = re.sub(r"\s+#.*", "", words)
        if plain in NOT_RUN or ("| jq" in words and shutil.which("jq") is None):
            continue
        if plain.startswith("./dev up"):
            _compare_report(reader.start_up(words), command.output)
        elif words == "^C":
            assert command.output.strip() in reader.stop_up()
        elif words == "cat broken.yaml":
            (checkout / "broken.yaml").write_text(command.output)
        else:
            reader.type(words)


def _compare_report(printed: str, shown: str) -> None:
    """The lines of the README without what differs between machines: times, ids, files of v1 and v2, directories."""
    if not shown:
        assert "is up (profile" in printed, printed
        return
    for line in shown.splitlines():
        if re.match(r"\s{7}(cpu|memory)\.", line):
            continue
        wanted = re.escape(line.strip())
        for what in (
            r"8\\\.9",
            "cgroup\\\\ v2",
            "6443",
            r"22(?=\\ files)",
            r"/home/you/plimsoll",
            r"pod[0-9a-f\\-]{36,}",
        ):
            wanted = re.sub(what, r"\\S+( v1)?", wanted)
        wanted = re.sub(r"(\\ ){2,}", r"\\s+", wanted).replace(
            r"\-997", r"(\-997|0 \(wanted \-997: needs CAP_SYS_RESOURCE\))"
        )
        assert re.search(rf"^\s*{wanted}\s*$", printed, re.MULTILINE), f"{line!r} is not in\n{printed}"
