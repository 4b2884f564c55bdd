"""A drawing → SVG 1.1, without scripts and without anything from elsewhere.

`<title>` and `<desc>` say everything that the picture shows. Texts from manifests are escaped, and control and
bidirectional characters become visible escapes (`rules.inert`).
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.inert import inert
from plimsoll.rules.picture.figure import Drawing
from plimsoll.rules.picture.shapes import Group, Rect, Shape, Stroke, Text
from plimsoll.rules.picture.style import PATTERNS, sheet
from plimsoll.rules.picture.words import vessel_sentences

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escaped(text: str) -> str:
    return inert(text).translate(_ENTITIES)


def escaped_lines(text: str) -> str:
    return "\n".join(escaped(line) for line in text.split("\n"))


def svg(drawing: Drawing) -> str:
    """A file of its own."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg_element(drawing)}'


def svg_element(drawing: Drawing) -> str:
    width, height = _number(drawing.width), _number(drawing.height)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="pl-title" aria-describedby="pl-desc">',
            f'<title id="pl-title">{escaped(title(drawing))}</title>',
            f'<desc id="pl-desc">{escaped_lines(description(drawing))}</desc>',
            f"<style>{sheet()}</style>",
            f"<defs>{PATTERNS}</defs>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *(text for shape in drawing.shapes for text in _written(shape)),
            "</svg>\n",
        ]
    )


def title(drawing: Drawing) -> str:
    pods = sum(1 for vessel in drawing.pictures[0].everything() if vessel.level == "pod")
    what = f"Memory lines and CPU of {pods} pod{'' if pods == 1 else 's'} on {drawing.pictures[0].title}"
    return f"{what}: {' and '.join(drawing.names)}" if drawing.names else what


def description(drawing: Drawing) -> str:
    """The text alternative: one paragraph for each cgroup."""
    paragraphs: list[str] = []
    for index, picture in enumerate(drawing.pictures):
        head = f"{drawing.names[index]}: {picture.facts}" if drawing.names else picture.facts
        paragraphs.append(inert(head))
        paragraphs += [inert(remark) for remark in picture.remarks]
        paragraphs += [". ".join(vessel_sentences(vessel)) + "." for vessel in picture.everything()]
    return "\n".join(paragraphs)


def _number(value: float) -> str:
    return f"{round(value, 1):g}" if abs(value) < 1e6 else str(round(value))


def _written(shape: Shape) -> Iterator[str]:
    match shape:
        case Rect(x, y, width, height, style, radius):
            rounded = f' rx="{_number(radius)}"' if radius else ""
            yield (
                f'<rect class="{style}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
                f'height="{_number(height)}"{rounded}/>'
            )
        case Stroke(points, style):
            path = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
            yield f'<path class="{style}" d="M{path}"/>'
        case Text(x, y, text, style, anchor):
            where = "" if anchor == "start" else f' text-anchor="{anchor}"'
            yield f'<text class="{style}" x="{_number(x)}" y="{_number(y)}"{where}>{escaped(text)}</text>'
        case Group(x, y, shapes, title, _):
            yield f'<g transform="translate({_number(x)} {_number(y)})">'
            if title:
                yield f"<title>{escaped_lines(title)}</title>"
            for inner in shapes:
                yield from _written(inner)
            yield "</g>"
