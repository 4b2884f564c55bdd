"""Bytes from a terminal → names of keys. A sequence that is not complete yet is kept for the next bytes."""

from __future__ import annotations

_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
}
_SINGLE = {0x0D: "enter", 0x0A: "enter", 0x7F: "backspace", 0x08: "backspace", 0x03: "stop", 0x04: "stop"}
_LONGEST = 16  # bytes of a sequence; more is not one


def keys(data: bytes) -> tuple[list[str], bytes]:
    """The keys, and the bytes that are left over."""
    found: list[str] = []
    while data:
        if data[0] == 0x1B:
            name, used = _escape(data)
            if not used:
                break
            if name:
                found.append(name)
            data = data[used:]
        elif data[0] in _SINGLE:
            found.append(_SINGLE[data[0]])
            data = data[1:]
        else:
            text, used = _character(data)
            if not used:
                break
            if text.isprintable() and text:
                found.append(text)
            data = data[used:]
    return found, data


def _escape(data: bytes) -> tuple[str, int]:
    """A known sequence, an unknown one (no name), or nothing yet."""
    for sequence, name in _SEQUENCES.items():
        if data.startswith(sequence):
            return name, len(sequence)
    if len(data) == 1:
        return "", 0
    if data[1:2] not in (b"[", b"O"):
        return "escape", 1
    for index in range(2, min(len(data), _LONGEST)):
        if 0x40 <= data[index] <= 0x7E:
            return "", index + 1
    return ("", _LONGEST) if len(data) >= _LONGEST else ("", 0)


def _character(data: bytes) -> tuple[str, int]:
    length = 1 if data[0] < 0x80 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
    if len(data) < length:
        return "", 0
    return data[:length].decode("utf-8", "ignore"), length
