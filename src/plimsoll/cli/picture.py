"""Writes a drawing to the standard output: SVG or one HTML page, always UTF-8."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from plimsoll.cli import console

if TYPE_CHECKING:
    from plimsoll.rules.picture.figure import Drawing


def write_picture(drawing: Drawing, output: str) -> None:
    from plimsoll.rules.picture.page import page
    from plimsoll.rules.picture.svg import svg

    if sys.stdout.isatty():
        console.echo(f"note: write the picture to a file: … -o {output} > pods.{output}", err=True)
    text = page(drawing) if output == "html" else svg(drawing)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
