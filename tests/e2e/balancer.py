"""Passes each TCP connection to one of several servers, in turn, as a load balancer in front of API servers does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

CHUNK = 1 << 16


@contextmanager
def balanced(servers: Sequence[str]) -> Iterator[str]:
    """`servers`: URLs. Yields the URL that leads to all of them."""
    ready: list[str] = []
    started, loop = threading.Event(), asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        listener = await asyncio.start_server(_Passing(servers), "127.0.0.1", 0)
        ready.append(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        started.set()
        await ended.wait()
        listener.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(10.0)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class _Passing:
    def __init__(self, servers: Sequence[str]) -> None:
        self._next = itertools.cycle(server.removeprefix("https://").rpartition(":")[::2] for server in servers)

    async def __call__(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        host, port = next(self._next)
        try:
            server_in, server_out = await asyncio.open_connection(host, int(port))
            await asyncio.gather(_copied(client_in, server_out), _copied(server_in, client_out))
        except (OSError, asyncio.CancelledError):
            pass  # one side has closed, or the tests are over
        finally:
            client_out.close()


async def _copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
    finally:
        with contextlib.suppress(OSError):
            target.close()
