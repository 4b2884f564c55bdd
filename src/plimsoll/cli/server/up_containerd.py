"""The containerd of `plimsoll up --with-containerd`: fetched where it is missing, private, and gone at the end.

What is missing is installed from Debian's archive, after it was said. The daemon is nobody else's: root, state, socket,
network and images are below the state directory, the machine's own containerd is not asked or touched. `up` itself
moves into a mount namespace of its own first, with its children: whatever containerd and the node agent mount there is
seen by both and by nobody else, and ends with them, however they end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import click

from plimsoll.cli.daemon import DaemonFailedError
from plimsoll.cli.terminal import Paint
from plimsoll.errors import PlimsollError
from plimsoll.linux.mounts import make_private
from plimsoll.linux.namespaces import MOUNT, unshare
from plimsoll.runtime.cri.private_containerd.daemon import OwnContainerd, missing_packages
from plimsoll.runtime.cri.private_containerd.images import IMAGES

INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")
LOOK_S = 0.5
# Ends the daemon when whoever holds the other end of its standard input has ended without doing so; the node agent,
# which ends its pods in that case, has some seconds for it.
_GUARD = 'read -r nothing; sleep 6; kill "$0" 2>/dev/null'


def own_mounts() -> None:
    """Before anything is started, and in the only thread."""
    unshare(MOUNT)
    make_private()


class UpContainerd:
    def __init__(self, state: Path, paint: Paint) -> None:
        self._paint = paint
        self._daemon = OwnContainerd(state / "containerd")
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return self._daemon.endpoint

    async def start(self) -> None:
        """ContainerdFailed, or PlimsollError where it cannot be had."""
        await self._installed()
        for left in await asyncio.to_thread(self._daemon.end):  # of a run that was killed
            click.echo(self._paint(f"left behind by an earlier run: {left}", "yellow"), err=True)
        names = ", ".join(sorted(_short(name) for image in IMAGES for name in image.names if "localhost" not in name))
        click.echo(
            self._paint(f"containerd: private, below {self._daemon.directory}; images made here: {names}", "dim")
        )
        await asyncio.to_thread(self._daemon.prepare)
        await asyncio.to_thread(self._daemon.start)
        self._guard = _guard(self._daemon.pid)
        await asyncio.to_thread(self._daemon.load_images)

    async def ended(self) -> None:
        """One that ends by itself is a fault."""
        while not self._daemon.has_ended():  # noqa: ASYNC110  a child of ours: nothing tells but asking
            await asyncio.sleep(LOOK_S)
        raise DaemonFailedError(f"containerd ended; see {self._daemon.directory}/log")

    async def end(self) -> list[str]:
        """What is left, in sentences."""
        left = await asyncio.to_thread(self._daemon.end)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        return left

    async def _installed(self) -> None:
        packages = missing_packages()
        if not packages:
            return
        words = " ".join(packages)
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise PlimsollError(
                f"--with-containerd needs {words}: only on Debian and as root can they be installed from here"
            )
        click.echo(self._paint(f"installing from Debian's archive: {words} ({' '.join(INSTALL)})", "yellow"))
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = await asyncio.to_thread(
            subprocess.run, [*INSTALL, *packages], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode or missing_packages():
            raise PlimsollError(f"{' '.join(INSTALL)} {words} failed:\n{done.stderr.strip()[-1000:]}")


def _guard(pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sh", "-c", _GUARD, str(pid)], stdin=subprocess.PIPE, start_new_session=True)


def _short(name: str) -> str:
    """As people write it."""
    return name.removeprefix("docker.io/library/").removesuffix(":latest")
