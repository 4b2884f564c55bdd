"""Ends what runs of a container that the CRI side of containerd has lost sight of.

containerd whose caller went away in the middle of a start may call the container one that never ran while its processes
do run. CRI then stops nothing, since to it nothing runs, and removes nothing, since the task is there. The task itself
is known to containerd all the time, under its own service on the same socket.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.calls import CallRefusedError, CriCall, CriClient
from plimsoll.runtime.cri.grpc import FAILED_PRECONDITION, NOT_FOUND

REFUSAL = "cannot delete running task"  # containerd's words
_NOT_DEAD_YET = "cannot delete a running process"  # its shim's, which come without a code of their own
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
    """It and its task are gone, whoever came first; CallRefused where they are not within the time."""
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
