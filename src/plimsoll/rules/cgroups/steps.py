"""The operations on a cgroup tree, as values: planned by `reconcile`, executed by a driver.

A path comes from `rules.model.cgroup_names` and is relative to the cgroup mounts: `/kubepods/burstable/pod<uid>`. On v1
it means the directory of that name in every hierarchy in use. A value is the text for one control file.
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
    was: str | None = None  # the old value; None in a cgroup that this plan creates


class Remove(msgspec.Struct, frozen=True, tag="remove", tag_field="do"):
    """Only an empty cgroup can be removed; the caller has terminated its processes first."""

    path: str


Step = Make | Write | Remove


class ObservedCgroup(msgspec.Struct, frozen=True):
    """One existing cgroup. A file that this kernel lacks is not in `files`."""

    files: Mapping[str, str]
    inode: int = 0


Snapshot = Mapping[str, ObservedCgroup]  # path → cgroup; a path that is missing does not exist
