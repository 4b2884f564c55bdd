"""A whole drawing: one picture, or two beside each other with what differs marked, and the key to its signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from plimsoll.rules.picture.boxes import GAP, node_box
from plimsoll.rules.picture.model import Picture, Vessel
from plimsoll.rules.picture.shapes import SANS, Block, Rect, Shape, Stroke, Text, flow, text_width
from plimsoll.rules.picture.tank import PAD, SMALL, Detail
from plimsoll.rules.picture.words import FILL_WORDS

WIDTH, HALF = 1320.0, 820.0
MOST_WITH_FORMULAS = 12  # containers; more are drawn without formulas
COMPACT_LABELS = 150.0
MARGIN = 16.0


class Drawing(msgspec.Struct, frozen=True):
    width: float
    height: float
    shapes: tuple[Shape, ...]
    pictures: tuple[Picture, ...]
    names: tuple[str, ...] = ()  # of two pictures: what each is for


def drawing(picture: Picture) -> Drawing:
    return _drawn([picture], (), [detail_of(picture)], WIDTH)


def comparison(first: Picture, second: Picture, names: tuple[str, str]) -> Drawing:
    """Two pictures of the same pods; ≠ marks every value that differs."""
    changed = changes(first, second)
    details = [msgspec.structs.replace(detail_of(picture), changed=changed) for picture in (first, second)]
    return _drawn([first, second], names, details, HALF)


def detail_of(picture: Picture) -> Detail:
    tanks = sum(1 for vessel in picture.everything() if vessel.level == "container")
    if tanks > MOST_WITH_FORMULAS or picture.observed:
        return Detail(formulas=False, label_width=COMPACT_LABELS, observed=picture.observed)
    return Detail()


def values(picture: Picture) -> dict[tuple[str, str], str]:
    """(key of the vessel, file) → value, of everything that is drawn."""
    found: dict[tuple[str, str], str] = {}

    def add(vessel: Vessel, above: str) -> None:
        key = f"{above}/{vessel.name}"
        for line in vessel.lines:
            found[key, line.file] = f"{line.declared_bytes} {line.effective_bytes} {line.of}"
        if vessel.cpu is not None:
            found[key, vessel.cpu.weight_file] = str(vessel.cpu.weight)
            found[key, vessel.cpu.quota_file] = vessel.cpu.quota_text
        for child in vessel.children:
            add(child, key)

    for vessel in picture.vessels:
        add(vessel, "")
    return found


def changes(first: Picture, second: Picture) -> frozenset[tuple[str, str]]:
    left, right = values(first), values(second)
    return frozenset(key for key in {**left, **right} if left.get(key) != right.get(key))


def _drawn(pictures: Sequence[Picture], names: tuple[str, ...], details: Sequence[Detail], width: float) -> Drawing:
    blocks = [node_box(picture, detail, width) for picture, detail in zip(pictures, details, strict=True)]
    if names:
        blocks = [_headed(block, name) for block, name in zip(blocks, names, strict=True)]
    row = flow(blocks, sum(block.width for block in blocks) + GAP * len(blocks), GAP * 2)
    legend = _legend(any(picture.observed for picture in pictures), bool(names), row.width)
    shapes = (row.at(MARGIN, MARGIN), legend.at(MARGIN, MARGIN + row.height + 14))
    size = (row.width + 2 * MARGIN, row.height + legend.height + 2 * MARGIN + 14)
    return Drawing(*size, shapes, tuple(pictures), names)


def _headed(block: Block, name: str) -> Block:
    head = Text(2, 16, name, "side")
    return Block(block.width, block.height + 26, (head, block.at(0, 26)))


_LINES: Mapping[str, str] = {
    "min": "memory.min: below it nothing is reclaimed",
    "low": "memory.low: below it only if nothing else is left",
    "high": "memory.high: above it throttled and reclaimed",
    "max": "memory.max: above it OOM kill",
    "max above": "a limit of an ancestor",
}


def _legend(observed: bool, compared: bool, width: float) -> Block:
    items: list[tuple[str, str]] = [(f"line {name}", text) for name, text in _LINES.items()]
    items.append(("hatched", "declared, but without effect"))
    if observed:
        items += [(f"fill {name}", text) for name, text in FILL_WORDS.items()]
        items.append(("cpu-use", "CPU in use"))
    items.append(("cpu-share", "CPU if all contend (cpu.weight)"))
    if compared:
        items.append(("", "≠ differs between the two sides"))
    return flow([_key(style, text) for style, text in items], max(width, 320.0), 10.0)


def _key(style: str, text: str) -> Block:
    swatch: tuple[Shape, ...] = ()
    if style.startswith("line"):
        swatch = (Stroke(((0, 8), (22, 8)), style),)
    elif style == "cpu-use":
        swatch = (Stroke(((11, 2), (11, 14)), style),)
    elif style:
        swatch = (Rect(0, 2, 22, 12, style), Rect(0, 2, 22, 12, "hull-box"))
    start = 28.0 if style else 0.0
    return Block(start + text_width(text, SMALL + 1, SANS) + PAD, 16, (*swatch, Text(start, 12, text, "key")))
