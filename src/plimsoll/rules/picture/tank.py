"""A container as an upright vessel: bands between its lines, fills, and a label with the formula beside each line.

The scale is linear. Where the only limit is that of a distant ancestor (64 MiB requested on a machine with 8 GiB), the
vessel is broken: below the break it shows the container's own figures, above it the ancestor's limit.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.cgroups.reasons import human_bytes, human_cores
from plimsoll.rules.inert import inert
from plimsoll.rules.picture.model import CpuLines, Line, Vessel
from plimsoll.rules.picture.shapes import BOLD, Block, Rect, Shape, Stroke, Text, cut, spread, text_width, wrapped
from plimsoll.rules.picture.words import cpu_sentence, in_effect, line_title, short_source, vessel_sentences
from plimsoll.rules.profile import DOCUMENTED

PAD = 14.0
TANK_WIDTH, OVERHANG, LEADER = 62.0, 7.0, 16.0
LEAST_HEIGHT, ABOVE = 150.0, 24.0  # of the vessel; room above it for what happens there
NAME, LABEL, SMALL = 14.0, 11.5, 9.5  # font sizes
ROW, SMALL_ROW = 15.0, 12.0
LABEL_GAP = 7.0
KNEE, BREAK_FROM = 0.72, 8  # the share of the height below the break; how much larger the limit must be
CPU_BAR = 9.0
_ORDER = ("min", "low", "high", "max")


class Detail(msgspec.Struct, frozen=True):
    """How much a drawing says, and what differs from the drawing beside it."""

    formulas: bool = True
    label_width: float = 204.0
    changed: frozenset[tuple[str, str]] = frozenset()  # (key of the vessel, file)
    observed: bool = False

    @property
    def cell_width(self) -> float:
        return 2 * PAD + OVERHANG + TANK_WIDTH + OVERHANG + LEADER + self.label_width


class Scale(msgspec.Struct, frozen=True):
    full_bytes: int
    length: float
    knee_bytes: int | None = None

    def at(self, amount: int) -> float:
        """How far from the empty end."""
        amount = min(max(amount, 0), self.full_bytes)
        if self.knee_bytes is None:
            return self.length * amount / self.full_bytes
        if amount <= self.knee_bytes:
            return self.length * KNEE * amount / self.knee_bytes
        rest = (amount - self.knee_bytes) / (self.full_bytes - self.knee_bytes)
        return self.length * (KNEE + (1 - KNEE) * rest)


def scale_of(vessel: Vessel, length: float) -> Scale:
    own = [line.declared_bytes for line in vessel.lines if not line.of]
    largest = max([*own, vessel.usage_bytes or 0], default=0)
    if largest and vessel.scale_bytes > BREAK_FROM * largest:
        return Scale(vessel.scale_bytes, length, largest * 5 // 4)
    return Scale(vessel.scale_bytes, length)


class Label(msgspec.Struct, frozen=True):
    line: Line | None
    at_bytes: int
    rows: tuple[tuple[str, str], ...]  # text and style
    height: float


def tank(vessel: Vessel, key: str, detail: Detail) -> Block:
    """The cell of one container."""
    inner = detail.cell_width - 2 * PAD
    shapes: list[Shape] = [Text(PAD, 22, cut(inert(vessel.name), inner - 62, NAME, BOLD), "name")]
    if vessel.stage in ("init", "sidecar") or vessel.level in ("sandbox", "monitor"):
        shapes.append(Text(detail.cell_width - PAD, 22, vessel.stage or vessel.level, "badge", "end"))
    y = 30.0
    if vessel.oom_score_adj is not None:
        y = _fact_rows(shapes, y, inner, f"oom_score_adj {vessel.oom_score_adj}", vessel.oom_formula, "", detail)
    labels = sorted(_labels(vessel, key, detail), key=_from_top)
    height = max(LEAST_HEIGHT, sum(label.height for label in labels))
    top = y + ABOVE
    scale = scale_of(vessel, height)
    left, right = PAD + OVERHANG, PAD + OVERHANG + TANK_WIDTH
    bottom = top + height
    shapes += _bands(vessel, scale, left, bottom, detail)
    shapes += _fills(vessel, scale, left, bottom)
    shapes += _hatches(vessel, scale, left, bottom)
    shapes.append(Stroke(((left, top - 6), (left, bottom), (right, bottom), (right, top - 6)), "hull"))
    if scale.knee_bytes is not None:
        shapes += _break(left, bottom - scale.length * (KNEE + 0.06))
    targets = [bottom - scale.at(label.at_bytes) for label in labels]
    tops = spread(targets, [label.height for label in labels], top - ABOVE + 4, bottom + 10)
    x = right + OVERHANG + LEADER
    for label, target, label_top in zip(labels, targets, tops, strict=True):
        middle = label_top + ROW / 2 + 1
        if label.line is not None or label.at_bytes:
            shapes.append(Stroke(((right + OVERHANG, target), (x - 6, middle), (x - 3, middle)), "leader"))
        row_y = label_top
        for text, style in label.rows:
            row_y += ROW if style.startswith("value") else SMALL_ROW
            shapes.append(Text(x, row_y - 3, text, style))
    for line in sorted(vessel.lines, key=lambda each: _ORDER.index(each.name)):  # the limit over the others
        at = bottom - scale.at(line.declared_bytes)
        shapes.append(Stroke(((left - OVERHANG, at), (right + OVERHANG, at)), f"line {line_style(line)}"))
    y = bottom + 16
    if vessel.cpu is not None:
        y = cpu_rows(shapes, vessel.cpu, PAD, y, inner, detail, key)
    return Block(detail.cell_width, y + 6, tuple(shapes), "\n".join(vessel_sentences(vessel)), "container")


def _from_top(label: Label) -> tuple[int, int]:
    """Equal values in the order of the lines: the limit on top."""
    return -label.at_bytes, 0 if label.line is None or label.line.of else -_ORDER.index(label.line.name)


def line_style(line: Line) -> str:
    return f"{line.name} above" if line.of else line.name


def _labels(vessel: Vessel, key: str, detail: Detail) -> Iterator[Label]:
    for line in vessel.lines:
        rows = label_rows(line, detail.label_width, detail, (key, line.file) in detail.changed)
        yield Label(line, line.declared_bytes, rows, _height(rows))
    for file in missing_files(vessel, key, detail):
        absent = ((f"≠ no {file}", "value changed"),)
        yield Label(None, 0, absent, _height(absent))
    if vessel.usage_bytes is not None:
        rows = ((f"{human_bytes(vessel.usage_bytes)} in use", "value use"),)
        yield Label(None, vessel.usage_bytes, rows, _height(rows))
    if not any(line.name == "max" for line in vessel.lines):
        rows = (("no limit", "value"), (f"the machine has {human_bytes(vessel.scale_bytes)}", "formula"))
        yield Label(None, vessel.scale_bytes, rows, _height(rows))


def missing_files(vessel: Vessel, key: str, detail: Detail) -> list[str]:
    """Memory files that only the drawing beside this one has."""
    there = {line.file for line in vessel.lines}
    return sorted(file for at, file in detail.changed if at == key and file.startswith("memory.") and file not in there)


def _height(rows: tuple[tuple[str, str], ...]) -> float:
    return sum(ROW if style.startswith("value") else SMALL_ROW for _, style in rows) + LABEL_GAP


def label_rows(line: Line, width: float, detail: Detail, changed: bool = False) -> tuple[tuple[str, str], ...]:
    """`memory.high 121.5 MiB`, the formula, the field, and why it does not hold."""
    value = human_bytes(line.declared_bytes)
    mark = "≠ " if changed else ""
    room = width - text_width(f" {value}", LABEL)
    title = f"{mark}{line_title(line)}"
    if not line.of and text_width(title, LABEL) > room:
        title = f"{mark}{line.name}"  # memory.limit_in_bytes is long
    title = cut(title, room, LABEL)
    rows = [(f"{title} {value}", "value changed" if changed else "value above" if line.of else "value")]
    if why := in_effect(line):
        rows += [(text, "formula warn") for text in wrapped(why, width, SMALL, 3)]
    if line.of or not detail.formulas:
        return tuple(rows)
    if line.formula:
        rows += [(text, "formula") for text in wrapped(inert(line.formula), width, SMALL)]
    elif not detail.observed:
        rows.append((f"{line.declared_bytes}", "formula"))
    if line.source:
        rows += [(text, "formula source") for text in wrapped(f"← {short_source(line.source)}", width, SMALL, 3)]
    if line.note.startswith(DOCUMENTED):
        rows += [(text, "formula note") for text in wrapped(f"({inert(line.note)})", width, SMALL, 4)]
    return tuple(rows)


def _bands(vessel: Vessel, scale: Scale, left: float, bottom: float, detail: Detail) -> Iterator[Shape]:
    """What the kernel does at each height: keep, reclaim, throttle; above the limit it kills."""
    ends = {line.name: line.effective_bytes for line in vessel.lines if not line.of or line.name in ("high", "max")}
    limit = min(ends.get("max", scale.full_bytes), scale.full_bytes)
    high = min(ends.get("high", limit), limit)
    kept = min(ends.get("min", 0), high)
    low = min(max(ends.get("low", 0), kept), high)
    for start, end, style, word in (
        (0, kept, "kept", "protected"),
        (kept, low, "low", "preferred"),
        (low, high, "free", "reclaimable"),
        (high, limit, "throttled", "throttled"),
    ):
        y, height = bottom - scale.at(end), scale.at(end) - scale.at(start)
        if height <= 0:
            continue
        yield Rect(left, y, TANK_WIDTH, height, f"band {style}")
        if height >= 13 and not detail.observed:
            yield Text(left + TANK_WIDTH / 2, y + height / 2 + 3, word, "band-word", "middle")
    if "max" in ends and not detail.observed:
        yield Text(left + TANK_WIDTH / 2, bottom - scale.at(limit) - 6, "OOM kill", "band-word", "middle")


def _fills(vessel: Vessel, scale: Scale, left: float, bottom: float) -> Iterator[Shape]:
    filled = 0
    for fill in vessel.fills:
        y = bottom - scale.at(filled + fill.bytes)
        height = scale.at(filled + fill.bytes) - scale.at(filled)
        filled += fill.bytes
        if height > 0:
            yield Rect(left, y, TANK_WIDTH, height, f"fill {fill.name}")
    if not vessel.fills and vessel.usage_bytes:
        height = scale.at(vessel.usage_bytes)
        yield Rect(left, bottom - height, TANK_WIDTH, height, "fill other")


def _hatches(vessel: Vessel, scale: Scale, left: float, bottom: float) -> Iterator[Shape]:
    """Hatched: declared, but without effect."""
    for line in vessel.lines:
        if line.ineffective and not line.of:
            low, high = sorted((line.effective_bytes, line.declared_bytes))
            height = scale.at(high) - scale.at(low)
            yield Rect(left, bottom - scale.at(high), TANK_WIDTH, height, "hatched")


def _break(left: float, y: float) -> Iterator[Shape]:
    """Two wavy strokes: the scale is not continuous here."""
    for shift in (0.0, 6.0):
        step = (TANK_WIDTH + 12) / 6
        points = tuple((left - 6 + step * index, y + shift + (3 if index % 2 else -3)) for index in range(7))
        yield Stroke(points, "break")


def lying_break(scale: Scale, x: float, y: float, height: float) -> Iterator[Shape]:
    """The same across a lying vessel."""
    if scale.knee_bytes is None:
        return
    at = x + scale.length * (KNEE + 0.06)
    for shift in (0.0, 5.0):
        step = (height + 8) / 4
        points = tuple((at + shift + (2 if index % 2 else -2), y - 4 + step * index) for index in range(5))
        yield Stroke(points, "break")


def _fact_rows(
    shapes: list[Shape], y: float, width: float, fact: str, formula: str, source: str, detail: Detail, x: float = PAD
) -> float:
    y += ROW
    shapes.append(Text(x, y - 3, cut(fact, width, LABEL), "value"))
    texts = []
    if detail.formulas and formula:
        texts += [(text, "formula") for text in wrapped(inert(formula), width, SMALL, 4)]
    if detail.formulas and source:
        texts += [(text, "formula source") for text in wrapped(f"← {short_source(source)}", width, SMALL, 2)]
    for text, style in texts:
        y += SMALL_ROW
        shapes.append(Text(x, y - 3, text, style))
    return y + 3


def cpu_rows(shapes: list[Shape], cpu: CpuLines, x: float, y: float, width: float, detail: Detail, key: str) -> float:
    """The CPU bar: solid what the weight guarantees, light up to the quota; then the files."""
    whole = max(1, cpu.ceiling_milli or cpu.scale_milli)
    end = human_cores(whole) + (" quota" if cpu.ceiling_milli else " in all")
    room = text_width(end, SMALL) + 34
    length = width - room
    shapes.append(Text(x, y + 8, "cpu", "formula"))
    shapes.append(Rect(x + 26, y, length, CPU_BAR, "cpu-track"))
    if cpu.worst_case_milli:
        shapes.append(Rect(x + 26, y, length * min(1.0, cpu.worst_case_milli / whole), CPU_BAR, "cpu-share"))
    if cpu.usage_milli is not None:
        at = x + 26 + length * min(1.0, cpu.usage_milli / whole)
        shapes.append(Stroke(((at, y - 3), (at, y + CPU_BAR + 3)), "cpu-use"))
    shapes.append(Text(x + width, y + 8, end, "formula", "end"))
    y += CPU_BAR + 5
    if text := cpu_sentence(cpu):
        for row in wrapped(text, width, SMALL, 3):
            y += SMALL_ROW
            shapes.append(Text(x, y - 3, row, "formula strong"))
    files = [
        (cpu.weight_file, str(cpu.weight), cpu.weight_formula, cpu.weight_source, cpu.weight is not None),
        (cpu.quota_file, cpu.quota_text, cpu.quota_formula, cpu.quota_source, cpu.quota_milli is not None),
    ]
    for name, value, formula, source, there in files:
        if there:
            mark = "≠ " if (key, name) in detail.changed else ""
            y = _fact_rows(shapes, y, width, f"{mark}{name} {value}", formula, source, detail, x)
    return y
