"""Texts in quotes, as Go writes them."""

from __future__ import annotations

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted(text: str) -> str:
    """As Go's strconv quotes: printable characters stay."""
    return '"' + "".join(_ESCAPES.get(letter) or _printable(letter) for letter in text) + '"'


def _printable(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def byte_quoted(text: str) -> str:
    """As Go's time package quotes: bytes that are not printable ASCII are escaped."""
    shown: list[str] = []
    for letter in text:
        if letter < " " or letter >= "\x80":
            shown.extend(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
        else:
            shown.append(f"\\{letter}" if letter in '"\\' else letter)
    return '"' + "".join(shown) + '"'
