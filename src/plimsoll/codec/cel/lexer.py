"""Tokens of the Common Expression Language."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from plimsoll.codec.cel.syntax import CompileError
from plimsoll.codec.cel.values import Uint


class Token(msgspec.Struct, frozen=True):
    kind: str  # name, quoted, literal, op, end
    text: str
    at: int
    value: Any = None


_SPACE = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)+")
_NUMBER = re.compile(
    r"0x(?P<hex>[0-9a-fA-F]+)(?P<hexu>[uU])?"
    r"|(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<int>[0-9]+)(?P<intu>[uU])?"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,(){}\[\]]")
_STRING = re.compile(r"(?P<prefix>[rR]?[bB]?|[bB][rR])(?P<quote>\"\"\"|'''|\"|')")
_ESCAPE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE |= {each: each for each in "\\?\"'`"}
_QUOTED_FIELD = re.compile(r"`([A-Za-z0-9_./ -]+)`")


def tokens(text: str) -> list[Token]:
    """Raises CompileError."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if match := _SPACE.match(text, at):
            at = match.end()
        elif match := _STRING.match(text, at):
            token = _string(text, at, match)
            found.append(token)
            at += len(token.text)
        elif match := _NUMBER.match(text, at):
            found.append(_number(text, at, match))
            at = match.end()
        elif match := _NAME.match(text, at):
            found.append(_named(match[0], at))
            at = match.end()
        elif match := _QUOTED_FIELD.match(text, at):
            found.append(Token("quoted", match[1], at))
            at = match.end()
        elif match := _OPERATOR.match(text, at):
            found.append(Token("op", match[0], at))
            at = match.end()
        else:
            shown = text[at : at + (2 if text[at] in "=&|" else 1)].replace("\n", "\\n")
            raise CompileError(text, at, f"Syntax error: token recognition error at: '{shown}'")
    found.append(Token("end", "<EOF>", len(text)))
    return found


def _named(name: str, at: int) -> Token:
    if name in ("true", "false", "null"):
        return Token("literal", name, at, {"true": True, "false": False, "null": None}[name])
    return Token("op" if name == "in" else "name", name, at)


def _number(text: str, at: int, match: re.Match[str]) -> Token:
    if match["float"]:
        return Token("literal", match[0], at, float(match["float"]))
    digits = match["hex"] or match["int"]
    value = int(digits, 16 if match["hex"] else 10) if len(digits) < 25 else 2**70
    if match["hexu"] or match["intu"]:
        if value >= 2**64:
            raise CompileError(text, at, "invalid uint literal")
        return Token("literal", match[0], at, Uint(value))
    if value > 2**63:  # one more than the largest: the parser may find a minus before it
        raise CompileError(text, at, "invalid int literal")
    return Token("literal", match[0], at, value)


def _string(text: str, start: int, match: re.Match[str]) -> Token:
    prefix, quote = match["prefix"].lower(), match["quote"]
    at, parts = match.end(), []
    is_bytes = "b" in prefix
    while True:
        if at >= len(text) or (len(quote) == 1 and text[at] == "\n"):
            shown = text[start : at + 1]
            raise CompileError(text, start, f"Syntax error: token recognition error at: '{shown}'")
        if text.startswith(quote, at):
            at += len(quote)
            break
        if text[at] == "\\" and "r" not in prefix:
            part, at = _escaped(text, at + 1, is_bytes=is_bytes)
            parts.append(part)
            continue
        parts.append(text[at].encode() if is_bytes else text[at])
        at += 1
    value = b"".join(parts) if is_bytes else "".join(parts)
    return Token("literal", text[start:at], start, value)


def _escaped(text: str, at: int, *, is_bytes: bool) -> tuple[Any, int]:
    """What the escape behind a backslash stands for, and where it ends."""
    char = text[at : at + 1]
    if char in _ESCAPE and char:
        return (_ESCAPE[char].encode() if is_bytes else _ESCAPE[char]), at + 1
    length, base = {"x": (2, 16), "X": (2, 16), "u": (4, 16), "U": (8, 16)}.get(char, (3, 8))
    begin = at if base == 8 else at + 1
    digits = text[begin : begin + length]
    try:
        if len(digits) < length or not digits.isalnum():
            raise ValueError(digits)
        code = int(digits, base)
        value: Any = bytes([code]) if is_bytes and char not in "uU" else chr(code)
    except (ValueError, OverflowError):
        reason = f"Syntax error: token recognition error at: '\\{char}'"
        raise CompileError(text, at - 1, reason) from None
    return (value.encode() if is_bytes and isinstance(value, str) else value), begin + length
