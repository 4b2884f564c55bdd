"""The containerd of `plimsoll up --with-containerd`: private, installed if it is missing, removed at the end.

Missing packages are installed from Debian's archive, after a message. The daemon is private: root, state, socket,
network and images are below the state directory, and the containerd of the machine is not used. `up` first enters a
mount namespace of its own with its children: mounts of containerd and of the node agent are visible only there, and end
with the processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

from plimsoll.cli import console
from plimsoll.cli.daemon import DaemonFailedError
from plimsoll.cli.terminal import Paint
from plimsoll.errors import PlimsollError
from plimsoll.linux.mounts import make_private
from plimsoll.linux.namespaces import MOUNT, unshare
from plimsoll.runtime.cri.private_containerd.daemon import OwnContainerd, missing_packages
from plimsoll.runtime.cri.private_containerd.images import IMAGES

INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")
POLL_S = 0.5
# Ends the daemon when the process that holds its standard input has ended without doing so; the node agent has some
# seconds to end its pods in that case.
_GUARD = 'read -r nothing; sleep 6; kill "$0" 2>/dev/null'


def own_mounts() -> None:
    """Call it before anything is started, while there is only one thread."""
    unshare(MOUNT)
    make_private()


class UpContainerd:
    def __init__(self, state: Path, paint: Paint, driver: str) -> None:
        """`driver`: of the node's cgroups. With another one every container would be outside its pod's limits."""
        self._paint = paint
        self._daemon = OwnContainerd(state / "containerd", systemd=driver == "systemd")
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return self._daemon.endpoint

    async def start(self) -> None:
        """Raises ContainerdFailedError, or PlimsollError if it cannot be installed."""
        await self._installed()
        for left in await asyncio.to_thread(self._daemon.end):  # left by a run that was killed
            console.echo(self._paint(f"not removed by an earlier run: {left}", "yellow"), err=True)
        names = ", ".join(sorted(_short(name) for image in IMAGES for name in image.names if "localhost" not in name))
        console.echo(self._paint(f"private containerd in {self._daemon.directory}; local images: {names}", "dim"))
        await asyncio.to_thread(self.prepare)
        await asyncio.to_thread(self._daemon.start)
        self._guard = _guard(self._daemon.pid)
        await asyncio.to_thread(self._daemon.load_images)

    def prepare(self) -> None:
        """Write the daemon's files."""
        self._daemon.prepare()

    async def ended(self) -> None:
        """Waits until the daemon ends by itself, which is an error."""
        while not self._daemon.has_ended():  # noqa: ASYNC110  the state of a child can only be polled
            await asyncio.sleep(POLL_S)
        raise DaemonFailedError(f"containerd ended; see {self._daemon.directory}/log")

    async def end(self) -> list[str]:
        """End the daemon; messages about what could not be removed."""
        left = await asyncio.to_thread(self._daemon.end)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        return left

    async def _installed(self) -> None:
        missing = missing_packages()
        if not missing:
            return
        packages = " ".join(missing)
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise PlimsollError(
                f"--with-containerd needs {packages}, which can be installed automatically only on Debian and as root"
            )
        console.echo(self._paint(f"installing from Debian's archive: {packages} ({' '.join(INSTALL)})", "yellow"))
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = await asyncio.to_thread(
            subprocess.run, [*INSTALL, *missing], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode or missing_packages():
            raise PlimsollError(f"{' '.join(INSTALL)} {packages} failed:\n{done.stderr.strip()[-1000:]}")


def _guard(pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sh", "-c", _GUARD, str(pid)], stdin=subprocess.PIPE, start_new_session=True)


def _short(name: str) -> str:
    """The image name without defaults."""
    return name.removeprefix("docker.io/library/").removesuffix(":latest")
