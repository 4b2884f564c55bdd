"""The memory lines that hold in an observed tree: protection capped and divided, limits of ancestors applied.

The rule is that of `contention`, on values read from the kernel in place of desired ones. Paths tell who is above whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile
from plimsoll.rules.explain.contention import with_effective


class Lines(msgspec.Struct, frozen=True):
    """min and low: 0 is no protection; high and max: None is no limit."""

    min_bytes: int = 0
    low_bytes: int = 0
    high_bytes: int | None = None
    max_bytes: int | None = None

    def named(self) -> Iterator[tuple[str, int]]:
        """The lines that are set."""
        for name in ("min", "low", "high", "max"):
            if amount := getattr(self, f"{name}_bytes"):
                yield name, amount


NO_LINES = Lines()


def effective_lines(declared: Mapping[str, Lines]) -> dict[str, Lines]:
    """By path. A cgroup whose parent is not in `declared` is a root: nothing above it restricts it."""
    below: dict[str, list[str]] = {}
    roots = []
    for path in sorted(declared):
        above = path.rpartition("/")[0]
        if above in declared:
            below.setdefault(above, []).append(path)
        else:
            roots.append(path)
    tree = Cgroup("node", "", "/", children=tuple(_cgroup(path, declared, below) for path in roots))
    if any(lines.min_bytes or lines.low_bytes for lines in declared.values()):  # otherwise nothing is divided
        tree = with_effective(tree, 1)
    found: dict[str, Lines] = {}
    _collect(tree.children, declared, NO_LINES, found)
    return found


def _cgroup(path: str, declared: Mapping[str, Lines], below: Mapping[str, list[str]]) -> Cgroup:
    lines = declared[path]
    files = (DesiredFile("memory.min", lines.min_bytes), DesiredFile("memory.low", lines.low_bytes))
    children = tuple(_cgroup(child, declared, below) for child in below.get(path, ()))
    return Cgroup("container", path, path, files, children=children)


def _collect(cgroups: Iterable[Cgroup], declared: Mapping[str, Lines], above: Lines, found: dict[str, Lines]) -> None:
    for cgroup in cgroups:
        own, effective = declared[cgroup.path], cgroup.effective
        lines = Lines(
            effective.memory_min_bytes if effective else 0,
            effective.memory_low_bytes if effective else 0,
            _lower(own.high_bytes, above.high_bytes),
            _lower(own.max_bytes, above.max_bytes),
        )
        found[cgroup.path] = lines
        _collect(cgroup.children, declared, lines, found)


def _lower(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def seconds_to(line_bytes: int, used_bytes: int, slope_bytes_s: float) -> float | None:
    """When the line is reached at the present slope; None if never, or if it is passed already.

    100Mi below a line, growing by 2Mi a second: 50 s.
    """
    if slope_bytes_s <= 0 or used_bytes >= line_bytes:
        return None
    return (line_bytes - used_bytes) / slope_bytes_s


class Slope(msgspec.Struct, frozen=True):
    """Two readings that are at least `OVER_S` apart where possible; less is noise."""

    older_s: float
    older_bytes: int
    newer_s: float
    newer_bytes: int

    def read(self, at_s: float, amount: int) -> tuple[Slope, float | None]:
        """The next state, and bytes per second; None without enough time between the readings."""
        after = self
        if at_s < self.newer_s:  # the clock was set back
            return Slope(at_s, amount, at_s, amount), None
        older_s, older_bytes = self.older_s, self.older_bytes
        if at_s - self.newer_s >= OVER_S:
            older_s, older_bytes = self.newer_s, self.newer_bytes
            after = Slope(older_s, older_bytes, at_s, amount)
        if at_s - older_s < LEAST_S:
            return after, None
        return after, (amount - older_bytes) / (at_s - older_s)


OVER_S, LEAST_S = 10.0, 1.0
