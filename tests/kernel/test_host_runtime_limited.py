"""The embedded runtime where the host has no overlayfs, or allows no namespaces."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.embedded_runtime import (
    DEADLINE_S,
    folder,
    host_mounts,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="embedded runtime: not root")

WITHOUT_OVERLAY = """
import os, socket, sys
from plimsoll.linux import namespaces
from plimsoll.runtime.supervisor import host_view, rootfs
from plimsoll.runtime.supervisor.plan import Bind

stage, state, reachable = sys.argv[1:4]
namespaces.unshare(namespaces.MOUNT)
binds = (Bind("/usr", "/data/of/pod", True), Bind(state + "/../volume", "/volume"))
base = host_view.directory(state)
view = rootfs.RootView(stage, base=base, secret=(state,), binds=binds, overlay=False, outside=os.getpid())
rootfs.enter(view, rootfs.read_host(view))
for path in ("/root", "/home", "/run", "/tmp", "/var/lib", "/opt", "/srv"):
    assert not os.path.isdir(path) or os.listdir(path) == [], path
assert not os.path.exists(state) and open("/etc/passwd").read()
assert not os.path.exists("/etc/shadow") or open("/etc/shadow").read() == ""
for path in ("/usr/x", "/etc/x", "/data/of/pod/x"):
    try:
        open(path, "w")
    except OSError as error:
        assert error.errno == 30, error
    else:
        raise AssertionError(path)
open("/tmp/x", "w"), open("/volume/x", "w")
try:
    socket.socket(socket.AF_UNIX).connect(reachable)
except OSError as error:
    print("closed", error.strerror)
"""


def test_the_view_without_overlayfs(tmp_path: Path) -> None:
    for name in ("stage", "state", "volume"):
        (tmp_path / name).mkdir()
    place, mounts = folder(f"/usr/local/plimsoll-{os.urandom(4).hex()}"), host_mounts(tmp_path)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{place}/socket")
            listening.listen()
            command = [sys.executable, "-c", WITHOUT_OVERLAY, str(tmp_path / "stage"), str(tmp_path / "state")]
            done = subprocess.run([*command, f"{place}/socket"], capture_output=True, text=True, check=False)
    finally:
        (place / "socket").unlink()
        place.rmdir()
    assert done.stdout.startswith("closed"), done.stdout + done.stderr
    assert host_mounts(tmp_path) == mounts
    assert (tmp_path / "volume/x").exists()


PLAIN = """
import asyncio, os, sys
from pathlib import Path
from plimsoll.linux import capabilities
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.runtime.interface import ContainerSpec, SandboxSpec

async def main():
    runtime = ProcessRuntime(Path(sys.argv[1]), lambda path: [], {})
    await runtime.open()
    print(runtime.limitations)
    assert not runtime.isolation and "plain processes" in runtime.limitations[0]
    spec = SandboxSpec("uid", "pod", "default", log_directory=sys.argv[2])
    sandbox = await runtime.make_sandbox(spec)
    assert await runtime.pod_socket(sandbox) is None
    script = "echo out; sleep 1000 & echo $! >&2; wait"
    container = await runtime.make_container(
        spec, sandbox, ContainerSpec("c", 0, "i", "host", ("/bin/sh", "-c", script), log_path="c/0.log"))
    await runtime.start_container(container)
    log = Path(sys.argv[2], "c/0.log")
    while "stderr F" not in log.read_text():
        await asyncio.sleep(0.01)
    child = int(log.read_text().splitlines()[-1].split()[-1])
    done = await runtime.run_in(container, ("/bin/sh", "-c", "echo hi; exit 3"), 10)
    assert (done.exit_code, done.output) == (3, b"hi\\n"), done
    session = await runtime.exec(container, ("/bin/sh", "-c", "tty; exit 4"), stdin=True, tty=True)
    said = b"".join([data async for data in session.stdout()])
    assert b"/dev/pts/" in said and await session.wait() == 4, said
    await runtime.stop_container(container, 5)
    (seen,) = (await runtime.seen()).containers
    assert seen.exit_code == 143, seen
    while True:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            break
        await asyncio.sleep(0.01)
    print("clean")
    await runtime.shutdown()

capabilities.limit_bounding_set((1 << 41) - 1 & ~(1 << capabilities.NUMBERS["SYS_ADMIN"]))
if len(sys.argv) == 3:
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], "again"])
asyncio.run(main())
"""


def test_without_namespaces(tmp_path: Path) -> None:
    """Root without SYS_ADMIN, as in an unprivileged container: plain processes, but real."""
    (tmp_path / "logs").mkdir()
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "state"), str(tmp_path / "logs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0 and "clean" in done.stdout, done.stdout + done.stderr
