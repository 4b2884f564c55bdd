"""The write process: handles one large write after the other for the server that has started it.

    python -m plimsoll.api.server.write_program DESCRIPTOR     a socket to the server

It runs the same handlers as the server. What they read and change is the server's store, as with another server on a
shared store: a change is decided here, and made there if what it was decided on is still the newest. A process of its
own has an interpreter lock and a garbage collection of its own, and a low priority: however long it takes to read,
check and encode a document of three megabytes, the server's event loop does not wait.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import NoReturn, cast

from plimsoll.api.handlers.dispatch import handle
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.negotiate import PLAIN
from plimsoll.api.machinery.request_info import parsed_query, request_info
from plimsoll.api.machinery.status import StatusError, too_large_document
from plimsoll.api.server.shared_store import refusal_by_store
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
    read_reply,
)
from plimsoll.logs import log_to_stderr
from plimsoll.rules.profile import profile_named
from plimsoll.store.errors import StoreError, TooLargeError
from plimsoll.store.etcd.values import stamped
from plimsoll.store.log import DecideMany
from plimsoll.store.records import TOO_LARGE, Decision, Delete, Record, change_of, is_too_large
from plimsoll.store.store import Decide, Store

MEMORY_BYTES = 1024 * 1024 * 1024  # a document that needs more is refused
_NICE = 10
_GARBAGE = (100_000, 20, 100)  # of documents, which have no cycles

log = logging.getLogger("plimsoll.api")


class _StoppedError(Exception):
    """The server cannot go on with this request."""


class Line:
    """The connection to the server. Nothing else runs here, so it blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")

    def send(self, message: Question) -> None:
        self._connection.sendall(frame(message))

    def receive(self) -> Reply:
        head = self._reader.read(LENGTH.size)
        if len(head) < LENGTH.size:
            raise SystemExit(0)  # the server has ended
        reply: Reply = read_reply(self._reader.read(*LENGTH.unpack(head)))
        if isinstance(reply, Stop):
            raise _StoppedError
        return reply

    def ask(self, question: Question) -> Reply:
        self.send(question)
        return self.receive()


class _Uncounted:
    """Changes of a prefix, as `Cluster.policies` counts them: what was read before may be old."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    @property
    def end(self) -> int:
        return next(self._numbers)


_Records = list[Record | None]  # `list` is a method below


class RemoteStore:
    """What handlers of writes use of a `Store`: the server's."""

    is_shared = True

    def __init__(self, line: Line) -> None:
        self._line = line

    def get(self, key: str) -> Record | None:
        return self._records(Get(key))[0]

    def list(self, prefix: str) -> tuple[int, Sequence[Record]]:
        listed = self._line.ask(List(prefix))
        assert isinstance(listed, Listed)
        return listed.version, listed.records

    def count(self, prefix: str = "") -> int:
        counted = self._line.ask(Count(prefix))
        assert isinstance(counted, Counted)
        return counted.count

    def has_any(self, resources: Set[str]) -> bool:
        return any(self.count(prefix) for prefix in resources)

    def changes_of(self, prefix: str) -> _Uncounted:
        return _Uncounted()

    async def change(self, key: str, decide: Decide) -> Record | None:
        (record,) = await self.change_many([key], lambda current, versions: [decide(current[0], versions[0])])
        return record

    async def change_many(self, keys: Sequence[str], decide: DecideMany) -> Sequence[Record | None]:
        """As on a shared log: decided again if a key has changed, and the version is put in when it is known."""
        names = [*keys]
        records = self._records(Newest(names))
        while True:
            decisions = [*decide(records, [0] * len(names))]
            if not any(decision is not None for decision in decisions):
                return records
            for key, before, decision in zip(names, records, decisions, strict=True):
                if decision is not None and is_too_large(change := change_of(key, before, 0, decision)):
                    raise TooLargeError(len(change.body), TOO_LARGE)
            versions = [record.version if record is not None else 0 for record in records]
            reply = self._line.ask(Commit(names, versions, decisions))
            if isinstance(reply, Written):
                return [*map(_written, names, records, decisions, reply.versions)]
            assert isinstance(reply, Found)
            records = reply.records

    def _records(self, question: Get | Newest) -> _Records:
        found = self._line.ask(question)
        assert isinstance(found, Found)
        return found.records


def _written(key: str, before: Record | None, decision: Decision, version: int) -> Record | None:
    if decision is None:
        return before
    body = decision.body if isinstance(decision, Delete) else decision
    return Record(key, version, stamped(body, version), version if before is None else before.created)


def _cluster(line: Line, settings: Settings, clock: Callable[[], float]) -> Cluster:
    return Cluster(
        cast(Store, RemoteStore(line)),
        profile_named(settings.profile),
        settings.gates,
        clock=clock,
        limits=settings.limits,
        services=settings.services,
        root_ca=settings.root_ca,
        pod_security=settings.pod_security,
    )


def _outcome(runner: asyncio.Runner, cluster: Cluster, task: Task) -> Question:
    info = request_info(task.method, task.path, parsed_query(task.query))
    assert info is not None
    call = ApiCall(
        info,
        task.user,
        task.body,
        task.content_type,
        task.user_agent,
        warnings=[],
        annotations={},
        may_create=task.may_create,
    )
    try:
        answer = runner.run(handle(cluster, call, PLAIN, {}))
    except StatusError as error:
        return _refusal(call, error)
    except StoreError as error:
        return _refusal(call, refusal_by_store(error))
    except MemoryError:
        return _refusal(call, too_large_document())
    except _StoppedError:
        return Stopped()
    except Exception:  # a defect in one handler: the server reports it
        log.exception("%s %s failed", task.method, task.path)
        return Fault()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return Answer(answer.code, answer.body, answer.is_ready, answer.headers, call.warnings, call.annotations, resident)


def _refusal(call: ApiCall, error: StatusError) -> Refusal:
    parts = (error.code, error.reason, error.message, error.details, error.retry_after_s)
    return Refusal(*parts, call.warnings, call.annotations)


def main(descriptor: int) -> NoReturn:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    log_to_stderr()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    line = Line(socket.socket(fileno=descriptor))
    settings = line.receive()
    assert isinstance(settings, Settings)
    now_s = 0.0
    cluster = _cluster(line, settings, lambda: now_s)
    with asyncio.Runner() as runner:
        while True:
            task = line.receive()
            assert isinstance(task, Task)
            now_s = task.now_s
            line.send(_outcome(runner, cluster, task))
            del task


if __name__ == "__main__":
    main(int(sys.argv[1]))
