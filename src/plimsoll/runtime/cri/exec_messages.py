"""The messages of CRI about processes beside a container, that we send and read; see `messages`."""

from __future__ import annotations

from typing import Annotated

from plimsoll.runtime.cri.messages import Message


class ExecSyncRequest(Message, frozen=True):
    container_id: Annotated[str, 1] = ""
    cmd: Annotated[tuple[str, ...], 2] = ()
    timeout: Annotated[int, 3] = 0


class ExecSyncResponse(Message, frozen=True):
    stdout: Annotated[bytes, 1] = b""
    stderr: Annotated[bytes, 2] = b""
    exit_code: Annotated[int, 3] = 0


class ExecRequest(Message, frozen=True):
    container_id: Annotated[str, 1] = ""
    cmd: Annotated[tuple[str, ...], 2] = ()
    tty: Annotated[bool, 3] = False
    stdin: Annotated[bool, 4] = False
    stdout: Annotated[bool, 5] = False
    stderr: Annotated[bool, 6] = False


class AttachRequest(Message, frozen=True):
    container_id: Annotated[str, 1] = ""
    stdin: Annotated[bool, 2] = False
    tty: Annotated[bool, 3] = False
    stdout: Annotated[bool, 4] = False
    stderr: Annotated[bool, 5] = False


class StreamingResponse(Message, frozen=True):
    """Of Exec and Attach: where the streams are."""

    url: Annotated[str, 1] = ""
