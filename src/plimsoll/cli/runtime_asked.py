"""What a container runtime says of itself before a node is put together: its name, its version and its cgroup driver.

A node needs them early: cgroups are named by the driver, containers by the runtime. The question is asked on an event
loop of its own, in a thread, as whoever wants to know may be inside of one.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.rules.hierarchy import Driver, Runtime
from plimsoll.runtime.cri.answers import Filesystems
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.runtime import RuntimeTrouble

UNIX = "unix://"
PATIENCE_S = 10.0


class RuntimeTold(msgspec.Struct, frozen=True):
    endpoint: str
    name: str
    version: str
    driver: Driver | None  # by RuntimeConfig: nothing else counts then (02 §2.2)
    configured_driver: Driver | None  # as its configuration shows
    filesystems: Filesystems = Filesystems()

    @property
    def kind(self) -> Runtime:
        return "crio" if self.name == "cri-o" else "containerd"

    def driver_for(self, said: str | None) -> tuple[str | None, str]:
        """The driver to use where the configuration says `said` (None: nothing), and what to know about it."""
        if self.driver is not None:
            other = f"the runtime's cgroup driver is {self.driver}, which counts before {said}"
            return self.driver, other if said not in (None, self.driver) else ""
        if said is not None and self.configured_driver not in (None, said):
            return said, (
                f"the runtime's own configuration has cgroup driver {self.configured_driver}, this node's {said}: "
                "containers will stand outside their pods' cgroups"
            )
        return said or self.configured_driver, ""


def socket_of(endpoint: str) -> str:
    """The path of `unix:///run/containerd/containerd.sock`, or of a path without a scheme."""
    path = endpoint.removeprefix(UNIX)
    if not path.startswith("/"):
        raise PlimsollError(
            f"--container-runtime-endpoint {endpoint!r}: a unix socket, as unix:///run/containerd/containerd.sock"
        )
    return path


def asked(endpoint: str, patience_s: float = PATIENCE_S) -> RuntimeTold:
    """PlimsollError where nobody answers there."""
    path = socket_of(endpoint)
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(asyncio.run, _asked(endpoint, path, patience_s)).result()
        except RuntimeTrouble as trouble:
            raise PlimsollError(
                f"no container runtime answers at {path}: {trouble.reason} (is it running? may we open its socket?)"
            ) from trouble


async def _asked(endpoint: str, path: str, patience_s: float) -> RuntimeTold:
    runtime = CriRuntime(path, patience_s=patience_s)
    try:
        await runtime.open()
        filesystems = await runtime.filesystems()
    finally:
        await runtime.close()
    driver, configured = runtime.cgroup_driver, runtime.configured_driver
    return RuntimeTold(endpoint, runtime.name, runtime.version, driver, configured, filesystems)
