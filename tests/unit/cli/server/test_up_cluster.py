"""The parts of `up` that need no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from plimsoll.cli import console
from plimsoll.cli.daemon import DaemonFailedError, DaemonProcess, host_and_port
from plimsoll.cli.node.machine import driver_of, node_name
from plimsoll.cli.node_options import NodeQuestion
from plimsoll.cli.server.up_cluster import LocalCluster, UpOptions, _free
from plimsoll.cli.server.up_containerd import UpContainerd
from plimsoll.cli.terminal import Paint
from plimsoll.errors import PlimsollError
from tests.unit.console import run

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


@pytest.mark.parametrize(("own", "limit"), [(None, 4096), (100, 100), (-1, -1)])
def test_the_processes_of_a_pod_are_limited_unless_the_configuration_says_otherwise(
    tmp_path: Path, own: int | None, limit: int
) -> None:
    """A kubelet has no limit by default; `up` runs on the machine of its user, where a fork bomb must end."""
    config = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    file = tmp_path / "kubelet.json"
    file.write_text(json.dumps(config if own is None else {**config, "podPidsLimit": own}))
    with console.Context(console.Command("up")):
        cluster = LocalCluster(UpOptions(state_dir=tmp_path, config_file=str(file)), Paint(False))
        setting, _ = NodeQuestion({**cluster.node_parameters(), "runtime": "process"}).setting()
    assert setting.config.pod_pids_limit == limit


def test_the_log_level_is_that_of_every_part() -> None:
    assert UpOptions(verbosity=4).log_arguments() == ["-v", "4"]
    assert UpOptions(log_level="error").log_arguments() == ["--log-level", "error"]
    assert UpOptions().log_arguments() == []


@pytest.mark.parametrize("command", ["api", "node", "scheduler", "up"])
def test_a_daemon_has_one_log_level(command: str) -> None:
    """Both ways of naming it are in the help, and together they are refused."""
    ran = run(command, "--help")
    assert ran.code == 0 and "--log-level [error|warning|info|debug]" in ran.out and "-v, --v N" in ran.out


@pytest.mark.parametrize(("driver", "systemd"), [("systemd", "true"), ("cgroupfs", "false"), (None, "false")])
def test_the_private_containerd_has_the_cgroup_driver_of_the_node(
    tmp_path: Path, driver: str | None, systemd: str
) -> None:
    """With another one every container is outside its pod's limits."""
    config = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    file = tmp_path / "kubelet.json"
    file.write_text(json.dumps(config if driver is None else {**config, "cgroupDriver": driver}))
    options = UpOptions(state_dir=tmp_path, config_file=str(file), with_containerd=True)
    with console.Context(console.Command("up")):
        parameters = LocalCluster(options, Paint(False)).node_parameters()
    daemon = UpContainerd(tmp_path, Paint(False), driver_of(parameters))
    daemon.prepare()
    written = (tmp_path / "containerd" / "config.toml").read_text()
    assert set(re.findall(r"SystemdCgroup = (\w+)", written)) == {systemd}


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
