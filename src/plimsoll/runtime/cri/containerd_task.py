"""Ends the processes of a container that containerd's CRI plugin no longer tracks.

If its client disappears in the middle of a start, containerd may report a container as never started while its
processes run. CRI then stops nothing, because it knows of no process, and removes nothing, because the task exists. The
task service of containerd, on the same socket, still knows the task.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

from plimsoll.net.grpc.status import FAILED_PRECONDITION, NOT_FOUND
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.calls import CallRefusedError, CriCall, CriClient

REFUSAL = "cannot delete running task"  # containerd's message
_NOT_DEAD_YET = "cannot delete a running process"  # the shim's message, which has no code of its own
PATIENCE_S, _AGAIN_S = 30.0, 0.02


class KillRequest(m.Message, frozen=True):
    container_id: Annotated[str, 1]
    signal: Annotated[int, 3]
    all: Annotated[bool, 4]


class DeleteRequest(m.Message, frozen=True):
    container_id: Annotated[str, 1]


_IN_NAMESPACE = (("containerd-namespace", m.CONTAINERD_NAMESPACE),)
KILL = CriCall("/containerd.services.tasks.v1.Tasks/Kill", m.Empty, 30, repeats=True, headers=_IN_NAMESPACE)
DELETE = CriCall("/containerd.services.tasks.v1.Tasks/Delete", m.Empty, 30, repeats=True, headers=_IN_NAMESPACE)


async def end(client: CriClient, container_id: str) -> None:
    """Kill and delete the task; no error if it is gone. CallRefusedError if it still exists after PATIENCE_S."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + PATIENCE_S
    while True:
        try:
            await client.ask(KILL, KillRequest(container_id, signal.SIGKILL, all=True))
        except CallRefusedError as refused:
            if refused.code != NOT_FOUND:  # the processes have ended, or the task is gone
                raise
        try:
            await client.ask(DELETE, DeleteRequest(container_id))
        except CallRefusedError as refused:
            if refused.code == NOT_FOUND:
                return
            is_alive = refused.code == FAILED_PRECONDITION or _NOT_DEAD_YET in refused.description
            if not is_alive or clock() > give_up:
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return
