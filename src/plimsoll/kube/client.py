"""The client that the agent and the scheduler use: one call per request, and an endless list and watch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Protocol

from plimsoll.aio import ExponentialBackoff
from plimsoll.kube.reflector import ObjectChange, Reflector
from plimsoll.kube.request import ApiError, ApiResponse, Request, UnreachableError, UnusableAnswerError, document

RETRY_FIRST_S, RETRY_MOST_S = 0.2, 10.0
SHORTEST_WATCH_S = 1.0  # client-go, too, takes a shorter watch without an event for an error


class Transport(Protocol):
    async def send(self, request: Request) -> ApiResponse: ...

    def lines(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]: ...


class Client:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def ask(self, request: Request) -> dict[str, Any]:
        """The object in the response; ApiError or UnreachableError where there is none."""
        return document(await self._transport.send(request), request.kind)

    async def follow(
        self, reflector: Reflector, on_error: Callable[[Exception], None]
    ) -> AsyncIterator[list[ObjectChange]]:
        """Changes without end; the first batch is the list. Errors are reported and retried with a growing back-off.

        A list does not end the back-off: a server whose watches fail would be asked for lists without a pause."""
        backoff, loop = ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S), asyncio.get_running_loop()
        while True:
            is_watch, began_s = reflector.synced, loop.time()
            try:
                async with aclosing(self._round(reflector)) as batches:
                    async for changes in batches:
                        if is_watch:
                            backoff.reset()
                        yield changes
            except (ApiError, UnreachableError, TimeoutError) as error:
                if is_watch and loop.time() - began_s > RETRY_MOST_S:
                    backoff.reset()
                on_error(error)
                await asyncio.sleep(backoff.next_s() * random.uniform(0.5, 1.0))

    async def _round(self, reflector: Reflector) -> AsyncGenerator[list[ObjectChange], None]:
        """One list (all its pages), or one watch until it ends."""
        if not reflector.synced:
            changes = None
            while changes is None:
                changes = reflector.listed(await self._transport.send(reflector.request()))
            yield changes
            return
        is_empty, began_s = True, asyncio.get_running_loop().time()
        async with aclosing(self._transport.lines(reflector.request())) as stream:
            async for part in stream:
                if isinstance(part, ApiResponse):
                    if part.status >= 400:
                        reflector.refused(part)
                        return
                    continue
                is_empty = False
                if changes := reflector.line(part):
                    yield changes
        if is_empty and asyncio.get_running_loop().time() - began_s < SHORTEST_WATCH_S:
            raise UnusableAnswerError("the watch ended at once, without an event")
