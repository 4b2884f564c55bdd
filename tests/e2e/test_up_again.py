"""`plimsoll up` beside or after another one: what it says, what it leaves alone, `--fresh`, and `plimsoll reset`."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.kube import request
from plimsoll.kube.client import Client
from tests.e2e.up_process import PLIMSOLL, Up, close_all, problem
from tests.e2e.waiting import until

real = pytest.mark.skipif(bool(problem()), reason=f"up: {problem()}")
Started = Callable[..., Up]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made: list[Up] = []

    def start(*options: str, at: str = "one", **how: Any) -> Up:
        (tmp_path / at).mkdir(exist_ok=True)
        made.append(Up(tmp_path / at, *options, **how))
        return made[-1]

    yield start
    close_all(made)


def plimsoll(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PLIMSOLL, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )


def uids(up: Up) -> dict[str, str]:
    async def ask() -> dict[str, Any]:
        transport = up.transport()
        try:
            return await Client(transport).ask(request.listing(request.PODS, namespace="default"))
        finally:
            await transport.close()

    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in asyncio.run(ask())["items"]}


@real
def test_a_second_one_says_what_runs_and_leaves_it_alone(started: Started) -> None:
    first = started().ready()
    running = first.members()
    second = started(root=first.root)
    assert second.ended() == 2
    assert f"a cluster already runs here (process {first.process.pid}, " in second.output
    assert f"export KUBECONFIG={first.state}/admin.kubeconfig" in second.output
    assert f"kill {first.process.pid}" in second.output
    assert "Shutting down" not in second.output
    assert first.members() == running, "no container was restarted"
    assert plimsoll("get", "pods", KUBECONFIG=str(first.state / "admin.kubeconfig")).returncode == 0


@real
def test_the_cgroups_of_another_state_directory(started: Started) -> None:
    first = started("--no-demo").ready()
    second = started("--no-demo", at="two", root=first.root)
    assert second.ended() == 2
    said = f"{first.root}/kubepods belongs to the plimsoll node with the state directory {first.state}: "
    assert said in second.output and f"plimsoll reset --state-dir {first.state}" in second.output
    first.interrupt()
    assert first.ended() == 0
    assert "replacing the supervisor" not in (first.state / "node.log").read_text(), "`up` only looks at the node's own"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(("--capacity", "foo"), "'foo' is not name=amount", id="capacity"),
        pytest.param(("--listen", "foo"), "must be HOST:PORT", id="listen"),
        pytest.param(("--profile", "9.9"), "--profile", id="profile"),
        pytest.param(("--config", "/nowhere"), "--config /nowhere: No such file or directory", id="config"),
        pytest.param(("--name", "A_B"), "is not a valid node name", id="name"),
        pytest.param(("--feature-gates", "x"), "x", id="feature gates"),
    ],
)
def test_a_wrong_option_is_an_error_and_nothing_more(started: Started, options: tuple[str, str], said: str) -> None:
    up = started("--no-demo", "--simulate", *options, listen="" if "--listen" in options else "127.0.0.1:0")
    assert up.ended() == 2
    assert said in up.output
    assert "Shutting down" not in up.output
    assert "Usage: plimsoll up node" not in up.output


def test_the_api_server_cannot_start(started: Started, tmp_path: Path) -> None:
    """As when `plimsoll api` has the store, or the disk is damaged: the reason, not a traceback."""
    store = tmp_path / "one" / "state" / "store"
    store.mkdir(parents=True, mode=0o700)
    (tmp_path / "one" / "state").chmod(0o700)
    (store / "objects.db").write_bytes(b"not a database" * 100)
    up = started("--no-demo", "--simulate")
    assert up.ended() == 2
    assert "the API server did not start (exit code 2)" in up.output and "is damaged" in up.output
    assert "Traceback" not in up.output and '"level"' not in up.output


def test_fresh_begins_without_the_objects_of_earlier_runs(started: Started) -> None:
    first = started("--simulate").ready()
    before = uids(first)
    first.interrupt()
    assert first.ended() == 0
    second = started("--simulate", "--fresh").ready()
    after = uids(second)
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())


def test_a_closed_terminal_leaves_nothing_behind(tmp_path: Path) -> None:
    """The temporary directory of the simulated kernel was left, because SIGHUP ends a process at once."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup
        os.environ |= {"TMPDIR": str(temporary), "NO_COLOR": "1", "PLIMSOLL_HOME": str(tmp_path / "state")}
        os.execv(PLIMSOLL, [PLIMSOLL, "up", "--simulate", "--no-demo", "--listen", "127.0.0.1:0"])
    output = b""
    while b"Try:" not in output:
        output += os.read(terminal, 4096)
    assert list(temporary.iterdir())
    os.close(terminal)
    os.waitpid(pid, 0)
    until(lambda: not list(temporary.iterdir()))


# --- reset ---


@real
def test_reset_removes_all_that_plimsoll_made_and_nothing_else(started: Started) -> None:
    up = started().ready()
    (up.state / "mine").write_text("a file of the user")
    (Path(up.state) / "pki" / "link").symlink_to("/etc")
    asked = plimsoll("reset", "--state-dir", str(up.state))
    assert asked.returncode != 0 and f"process {up.process.pid}" in asked.stdout, "without an answer nothing is done"
    assert up.process.poll() is None
    done = plimsoll("reset", "--state-dir", str(up.state), "--yes")
    assert done.returncode == 0, done.stderr
    assert up.ended() == 0
    assert up.left() == {}
    assert [each.name for each in up.state.iterdir()] == ["mine"]
    assert os.path.isdir("/etc")


@real
def test_reset_after_everything_was_killed(started: Started) -> None:
    """The cgroups and mounts are still there, with processes in them; a cgroup beside them is not ours."""
    up = started().ready()
    driver = open_cgroupfs(this_host())
    asyncio.run(driver.make(f"{up.root}-other"))
    try:
        for pid in [up.process.pid, *up.processes()]:  # the supervisor last: nothing may end the containers in order
            os.kill(pid, signal.SIGKILL)
        up.process.wait()
        assert up.cgroups() and up.mounts()
        done = plimsoll("reset", "--state-dir", str(up.state), "--yes")
        assert done.returncode == 0, done.stderr
        assert not up.processes() and not up.state.exists()
        until(lambda: not up.members())  # zombies, until init has reaped them
        assert not up.cgroups() and not up.mounts()
        assert driver.read(f"{up.root}-other", ()) is not None
    finally:
        asyncio.run(driver.remove(f"{up.root}-other"))


def test_reset_without_any_state(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = plimsoll("reset", "--state-dir", str(tmp_path), "--yes")
    assert (done.returncode, done.stdout) == (0, f"nothing to remove: {tmp_path} has no state of plimsoll\n")
    assert (tmp_path / "mine").exists()


# --- after a resize ---


@real
@pytest.mark.parametrize("amount", ["100m", "64"], ids=["done", "infeasible: more than the node has"])
def test_the_report_after_a_resize(started: Started, amount: str) -> None:
    """The kernel has what the node has allocated, not what the manifest or a pending request says."""
    first = started().ready()
    access = {"KUBECONFIG": str(first.state / "admin.kubeconfig")}
    done = plimsoll("resize", "silver", "--cpu", amount, "--yes", "--wait", "--timeout", "20", **access)
    assert done.returncode == (0 if amount == "100m" else 1), done.stdout + done.stderr
    first.interrupt()
    assert first.ended() == 0
    second = started(root=first.root).ready()
    assert "the kernel has the values of plimsoll explain" in second.output, second.output


def test_pods_of_a_node_with_another_name(started: Started) -> None:
    first = started("--simulate", "--name", "one").ready()
    first.interrupt()
    assert first.ended() == 0
    second = started("--simulate", "--name", "two").ready()
    assert "pod gold is bound to node one of an earlier run: start with --name one, or with --fresh" in second.output
    assert "is up (profile" not in second.output
