"""Prints a live cgroup tree: one row per cgroup, with as many columns as fit.

Lines are not wrapped. On a narrow terminal, the least important columns are dropped first (the bar still marks min, low
and high), then the bar is shortened, then long names. Without a terminal, all columns are printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from plimsoll.cli.terminal import CLASS_COLOURS, Paint, display_width, inert
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.cgroups.view import BAR_MARKS, Branch, MemoryUsageView, Standing, bar, scales, throttled_percent

Piece = tuple[str, tuple[str, ...]]  # text and styles
Cell = list[Piece]
Name = tuple[str, str, tuple[str, ...]]  # tree lines, name, styles
NOTHING: Cell = [("-", ("dim",))]
GAP = "  "
BAR_WIDTHS = (24, 16, 10)
FEWEST_NAME_COLUMNS = 24
LAST_COLUMNS = 60  # names are not cut below this width
LEAST_PRESSURE = 0.5  # percent
FULL = 90  # percent of the limit at which the bar changes colour

_UID = re.compile(r"^(pod [0-9a-f]{8})[0-9a-f-]+", re.ASCII)
_NAME_STYLES: dict[str, tuple[str, ...]] = {
    "pods": ("bold",),
    "class": ("bold",),
    "pod": ("bold",),
    "container": ("cyan",),
    "sandbox": ("dim",),
    "monitor": ("dim",),
}


class TreeColumn(msgspec.Struct, frozen=True):
    title: str
    cell: Callable[[Branch, Standing], Cell]
    keep: int  # the column with the lowest number is dropped first
    right: bool = True


class Picture(msgspec.Struct, frozen=True):
    """What to print. `notes` by path are printed below the row."""

    branches: Sequence[Branch]
    standings: Mapping[str, Standing]
    machine_bytes: int
    notes: Mapping[str, Sequence[str]] = {}
    with_tasks: bool = False
    version: int = 2  # of the cgroups


def lines(picture: Picture, paint: Paint, screen: int) -> Iterator[str]:
    """`screen` is the width of the terminal; 0: no terminal, print all columns."""
    standing_of = picture.standings
    rows = [(branch, standing_of.get(branch.path, Standing())) for branch in picture.branches]
    columns = _columns(picture)
    cells = {column.title: [column.cell(*row) for row in rows] for column in columns}
    # Leave out empty columns.
    columns = [column for column in columns if any(cell != NOTHING for cell in cells[column.title])]
    widths = {
        column.title: max(len(column.title), *(_width(cell) for cell in cells[column.title])) for column in columns
    }
    names = [_name(branch) for branch, _ in rows]
    bar_width, name_width = BAR_WIDTHS[0], max(display_width(lead + name) for lead, name, _ in names)
    if screen:
        columns, bar_width, name_width = _fitted(columns, widths, names, screen)
    full_scale = scales(picture.branches, standing_of, picture.machine_bytes)
    with_bar = bar_width > 0 and any(standing.memory is not None for _, standing in rows)
    heads = ["CGROUP".ljust(name_width)]
    if with_bar:
        heads.append("MEMORY".ljust(bar_width))
    heads += [
        column.title.rjust(widths[column.title]) if column.right else column.title.ljust(widths[column.title])
        for column in columns
    ]
    yield paint(GAP.join(heads).rstrip(), "dim")
    for index, (branch, standing) in enumerate(rows):
        lead, name, styles = names[index]
        parent = index + 1 < len(rows) and len(rows[index + 1][0].last) > len(branch.last)
        name = _fitted_name(name, name_width - len(lead))
        parts = [paint(lead, "dim") + paint(name, *styles) + " " * (name_width - display_width(lead + name))]
        if with_bar:
            parts.append(_bar(branch, standing.memory, full_scale[branch.path], bar_width, paint))
        for column in columns:
            parts.append(_aligned(cells[column.title][index], widths[column.title], column.right, paint))
        yield GAP.join(parts).rstrip()
        for note in picture.notes.get(branch.path, ()):
            yield paint(_below(branch, parent), "dim") + paint(inert(note), "yellow")
    if with_bar and screen and any(_marked(standing.memory) for _, standing in rows):
        yield paint(GAP.join(f"{on_used} {name}" for name, (on_used, _) in BAR_MARKS.items()), "dim")


def _fitted(
    columns: list[TreeColumn], widths: Mapping[str, int], names: Sequence[Name], screen: int
) -> tuple[list[TreeColumn], int, int]:
    """Columns, the width of the bar and of names. Names get the rest, but not less than makes them useful."""
    longest = max(display_width(lead + name) for lead, name, _ in names)
    enough = max(display_width(lead + _short(name)) for lead, name, _ in names)
    kept = list(columns)
    while True:
        taken = sum(widths[column.title] + len(GAP) for column in kept)
        for bar_width in BAR_WIDTHS:
            left = screen - taken - bar_width - len(GAP)
            if left >= enough or (left >= FEWEST_NAME_COLUMNS and bar_width == BAR_WIDTHS[-1] and not kept):
                return kept, bar_width, min(longest, left)
        if not kept:
            return [], 0, max(1, min(longest, screen))
        first = min(column.keep for column in kept)
        if first >= LAST_COLUMNS and screen - taken - BAR_WIDTHS[-1] - len(GAP) >= FEWEST_NAME_COLUMNS:
            return kept, BAR_WIDTHS[-1], screen - taken - BAR_WIDTHS[-1] - len(GAP)
        kept = [column for column in kept if column.keep != first]


def _columns(picture: Picture) -> list[TreeColumn]:
    found = [
        TreeColumn("USED", _used, 90),
        # The kernel's own words: memory.max, and on v1 memory.limit_in_bytes.
        TreeColumn("LIMIT" if picture.version == 1 else "MAX", _amount(lambda memory: memory.max_bytes), 80),
        TreeColumn("CACHE", _amount(lambda memory: memory.usage_bytes - memory.working_set_bytes or None), 15),
        TreeColumn("MIN", _amount(lambda memory: memory.min_bytes or None), 10),
        TreeColumn("LOW", _amount(lambda memory: memory.low_bytes or None), 10),
        TreeColumn("HIGH", _amount(lambda memory: memory.high_bytes), 10),
        TreeColumn("CPU USED", _cpu_used, 45),
        TreeColumn("CPU LIMIT", _cpu_limit, 40),
        TreeColumn("THROTTLED", _throttled, 60),
        TreeColumn("PRESSURE", _pressure, 50, right=False),
        TreeColumn("OWNS", _owns, 47, right=False),
        TreeColumn("PIDS", _pids, 20),
        TreeColumn("IO WEIGHT", _io_weight, 12),
        TreeColumn("IO MAX", _io_max, 14, right=False),
        TreeColumn("OOM", _oom_kills, 70),
    ]
    if picture.with_tasks:
        found.append(TreeColumn("TASKS", _tasks, 85, right=False))
    return found


# --- names ---


def _name(branch: Branch) -> Name:
    lead = ""
    if branch.last:
        lead = _guides(branch.last[:-1]) + ("└─ " if branch.last[-1] else "├─ ")
    name = inert(branch.name) + (f" (+{branch.hidden})" if branch.hidden else "")
    if branch.owner.misplaced:
        return lead, f"{name} (misplaced)", ("red",)
    return lead, name, _NAME_STYLES.get(branch.what, ())


def _short(name: str) -> str:
    """Shorten uids to their first digits."""
    return _UID.sub(r"\1…", name)


def _fitted_name(name: str, width: int) -> str:
    if display_width(name) > width:
        name = _short(name)
    if display_width(name) <= width:
        return name
    while name and display_width(name) >= width:
        name = name[:-1]
    return f"{name}…" if width > 0 else ""


def _guides(last: Sequence[bool]) -> str:
    return "".join("   " if each else "│  " for each in last)


def _below(branch: Branch, parent: bool) -> str:
    return _guides(branch.last) + ("│  " if parent else "   ")


# --- cells ---


def _used(branch: Branch, standing: Standing) -> Cell:
    memory = standing.memory
    if memory is None:
        return NOTHING
    used = memory.working_set_bytes
    colour: tuple[str, ...] = ()
    if memory.max_bytes and 100 * used >= FULL * memory.max_bytes:
        colour = ("red",)
    elif memory.high_bytes is not None and used > memory.high_bytes:
        colour = ("yellow",)
    return [(human_bytes(used), ("bold", *colour))]


def _amount(of: Callable[[MemoryUsageView], int | None]) -> Callable[[Branch, Standing], Cell]:
    def cell(branch: Branch, standing: Standing) -> Cell:
        amount = None if standing.memory is None else of(standing.memory)
        return NOTHING if amount is None else [(human_bytes(amount), ())]

    return cell


def _cpu_used(branch: Branch, standing: Standing) -> Cell:
    used = None if standing.cpu is None else standing.cpu.usage_milli
    return NOTHING if used is None else [(f"{used / 1000:.2f}", ())]


def _cpu_limit(branch: Branch, standing: Standing) -> Cell:
    limit = None if standing.cpu is None else standing.cpu.limit_milli
    return NOTHING if limit is None else [(f"{limit / 1000:g}", ())]


def _throttled(branch: Branch, standing: Standing) -> Cell:
    percent = None if standing.cpu is None else throttled_percent(standing.cpu)
    return NOTHING if percent is None else [(f"{percent} %", _warned(percent, 10, 50))]


def _pressure(branch: Branch, standing: Standing) -> Cell:
    """The stalls of the last 10 s above the minimum."""
    cell: Cell = []
    for word, resource in (("mem", "memory"), ("cpu", "cpu"), ("io", "io")):
        share = standing.pressure.get(resource, 0.0)
        if share >= LEAST_PRESSURE:
            cell.append((f"{' ' if cell else ''}{word} {share:.0f}%", _warned(share, 10, 40)))
    return cell or NOTHING


def _pids(branch: Branch, standing: Standing) -> Cell:
    if standing.pids is None:
        return NOTHING
    limit = f" / {standing.pids_max}" if standing.pids_max is not None else ""
    return [(f"{standing.pids}{limit}", ())]


def _owns(branch: Branch, standing: Standing) -> Cell:
    return [(", ".join(map(inert, standing.owns)), ())] if standing.owns else NOTHING


def _io_weight(branch: Branch, standing: Standing) -> Cell:
    weight = None if standing.io is None else standing.io.weight
    return NOTHING if weight is None else [(str(weight), ())]


def _io_max(branch: Branch, standing: Standing) -> Cell:
    """`w 10.0 MiB/s`; with a device only where several have a limit."""
    if standing.io is None:
        return NOTHING
    several = len(standing.io.limits.keys() | standing.io.targets.keys()) > 1
    words = []
    for device in sorted(standing.io.limits.keys() | standing.io.targets.keys()):
        for key, amount in standing.io.limits.get(device, {}).items():
            shown = f"{human_bytes(amount)}/s" if key.endswith("bps") else f"{amount}/s"
            words.append(f"{device} {key[0]} {shown}" if several else f"{key[0]} {shown}")
        if target := standing.io.targets.get(device):
            words.append(f"{device} latency {target / 1000:g} ms" if several else f"latency {target / 1000:g} ms")
    return [(", ".join(words), ())] if words else NOTHING


def _oom_kills(branch: Branch, standing: Standing) -> Cell:
    return [(str(standing.oom_kills), ("bold", "red"))] if standing.oom_kills else NOTHING


def _tasks(branch: Branch, standing: Standing) -> Cell:
    tasks = standing.tasks
    if tasks is None or not tasks.total():
        return NOTHING
    counts = (
        ("running", tasks.running),
        ("sleeping", tasks.sleeping),
        ("stopped", tasks.stopped),
        ("uninterruptible", tasks.uninterruptible),
        ("io wait", tasks.io_wait),
    )
    return [(", ".join(f"{count} {word}" for word, count in counts if count), ())]


def _warned(share: float, warm: int, hot: int) -> tuple[str, ...]:
    if share >= hot:
        return ("red",)
    return ("yellow",) if share >= warm else () if share else ("dim",)


def _bar(branch: Branch, memory: MemoryUsageView | None, scale_bytes: int, width: int, paint: Paint) -> str:
    if memory is None:
        return " " * width
    colour = CLASS_COLOURS.get(branch.qos_class or "", "blue")
    inks = {"used": (colour,), "cache": (colour,), "free": ("dim",), "mark": ("bold",)}
    return "".join(paint(text, *inks[ink]) for ink, text in bar(memory, scale_bytes, width))


def _marked(memory: MemoryUsageView | None) -> bool:
    return memory is not None and bool(memory.min_bytes or memory.low_bytes or memory.high_bytes)


def _width(cell: Cell) -> int:
    return sum(display_width(text) for text, _ in cell)


def _aligned(cell: Cell, width: int, right: bool, paint: Paint) -> str:
    blanks = " " * (width - _width(cell))
    text = "".join(paint(piece, *styles) for piece, styles in cell)
    return blanks + text if right else text + blanks
