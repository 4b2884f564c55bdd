"""What every cgroup driver can do: look, make, write, remove, move, freeze and kill.

A driver has no policy. It is given a path as `rules.model.cgroup_names` spells it and one file's text at a time, does
just that, checks by reading back, and raises `CgroupError` with the operation, the path, the data and the kernel's
errno. Looking is plain calls on kept directory fds; changing is `async`, because systemd is asked over D-Bus.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        """Those of `files` that exist there, with their text stripped; None where there is no such cgroup."""

    def children(self, path: str) -> list[str]:
        """Names of the cgroups directly below, sorted; on v1 those in any hierarchy. Empty where there is none."""

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        """Pids in the cgroup, with `deep` those of everything below it too."""

    def has(self, file: str) -> str | None:
        """None where cgroups of this kernel have that file, else the reason why not (controller missing, …)."""

    async def make(self, path: str, *, pid: int | None = None) -> None:
        """A new cgroup in an existing parent; fails with EEXIST where it is there. A systemd scope needs its pid."""

    async def write(self, path: str, file: str, value: str) -> None:
        """One value into one file, read back and compared (up to the kernel's own rounding)."""

    async def remove(self, path: str) -> None:
        """An empty cgroup without children; CgroupGone where it is not there."""

    async def move(self, path: str, pid: int) -> None:
        """The process into the cgroup, in every hierarchy."""

    async def freeze(self, path: str, *, frozen: bool) -> None:
        """Stop or continue everything below; returns when the kernel says it is so."""

    async def kill(self, path: str) -> None:
        """SIGKILL for everything below, race-free against forks; returns when nothing lives there any more."""
