"""JSON as Go's encoder prints it: compact, `<`, `>` and `&` escaped (06); and the same documents as YAML."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode

# In JSON text these bytes only occur inside strings, so replacing them in the whole text is safe.
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
)
_SEPARATORS = (
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def encoded(document: Any) -> bytes:
    """One value as compact JSON text, without a line end."""
    text = _encode(document)
    for raw, escape in _ESCAPES if text.isascii() else _ESCAPES + _SEPARATORS:
        if raw in text:
            text = text.replace(raw, escape)
    return text


def line(document: Any) -> bytes:
    return encoded(document) + b"\n"


def as_yaml(document: Any) -> bytes:
    from plimsoll.codec.yaml.writer import dumped

    return dumped(document, sort_keys=True).encode()
