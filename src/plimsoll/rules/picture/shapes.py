"""What a drawing consists of: rectangles, strokes and texts with a class each, in groups that have a place.

Everything is arithmetic on pixels; `svg` writes it, and a test can ask where a line is. `Block` is a part of the
drawing whose size is known before it is placed.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

Anchor = Literal["start", "middle", "end"]


class Rect(msgspec.Struct, frozen=True, tag=True):
    x: float
    y: float
    width: float
    height: float
    style: str
    radius: float = 0


class Stroke(msgspec.Struct, frozen=True, tag=True):
    points: tuple[tuple[float, float], ...]
    style: str


class Text(msgspec.Struct, frozen=True, tag=True):
    x: float
    y: float  # of the baseline
    text: str
    style: str
    anchor: Anchor = "start"


class Group(msgspec.Struct, frozen=True, tag=True):
    """`title` is what a pointer shows; `style` names the group for styles and tests."""

    x: float
    y: float
    shapes: tuple[Shape, ...]
    title: str = ""
    style: str = ""


Shape = Rect | Stroke | Text | Group


class Block(msgspec.Struct, frozen=True):
    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str = ""
    frame: str = ""  # the style of its frame; a row of blocks gives all frames the same height

    def at(self, x: float, y: float, height: float | None = None) -> Group:
        framed: tuple[Shape, ...] = ()
        if self.frame:
            framed = (Rect(0, 0, self.width, height or self.height, f"frame {self.frame}", 6),)
        return Group(x, y, framed + self.shapes, self.title, self.frame)


# --- texts ---

SANS, BOLD, MONO = 0.58, 0.69, 0.602  # the mean width of a character, as a part of the font size
BREAKS = " ·;,/.[]("


def text_width(text: str, size: float, character: float = MONO) -> float:
    return size * sum(_columns(c) for c in text) * character


def _columns(character: str) -> float:
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 1.7 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: float, size: float, character: float = MONO) -> str:
    """The text, shortened in the middle if it is too long: names of pods differ at the end."""
    if text_width(text, size, character) <= width:
        return text
    room = max(3, math.floor(width / (size * character)))
    while room > 3:
        start = (room - 1) * 2 // 3
        shorter = f"{text[:start]}…{text[len(text) - (room - 1 - start) :]}"
        if text_width(shorter, size, character) <= width:
            return shorter
        room -= 1
    return f"{text[:1]}…"


def wrapped(text: str, width: float, size: float, most: int = 6, character: float = MONO) -> list[str]:
    """Lines that fit, broken after a blank or a sign; the last of too many ends with …"""
    lines, rest = [], text.strip()
    while rest:
        if text_width(rest, size, character) <= width:
            lines.append(rest)
            break
        fit = len(rest)
        while fit > 1 and text_width(rest[:fit], size, character) > width:
            fit -= 1
        broken = max(rest.rfind(sign, 0, fit) for sign in BREAKS) + 1
        at = broken if broken > fit // 3 else fit
        lines.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    if len(lines) > most:
        lines = [*lines[: most - 1], cut(f"{lines[most - 1]}…", width, size, character)]
    return lines


# --- places ---


def spread(targets: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Tops of labels that want their middle at `targets` (ascending) and must not overlap, between low and high."""
    tops: list[float] = []
    free = low
    for target, height in zip(targets, heights, strict=True):
        tops.append(max(free, target - height / 2))
        free = tops[-1] + height
    limit = high
    for index in range(len(tops) - 1, -1, -1):
        tops[index] = min(tops[index], limit - heights[index])
        limit = tops[index]
    return tops


def flow(blocks: Iterable[Block], width: float, gap: float) -> Block:
    """Blocks in rows of at most `width`; the frames of a row have the same height."""
    rows: list[list[Block]] = []
    used = 0.0
    for block in blocks:
        if rows and used + gap + block.width <= width:
            rows[-1].append(block)
            used += gap + block.width
        else:
            rows.append([block])
            used = block.width
    shapes: list[Shape] = []
    y, widest = 0.0, 0.0
    for row in rows:
        x, height = 0.0, max(block.height for block in row)
        for block in row:
            shapes.append(block.at(x, y, height))
            x += block.width + gap
        widest = max(widest, x - gap)
        y += height + gap
    return Block(widest, max(0.0, y - gap), tuple(shapes))
