"""The words of a command line, sorted into options and arguments; their values are still text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll.cli.console.errors import UsageError, no_such_option
from plimsoll.cli.console.parameters import Argument, Option

if TYPE_CHECKING:
    from plimsoll.cli.console.commands import Command


class Parsed:
    """`values`: by parameter, in the order of the words. `rest`: words that belong to no parameter."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.rest: list[str] = []


def parse(command: Command, words: list[str], *, resilient: bool) -> Parsed:
    parsed = Parsed()
    reader = _Reader(command, words, parsed.values)
    try:
        reader.read()
    except UsageError:
        if not resilient:
            raise
    parsed.rest = _taken([each for each in command.params if isinstance(each, Argument)], reader.plain, parsed.values)
    return parsed


def _taken(arguments: list[Argument], words: list[str], values: dict[str, Any]) -> list[str]:
    """Give each argument its word; the one that takes any number gets those that no other needs."""
    left = list(words)
    before: list[Argument] = []
    many: Argument | None = None
    after: list[Argument] = []
    for each in arguments:
        if each.multiple:
            many = each
        else:
            (before if many is None else after).append(each)
    for each in before:
        if left:
            values[each.name] = left.pop(0)
    for each in reversed(after):
        if left:
            values[each.name] = left.pop()
    if many is not None and left:
        values[many.name], left = tuple(left), []
    return left


class _Reader:
    def __init__(self, command: Command, words: list[str], values: dict[str, Any]) -> None:
        self.command, self.values = command, values
        self.plain: list[str] = []
        self._words = list(reversed(words))
        self._options = {name: each for each in command.options() for name in (*each.opts, *each.secondary_opts)}

    def read(self) -> None:
        while self._words:
            word = self._words.pop()
            if word == "--":
                break
            if word.startswith("-") and word != "-":
                self._option(word)
            elif self.command.allow_interspersed_args:
                self.plain.append(word)
            else:
                self._words.append(word)
                break
        self.plain += reversed(self._words)

    def _option(self, word: str) -> None:
        name, equals, value = word.partition("=")
        if len(name) > 2 and (option := self._options.get(name)) is not None:
            if option.is_flag and equals:
                raise UsageError(f"Option {name!r} does not take a value.")
            self._set(option, name, value if equals else None)
        elif not word.startswith("--"):
            self._letters(word)
        elif self.command.ignore_unknown_options:
            self.plain.append(word)
        else:
            raise no_such_option(name, [each for each in self._options if each.startswith("--")])

    def _letters(self, word: str) -> None:
        """`-it`, `-ojson`."""
        unknown = ""
        for place, letter in enumerate(word[1:], 2):
            option = self._options.get(f"-{letter}")
            if option is None:
                if not self.command.ignore_unknown_options:
                    raise no_such_option(f"-{letter}", ())
                unknown += letter
                continue
            self._set(option, f"-{letter}", word[place:] or None)
            if not option.is_flag:
                break
        if unknown:
            self.plain.append(f"-{unknown}")

    def _set(self, option: Option, name: str, value: str | None) -> None:
        if option.is_flag:
            self.values[option.name] = name in option.opts
            return
        if value is None:
            if not self._words:
                raise UsageError(f"Option {name!r} requires an argument.")
            value = self._words.pop()
        if option.multiple:
            self.values.setdefault(option.name, []).append(value)
        else:
            self.values[option.name] = value
