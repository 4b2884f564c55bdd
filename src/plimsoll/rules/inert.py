"""Text from manifests and clusters, made harmless for terminals and pages: nothing in it can act."""

from __future__ import annotations

import unicodedata


def inert(text: str) -> str:
    """Control characters, bidirectional overrides and lone surrogates become visible escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c.isprintable() and unicodedata.category(c) not in ("Cf", "Cs", "Co") else _escaped(c) for c in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
