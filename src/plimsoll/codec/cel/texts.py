"""Functions on texts: the standard ones, the extended strings library, and regular expressions."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from plimsoll.codec.cel.overloads import list_cost, overload, text_cost
from plimsoll.codec.cel.values import Duration, EvaluationError, Timestamp, TypeValue, Uint
from plimsoll.codec.golang.fmt import go_printed
from plimsoll.errors import quoted
from plimsoll.rules.re2.matcher import Regex, RegexBudgetError, compiled
from plimsoll.rules.re2.syntax import RegexError

_SPACES = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
MAX_TEXT = 10_000_000


@overload("string.startsWith(string) bool", cost=text_cost)
def _starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@overload("string.endsWith(string) bool", cost=text_cost)
def _ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


@overload("string.contains(string) bool", cost=text_cost)
def _contains(text: str, part: str) -> bool:
    return part in text


# --- regular expressions ---


def _regex(pattern: str) -> Regex:
    try:
        return compiled(pattern)
    except RegexError as error:
        raise EvaluationError(str(error)) from None


def _regex_cost(text: str, pattern: str, *_: Any) -> int:
    return 1 + (len(text) + 1) // 10 * (len(pattern) // 4 + 1)


@overload("string.matches(string) bool", "matches(string, string) bool", cost=_regex_cost)
def _matches(text: str, pattern: str) -> bool:
    try:
        return _regex(pattern).search(text)
    except RegexBudgetError as error:
        raise EvaluationError(str(error)) from None


@overload("string.find(string) string", cost=_regex_cost)
def _find(text: str, pattern: str) -> str:
    try:
        found = _regex(pattern).find(text)
    except RegexBudgetError as error:
        raise EvaluationError(str(error)) from None
    return "" if found is None else text[found[0] : found[1]]


@overload("string.findAll(string) list<string>", "string.findAll(string, int) list<string>", cost=_regex_cost)
def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    try:
        return _regex(pattern).find_all(text, most)
    except RegexBudgetError as error:
        raise EvaluationError(str(error)) from None


# --- the extended library ---


@overload("string.charAt(int) string")
def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


@overload("string.indexOf(string) int", "string.indexOf(string, int) int", cost=text_cost)
def _index_of(text: str, part: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


@overload("string.lastIndexOf(string) int", "string.lastIndexOf(string, int) int", cost=text_cost)
def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


@overload("string.lowerAscii() string", cost=text_cost)
def _lower(text: str) -> str:
    return "".join(each.lower() if each.isascii() else each for each in text)


@overload("string.upperAscii() string", cost=text_cost)
def _upper(text: str) -> str:
    return "".join(each.upper() if each.isascii() else each for each in text)


@overload("string.trim() string", cost=text_cost)
def _trim(text: str) -> str:
    return text.strip(_SPACES)


@overload("string.substring(int) string", "string.substring(int, int) string", cost=text_cost)
def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if start < 0 or start > len(text) or last < 0 or last > len(text):
        raise EvaluationError(f"index out of range: {start if start < 0 or start > len(text) else last}")
    if start > last:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {last}")
    return text[start:last]


@overload("string.replace(string, string) string", "string.replace(string, string, int) string", cost=text_cost)
def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    count = text.count(old) if most < 0 else min(most, text.count(old))
    if len(text) + count * max(0, len(new) - len(old)) > MAX_TEXT:
        raise EvaluationError("the result of replace is too long")
    return text.replace(old, new, most) if most >= 0 else text.replace(old, new)


@overload("string.split(string) list<string>", "string.split(string, int) list<string>", cost=text_cost)
def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not separator:
        parts = list(text)
        return parts if most < 0 or len(parts) <= most else [*parts[: most - 1], "".join(parts[most - 1 :])]
    return text.split(separator, most - 1 if most > 0 else -1)


@overload("list<string>.join() string", "list<string>.join(string) string", cost=list_cost)
def _join(parts: list[Any], separator: str = "") -> str:
    if any(not isinstance(each, str) for each in parts):
        raise EvaluationError("no such overload")
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_TEXT:
        raise EvaluationError("the result of join is too long")
    return separator.join(parts)


@overload("strings::quote(string) string", cost=text_cost)
def _quote(text: str) -> str:
    return quoted(text)


@overload("base64::encode(bytes) string", cost=text_cost)
def _base64_encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


@overload("base64::decode(string) bytes", cost=text_cost)
def _base64_decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise EvaluationError("illegal base64 data") from None


# --- format ---


@overload("string.format(list<dyn>) string", cost=lambda text, args: 1 + len(text) // 10 + len(args))
def _format(text: str, args: list[Any]) -> str:
    found: list[str] = []
    at = used = 0
    while at < len(text):
        if text[at] != "%":
            end = text.find("%", at)
            end = len(text) if end < 0 else end
            found.append(text[at:end])
            at = end
            continue
        at += 1
        if text.startswith("%", at):
            found.append("%")
            at += 1
            continue
        precision, at = _precision(text, at)
        if at >= len(text):
            raise EvaluationError("could not parse formatting clause: unexpected end of string")
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        found.append(_clause(text[at], precision, args[used]))
        used += 1
        at += 1
    if sum(map(len, found)) > MAX_TEXT:
        raise EvaluationError("the result of format is too long")
    return "".join(found)


def _precision(text: str, at: int) -> tuple[int | None, int]:
    if not text.startswith(".", at):
        return None, at
    end = at + 1
    while end < len(text) and text[end].isascii() and text[end].isdigit():
        end += 1
    digits = text[at + 1 : end]
    if not digits or len(digits) > 3:
        raise EvaluationError("error while parsing precision: could not parse precision")
    return int(digits), end


def _clause(verb: str, precision: int | None, value: Any) -> str:
    match verb:
        case "s":
            return _shown(value)
        case "d" if isinstance(value, int) and not isinstance(value, bool):
            return str(int(value))
        case "d" if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
            return _shown(value)
        case "f" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f"{value:.{6 if precision is None else precision}f}"
        case "e" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f"{value:.{6 if precision is None else precision}e}"
        case "b" if isinstance(value, int):
            return f"{int(value):b}"
        case "o" if isinstance(value, int) and not isinstance(value, bool):
            return f"{int(value):o}"
        case "x" | "X" if isinstance(value, int) and not isinstance(value, bool):
            return f"{int(value):{verb}}"
        case "x" | "X" if isinstance(value, (str, bytes)):
            shown = (value.encode() if isinstance(value, str) else value).hex()
            return shown if verb == "x" else shown.upper()
    if verb not in "sdfeboxX":
        raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
    raise EvaluationError(f"error during formatting: %{verb} does not take a value of this type")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, dict):
        members = sorted((_shown(key), _shown(member)) for key, member in value.items())
        return "{" + ", ".join(f"{key}: {member}" for key, member in members) + "}"
    if value is None:
        return "null"
    if isinstance(value, (Timestamp, Duration, Uint)):
        return str(value)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return go_printed(value)
