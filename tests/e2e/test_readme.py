"""The commands of the README, each as a reader types them: in order, in a new checkout, in two terminals.

They run in a mount namespace of their own, in which the cgroups of the test are the root of every hierarchy and
/var/lib is empty. So every path is the one that the README shows, and nothing outside of the test is changed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.kubectl import NoKubectlError, any_binary
from tests.e2e.up_process import ROOT, problem
from tests.e2e.waiting import DEADLINE_S, until

NOT_RUN = {"./dev test": "runs this test"}
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)

# A cgroup of the test becomes the root of each hierarchy; a cpuset must have CPUs and memory nodes before it is used.
OWN_ROOTS = """
awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | sort -u | while read -r at; do
    mkdir -p "$at/$0"
    for file in cpuset.cpus cpuset.mems; do
        [ ! -f "$at/$0/$file" ] || cat "$at/$file" > "$at/$0/$file"
    done
    mount --bind "$at/$0" "$at" || exit 99
done
mount -t tmpfs tmpfs /var/lib || exit 99
echo ready
exec sleep infinity
"""


class Command(NamedTuple):
    words: str
    output: str  # shown below it


def commands() -> Iterator[Command]:
    """Of all blocks in order; `^C` is the key."""
    for block in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        for part in re.split(r"^(?:\$ |(?=\^C$))", block, flags=re.MULTILINE)[1:]:
            words, _, output = part.partition("\n")
            yield Command(words, output)


class Running(NamedTuple):
    """One command in a terminal."""

    terminal: Terminal
    begun: int
    mark: str

    @property
    def output(self) -> str:
        return self.terminal.output[self.begun :].partition(self.mark)[0]

    def ended(self) -> bool:
        return re.search(rf"^{self.mark} \d+$", self.terminal.output, re.MULTILINE) is not None

    def code(self) -> int:
        return int(self.terminal.output.partition(self.mark)[2].split()[0])


class Terminal:
    """A shell; what it prints is collected while it runs."""

    def __init__(self, place: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.output = ""
        self.process = subprocess.Popen(
            [*place, "bash", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def start(self, words: str) -> Running:
        """A mark follows the output of the command."""
        running = Running(self, len(self.output), secrets.token_hex(8))
        self.type(words)
        self.type(f"code=$?; echo; echo {running.mark} $code")
        return running

    def run(self, words: str) -> tuple[int, str]:
        """The exit code and the output of one command."""
        running = self.start(words)
        if "until Ctrl-C" in words:
            until(lambda: bool(running.output.strip()))
            self.press_ctrl_c()
            until(lambda: "press Ctrl-C again" in running.output or running.ended())
            self.press_ctrl_c()
        until(running.ended)
        return running.code(), running.output

    def press_ctrl_c(self) -> None:
        """To what runs in the foreground, which is a child of the shell."""
        for pid in _children(self.process.pid):
            os.kill(pid, signal.SIGINT)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.press_ctrl_c()
        self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self._reader.join(DEADLINE_S)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


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
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a user, with the downloads of ./dev, so that they are not fetched again, and a kubectl."""
    try:
        kubectl = any_binary().path
    except NoKubectlError as error:
        pytest.skip(str(error))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").symlink_to(kubectl)
    own = [str(tmp_path / "bin"), str(ROOT / ".cache/uv-bin/bin")]
    kept = {
        name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "PLIMSOLL_HOME", "VIRTUAL_ENV")
    }
    cache = os.environ.get("UV_CACHE_DIR", str(ROOT / ".cache/uv"))
    path = os.pathsep.join([*own, os.environ.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "UV_CACHE_DIR": cache, "HOME": str(tmp_path), "NO_COLOR": "1"}


@pytest.fixture
def place() -> Iterator[list[str]]:
    """The command that runs another one in the namespace."""
    if why := problem():
        pytest.skip(f"up: {why}")
    name = f"plimsoll-test-{secrets.token_hex(4)}"
    points = {
        line.split()[1]
        for line in Path("/proc/mounts").read_text().splitlines()
        if line.split()[2].startswith("cgroup")
    }
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", OWN_ROOTS, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no mount namespace: {holder.stderr.read()}")
        yield ["nsenter", "--mount", "--target", str(holder.pid), "--wdns=."]
    finally:
        holder.kill()
        holder.communicate()
        for point in points:
            until(lambda at=f"{point}/{name}": _removed(at))  # type: ignore[misc]


def _removed(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def test_every_command_works(checkout: Path, environment: dict[str, str], place: list[str]) -> None:
    place = [word if word != "--wdns=." else f"--wdns={checkout}" for word in place]
    first, second = (Terminal(place, checkout, environment) for _ in range(2))
    up: Running | None = None
    try:
        for command in commands():
            words = command.words
            plain = re.sub(r"\s+#.*", "", words)
            if plain in NOT_RUN or ("| jq" in words and shutil.which("jq") is None):
                continue
            if plain.startswith("./dev up"):
                _stop(up)
                up = first.start(words)
                _wait_for_report(up)
                _compare_report(up.output, command.output)
            elif words == "^C":
                _stop(up)
                assert up is not None and command.output.strip() in up.output
                up = None
            elif words == "cat broken.yaml":
                (checkout / "broken.yaml").write_text(command.output)
            else:
                _type_until_it_works(second, command)
    finally:
        second.close()
        first.close()


def _wait_for_report(up: Running) -> None:
    until(lambda: "\nTry:" in up.output or up.ended())
    assert "\nTry:" in up.output, up.output


def _stop(up: Running | None) -> None:
    if up is not None:
        up.terminal.press_ctrl_c()
        until(up.ended)
        assert up.code() == 0, up.output


def _type_until_it_works(terminal: Terminal, command: Command) -> None:
    """A reader is slower than this test: what needs some seconds after the start has them."""
    codes = {"until Ctrl-C": 130, "broken": 2, "upgrade-check": 1}
    expected = {next((code for word, code in codes.items() if word in command.words), 0)}
    last: list[tuple[int, str]] = []

    def works() -> bool:
        last[:] = [terminal.run(command.words)]
        return last[0][0] in expected

    try:
        until(works, pause_s=1.0)
    except AssertionError:
        raise AssertionError(f"$ {command.words}\n{last[0][1]}\nexit code {last[0][0]}") from None


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
