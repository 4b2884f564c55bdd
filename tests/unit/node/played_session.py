"""A fake exec session: records its input, and the test provides its output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from plimsoll.runtime.interface import RuntimeCallError


class PlayedSession:
    """`put` and `end` play the process; `echo` gives stdin back at stdout and ends with it."""

    def __init__(self, *, echo: bool = False) -> None:
        self.got, self.sizes = b"", list[tuple[int, int]]()
        self.stdin_closed, self.closed = asyncio.Event(), asyncio.Event()
        self._outputs: tuple[asyncio.Queue[bytes], asyncio.Queue[bytes]] = (asyncio.Queue(1), asyncio.Queue(1))
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._echo = echo
        self.error: RuntimeCallError | None = None

    async def put(self, data: bytes, *, stderr: bool = False) -> None:
        await self._outputs[stderr].put(data)

    async def end(self, code: int) -> None:
        for each in self._outputs:
            await each.put(b"")
        if not self._code.done():
            self._code.set_result(code)

    async def write(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.got += data
        if self._echo:
            await self.put(data)

    async def close_stdin(self) -> None:
        self.stdin_closed.set()
        if self._echo:
            await self.end(0)

    async def resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))

    async def stdout(self) -> AsyncIterator[bytes]:
        while data := await self._outputs[0].get():
            yield data

    async def stderr(self) -> AsyncIterator[bytes]:
        while data := await self._outputs[1].get():
            yield data

    async def wait(self) -> int:
        return await self._code

    async def close(self) -> None:
        self.closed.set()
