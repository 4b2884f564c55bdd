"""The few things that can be done to a cgroup tree, as values: decided by `reconcile`, carried out by a driver.

A path is the one that `rules.model.cgroup_names` spells, below the cgroup mounts: `/kubepods/burstable/pod<uid>`. On v1
it stands for the directory of that name in every hierarchy in use. A value is the text for one control file, as the
kernel takes it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Make(msgspec.Struct, frozen=True, tag="make", tag_field="do"):
    path: str


class Write(msgspec.Struct, frozen=True, tag="write", tag_field="do"):
    path: str
    file: str
    value: str
    was: str | None = None  # what stood there; None in a cgroup that this plan makes


class Remove(msgspec.Struct, frozen=True, tag="remove", tag_field="do"):
    """Only an empty cgroup can be removed; whoever plans this has ended its processes first."""

    path: str


Step = Make | Write | Remove


class ObservedCgroup(msgspec.Struct, frozen=True):
    """One cgroup as it was found. A file that this kernel does not have is not in `files`."""

    files: Mapping[str, str]
    inode: int = 0


Snapshot = Mapping[str, ObservedCgroup]  # path → what is there; a path that is missing does not exist
