"""Open readers of cgroups, one for each cgroup, within the limit of open files."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from plimsoll.linux.cgroup_files import CgroupGoneError


class Reader(Protocol):
    def close(self) -> None: ...


_Reader = TypeVar("_Reader", bound=Reader)
_Reading = TypeVar("_Reading")


class OpenReaders(Generic[_Reader]):
    """Beyond its share of the process's file descriptors, a reader is opened for each reading."""

    def __init__(self, share: float, descriptors: int) -> None:
        """`descriptors`: how many one reader needs at most."""
        self._open: dict[str, _Reader] = {}
        self._most = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * share) // descriptors

    def reading(self, path: str, make: Callable[[], _Reader], read: Callable[[_Reader], _Reading]) -> _Reading | None:
        """None where there is no such cgroup."""
        try:
            reader = self._open.get(path)
            if reader is not None:
                return read(reader)
            reader = make()
            if len(self._open) < self._most:
                self._open[path] = reader
                return read(reader)
            try:
                return read(reader)
            finally:
                reader.close()
        except CgroupGoneError:
            self._drop(path)
            return None

    def keep_only(self, paths: Iterable[str]) -> None:
        for path in self._open.keys() - set(paths):
            self._drop(path)

    def close(self) -> None:
        self.keep_only(())

    def _drop(self, path: str) -> None:
        reader = self._open.pop(path, None)
        if reader is not None:
            reader.close()
