"""Node, classes and pods as boxes around what they contain; each has its memory as a lying vessel in its head."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.inert import inert
from plimsoll.rules.picture.model import Line, Picture, Vessel
from plimsoll.rules.picture.shapes import BOLD, SANS, Block, Rect, Shape, Stroke, Text, cut, flow, text_width, wrapped
from plimsoll.rules.picture.tank import (
    LABEL,
    LABEL_GAP,
    NAME,
    PAD,
    ROW,
    SMALL,
    SMALL_ROW,
    Detail,
    Scale,
    cpu_rows,
    label_rows,
    line_style,
    lying_break,
    missing_files,
    scale_of,
    tank,
)
from plimsoll.rules.picture.words import LEVEL_WORDS, vessel_sentences

GAP = 12.0
BAR = 14.0
SAMPLE = 22.0  # the piece of a line before its label
LEAST_WIDTH = 250.0
_TANKS = ("container", "sandbox", "monitor")


def box(vessel: Vessel, above: str, detail: Detail, width: float) -> Block:
    """`width` is the most that the box may take; it takes what its children need."""
    key = f"{above}/{vessel.name}"
    if vessel.level in _TANKS and not vessel.children:
        return tank(vessel, key, detail)
    children = [box(child, key, detail, width - 2 * PAD) for child in vessel.children]
    inside = flow(children, width - 2 * PAD, GAP)
    inner = max(inside.width, min(LEAST_WIDTH, width - 2 * PAD))
    shapes: list[Shape] = []
    y = _head(shapes, vessel, inner)
    y = _gauge(shapes, vessel, key, detail, inner, y)
    if vessel.cpu is not None:
        y = cpu_rows(shapes, vessel.cpu, PAD, y + 6, inner, msgspec.structs.replace(detail, formulas=False), key)
    if children:
        shapes.append(inside.at(PAD, y + 10))
        y += 10 + inside.height
    elif vessel.level in ("class", "pods"):
        shapes.append(Text(PAD, y + SMALL_ROW + 2, "no pods", "formula"))
        y += SMALL_ROW + 2
    return Block(inner + 2 * PAD, y + PAD, tuple(shapes), "\n".join(vessel_sentences(vessel)), vessel.level)


def _head(shapes: list[Shape], vessel: Vessel, inner: float) -> float:
    badge = vessel.qos_class if vessel.level == "pod" else LEVEL_WORDS[vessel.level]
    if vessel.level == "pods":
        badge = "node level"
    taken = text_width(badge, LABEL, SANS) + 12
    shapes.append(Text(PAD, 22, cut(inert(vessel.name), inner - taken, NAME, BOLD), "name"))
    shapes.append(Text(PAD + inner, 22, badge, "badge", "end"))
    y = 25.0
    if vessel.path:
        y += SMALL_ROW
        shapes.append(Text(PAD, y - 2, cut(inert(vessel.path), inner, SMALL), "formula path"))
    return y + 6


def _gauge(shapes: list[Shape], vessel: Vessel, key: str, detail: Detail, inner: float, y: float) -> float:
    if not vessel.lines and vessel.usage_bytes is None:
        return y
    scale = scale_of(vessel, inner)
    y += 4
    shapes.append(Rect(PAD, y, inner, BAR, "band free"))
    shapes += _lying(vessel, scale, y)
    shapes.append(Rect(PAD, y, inner, BAR, "hull-box"))
    shapes += lying_break(scale, PAD, y, BAR)
    for line in vessel.lines:
        at = PAD + scale.at(line.declared_bytes)
        style = f"line {line_style(line)}"
        shapes.append(Stroke(((at, y - 4), (at, y + BAR + 4)), style))
    y += BAR + 8
    if vessel.usage_bytes is not None:
        y += ROW
        used = f"{human_bytes(vessel.usage_bytes)} in use of {human_bytes(vessel.scale_bytes)}"
        shapes.append(Text(PAD, y - 3, cut(used, inner, LABEL), "value use"))
    for line in vessel.lines:
        y = _line_rows(shapes, line, detail, inner, y, (key, line.file) in detail.changed)
    for file in missing_files(vessel, key, detail):
        y += ROW
        shapes.append(Text(PAD + SAMPLE, y - 3, f"≠ no {file}", "value changed"))
    return y


def _line_rows(shapes: list[Shape], line: Line, detail: Detail, inner: float, y: float, changed: bool) -> float:
    """The label beside a sample of the line; the formula in the same row if it fits."""
    style = f"line {line_style(line)}"
    shapes.append(Stroke(((PAD, y + ROW - 7), (PAD + SAMPLE - 5, y + ROW - 7)), style))
    width = inner - SAMPLE
    (value, value_style), *rest = label_rows(line, width, detail, changed)
    y += ROW
    shapes.append(Text(PAD + SAMPLE, y - 3, value, value_style))
    if detail.formulas and not line.of and not line.ineffective:
        reason = " ".join(part for part in (line.formula, f"← {line.source}" if line.source else "") if part)
        start = SAMPLE + text_width(value, LABEL) + 14
        if start + text_width(reason, SMALL) <= inner:
            shapes.append(Text(PAD + start, y - 3, inert(reason), "formula"))
            return y
    for text, row_style in rest:
        y += SMALL_ROW
        shapes.append(Text(PAD + SAMPLE, y - 3, text, row_style))
    return y + LABEL_GAP - 4


def _lying(vessel: Vessel, scale: Scale, y: float) -> Iterator[Shape]:
    for line in vessel.lines:
        if line.name in ("min", "low") and not line.of:
            yield Rect(PAD, y, scale.at(line.effective_bytes), BAR, f"band {'kept' if line.name == 'min' else 'low'}")
    filled = 0
    for fill in vessel.fills:
        start, end = scale.at(filled), scale.at(filled + fill.bytes)
        filled += fill.bytes
        if end > start:
            yield Rect(PAD + start, y, end - start, BAR, f"fill {fill.name}")
    for line in vessel.lines:
        if line.ineffective and not line.of:
            low, high = sorted((line.effective_bytes, line.declared_bytes))
            yield Rect(PAD + scale.at(low), y, scale.at(high) - scale.at(low), BAR, "hatched")


def node_box(picture: Picture, detail: Detail, width: float) -> Block:
    """The machine: how its memory is divided, then the cgroups in it."""
    inside = flow([box(vessel, "", detail, width - 2 * PAD) for vessel in picture.vessels], width - 2 * PAD, GAP)
    inner = max(inside.width, min(2 * LEAST_WIDTH, width - 2 * PAD))
    shapes: list[Shape] = [Text(PAD, 25, cut(inert(picture.title), inner, 18, BOLD), "title")]
    y = 30.0
    for row in wrapped(_facts(picture), inner, LABEL, 3, SANS):
        y += ROW
        shapes.append(Text(PAD, y - 2, row, "facts"))
    if picture.parts:
        y = _parts(shapes, picture, inner, y + 8)
    if detail.formulas:
        for name, steps in picture.steps.items():
            if "−" in steps:
                for row in wrapped(f"allocatable {name}: {inert(steps)}", inner, SMALL, 3):
                    y += SMALL_ROW
                    shapes.append(Text(PAD, y - 2, row, "formula"))
    for remark in picture.remarks:
        for row in wrapped(f"! {inert(remark)}", inner, SMALL, 3):
            y += SMALL_ROW
            shapes.append(Text(PAD, y - 2, row, "formula warn"))
    shapes.append(inside.at(PAD, y + 12))
    return Block(inner + 2 * PAD, y + 12 + inside.height + PAD, tuple(shapes), frame="node")


def _facts(picture: Picture) -> str:
    return f"{picture.cpu_milli / 1000:g} CPU · {human_bytes(picture.memory_bytes)} memory · {inert(picture.facts)}"


def _parts(shapes: list[Shape], picture: Picture, inner: float, y: float) -> float:
    """The machine's memory: allocatable first; what is withheld is at least a hair wide."""
    total = max(1, sum(part.bytes for part in picture.parts))
    x = PAD
    shapes.append(Rect(PAD, y, inner, BAR, "part allocatable"))
    words = []
    for index, part in enumerate(picture.parts):
        length = max(2.0, inner * part.bytes / total) if part.bytes else 0.0
        length = min(length, PAD + inner - x)
        if index:
            shapes.append(Rect(x, y, length, BAR, f"part withheld p{min(index, 3)}"))
        x += length
        words.append(f"{part.name} {human_bytes(part.bytes)}")
    if picture.allocated_bytes is not None:
        at = PAD + inner * min(1.0, picture.allocated_bytes / total)
        shapes.append(Stroke(((at, y - 4), (at, y + BAR + 4)), "mark"))
        words.insert(1, f"requested by pods {human_bytes(picture.allocated_bytes)}")
    shapes.append(Rect(PAD, y, inner, BAR, "hull-box"))
    y += BAR + 4
    for row in wrapped(" · ".join(words), inner, SMALL, 3):
        y += SMALL_ROW
        shapes.append(Text(PAD, y - 2, row, "formula strong"))
    return y
