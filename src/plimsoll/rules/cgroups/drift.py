"""The difference between a live tree and the desired one: `want …, have … (reason)` for every file that differs.

Containers have no ids in a desired tree, so they are matched by name among the pod's live containers. A pod without a
uid cannot be matched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from plimsoll.rules.cgroups.desired import Cgroup
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.cgroups.rounding import kept, same_value
from plimsoll.rules.model.cgroup_names import UNKNOWN_ID, UNKNOWN_UID


class Expected(msgspec.Struct, frozen=True):
    """One cgroup of the desired tree. `path` is None if it is not known."""

    cgroup: Cgroup
    path: str | None
    below: str  # the nearest known path above it


def expected(tree: Cgroup, live: Iterable[str], container_names: Mapping[str, str]) -> list[Expected]:
    """Every cgroup of a desired tree; `container_names` is path → name of the live containers."""
    children: dict[str, dict[str, str]] = {}
    for path in live:
        if path in container_names:
            children.setdefault(parent_path(path), {})[container_names[path]] = path
    return list(_expected(tree, "/", children))


def _expected(cgroup: Cgroup, below: str, children: Mapping[str, Mapping[str, str]]) -> Iterator[Expected]:
    path: str | None = cgroup.path
    if UNKNOWN_UID in cgroup.path:
        path = None
    elif UNKNOWN_ID in cgroup.path:
        path = children.get(parent_path(cgroup.path), {}).get(cgroup.name)
    if cgroup.level != "node":
        yield Expected(cgroup, path, below)
    if path is not None:
        for child in cgroup.children:
            yield from _expected(child, path, children)


def drift(
    wanted: Iterable[Expected],
    seen: Mapping[str, Mapping[str, str]],
    lacking: Callable[[str], str | None],
    page_size: int = 4096,
) -> dict[str, list[str]]:
    """path → differences. `seen` has the files of each live path; `lacking` returns why this machine lacks a file.

    A missing cgroup is reported at its parent. A file that the machine lacks is reported once.
    """
    notes: dict[str, list[str]] = {}
    reported: set[str] = set()
    for item in wanted:
        cgroup, path = item.cgroup, item.path
        if path is None or path not in seen:
            why = " (it has no uid yet)" if cgroup.level == "pod" and path is None else ""
            if item.below in seen:
                notes.setdefault(item.below, []).append(f"want {cgroup.level} {cgroup.name}, have none{why}")
            continue
        for file in cgroup.files:
            value, have = str(file.value), seen[path].get(file.name)
            if have is None:
                reason = lacking(file.name)
                if file.name not in reported:
                    shown = reason or "the file is not in this cgroup"
                    notes.setdefault(path, []).append(f"want {file.name} {value}, have none ({shown})")
                if reason is not None:
                    reported.add(file.name)
            elif not same_value(file.name, value, have, page_size):
                shown = kept(file.name, have, page_size)
                notes.setdefault(path, []).append(f"want {file.name} {value}, have {shown}")
    return notes
