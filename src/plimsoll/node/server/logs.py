"""A container's log for whoever asks: its end, a part, or all of it, and what is still to come.

The runtime writes `0.log`; when it has grown large it is moved to `0.log.<time>`, and a new one begun. A reader takes
the moved files too, oldest first, so that a rotation hides nothing that is still there. The last lines are found from
the end backwards; lines since a moment by halving, as a log is in the order of time.

Who follows stays with the file that it has open, by whatever name, until there is a new one with something in it, and
leaves when the container has ended and everything is read. Reads are plain calls: the pieces are small, the pages
mostly in memory, and after each piece the loop may do something else.

What is asked of `/containerLogs/NAMESPACE/POD/CONTAINER`: the options, and which container's log it is.

A container is looked for in the pod's status, never by a name made into a path; where there is no log the answer is the
kubelet's own sentence, which kubectl shows as it is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from plimsoll.codec.kernel.cri_log import fixed_time, parse
from plimsoll.errors import PlimsollError
from plimsoll.node.sources.directory_watch import DirectoryWatch
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import NANOS, unix_nanos

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


class LogRequestError(PlimsollError):
    """A request that cannot be answered: the HTTP status and the sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message

    def __str__(self) -> str:
        return self.message


class LogOptions(msgspec.Struct, frozen=True):
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_ns: int | None = None  # from 1970
    streams: tuple[bytes, ...] = _STREAMS["All"]


def log_options(query: Query, now_s: float) -> LogOptions:
    """Refused(400) for what cannot be read; options that are not known are left alone, as the kubelet does it."""
    since_s, since_time = _number(query, "sinceSeconds", 1), _one(query, "sinceTime")
    if since_s is not None and since_time:
        raise LogRequestError(400, "at most one of `sinceTime` or `sinceSeconds` may be specified")
    since_ns = None if since_s is None else int((now_s - since_s) * NANOS)
    if since_time and (since_ns := unix_nanos(since_time)) is None:
        raise LogRequestError(400, f'sinceTime: "{since_time}" is no RFC 3339 time (2006-01-02T15:04:05Z)')
    stream = _one(query, "stream")
    if stream not in _STREAMS:
        raise LogRequestError(400, f'stream: "{stream}" is none of All, Stdout, Stderr')
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
        raise LogRequestError(400, f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def _one(query: Query, name: str) -> str:
    return (query.get(name) or ("",))[0]


def _number(query: Query, name: str, least: int) -> int | None:
    text = _one(query, name)
    if not text:
        return None
    if not text.isascii() or not text.removeprefix("-").isdecimal() or int(text) < least:
        raise LogRequestError(400, f'{name}: "{text}" must be a whole number of at least {least}')
    return int(text)


# --- which container ---


def container_names(pod: JsonObject) -> Iterator[str]:
    spec = pod.get("spec") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for each in spec.get(kind) or ():
            yield each["name"]


def container_status(pod: JsonObject, name: str) -> JsonObject | None:
    status = pod.get("status") or {}
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(kind) or ():
            if each["name"] == name:
                found: JsonObject = each
                return found
    return None


def running_container_id(pod: JsonObject, name: str) -> str:
    """The full id, with its scheme; empty where it does not run."""
    status = container_status(pod, name) or {}
    return str(status.get("containerID") or "") if (status.get("state") or {}).get("running") is not None else ""


def bare_id(container_id: str) -> str:
    """`containerd://abc` → `abc`."""
    return container_id.rpartition("://")[2]


def logged_container_id(pod: JsonObject, name: str, *, previous: bool) -> str:
    """The full id of the container whose log is meant; Refused with the kubelet's sentence where there is none."""
    own = pod["metadata"]["name"]
    if name not in container_names(pod):
        raise LogRequestError(404, f'container "{name}" not found in pod "{own}"')
    status = container_status(pod, name)
    if status is None:
        raise LogRequestError(400, f'container "{name}" in pod "{own}" is not available')
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    last_id = str((last or {}).get("containerID") or "")
    if previous:
        if not last_id:
            raise LogRequestError(400, f'previous terminated container "{name}" in pod "{own}" not found')
        return last_id
    if state.get("running") is not None:
        return str(status.get("containerID") or "")
    ended = state.get("terminated")
    if ended is not None or last is not None:
        # Where the next one could not be started, what is known is the log of the one before.
        found = str((ended or {}).get("containerID") or "") or last_id
        if not found:
            raise LogRequestError(400, f'container "{name}" in pod "{own}" is terminated')
        return found
    waiting = state.get("waiting")
    if waiting is None:
        raise LogRequestError(400, f'container "{name}" in pod "{own}" is waiting to start - no logs yet')
    reason = str(waiting.get("reason") or "")
    raise LogRequestError(400, f'container "{name}" in pod "{own}" is waiting to start: {_WAITING.get(reason, reason)}')


CHUNK = 1 << 16
LOOK_AGAIN_S = 0.5  # whether the container still runs; the log itself wakes us
_COMPRESSED = (".gz", ".tmp")


class _Shown:
    """Lines of the file → what is shown of them, until the limit is reached."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit_bytes
        self._at_line_start = True

    @property
    def full(self) -> bool:
        return self._left == 0

    def of(self, lines: Iterable[bytes]) -> bytes:
        options = self._options
        parts: list[bytes] = []
        for line in lines:
            found = parse(line)
            if found is None or found.stream not in options.streams:
                continue
            if options.since_ns is not None and (unix_nanos(found.time.decode()) or 0) < options.since_ns:
                continue
            if options.timestamps and self._at_line_start:  # the pieces of a long line are one line
                parts += (fixed_time(found.time), b" ")
            parts.append(found.content)
            self._at_line_start = not found.partial
            if not found.partial:
                parts.append(b"\n")
        text = b"".join(parts)
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text


class _Source:
    """One open file, read from an offset on in whole lines."""

    def __init__(self, fd: int, *, grows: bool) -> None:
        self.fd, self.offset = fd, 0
        self.size = os.fstat(fd).st_size
        self._grows = grows  # else what is written meanwhile is left out: a busy log would have no end
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
    """Never an empty piece. A log that is not there (yet) is an empty one."""
    shown = _Shown(options)
    if options.tail_lines == 0 and not options.follow:
        return
    with ExitStack() as stack:
        # Watched before it is opened, so that nothing happens unnoticed in between.
        stirring = stack.enter_context(watch.stirring(file.parent)) if options.follow else None
        sources = _sources(file, options, stack)
        for source in sources[:-1]:
            async for text in _read(source, shown):
                yield text
            if text := shown.of(source.unfinished()):
                yield text
        current = sources[-1] if sources else None
        while not shown.full:
            running = options.follow and is_running()  # asked first: then all that it wrote is read below
            if current is None and (fd := _opened(file, stack)) is not None:
                current = _Source(fd, grows=options.follow)
            moved = current is not None and options.follow and _has_successor(file, current.fd)
            if current is not None:
                async for text in _read(current, shown):
                    yield text
            if moved and current is not None:
                if text := shown.of(current.unfinished()):
                    yield text
                current = None
                continue
            if not running:
                if current is not None and (text := shown.of(current.unfinished())):
                    yield text
                return
            assert stirring is not None
            await stirring.wait(LOOK_AGAIN_S)


def last_lines(file: Path, lines: int = 80, most_bytes: int = 2048) -> str:
    """The end of a log, for a container that has left no other message (terminationMessagePolicy)."""
    options = LogOptions(tail_lines=lines)
    shown, end = _Shown(options), b""
    with ExitStack() as stack:
        for source in _sources(file, options, stack):
            while (found := source.lines()) is not None:
                end = (end + shown.of(found))[-most_bytes:]
            end = (end + shown.of(source.unfinished()))[-most_bytes:]
    return end.decode("utf-8", "replace")


async def _read(source: _Source, shown: _Shown) -> AsyncGenerator[bytes, None]:
    """To the end of the file, as it is now."""
    while not shown.full and (lines := source.lines()) is not None:
        if text := shown.of(lines):
            yield text
        await asyncio.sleep(0)


def _sources(file: Path, options: LogOptions, stack: ExitStack) -> list[_Source]:
    """The open files, oldest first, each from where it is to be read. The current one is the last, if it is there."""
    fd = _opened(file, stack)
    if fd is None:
        return []
    newest_first = [_Source(fd, grows=options.follow)]
    own = os.fstat(fd)
    for each in reversed(rotated_files(file)):
        older = _opened(each, stack)
        # It may have been moved away since it was opened: then it is in the list, too.
        if older is not None and not os.path.samestat(own, os.fstat(older)):
            newest_first.append(_Source(older, grows=False))
    chosen: list[_Source] = []
    left = options.tail_lines
    for source in newest_first:
        chosen.append(source)
        if options.since_ns is not None:
            source.offset = since_offset(source.fd, source.size, options.since_ns)
        if left is not None:
            offset, found = tail_offset(source.fd, source.size, left, options.streams)
            source.offset = max(offset, source.offset)
            left -= found
            if left == 0:
                break
        if source.offset:
            break
    return chosen[::-1]


def _opened(file: Path, stack: ExitStack) -> int | None:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    stack.callback(os.close, fd)
    return fd


def _has_successor(file: Path, fd: int) -> bool:
    """Is there another file by that name, with something in it? Until then the runtime may still write to this one."""
    try:
        found = os.stat(file, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return found.st_size > 0 and not os.path.samestat(found, os.fstat(fd))


def rotated_files(file: Path) -> list[Path]:
    """`0.log.20060102-150405` …, oldest first; compressed ones are not read."""
    try:
        names = os.listdir(file.parent)
    except FileNotFoundError:
        return []
    prefix = f"{file.name}."
    return [file.parent / name for name in sorted(names) if name.startswith(prefix) and not name.endswith(_COMPRESSED)]


def tail_offset(fd: int, size: int, count: int, streams: tuple[bytes, ...]) -> tuple[int, int]:
    """Where the last `count` lines of these streams begin, and how many there are (fewer: the file has no more)."""
    if count == 0 or size == 0:
        return size, 0
    every = len(streams) > 1
    at, rest, found, is_last = size, b"", 0, True
    while at > 0:
        begin = max(0, at - CHUNK)
        block = os.pread(fd, at - begin, begin) + rest
        end = len(block) - 1 if is_last and block.endswith(b"\n") else len(block)
        at, is_last = begin, False
        while (before := block.rfind(b"\n", 0, end)) >= 0:
            if every or _is_of(block[before + 1 : end], streams):
                found += 1
                if found == count:
                    return begin + before + 1, found
            end = before
        rest = block[:end]
    return 0, found + (every or _is_of(rest, streams))


def _is_of(line: bytes, streams: tuple[bytes, ...]) -> bool:
    found = parse(line)
    return found is not None and found.stream in streams


def since_offset(fd: int, size: int, since_ns: int) -> int:
    """A line's beginning before which nothing is as young as that; what follows is looked at line by line.

    Two streams are written side by side, so neighbours may be out of order: hence a piece more than needed.
    """
    old, young = 0, size
    while young - old > CHUNK:
        middle = (old + young) // 2
        line = _first_line(os.pread(fd, CHUNK, middle))
        at_ns = None if line is None else unix_nanos(line.partition(b" ")[0].decode("ascii", "replace"))
        if at_ns is None:
            break
        if at_ns < since_ns:
            old = middle
        else:
            young = middle
    start = max(0, old - CHUNK)
    if start == 0:
        return 0
    return start + os.pread(fd, CHUNK, start).find(b"\n") + 1


def _first_line(piece: bytes) -> bytes | None:
    """The first that begins in the piece and ends there."""
    begin = piece.find(b"\n") + 1
    end = piece.find(b"\n", begin)
    return piece[begin:end] if begin and end >= 0 else None
