"""Values as Go's `%v` prints them: maps with sorted keys, lists with spaces, strings bare."""

from __future__ import annotations

from typing import Any

from plimsoll.errors import quoted


def go_printed(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_printed(member)}" for name, member in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_printed, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    return str(value)


def _float(value: float) -> str:
    """Go's %v of a float64: the fewest digits, an exponent below −4 and from 21 on."""
    text = repr(value)
    if "e" not in text and "inf" not in text and "nan" not in text:
        mantissa = text.removesuffix(".0")
        return mantissa if abs(value) >= 1e-4 or value == 0 else f"{value:e}"
    mantissa, _, exponent = text.partition("e")
    power = int(exponent or 0)
    if 0 <= power < 21:
        return f"{value:.0f}"
    return f"{mantissa.removesuffix('.0')}e{'-' if power < 0 else '+'}{abs(power):02d}"


def go_syntax(value: Any) -> str:
    """A value of an applied document as `%#v` prints it, wrapped as in the library that reads it."""
    return f"&value.valueUnstructured{{Value:{_syntax(value)}}}"


def _syntax(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        members = ", ".join(f"{quoted(name)}:{_syntax(member)}" for name, member in sorted(value.items()))
        return f"map[string]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_syntax, value)) + "}"
    return "interface {}(nil)" if value is None else go_printed(value)
