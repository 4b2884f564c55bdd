"""Watch streams (05 B6 Watch protocol, 06 E4): one JSON line per change, from any version on.

Every watcher gets the same `Change` from the store. What is computed from it for one watcher (the fields of selectors,
the encoded line) is kept in `Change.shared` for the others, so a change is encoded once for all watchers. With a `Wire`
the line is written to the connection directly after the commit, without waking the watcher's task. An object that
starts to match a selector is ADDED for that watcher, one that stops is DELETED in its last matching state.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from functools import partial

from plimsoll.api.handlers.list import DIVIDED_BY, candidates, parse_version
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, prefix
from plimsoll.api.machinery.encoding import encoded
from plimsoll.api.machinery.exchange import Wire, framed
from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.api.machinery.negotiate import MediaType
from plimsoll.api.machinery.request_info import ListOptions, list_options
from plimsoll.api.machinery.rounds import Pace
from plimsoll.api.machinery.selectors import Selectable, Selection, field_text, selectable
from plimsoll.api.machinery.shared_lines import shared_with
from plimsoll.api.machinery.status import StatusError, expired, internal
from plimsoll.api.tables.views import Viewer, bookmark, whole
from plimsoll.store.errors import ExpiredError
from plimsoll.store.feed import Push, Watch
from plimsoll.store.records import Change, Record

BOOKMARK_EVERY_S = 60.0
LAST_BOOKMARK_S = 2.0  # before the end
SHORTEST_S, LONGEST_S = 1800, 3600  # of a watch that names no timeout
_PIECE_BYTES = 32 * 1024


class WatchStream:
    """One watcher. The constructor raises every error that comes before the stream starts."""

    def __init__(
        self,
        cluster: Cluster,
        call: ApiCall,
        form: MediaType,
        after_initial: Callable[[], None] = lambda: None,
    ) -> None:
        info = call.info
        self._cluster = cluster
        self._info = info
        self._pace = call.pace
        self._after_initial = after_initial
        self._resource: ApiResource = info.resource
        self._options: ListOptions = list_options(info)
        self._chosen = call.selection
        self._prefix = prefix(info.resource, info.namespace)
        self._viewer: Viewer | None = None
        include = info.option("includeObject")
        if form.view:
            self._viewer = Viewer(info.resource, form, include, cluster.profile.name)
        self._form = (info.resource.group_version, form.view, form.view_version, include)
        self._has_columns = False  # a Table's columns are sent once
        try:
            self._after = parse_version(self._options.resource_version or "0")
        except StatusError as error:
            raise internal(error.message) from None

    async def lines(self, wire: Wire | None = None) -> AsyncGenerator[bytes, None]:
        """Bytes to send, each a number of whole lines; ends with the watch. What `wire` accepts is not among them."""
        loop = asyncio.get_running_loop()
        given = self._options.timeout_s
        timeout_s = float(given) if given else random.uniform(SHORTEST_S, LONGEST_S)
        end = loop.time() + timeout_s
        try:
            async for piece in self._initial():
                yield piece
            self._after_initial()
            field = DIVIDED_BY.get(self._resource.storage, "")
            watch = self._cluster.store.watch(self._prefix, self._after, self._chosen.required(field) or "")
            push = None if wire is None else self._pushing(wire)
            # Periodic bookmarks, and one shortly before the end.
            marks = [loop.time() + BOOKMARK_EVERY_S, end - LAST_BOOKMARK_S]
            while True:
                due = min([*marks, end] if self._options.bookmarks else [end])
                try:
                    async with asyncio.timeout_at(due):
                        changes = await watch.changes(push)
                except TimeoutError:
                    if due >= end:
                        return
                    marks = [due + BOOKMARK_EVERY_S, *(mark for mark in marks[1:] if mark > due)]
                    yield self._bookmark(watch, ends_initial=False)
                    continue
                if not changes:
                    return
                for piece in _pieces(self._change_lines(changes), self._pace):
                    if piece:
                        yield piece
                    if self._pace.is_due():
                        await self._pace.pause()
        except ExpiredError as error:
            yield b'{"type":"ERROR","object":%s}\n' % encoded(expired(str(error)).status())

    # --- initial events ---

    async def _initial(self) -> AsyncIterator[bytes]:
        """ADDED for every object, where the resourceVersion requires it, and the bookmark at their end."""
        options, store = self._options, self._cluster.store
        if options.send_initial is None:
            wants = options.resource_version in ("", "0")
        else:
            wants = options.send_initial
        if options.send_initial and self._after > store.version:
            watch = store.watch(self._prefix, store.version)
            while self._after > store.version and await watch.changes():
                pass
        if not wants:
            if options.resource_version in ("", "0"):
                self._after = store.version
            return
        version, records = candidates(self._cluster, self._info, self._chosen)
        self._after = version
        pace = self._pace
        chosen = self._chosen
        lines = (b"" if chosen and not chosen.matches(record.body) else self._added(record) for record in records)
        for piece in _pieces(lines, pace):
            if piece:
                yield piece
            if pace.is_due():
                await pace.pause()
        if options.send_initial and options.bookmarks:
            yield self._bookmark(None, ends_initial=True)

    def _added(self, record: Record) -> bytes:
        return self._line("ADDED", self._object(record.body, columns=self._columns_due()))

    def _bookmark(self, watch: Watch | None, *, ends_initial: bool) -> bytes:
        version = self._after if watch is None else watch.version
        if self._viewer is None:
            shown = bookmark(self._resource, version, ends_initial=ends_initial)
        else:
            shown = self._viewer.bookmark(version, ends_initial=ends_initial, columns=self._columns_due())
        return self._line("BOOKMARK", shown)

    # --- changes ---

    def _pushing(self, wire: Wire) -> Push:
        def push(changes: list[Change]) -> bool:
            if not wire.is_open:
                return False
            pieces = list(self._change_lines(changes, is_framed=True))
            if pieces:
                wire.push(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            return True

        return push

    def _change_lines(self, changes: list[Change], *, is_framed: bool = False) -> Iterator[bytes]:
        for change in changes:
            kind = event_kind(change, self._chosen)
            if not kind:
                continue
            shared = shared_with(change)
            columns = self._viewer is not None and self._columns_due()
            where = (kind, is_framed, columns, self._form)
            encoded = shared.lines.get(where)
            if encoded is None:
                line = self._line(kind, self._object(_shown(change, kind), columns=columns))
                encoded = framed(line) if is_framed else line
                self._cluster.shared_lines.keep(shared, where, encoded)
            yield encoded

    def _object(self, body: bytes, *, columns: bool) -> bytes:
        if self._viewer is None:
            return whole(self._resource, body)
        return self._viewer.one(body, self._cluster.clock(), columns=columns)

    def _columns_due(self) -> bool:
        due, self._has_columns = not self._has_columns, True
        return due

    def _line(self, kind: str, shown: bytes) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), shown)


def _pieces(lines: Iterable[bytes], pace: Pace) -> Iterator[bytes]:
    """Lines together, up to a piece that is worth a packet or until other work is due: what a client does not read
    waits here, once for each of them."""
    parts: list[bytes] = []
    size = 0
    for line in lines:
        parts.append(line)
        size += len(line)
        if size >= _PIECE_BYTES or pace.is_due():
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def divide_watches(cluster: Cluster) -> None:
    """A fleet has thousands of watches that select by one of these fields: a change is offered to the few it concerns.

    kube-apiserver has the same indexes. Lists by name need none.
    """
    for storage, field in DIVIDED_BY.items():
        where = prefix(stored_resource(storage), "")
        if field == "metadata.name":
            cluster.store.divide(where, _name_of)
        else:
            member = f'"{field.rpartition(".")[2]}":'.encode()
            value_of = partial(_value_of, storage, field, member)
            cluster.store.divide(where, partial(_values_of, storage, field), value_of)


def _name_of(change: Change) -> tuple[str]:
    return (change.key.rpartition("/")[2],)


def _value_of(storage: str, field: str, member: bytes, body: bytes) -> str:
    """Without its member a field is empty: that of a pod that is not bound yet."""
    return field_text(selectable(storage, body), field) if member in body else ""


def _values_of(storage: str, field: str, change: Change) -> set[str]:
    return {field_text(state, field) for state in _states(change, storage) if state is not None}


def _states(change: Change, storage: str) -> tuple[Selectable | None, Selectable | None]:
    """Before and after; a deleted object has no state after."""
    shared = shared_with(change)
    if change.before is not None and shared.before is None:
        shared.before = selectable(storage, change.before)
    if change.kind != "DELETED" and shared.after is None:
        shared.after = selectable(storage, change.body)
    return shared.before, shared.after


def event_kind(change: Change, chosen: Selection) -> str:
    """The type of event for a watcher with this selector; empty where there is none."""
    if not chosen:
        return change.kind
    before, after = _states(change, chosen.storage)
    was = before is not None and chosen.matches_selectable(before)
    if after is not None and chosen.matches_selectable(after):
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else ""


def _shown(change: Change, kind: str) -> bytes:
    """The new state; for an object that stopped matching, its last matching state with the new version."""
    if kind == "DELETED" and change.kind != "DELETED" and change.before is not None:
        before, after = (b'"resourceVersion":"%d"' % version for version in (change.before_version, change.version))
        return change.before.replace(before, after, 1)
    return change.body
