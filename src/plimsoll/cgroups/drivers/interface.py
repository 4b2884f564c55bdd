"""The interface of every cgroup driver: read, make, write, remove, move, freeze and kill.

A driver has no policy. It gets a path as `rules.model.cgroup_names` spells it and the text of one file, writes it,
reads it back, and raises `CgroupError` with the operation, the path, the data and the kernel's errno. Reads are plain
calls on open directory fds; changes are `async`, because the systemd driver calls D-Bus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError
from plimsoll.rules.cgroups.steps import ObservedCgroup
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion

__all__ = ["CgroupDriver", "CgroupError", "CgroupGoneError"]


class CgroupDriver(Protocol):
    version: CgroupVersion
    name: DriverName
    simulated: bool

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        """The stripped texts of those `files` that exist; None where there is no such cgroup."""

    def texts(self, path: str, files: Iterable[str]) -> Mapping[str, str] | None:
        """As `read`, only the texts. On v1 only the hierarchies of these `files` are opened, so a cgroup that another
        hierarchy lacks is read as well."""

    def incomplete(self, path: str) -> list[str]:
        """v1: the directories that are missing, where a cgroup exists in some hierarchies only; otherwise empty."""

    def children(self, path: str) -> list[str]:
        """The names of the child cgroups, sorted; on v1 those of all hierarchies."""

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        """The pids in the cgroup; with `deep`, also in its descendants."""

    def has(self, file: str) -> str | None:
        """None where this kernel's cgroups have that file, otherwise the reason (controller missing, …)."""

    def mark(self, path: str, text: str) -> None:
        """Attach a text to the cgroup, if that is possible; it is gone with the cgroup."""

    def marked(self, path: str) -> str:
        """The text that `mark` has attached, or empty."""

    async def make(self, path: str, *, pid: int | None = None) -> None:
        """Make a cgroup in an existing parent; EEXIST where it exists. A systemd scope needs its first pid."""

    async def write(self, path: str, file: str, value: str) -> None:
        """Write one value, read it back and compare it, apart from the kernel's rounding."""

    async def remove(self, path: str) -> None:
        """Remove an empty cgroup without children; CgroupGoneError where it does not exist."""

    async def move(self, path: str, pid: int) -> None:
        """Move the process into the cgroup, in every hierarchy."""

    async def freeze(self, path: str, *, frozen: bool) -> None:
        """Freeze or thaw the cgroup and its descendants; returns when the kernel confirms it."""

    async def kill(self, path: str) -> None:
        """Send SIGKILL to all processes in it and below, also to those that fork meanwhile; returns when all ended."""
