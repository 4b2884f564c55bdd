"""`plimsoll up`: three pods with real limits, and nothing left of it afterwards, whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.rules.cgroups.rounding import same_value
from tests.e2e.up_process import CAPACITY, READY, Up, all_namespaces, close_all, namespaces, problem
from tests.e2e.waiting import until

real = pytest.mark.skipif(bool(problem()), reason=f"up: {problem()}")
START_S, END_S = 60.0, 25.0  # five seconds where nothing else runs; less than the pods' grace period
Started = Callable[..., Up]


@pytest.fixture
def started(tmp_path: Path, exercised: Callable[[str, str], None]) -> Iterator[Started]:
    made: list[Up] = []

    def start(*options: str, **how: Any) -> Up:
        made.append(Up(tmp_path, *options, **how))
        exercised("runtime", "embedded, by plimsoll up")
        return made[-1]

    yield start
    close_all(made)


def pods_of(up: Up) -> list[dict[str, Any]]:
    async def ask() -> dict[str, Any]:
        transport = up.transport()
        try:
            return await Client(transport).ask(request.listing(request.PODS, namespace="default"))
        finally:
            await transport.close()

    found: list[dict[str, Any]] = asyncio.run(ask())["items"]
    return found


def explained(pods: list[dict[str, Any]], up: Up, directory: Path) -> dict[str, Any]:
    """What `plimsoll explain` says about these pods on this node, in a process of its own."""
    file = directory / "pods.json"
    items = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]  # as kubectl prints a list
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    words = ["explain", str(file), "--capacity", CAPACITY, "--cgroup", f"v{this_host().version}", "-o", "json"]
    words += ["--runtime", "process", "--cgroup-root", up.root]
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll.cli.main", *words], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def audited(up: Up) -> list[dict[str, Any]]:
    """What `plimsoll audit` finds on this node; scores below 0 and what the kernel lacks depend on the machine."""
    words = ["audit", "--kubeconfig", str(up.state / "admin.kubeconfig"), "--ignore", "A05,A18", "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll.cli.main", *words], capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)
    assert [node["pods"] for node in report["nodes"]] == [3], done.stderr
    return [each for node in report["nodes"] for answer in node["answers"] for each in answer.get("findings", ())]


def cgroups_in(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        if "path" in document and "files" in document:
            yield document
        for value in document.values():
            yield from cgroups_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from cgroups_in(value)


@real
def test_three_pods_as_explained_and_nothing_left(started: Started, tmp_path: Path) -> None:
    begun = time.monotonic()
    up = started().ready()
    assert time.monotonic() - begun < START_S
    pods = pods_of(up)
    assert {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods} == dict.fromkeys(("bronze", "gold", "silver"), "Running")  # fmt: skip
    assert "the kernel has the values of plimsoll explain" in up.output

    driver, compared = open_cgroupfs(this_host()), 0
    for cgroup in cgroups_in(explained(pods, up, tmp_path)):
        if not cgroup["path"].startswith(up.root) or "<" in cgroup["path"]:
            continue  # a container's cgroup bears the id that its runtime gave it
        for file in cgroup["files"]:
            seen = driver.read(cgroup["path"], [file["name"]])
            assert seen is not None, cgroup["path"]
            if not driver.has(file["name"]):
                have = seen.files[file["name"]]
                assert same_value(file["name"], str(file["value"]), have), (cgroup["path"], file, have)
                compared += 1
    assert compared >= 10

    assert audited(up) == []
    assert up.left().keys() >= {"processes", "members", "cgroups"}
    with namespaces(up.members()) as inside:
        assert inside, "the pods have namespaces of their own"
        begun = time.monotonic()
        up.interrupt()
        assert up.ended() == 0, up.output
        assert time.monotonic() - begun < END_S
        assert up.left() == {}
        assert not inside & all_namespaces()


def _exists(name: str) -> Callable[[Up], bool]:
    return lambda up: (up.state / name).exists()


MOMENTS: list[tuple[str, Callable[[Up], bool]]] = [
    ("at once", lambda up: True),
    ("the API starts", _exists("api.log")),
    ("the node starts", _exists("node.log")),
    ("kubepods is there", lambda up: up.cgroups()),
    ("a container runs", lambda up: bool(up.members())),
]


@real
@pytest.mark.parametrize("moment", [row[1] for row in MOMENTS], ids=[row[0] for row in MOMENTS])
def test_ctrl_c_during_the_start(started: Started, moment: Callable[[Up], bool]) -> None:
    up = started()
    until(lambda: moment(up))
    begun = time.monotonic()
    up.interrupt()
    code = up.ended()
    assert time.monotonic() - begun < END_S
    # Before our own handler is there, Python's is; and before that, its own start is cut off.
    assert code in (130, -signal.SIGINT) or "init_import_site" in up.output or (code == 0 and READY in up.output)
    if "Traceback" in up.output:
        assert up.output.rstrip().endswith("KeyboardInterrupt"), "before a line of ours has run"
    assert up.left() == {}


@real
def test_the_second_ctrl_c_kills(started: Started) -> None:
    up = started().ready()
    up.interrupt()
    until(lambda: "Shutting down" in up.output)
    up.interrupt()
    assert up.ended(10) == 0, up.output
    assert up.left() == {}


@real
def test_it_is_killed_itself(started: Started) -> None:
    up = started().ready()
    up.process.kill()
    up.process.wait()
    until(lambda: not up.left())


@real
@pytest.mark.parametrize("part", ["node", "api"])
def test_a_part_is_killed(started: Started, part: str) -> None:
    up = started().ready()
    (pid,) = [each for each in up.processes() if f"plimsoll\0{part}" in _command(each)]
    os.kill(pid, signal.SIGKILL)
    assert up.ended() == 2
    assert "ended (exit code -9)" in up.output
    assert up.left() == {}


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


@real
def test_again_with_the_same_state(started: Started) -> None:
    first = started().ready()
    uids = {pod["metadata"]["uid"] for pod in pods_of(first)}
    first.interrupt()
    assert first.ended() == 0
    second = started().ready()
    assert {pod["metadata"]["uid"] for pod in pods_of(second)} == uids, "the same pods, started again"
    assert "the kernel has the values of plimsoll explain" in second.output


@real
def test_a_foreign_tree_is_not_changed(started: Started, tmp_path: Path) -> None:
    up = started("--no-demo")
    driver = open_cgroupfs(this_host())

    async def make() -> None:
        for path in (up.root, f"{up.root}/kubepods"):
            await driver.make(path)

    up.interrupt()
    up.ended()
    asyncio.run(make())
    try:
        done = subprocess.run(
            [*up.process.args],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,  # type: ignore[misc]
        )
        assert done.returncode == 2
        assert "was not created by plimsoll" in done.stderr and "--cgroup-root /NAME" in done.stderr
        assert "Shutting down" not in done.stderr
        assert driver.read(f"{up.root}/kubepods", ()) is not None
    finally:
        for path in (f"{up.root}/kubepods", up.root):
            asyncio.run(driver.remove(path))


def test_limits_in_memory(started: Started) -> None:
    """As where cgroups cannot be written: processes are real, limits are not, and every pod says so."""
    up = started("--simulate").ready()
    assert "not enforced: the " in up.output and "none, limits are not enforced" in up.output
    for pod in pods_of(up):
        conditions = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
        assert conditions["Enforced"] == "False"
        assert conditions["Ready"] == "True"
    assert not up.cgroups()
    up.interrupt()
    assert up.ended() == 0
    assert up.left() == {}


READ_ONLY = """
for at in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do mount -o remount,bind,ro "$at" || exit 99; done
exec "$@"
"""


@real
def test_read_only_cgroups_as_in_a_container(started: Started) -> None:
    up = started(within=("unshare", "-m", "/bin/sh", "-c", READ_ONLY, "sh")).ready()
    said = [line for line in up.output.splitlines() if "limits are simulated and not enforced" in line]
    assert len(said) == 1 and "Read-only file system" in said[0]
    assert "not enforced: the " in up.output
    up.interrupt()
    assert up.ended() == 0
    assert up.left() == {}


@pytest.mark.xdist_group("port 6443")  # of what this machine runs, only these tests use it
def test_another_port_where_the_usual_one_is_taken(started: Started) -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # in use by another process
            stack.enter_context(socket.create_server(("127.0.0.1", 6443)))
        up = started("--no-demo", "--simulate", listen="").ready()
        assert not up.url.endswith(":6443")
        assert "port 6443 is in use" in up.output


def test_a_chosen_port_that_is_taken(started: Started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up = started("--no-demo", "--simulate", listen=f"127.0.0.1:{taken.getsockname()[1]}")
        assert up.ended() == 2
        assert f"in use by process {os.getpid()} (" in up.output and "choose another with --listen" in up.output
        assert "Shutting down" not in up.output
        assert up.left() == {}
