"""The machine that a node runs on, opened for work: its cgroups, the resolved configuration, its container runtime.

The node needs the runtime's name and cgroup driver before it is put together: the driver names the cgroups of pods, the
runtime those of containers. `query_runtime` runs on an event loop of its own, in a thread, so that it also works inside
a running loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.rules.config.extras import NodeExtras
from plimsoll.rules.model.cgroup_names import Driver, Runtime
from plimsoll.runtime.cri.answers import Filesystems
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import RuntimeCallError

if TYPE_CHECKING:
    from plimsoll.cgroups.drivers.interface import CgroupDriver
    from plimsoll.cgroups.drivers.v1 import CgroupsV1
    from plimsoll.cgroups.drivers.v2 import CgroupsV2
    from plimsoll.cgroups.engine.manager import CgroupManager
    from plimsoll.node.stats.stats import NodePlace
    from plimsoll.rules.node.node_config import NodeConfig

UNIX = "unix://"
TIMEOUT_S = 10.0


class RuntimeInfo(msgspec.Struct, frozen=True):
    """What a container runtime reports of itself."""

    endpoint: str
    name: str
    version: str
    driver: Driver | None  # from RuntimeConfig: takes precedence over every configuration (02 §2.2)
    configured_driver: Driver | None  # from the runtime's own configuration
    filesystems: Filesystems = Filesystems()

    @property
    def kind(self) -> Runtime:
        return "crio" if self.name == "cri-o" else "containerd"

    def driver_for(self, configured: str | None) -> tuple[str | None, str]:
        """The driver to use where the node's configuration says `configured` (None: nothing), and a warning or "".

        Raises where the runtime would create its containers outside the cgroups of their pods.
        """
        if self.driver is not None:
            warning = f"the runtime's cgroup driver {self.driver} takes precedence over the configured {configured}"
            return self.driver, warning if configured not in (None, self.driver) else ""
        if configured is not None and self.configured_driver not in (None, configured):
            raise PlimsollError(
                f"the runtime at {self.endpoint} is configured with cgroup driver {self.configured_driver}, this node "
                f"with {configured}: every container would be outside its pod's cgroup, where no limit of pod or node "
                f"applies to it; {_same_driver(self.kind, configured)}, or use --driver {self.configured_driver}"
            )
        return configured or self.configured_driver, ""


def _same_driver(kind: Runtime, driver: str) -> str:
    """What to change in the runtime's configuration."""
    if kind == "crio":
        return f'set cgroup_manager = "{driver}" in the configuration of CRI-O and restart it'
    return f"set SystemdCgroup = {str(driver == 'systemd').lower()} in the configuration of containerd and restart it"


class LiveNode(msgspec.Struct, frozen=True):
    """`files`: the cgroup file systems, None on a simulated kernel. `runtime`: the runtime behind CRI, None where the
    embedded one is used. `notes`: warnings for the user. `home`: the state directory."""

    driver: CgroupDriver
    setting: NodeConfig
    tree: CgroupManager
    notes: list[str]
    home: Path
    extras: NodeExtras
    declared_capacity: str
    files: CgroupsV1 | CgroupsV2 | None = None
    runtime: RuntimeInfo | None = None


def socket_path(endpoint: str) -> str:
    """The path of `unix:///run/containerd/containerd.sock`, or of a path without a scheme."""
    path = endpoint.removeprefix(UNIX)
    if not path.startswith("/"):
        raise PlimsollError(
            f"--container-runtime-endpoint {endpoint!r}: must be a unix socket such as "
            "unix:///run/containerd/containerd.sock"
        )
    return path


def query_runtime(endpoint: str, timeout_s: float = TIMEOUT_S) -> RuntimeInfo:
    """Raises PlimsollError where no runtime answers."""
    path = socket_path(endpoint)
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(asyncio.run, _query_runtime(endpoint, path, timeout_s)).result()
        except RuntimeCallError as error:
            raise PlimsollError(
                f"no container runtime answers at {path}: {error.reason} (is it running, and is its socket readable?)"
            ) from error


async def _query_runtime(endpoint: str, path: str, timeout_s: float) -> RuntimeInfo:
    runtime = CriRuntime(path, patience_s=timeout_s)
    try:
        await runtime.open()
        filesystems = await runtime.filesystems()
    finally:
        await runtime.close()
    driver, configured = runtime.cgroup_driver, runtime.configured_driver
    return RuntimeInfo(endpoint, runtime.name, runtime.version, driver, configured, filesystems)


def node_place(live: LiveNode, name: str, home: Path) -> NodePlace:
    """A node with declared capacity is not the whole machine: eviction counts its pods."""
    from plimsoll.node.stats.stats import NodePlace  # only agents need statistics
    from plimsoll.rules.node.node_config import withheld_hugepages

    pods_path = live.tree.status().path
    filesystems = Filesystems() if live.runtime is None else live.runtime.filesystems
    return NodePlace(
        name=name,
        pods_path=pods_path,
        node_path=pods_path if live.declared_capacity else "/",
        nodefs=str(home),
        imagefs=_existing(filesystems.images) or str(home),
        containerfs=_existing(filesystems.containers),
        started_s=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME),
        system_started_s=time.time(),
        withheld_bytes=0 if live.declared_capacity else withheld_hugepages(live.setting),
    )


def _existing(mount_point: str) -> str:
    """A runtime may have other mounts than the agent; one that the agent cannot see is ignored."""
    return mount_point if os.path.isdir(mount_point) else ""
