"""The embedded runtime of a node: how its supervisor is reached, what users should know about it, and its end."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from plimsoll.cgroups.drivers.detect import entry_directories
from plimsoll.errors import PlimsollError
from plimsoll.node.machine import LiveNode
from plimsoll.node.volumes.pod_dirs import pods_on_disk, remove_pod_files
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.runtime.interface import RuntimeCallError

log = logging.getLogger(__name__)


def embedded_runtime(live: LiveNode, home: Path, *secret: Path) -> ProcessRuntime:
    """`secret`: paths hidden from containers, besides the state directory."""
    config, files = live.setting.config, live.files
    opened: Callable[[str], Sequence[int]] = (lambda _: ()) if files is None else partial(entry_directories, files)
    return ProcessRuntime(
        home / "runtime",
        opened,
        {
            name: command if isinstance(command, str) else shlex.join(command)
            for name, command in live.extras.images.items()
        },
        hidden=(home, *secret),
        log_max_bytes=config.container_log_max_bytes,
        log_max_files=config.container_log_max_files,
    )


def runtime_warnings(runtime: ProcessRuntime) -> Iterator[tuple[str, str]]:
    """What users should know about the running supervisor: the reason of an event, and its message."""
    for sentence in runtime.limitations:
        yield "ContainersNotIsolated", sentence
    if runtime.differences:
        yield (
            "EmbeddedRuntime",
            f"the supervisor of the containers was started with other settings ({', '.join(runtime.differences)}), and "
            "keeps them while it has pods: drain the node and restart the agent to replace it",
        )


async def end_supervisor(runtime: ProcessRuntime) -> None:
    """Stop the supervisor of an agent that has exited, and kill what still runs in it."""
    try:
        await runtime.open(as_found=True)
        await runtime.shutdown()
    except RuntimeCallError as error:
        log.error("cannot stop the supervisor: %s", error)


async def remove_leftovers(live: LiveNode, home: Path) -> list[str]:
    """Remove what a killed node agent has left on this machine; returns the errors."""
    errors = []
    if (home / "runtime" / "socket").exists():
        await end_supervisor(embedded_runtime(live, home))
    try:
        status = live.tree.status()
        if status.is_set_up or status.unfinished is not None:
            await live.tree.teardown(kill=True)
    except PlimsollError as error:
        errors.append(str(error))
    for uid in pods_on_disk(home / "node"):
        try:
            await asyncio.to_thread(remove_pod_files, home / "node", uid)
        except OSError as error:
            errors.append(f"{error.filename}: {error.strerror}")
    return errors
