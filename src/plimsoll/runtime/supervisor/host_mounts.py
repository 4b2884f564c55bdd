"""What a container takes from the host's mount namespace before it has its own: volumes with propagation, cgroup v1."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from plimsoll.linux import mounts
from plimsoll.runtime.supervisor.plan import PRIVATE, TWO_WAY, Bind
from plimsoll.runtime.supervisor.rootfs import is_below, unescaped

_NO_CONTROLLER = ("rw", "ro", "xattr", "clone_children", "noprefix")


def shared_trees(binds: Iterable[Bind], flags: int) -> tuple[int, ...]:
    """Of the binds with propagation; `flags` for each mount. OSError where their mounts have no peers."""
    trees = []
    for bind in binds:
        if bind.propagation == PRIVATE:
            continue
        if not is_shared(bind.host_path, two_way=bind.propagation == TWO_WAY):
            reason = f"path {bind.host_path} is not in a shared mount, which {bind.propagation} needs"
            raise OSError(errno.EINVAL, reason)
        tree = mounts.clone_tree(bind.host_path, recursive=True)
        how = mounts.SAME if bind.propagation == TWO_WAY else mounts.SLAVE
        mounts.restrict_tree(tree, flags | (mounts.RDONLY if bind.read_only else 0), propagation=how)
        trees.append(tree)
    return tuple(trees)


def is_shared(path: str, *, two_way: bool) -> bool:
    """Whether the mount that contains the path has peers (or, for one direction, a master)."""
    real, best, fields = os.path.realpath(path), "", ""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.partition(" - ")[0].split(" ")
            point = unescaped(words[4])
            if is_below(real, (point,)) and len(point) >= len(best):
                best, fields = point, " ".join(words[6:])
    return "shared:" in fields or (not two_way and "master:" in fields)


class V1Hierarchies:
    """Of this machine. Those of a set of devices are read once: what a hierarchy is does not change while it has
    cgroups, and the mounts of a node are many."""

    def __init__(self) -> None:
        self._known: dict[frozenset[int], tuple[tuple[str, str], ...]] = {}

    def of(self, directories: Iterable[int]) -> tuple[tuple[str, str], ...]:
        """The hierarchies in which a container has a cgroup (open directories, one for each): the name of each below
        /sys/fs/cgroup, and its controllers as options of a mount."""
        devices = frozenset(os.fstat(fd).st_dev for fd in directories)
        if devices not in self._known:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                self._known[devices] = _hierarchies(devices, file)
        return self._known[devices]


def _hierarchies(numbers: Iterable[int], mountinfo: Iterable[str]) -> tuple[tuple[str, str], ...]:
    devices = {f"{os.major(number)}:{os.minor(number)}" for number in numbers}
    found: dict[str, tuple[str, str]] = {}
    for line in mountinfo:
        place, _, what = line.partition(" - ")
        words, (kind, _, options) = place.split(" "), what.rstrip("\n").split(" ")[:3]
        if kind == "cgroup" and words[2] in devices and words[2] not in found:
            kept = [each for each in options.split(",") if each not in _NO_CONTROLLER]
            kept = [each for each in kept if not each.startswith("release_agent=")]
            found[words[2]] = os.path.basename(words[4]), ",".join(kept)
    return tuple(found.values())
