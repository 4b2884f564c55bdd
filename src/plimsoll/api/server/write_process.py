"""Large writes of limited users leave this process: their documents, the time and the memory that these take.

One process (`write_program`) handles them one after the other, of alternating users. It starts with the first of them,
and ends when there have been none for a while, or when it has become large: then its memory is the kernel's again.
The store stays here. What the process decides is written if the objects that it was decided on are still the newest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

import plimsoll
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.exchange import Scope
from plimsoll.api.machinery.rounds import Exclusive
from plimsoll.api.machinery.status import StatusError, internal_error, timed_out
from plimsoll.api.server.write_messages import (
    LENGTH,
    Answer,
    Commit,
    Count,
    Counted,
    Fault,
    Found,
    Get,
    List,
    Listed,
    Newest,
    Question,
    Refusal,
    Reply,
    Settings,
    Stop,
    Stopped,
    Task,
    Written,
    frame,
    read_question,
)
from plimsoll.store.errors import StoreError
from plimsoll.store.etcd.values import stamped
from plimsoll.store.records import Decision, Delete, Record
from plimsoll.store.store import Store

TASK_S = 60.0  # for one request: then the process is killed
IDLE_S = 300.0
LARGE_BYTES = 256 * 1024 * 1024  # resident after a request
_PIECE_BYTES = 256 * 1024  # asyncio does not move megabytes with every packet
_PROGRAM = "plimsoll.api.server.write_program"

log = logging.getLogger("plimsoll.api")


class _MovedError(Exception):
    """A key has not the version any more that its change was decided on."""


class _Line(msgspec.Struct):
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, message: Reply) -> None:
        data = memoryview(frame(message))
        for start in range(0, len(data), _PIECE_BYTES):
            self.writer.write(data[start : start + _PIECE_BYTES])
            await self.writer.drain()

    async def receive(self) -> Question:
        (size,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
        question: Question = read_question(await self.reader.readexactly(size))
        return question

    async def end(self) -> None:
        self.writer.close()
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class WriteProcess:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._exclusive = Exclusive()
        self._line: _Line | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self.started = 0

    @property
    def pid(self) -> int:
        """0: it does not run."""
        return 0 if self._line is None else self._line.process.pid

    async def handle(self, cluster: Cluster, call: ApiCall, scope: Scope) -> Response:
        """As `handlers.dispatch.handle`, there. Raises StatusError, StoreError."""
        task = Task(
            scope["method"],
            scope["raw_path"].decode("latin-1"),
            scope["query_string"],
            call.user,
            call.body,
            call.content_type,
            call.user_agent,
            cluster.clock(),
            call.may_create,
        )
        await self._exclusive.take(call.user.name)
        try:
            if self._idle is not None:
                self._idle.cancel()
            line = self._line or await self._start()
            is_done = False
            try:
                async with asyncio.timeout(TASK_S):
                    response = await _handled(line, cluster, call, task)
                is_done = response.resident_bytes <= LARGE_BYTES
                return Response(response.code, response.body, response.is_ready, response.headers)
            except (StatusError, StoreError):
                is_done = True
                raise
            except TimeoutError:
                raise timed_out(f"the request was not handled within {TASK_S:g} s") from None
            except (EOFError, ConnectionError):
                log.error("%s %s: the write process has ended", task.method, task.path)
                raise internal_error("the process that handled the request has ended") from None
            finally:
                if not is_done:
                    await self._end()
        finally:
            if self._line is not None:
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)
            self._exclusive.leave()

    async def _start(self) -> _Line:
        ours, theirs = socket.socketpair()
        with theirs:
            nothing = asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-sP", "-m", _PROGRAM, str(theirs.fileno())),
                stdin=nothing,
                stdout=nothing,
                env={**os.environ, "PYTHONPATH": str(Path(plimsoll.__file__).parent.parent), "MALLOC_ARENA_MAX": "1"},
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        self._line = line = _Line(process, reader, writer)
        self.started += 1
        await line.send(self._settings)
        return line

    def _end_idle(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._ending = asyncio.get_running_loop().create_task(line.end())

    async def _end(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.end()

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        await self._end()


async def _handled(line: _Line, cluster: Cluster, call: ApiCall, task: Task) -> Answer:
    """Answer the process's questions until it has handled the request."""
    failure: StoreError | None = None
    await line.send(task)
    while True:
        match await line.receive():
            case Answer() as answer:
                call.warnings += answer.warnings
                call.annotations |= answer.annotations
                return answer
            case Refusal() as refusal:
                call.warnings += refusal.warnings
                call.annotations |= refusal.annotations
                parts = (refusal.code, refusal.reason, refusal.message, refusal.details, refusal.retry_after_s)
                raise StatusError(*parts)
            case Stopped():
                assert failure is not None
                raise failure
            case Fault():
                raise internal_error("the server failed to handle the request; its log has the reason")
            case Get(key):
                await line.send(Found([cluster.store.get(key)]))
            case List(prefix):
                version, records = cluster.store.list(prefix)
                await line.send(Listed(version, [*records]))
            case Count(prefix):
                await line.send(Counted(cluster.store.count(prefix)))
            case (Newest() | Commit()) as question:
                try:
                    reply = await _changed(cluster.store, question)
                except StoreError as error:
                    failure, reply = error, Stop()
                await line.send(reply)


async def _changed(store: Store, question: Newest | Commit) -> Found | Written | Stop:
    if isinstance(question, Newest):
        return await _newest(store, question.keys)

    def decide(records: list[Record | None], versions: list[int]) -> Sequence[Decision]:
        if [_version(record) for record in records] != question.versions:
            raise _MovedError
        return [*map(_stamped, question.decisions, versions)]

    try:
        written = await store.change_many(question.keys, decide)
    except _MovedError:
        return await _newest(store, question.keys)
    return Written([*map(_version, written)])


async def _newest(store: Store, keys: list[str]) -> Found:
    """Also of changes that are not committed yet."""
    return Found(await store.change_many(keys, lambda records, _: [None] * len(records)))


def _version(record: Record | None) -> int:
    return 0 if record is None else record.version


def _stamped(decision: Decision, version: int) -> Decision:
    if decision is None:
        return None
    if isinstance(decision, Delete):
        return Delete(stamped(decision.body, version))
    return stamped(decision, version)
