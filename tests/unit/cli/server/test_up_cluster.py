"""The parts of `up` that need no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

import pytest

from plimsoll.cli.daemon import DaemonFailedError, DaemonProcess, host_and_port
from plimsoll.cli.node.machine import node_name
from plimsoll.cli.server.up_cluster import UpOptions, _free
from plimsoll.errors import PlimsollError

NAMES = [
    ("plain", "web-1", "web-1"),
    ("upper case", "Web.Example.COM", "web.example.com"),
    ("a host without a name", "(none)", "node"),
    ("underscores", "my_machine", "my-machine"),
    ("odd ends", "-x.-", "x"),
    ("nothing left", "___", "node"),
]


@pytest.mark.parametrize(("host", "name"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_the_default_node_name_is_the_host_name(host: str, name: str) -> None:
    assert node_name(None, host) == name


def test_an_invalid_name_is_rejected() -> None:
    assert node_name("n1") == "n1"
    with pytest.raises(PlimsollError, match="'Node_1' is not a valid node name"):
        node_name("Node_1")


def test_the_arguments_of_the_node_agent(tmp_path: Path) -> None:
    options = UpOptions(capacity="cpu=1,memory=1Gi", feature_gates="MemoryQoS=true", cgroup_root="/demo")
    words = options.node_arguments(tmp_path, simulate=True)
    pairs = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
    assert pairs == {
        "--profile": "documents",
        "--feature-gates": "MemoryQoS=true",
        "--capacity": "cpu=1,memory=1Gi",
        "--cgroup-root": "/demo",
        "--state-dir": str(tmp_path),
    }
    assert words[-1] == "--simulate"


def test_a_free_port_is_used_unchanged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        address, note = _free(listen, chosen=False)
        assert address == "127.0.0.1:0" and f"in use by process {os.getpid()} (" in note
        with pytest.raises(PlimsollError, match=rf"in use by process {os.getpid()} \(.*--listen HOST:PORT"):
            _free(listen, chosen=True)
    assert _free(listen, chosen=False) == (listen, "")


@pytest.mark.parametrize(
    ("text", "place"),
    [("127.0.0.1:6443", ("127.0.0.1", 6443)), ("[::1]:0", ("::1", 0)), (":80", ("127.0.0.1", 80))],
    ids=["v4", "v6", "port alone"],
)
def test_listen(text: str, place: tuple[str, int]) -> None:
    assert host_and_port(text) == place


# --- children: real processes ---


class Python(DaemonProcess):
    """A child that runs a piece of Python in place of plimsoll."""

    def __init__(self, code: str, log: Path) -> None:
        super().__init__("snake", [], log)
        self._command = [sys.executable, "-c", code]


async def test_a_child_reports_that_it_is_ready(tmp_path: Path) -> None:
    child = Python("import sys; print('ready', flush=True); sys.stdin.read()", tmp_path / "log")
    await child.start()
    assert await child.line() == "ready"
    assert await child.end(10), "SIGTERM is enough"
    assert await child.end(10), "and again"


async def test_a_child_that_does_not_start(tmp_path: Path) -> None:
    child = Python("import sys; sys.exit('the disk is full')", tmp_path / "log")
    await child.start()
    with pytest.raises(DaemonFailedError, match=r"the snake did not start \(exit code 1\)(.|\n)*the disk is full"):
        await child.line()


async def test_a_child_that_ends_by_itself(tmp_path: Path) -> None:
    child = Python("print('ready', flush=True)", tmp_path / "log")
    await child.start()
    await child.line()
    with pytest.raises(DaemonFailedError, match=r"the snake ended \(exit code 0\)"):
        await child.ended()


async def test_a_child_that_ignores_term(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    child = Python(code, tmp_path / "log")
    await child.start()
    await child.line()
    assert not await child.end(0.2)


async def test_a_child_that_was_never_started(tmp_path: Path) -> None:
    child = Python("", tmp_path / "log")
    assert await child.end(1)
    await child.kill()


async def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """`--while-stdin`: the pipe is closed when the parent ends."""
    code = "import sys; print('ready', flush=True); sys.stdin.read(); print('alone', flush=True)"
    child = Python(code, tmp_path / "log")
    await child.start()
    await child.line()
    assert child._process is not None and child._process.stdin is not None
    child._process.stdin.close()
    async with asyncio.timeout(20):
        assert await child.line() == "alone"
        with contextlib.suppress(DaemonFailedError):
            await child.ended()
