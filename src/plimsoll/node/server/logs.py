"""Container logs: `/containerLogs/NAMESPACE/POD/CONTAINER` with its options, the whole log or a part, followed or not.

The runtime writes `0.log`; a large one is rotated to `0.log.<time>`. A reader also reads the rotated files, oldest
first, so that a rotation hides nothing. The last lines are found backwards from the end; lines since a time by binary
search, since a log is ordered by time.

A follower keeps reading the file that it has open, whatever its name, until there is a new one that is not empty. It
ends when the container has ended and everything is read. Reads block: the pieces are small and mostly in the page
cache, and the event loop runs between them.

A container is looked up in the pod's status and never becomes a file name; where there is no log the answer is the
kubelet's message, which kubectl shows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from plimsoll.codec.kernel.cri_log import fixed_time, parse
from plimsoll.errors import PlimsollError
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.server.http import HttpError
from plimsoll.node.sources.directory_watch import DirectoryWatch
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import NANOS, unix_nanos
from plimsoll.runtime.interface import ContainerRuntime, ObservedContainer

log = logging.getLogger(__name__)

Query = Mapping[str, Sequence[str]]
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False", "")
_STREAMS: dict[str, tuple[bytes, ...]] = {
    "": (b"stdout", b"stderr"),
    "All": (b"stdout", b"stderr"),
    "Stdout": (b"stdout",),
    "Stderr": (b"stderr",),
}
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class LogOptions(msgspec.Struct, frozen=True):
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_ns: int | None = None  # from 1970
    streams: tuple[bytes, ...] = _STREAMS["All"]


def log_options(query: Query, now_s: float) -> LogOptions:
    """Raises HttpError(400) for an invalid value; unknown options are ignored, as the kubelet does."""
    since_s, since_time = _number(query, "sinceSeconds", 1), _one(query, "sinceTime")
    if since_s is not None and since_time:
        raise HttpError(400, "at most one of `sinceTime` or `sinceSeconds` may be specified")
    since_ns = None if since_s is None else int((now_s - since_s) * NANOS)
    if since_time and (since_ns := unix_nanos(since_time)) is None:
        raise HttpError(400, f'sinceTime: "{since_time}" is not an RFC 3339 time (2006-01-02T15:04:05Z)')
    stream = _one(query, "stream")
    if stream not in _STREAMS:
        raise HttpError(400, f'stream: "{stream}" must be All, Stdout or Stderr')
    return LogOptions(
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        timestamps=flag(query, "timestamps"),
        tail_lines=_number(query, "tailLines", 0),
        limit_bytes=_number(query, "limitBytes", 1),
        since_ns=since_ns,
        streams=_STREAMS[stream],
    )


def flag(query: Query, name: str) -> bool:
    """As Go's ParseBool reads it."""
    text = _one(query, name)
    if text not in _TRUE + _FALSE:
        raise HttpError(400, f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def _one(query: Query, name: str) -> str:
    return (query.get(name) or ("",))[0]


def _number(query: Query, name: str, least: int) -> int | None:
    text = _one(query, name)
    if not text:
        return None
    if not text.isascii() or not text.removeprefix("-").isdecimal() or int(text) < least:
        raise HttpError(400, f'{name}: "{text}" must be a whole number of at least {least}')
    return int(text)


# --- which container ---


def containers(pod: JsonObject) -> Iterator[JsonObject]:
    """Of every kind."""
    spec = pod.get("spec") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def container_status(pod: JsonObject, name: str) -> JsonObject | None:
    status = pod.get("status") or {}
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        entry: JsonObject
        for entry in status.get(kind) or ():
            if entry["name"] == name:
                return entry
    return None


def running_container_id(pod: JsonObject, name: str) -> str:
    """The full id, with its scheme; empty where it is not running."""
    status = container_status(pod, name) or {}
    return str(status.get("containerID") or "") if (status.get("state") or {}).get("running") is not None else ""


def bare_id(container_id: str) -> str:
    """`containerd://abc` → `abc`."""
    return container_id.rpartition("://")[2]


def logged_container_id(pod: JsonObject, name: str, *, previous: bool) -> str:
    """The full id of the container to read; raises HttpError with the kubelet's message where there is none."""
    own = pod["metadata"]["name"]
    if not any(each["name"] == name for each in containers(pod)):
        raise HttpError(404, f'container "{name}" not found in pod "{own}"')
    status = container_status(pod, name)
    if status is None:
        raise HttpError(400, f'container "{name}" in pod "{own}" is not available')
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    last_id = str((last or {}).get("containerID") or "")
    if previous:
        if not last_id:
            raise HttpError(400, f'previous terminated container "{name}" in pod "{own}" not found')
        return last_id
    if state.get("running") is not None:
        return str(status.get("containerID") or "")
    ended = state.get("terminated")
    if ended is not None or last is not None:
        # If the next container could not be started, the log is that of the last one.
        container_id = str((ended or {}).get("containerID") or "") or last_id
        if not container_id:
            raise HttpError(400, f'container "{name}" in pod "{own}" is terminated')
        return container_id
    waiting = state.get("waiting")
    if waiting is None:
        raise HttpError(400, f'container "{name}" in pod "{own}" is waiting to start - no logs yet')
    reason = str(waiting.get("reason") or "")
    raise HttpError(400, f'container "{name}" in pod "{own}" is waiting to start: {_WAITING.get(reason, reason)}')


CHUNK = 1 << 16
POLL_S = 0.5  # for the end of the container; changes of the log notify
ROTATION_POLL_S = 10.0  # containerLogMonitorInterval
_COMPRESSED = (".gz", ".tmp")


class _Filter:
    """Lines of the file → the selected output, until the limit is reached."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._remaining = options.limit_bytes
        self._at_line_start = True

    @property
    def full(self) -> bool:
        return self._remaining == 0

    def of(self, lines: Iterable[bytes]) -> bytes:
        options = self._options
        parts: list[bytes] = []
        for line in lines:
            entry = parse(line)
            if entry is None or entry.stream not in options.streams:
                continue
            if options.since_ns is not None and (unix_nanos(entry.time.decode()) or 0) < options.since_ns:
                continue
            if options.timestamps and self._at_line_start:  # the parts of a long line are one line
                parts += (fixed_time(entry.time), b" ")
            parts.append(entry.content)
            self._at_line_start = not entry.partial
            if not entry.partial:
                parts.append(b"\n")
        text = b"".join(parts)
        if self._remaining is not None:
            text = text[: self._remaining]
            self._remaining -= len(text)
        return text


class _Source:
    """One open file, read in whole lines from an offset on."""

    def __init__(self, fd: int, *, grows: bool) -> None:
        self.fd, self.offset = fd, 0
        self.size = os.fstat(fd).st_size
        self._grows = grows  # else lines written meanwhile are ignored: a busy log would never end
        self._rest = b""

    def lines(self) -> list[bytes] | None:
        """The next whole lines; None at the end of the file."""
        piece = os.pread(self.fd, CHUNK if self._grows else min(CHUNK, self.size - self.offset), self.offset)
        if not piece:
            return None
        self.offset += len(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return lines

    def unfinished(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


async def log_chunks(
    file: Path, options: LogOptions, is_running: Callable[[], bool], watch: DirectoryWatch
) -> AsyncGenerator[bytes, None]:
    """Yields no empty piece. A missing log is an empty one."""
    selected = _Filter(options)
    if options.tail_lines == 0 and not options.follow:
        return
    with ExitStack() as stack:
        # Watched before it is opened, so that no change is missed.
        waiter = stack.enter_context(watch.watch(file.parent)) if options.follow else None
        sources = _sources(file, options, stack)
        for source in sources[:-1]:
            async for text in _read(source, selected):
                yield text
            if text := selected.of(source.unfinished()):
                yield text
        current = sources[-1] if sources else None
        while not selected.full:
            running = options.follow and is_running()  # checked first, so that everything it wrote is read below
            if current is None and (fd := _open(file, stack)) is not None:
                current = _Source(fd, grows=options.follow)
            moved = current is not None and options.follow and _has_successor(file, current.fd)
            if current is not None:
                async for text in _read(current, selected):
                    yield text
            if moved and current is not None:
                if text := selected.of(current.unfinished()):
                    yield text
                current = None
                continue
            if not running:
                if current is not None and (text := selected.of(current.unfinished())):
                    yield text
                return
            assert waiter is not None
            await waiter.wait(POLL_S)


async def _read(source: _Source, selected: _Filter) -> AsyncGenerator[bytes, None]:
    """Until the current end of the file."""
    while not selected.full and (lines := source.lines()) is not None:
        if text := selected.of(lines):
            yield text
        await asyncio.sleep(0)


def _sources(file: Path, options: LogOptions, stack: ExitStack) -> list[_Source]:
    """The open files, oldest first, each at its start offset. The current one is the last, if it exists."""
    fd = _open(file, stack)
    if fd is None:
        return []
    newest_first = [_Source(fd, grows=options.follow)]
    own = os.fstat(fd)
    for rotated in reversed(rotated_files(file)):
        older = _open(rotated, stack)
        # The current one may have been rotated since it was opened: then it is in the list, too.
        if older is not None and not os.path.samestat(own, os.fstat(older)):
            newest_first.append(_Source(older, grows=False))
    chosen: list[_Source] = []
    missing = options.tail_lines
    for source in newest_first:
        chosen.append(source)
        if options.since_ns is not None:
            source.offset = since_offset(source.fd, source.size, options.since_ns)
        if missing is not None:
            offset, count = tail_offset(source.fd, source.size, missing, options.streams)
            source.offset = max(offset, source.offset)
            missing -= count
            if missing == 0:
                break
        if source.offset:
            break
    return chosen[::-1]


def _open(file: Path, stack: ExitStack) -> int | None:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    stack.callback(os.close, fd)
    return fd


def _has_successor(file: Path, fd: int) -> bool:
    """Whether a new file of that name has content. Until then the runtime may still write to this one."""
    try:
        status = os.stat(file, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return status.st_size > 0 and not os.path.samestat(status, os.fstat(fd))


def rotated_files(file: Path) -> list[Path]:
    """`0.log.20060102-150405` …, oldest first; compressed ones are not read."""
    try:
        names = os.listdir(file.parent)
    except FileNotFoundError:
        return []
    prefix = f"{file.name}."
    return [file.parent / name for name in sorted(names) if name.startswith(prefix) and not name.endswith(_COMPRESSED)]


def tail_offset(fd: int, size: int, count: int, streams: tuple[bytes, ...]) -> tuple[int, int]:
    """The offset of the last `count` lines of these streams, and their number (the file may have fewer)."""
    if count == 0 or size == 0:
        return size, 0
    every = len(streams) > 1
    at, rest, lines, is_last = size, b"", 0, True
    while at > 0:
        begin = max(0, at - CHUNK)
        block = os.pread(fd, at - begin, begin) + rest
        end = len(block) - 1 if is_last and block.endswith(b"\n") else len(block)
        at, is_last = begin, False
        while (before := block.rfind(b"\n", 0, end)) >= 0:
            if every or _is_of(block[before + 1 : end], streams):
                lines += 1
                if lines == count:
                    return begin + before + 1, lines
            end = before
        rest = block[:end]
    return 0, lines + (every or _is_of(rest, streams))


def _is_of(line: bytes, streams: tuple[bytes, ...]) -> bool:
    entry = parse(line)
    return entry is not None and entry.stream in streams


def since_offset(fd: int, size: int, since_ns: int) -> int:
    """The start of a line before which every line is older; the rest is filtered line by line.

    Two streams are written concurrently, so neighbouring lines may be out of order: start one piece earlier.
    """
    old, new = 0, size
    while new - old > CHUNK:
        middle = (old + new) // 2
        line = _first_line(os.pread(fd, CHUNK, middle))
        at_ns = None if line is None else unix_nanos(line.partition(b" ")[0].decode("ascii", "replace"))
        if at_ns is None:
            break
        if at_ns < since_ns:
            old = middle
        else:
            new = middle
    start = max(0, old - CHUNK)
    if start == 0:
        return 0
    return start + os.pread(fd, CHUNK, start).find(b"\n") + 1


def _first_line(piece: bytes) -> bytes | None:
    """The first line that starts and ends in the piece."""
    begin = piece.find(b"\n") + 1
    end = piece.find(b"\n", begin)
    return piece[begin:end] if begin and end >= 0 else None


class LogRotation:
    """Rotates the logs that a CRI runtime writes. The embedded runtime rotates its own.

    A log that is larger than containerLogMaxSize is renamed with a timestamp, and the runtime is asked to reopen it.
    Older files are removed, so that with the current one there are containerLogMaxFiles. If the runtime does not reopen
    the log, the file gets its name back: no line is lost, and the next pass tries again.
    """

    def __init__(self, runtime: ContainerRuntime, view: RuntimeView, max_bytes: int, max_files: int) -> None:
        self._runtime, self._view, self._max_bytes, self._max_files = runtime, view, max_bytes, max_files

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(ROTATION_POLL_S)
            await self.sync()

    async def sync(self) -> None:
        containers = [container for pod in self._view.last.values() for container in pod.containers]
        for container in containers:
            try:
                if container.phase == "running":
                    await self._rotate(container)
            except (PlimsollError, OSError) as error:
                log.warning("cannot rotate the log of container %s: %s", container.name, error)

    async def _rotate(self, container: ObservedContainer) -> None:
        file = self._runtime.log_file(container)
        if not container.log_file or not file.exists() or file.stat().st_size <= self._max_bytes:
            return
        rotated = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
        file.rename(rotated)
        try:
            await self._runtime.reopen_log(container.id)
        except PlimsollError:
            rotated.rename(file)
            raise
        for old in oldest(file, self._max_files - 1):
            old.unlink()


def oldest(file: Path, kept: int) -> list[Path]:
    """The rotated files of a log, except the newest `kept`."""
    files = rotated_files(file)
    return files[: max(0, len(files) - kept)]
