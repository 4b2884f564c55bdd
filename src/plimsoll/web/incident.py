"""One incident as a single HTML file: the history of a node with everything that is needed to scroll through it.

Scripts, styles and data are in the file. Its policy names the digest of each script and style, and allows nothing else,
not even a connection. Data are JSON in an element that no browser runs, with `<`, `>` and `&` escaped, so no text of a
cluster can end it. The modules of the dashboard are put into one script: their imports and exports are removed, which
works because no two of them define the same name (a test checks it).
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache

from plimsoll.rules.timestamps import rfc3339
from plimsoll.web.site import static_files

VENDOR = ("vendor/htm-preact.umd.js", "vendor/uPlot.iife.min.js")
# In the order of their imports; without session and stream: an incident has no server.
MODULES = (
    *("ui.js", "format.js", "state.js", "table.js", "marks.js", "hull.js"),
    *("replay.js", "incident.js"),
)
STYLES = ("vendor/uPlot.min.css", "style.css")
_IMPORT = re.compile(r"^import\s[^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const|let|function|class|async)", re.MULTILINE)


def incident_page(node: str, history: bytes, now_s: float) -> bytes:
    """`history`: the node's page `/history`, JSON."""
    scripts, style = [*map(_text, VENDOR), _modules()], "\n".join(map(_text, STYLES))
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_digest, scripts))}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    data = history.decode().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    title = html.escape(f"Incident on node {node}, saved {rfc3339(now_s)}")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>",
            f'<div id="app" data-title="{title}" data-node="{html.escape(node)}"></div>',
            f'<script type="application/json" id="history">{data}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body>\n</html>\n",
        ]
    ).encode()


def _text(name: str) -> str:
    text = static_files()[name].body.decode()
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"{name} cannot be put into a page: it contains the end tag of its element")
    return text


@cache
def _modules() -> str:
    """The modules as one script in its own scope."""
    bodies = [_EXPORT.sub("", _IMPORT.sub("", _text(name))) for name in MODULES]
    return "(() => {\n'use strict';\n" + "\n".join(bodies) + "\n})();\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
