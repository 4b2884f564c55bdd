"""The kernel's notifications about cgroups (inotify, eventfd, PSI) as one asyncio stream of keys to read again.

    async with CgroupWatcher[str]() as watcher:
        watcher.file_changes("web", directory, "memory.events", "cgroup.events")
        watcher.pressure("node", "memory", "some", 100_000, 1_000_000)
        async for keys in watcher:
            ...  # read the state of each of these again

The caller chooses the keys; several sources may share one. A notification does not say what happened: the reader reads
the state, which is right also when events were merged, lost or early. A source that only reports changes fires its key
once when it is added, so that the first read comes after the registration. Nothing here starts a task or keeps a
cgroup's directory open; `forget` and the end of the `async with` release all kernel resources.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable
from typing import Generic, Self, TypeVar

from plimsoll.linux import eventfd, psi
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, Directory
from plimsoll.linux.inotify import (
    IN_CLOSE_WRITE,
    IN_DELETE,
    IN_MASK_ADD,
    IN_MODIFY,
    IN_ONLYDIR,
    IN_Q_OVERFLOW,
    Inotify,
    InotifyEvent,
)

Key = TypeVar("Key", bound=Hashable)
_ANY_FILE = "*"  # in place of a name; no file of a cgroup is called so
_NO_VALUES = frozenset({"cgroup.procs", "cgroup.threads", "tasks", "cgroup.event_control", "memory.reclaim"})


class CgroupWatcher(Generic[Key]):
    """An asynchronous iterator over sets of keys, for one reader; created and used inside a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fired: set[Key] = set()
        self._wake = asyncio.Event()
        self._closed = False
        self._closers: dict[Key, list[Callable[[], None]]] = {}
        self._inotify: Inotify | None = None  # one for all keys: a user may have 128 instances
        self._keys: dict[tuple[int, str], dict[Key, int]] = {}  # (watch, name in it) → key → count
        self._uses: dict[int, int] = {}  # watch → number of keys and names that need it

    # --- the stream ---

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> frozenset[Key]:
        await self._wake.wait()
        if self._closed:
            raise StopAsyncIteration
        self._wake.clear()
        fired, self._fired = frozenset(self._fired), set()
        return fired

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream, also for a reader that waits."""
        for key in list(self._closers):
            self.forget(key)
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None
        self._closed = True
        self._wake.set()

    def forget(self, key: Key) -> None:
        """Remove the sources of this key and its unread events."""
        for closer in self._closers.pop(key, ()):
            closer()
        self._fired.discard(key)
        if not self._fired:
            self._wake.clear()

    def fire(self, key: Key) -> None:
        """Have the reader read this key again; also for the caller's own reasons: a timer, a request."""
        self._fired.add(key)
        self._wake.set()

    # --- sources ---

    def file_changes(self, key: Key, directory: Directory, *files: str) -> None:
        """v2: changes of `memory.events`, `cgroup.events` …, and the removal of the cgroup."""
        here = f"/proc/self/fd/{directory.fd}"
        name = os.path.basename(os.readlink(here))
        inotify = self._one_inotify()
        added: list[tuple[int, str]] = []
        try:
            for file in files:
                added.append((inotify.add(f"{here}/{file}", IN_MODIFY), ""))
            # The files of a removed cgroup report nothing, but its parent does, which may be watched already: MASK_ADD.
            added.append((inotify.add(f"{here}/..", IN_DELETE | IN_ONLYDIR | IN_MASK_ADD), name))
        except OSError as error:
            for watch, _ in added:
                if watch not in self._uses:
                    inotify.remove(watch)
            kind = CgroupError if directory.alive() else CgroupGoneError
            raise kind("watch", directory.path, " ".join(files), error.errno or 0) from error
        for watch, entry in added:
            self._add(key, watch, entry)
        self.fire(key)

    def writes(self, key: Key, directory: Directory) -> None:
        """v1 and v2: a process has written a file of this cgroup and closed it. One watch for all its files.

        The kernel's own notifications (`memory.events`, …) are modifications without a close, and do not fire.
        """
        try:
            watch = self._one_inotify().add(
                f"/proc/self/fd/{directory.fd}/.", IN_CLOSE_WRITE | IN_ONLYDIR | IN_MASK_ADD
            )
        except OSError as error:
            kind = CgroupError if directory.alive() else CgroupGoneError
            raise kind("watch", directory.path, "", error.errno or 0) from error
        self._add(key, watch, _ANY_FILE)
        self.fire(key)

    def usage_threshold(self, key: Key, directory: Directory, usage_bytes: int) -> None:
        """v1: memory usage crosses the threshold in either direction; also fires when the cgroup is removed."""
        self._eventfd(key, eventfd.usage_threshold(directory, usage_bytes))

    def out_of_memory(self, key: Key, directory: Directory) -> None:
        """v1: the cgroup, or one below it, is out of memory; also fires when it is removed."""
        self._eventfd(key, eventfd.out_of_memory(directory))

    def pressure(
        self,
        key: Key,
        resource: psi.Resource,
        scope: psi.Scope,
        stall_us: int,
        window_us: int,
        *,
        directory: Directory | None = None,
    ) -> str:
        """Stalls on the whole machine or in one cgroup. Returns a note where the kernel accepted another window."""
        trigger = psi.trigger(resource, scope, stall_us, window_us, directory=directory)

        def fired() -> None:
            trigger.clear()
            self.fire(key)

        self._reader(key, trigger.fileno(), fired, trigger.close)
        self.fire(key)
        return trigger.note

    # --- registration ---

    def _eventfd(self, key: Key, fd: int) -> None:
        def fired() -> None:
            if eventfd.clear(fd):
                self.fire(key)

        self._reader(key, fd, fired, lambda: os.close(fd))
        self.fire(key)

    def _reader(self, key: Key, fd: int, fired: Callable[[], None], close: Callable[[], None]) -> None:
        def closer() -> None:
            self._loop.remove_reader(fd)
            close()

        self._loop.add_reader(fd, fired)
        self._closers.setdefault(key, []).append(closer)

    def _one_inotify(self) -> Inotify:
        if self._inotify is None:
            self._inotify = Inotify()
            self._loop.add_reader(self._inotify.fileno(), self._on_inotify)
        return self._inotify

    def _add(self, key: Key, watch: int, name: str) -> None:
        keys = self._keys.setdefault((watch, name), {})
        keys[key] = keys.get(key, 0) + 1
        self._uses[watch] = self._uses.get(watch, 0) + 1
        self._closers.setdefault(key, []).append(lambda: self._drop(key, watch, name))

    def _drop(self, key: Key, watch: int, name: str) -> None:
        keys = self._keys[watch, name]
        keys[key] -= 1
        if keys[key] == 0:
            del keys[key]
        if not keys:
            del self._keys[watch, name]
        self._uses[watch] -= 1
        if self._uses[watch] == 0:
            del self._uses[watch]
            if self._inotify is not None:
                self._inotify.remove(watch)

    def _on_inotify(self) -> None:
        assert self._inotify is not None
        for event in self._inotify.read():
            for key in self._keys_of(event):
                self.fire(key)

    def _keys_of(self, event: InotifyEvent) -> list[Key]:
        if event.mask & IN_Q_OVERFLOW:
            return [key for keys in self._keys.values() for key in keys]
        keys = list(self._keys.get((event.watch, event.name), ()))
        if event.mask & IN_CLOSE_WRITE and event.name not in _NO_VALUES:
            keys += self._keys.get((event.watch, _ANY_FILE), ())
        return keys
