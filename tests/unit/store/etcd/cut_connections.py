"""A TCP proxy that closes its connections at random moments, before or after what it carries has arrived."""

from __future__ import annotations

import asyncio
import random


class Cutter:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.port = self.cuts = 0
        self._random: random.Random | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Cutter:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()

    def start(self, chance: random.Random) -> None:
        self._random = chance

    def stop(self) -> None:
        self._random = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, far_writer):
                each.close()
                self._writers.discard(each)
            self._tasks.discard(task)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            is_cut = self._random is not None and self._random.random() < 0.04
            if not is_cut or (self._random is not None and self._random.random() < 0.5):
                target.write(data)
                await target.drain()
            if is_cut:
                self.cuts += 1
                raise ConnectionResetError
        raise ConnectionResetError
