"""The functions of the language: each has overloads with static types, an implementation, and its cost.

    @overload("string.startsWith(string) bool")
    def _starts_with(text: str, prefix: str) -> bool: …

A function in a name space is written `sets::contains(…)`.

Modules of functions register themselves when they are imported; `environment` imports them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from plimsoll.codec.cel.types import Type, read_type
from plimsoll.codec.cel.values import class_of

COMPARABLE = ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint")
SUMMABLE = ("double", "duration", "int", "uint")
Implementation = Callable[..., Any]
Cost = Callable[..., int]

_SIGNATURE = re.compile(r"(?:(?P<on>[a-zA-Z<>, ]+)\.)?(?P<name>[^(]+)\((?P<args>.*)\) (?P<result>[^)]+)")


class Overload(msgspec.Struct, frozen=True, eq=False):
    is_method: bool
    params: tuple[Type, ...]  # with the type of the target first
    result: Type
    run: Implementation
    cost: Cost | None


FUNCTIONS: dict[str, list[Overload]] = {}


def overload(*signatures: str, cost: Cost | None = None) -> Callable[[Implementation], Implementation]:
    def registered(run: Implementation) -> Implementation:
        for signature in signatures:
            name, found = _read(signature, run, cost)
            FUNCTIONS.setdefault(name, []).append(found)
        return run

    return registered


def _read(signature: str, run: Implementation, cost: Cost | None) -> tuple[str, Overload]:
    match = _SIGNATURE.fullmatch(signature)
    assert match is not None, signature
    texts = [match["on"]] if match["on"] else []
    texts += _split(match["args"])
    params = tuple(read_type(each) for each in texts)
    return match["name"].replace("::", "."), Overload(bool(match["on"]), params, read_type(match["result"]), run, cost)


def _split(text: str) -> list[str]:
    """At commas that are not inside angle brackets."""
    found, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            found.append(text[start:index])
            start = index + 1
    return [each.strip() for each in [*found, text[start:]] if each.strip()]


def matching(name: str, args: tuple[Any, ...], *, is_method: bool) -> Overload | None:
    """The overload for these values."""
    for each in FUNCTIONS.get(name, ()):
        if each.is_method is is_method and len(each.params) == len(args) and _accepts(each.params, args):
            return each
    return None


def _accepts(params: tuple[Type, ...], args: tuple[Any, ...]) -> bool:
    return all(
        param.name == "dyn" or len(param.name) == 1 or param.name == class_of(value)
        for param, value in zip(params, args, strict=True)
    )


def text_cost(*args: Any) -> int:
    """A tenth of a unit for each character that is looked at."""
    return 1 + sum(len(each) for each in args if isinstance(each, (str, bytes))) // 10


def list_cost(*args: Any) -> int:
    return 1 + sum(len(each) for each in args if isinstance(each, (list, dict)))


def self_comparison_cost(members: Any) -> int:
    """For a list whose members are compared with each other, and a list as the result."""
    return 11 + 2 * len(members) ** 2


def product_cost(*args: Any) -> int:
    """For two lists whose members are compared with each other."""
    total = 1
    for each in args:
        total *= len(each) if isinstance(each, list) else 1
    return 1 + total
