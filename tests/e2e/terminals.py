"""Commands of a document, typed as a reader types them: in order, in a new checkout, in two terminals.

They run in a mount namespace of their own, in which the cgroups of the test are the root of every hierarchy and
/var/lib is empty. So every path is the one that the document shows, and nothing outside of the test is changed.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.kubectl import NoKubectlError, any_binary
from tests.e2e.up_process import problem
from tests.e2e.waiting import DEADLINE_S, until

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


def commands(page: Path) -> Iterator[Command]:
    """Of all blocks in order; `^C` is the key."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
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


@contextmanager
def own_namespace(directory: Path) -> Iterator[list[str]]:
    """The command that runs another one in the namespace, in this directory."""
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
        yield ["nsenter", "--mount", "--target", str(holder.pid), f"--wdns={directory}"]
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


def user_environment(home: Path, *programs: Path) -> dict[str, str]:
    """That of a user, with a kubectl and the directories of `programs` on PATH."""
    try:
        kubectl = any_binary().path
    except NoKubectlError as error:
        pytest.skip(str(error))
    (home / "bin").mkdir()
    (home / "bin" / "kubectl").symlink_to(kubectl)
    kept = {
        name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "PLIMSOLL_HOME", "VIRTUAL_ENV")
    }
    path = os.pathsep.join([str(home / "bin"), *map(str, programs), os.environ.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "HOME": str(home), "NO_COLOR": "1"}


def _is_whole(report: str) -> bool:
    """Whether the report of `up` is there to its last line."""
    steps = report.partition("\nTry:\n")[2]
    last = "plimsoll tree" if "not enforced" not in report else "describe node"
    return re.search(rf"^   .*{last}.*\n", steps, re.MULTILINE) is not None


class Reader:
    """Two terminals: `up` runs in the first, everything else in the second."""

    def __init__(self, place: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.first, self.second = (Terminal(place, directory, environment) for _ in range(2))
        self.up: Running | None = None

    def start_up(self, words: str) -> str:
        """Start `up`, in place of one that runs, and return its report."""
        self.stop_up()
        self.up = up = self.first.start(words)
        until(lambda: _is_whole(up.output) or up.ended())
        assert _is_whole(up.output), up.output
        return up.output

    def stop_up(self) -> str:
        """Press Ctrl-C and return all output of `up`."""
        if self.up is None:
            return ""
        up, self.up = self.up, None
        up.terminal.press_ctrl_c()
        until(up.ended)
        assert up.code() == 0, up.output
        return up.output

    def type(self, words: str, shows: Callable[[str], bool] = lambda _: True) -> str:
        """Type a command until it works and its output is right: a reader is slower than a test, and what needs some
        seconds after the start has them."""
        codes = {"until Ctrl-C": 130, "broken": 2, "upgrade-check": 1}
        expected = next((code for word, code in codes.items() if word in words), 0)
        expected = int(found[1]) if (found := re.search(r"# exit code (\d+)", words)) else expected
        last: list[tuple[int, str]] = []

        def works() -> bool:
            last[:] = [self.second.run(words)]
            return last[0][0] == expected and shows(last[0][1])

        try:
            until(works, pause_s=1.0)
        except AssertionError:
            raise AssertionError(f"$ {words}\n{last[0][1]}\nexit code {last[0][0]}") from None
        return last[0][1]

    def close(self) -> None:
        self.second.close()
        self.first.close()
