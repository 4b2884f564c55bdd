"""Commands that read their options as kubectl does.

A short option may have `=` before its value (`-o=json`). A flag may have a value after `=` (`--wait=false`), never
after a blank: `--wait pod` is a flag and an argument. So is the value of an option where it is optional (`--dry-run`,
`--dry-run=client`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from plimsoll.cli import console

_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
DryRun = Literal["none", "client", "server"]
Command = TypeVar("Command", bound=Callable[..., Any])


class OptionalValue(console.Option):
    """`bare` is the value of the option without `=VALUE`."""

    def __init__(self, *args: Any, bare: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.bare = bare


class Verb(console.Command):
    def parse_args(self, ctx: console.Context, args: list[str]) -> None:
        super().parse_args(ctx, list(self._plain(args)))

    def _plain(self, args: list[str]) -> Iterator[str]:
        """The arguments as every command reads them."""
        options = {name: each for each in self.options() for name in each.opts}
        words = iter(args)
        for word in words:
            if word == "--":
                yield word
                break
            name, equals, value = word.partition("=")
            option = options.get(name)
            if isinstance(option, OptionalValue) and not equals:
                yield f"{name}={option.bare}"
            elif option is not None and option.is_flag and equals:
                yield from _flag(option, name, value)
            elif option is not None and equals and not name.startswith("--"):  # -o=json
                yield name
                yield value
            else:
                yield word
                if option is not None and not option.is_flag and not equals:
                    yield from _taken(words)  # its value, whatever it is
        yield from words


def _taken(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        yield word
        return


def _flag(option: console.Option, name: str, value: str) -> Iterator[str]:
    on = _BOOLEANS.get(value.lower())
    if on is None:
        raise console.UsageError(f"{name}={value}: must be true or false")
    if on:
        yield name
    else:
        yield from option.secondary_opts[:1]


def dry_run_option(bare: DryRun = "client") -> Callable[[Command], Command]:
    return console.option(
        "--dry-run",
        cls=OptionalValue,
        bare=bare,
        type=console.Choice(["none", "client", "server"]),
        default="none",
        metavar="client|server",
        help=f"Change nothing; `server` lets the server check the request. Without a value: {bare}.",
    )


def dry_run_words(dry_run: DryRun) -> str:
    """What kubectl appends to a line."""
    return {"none": "", "client": " (dry run)", "server": " (server dry run)"}[dry_run]


def dry_run_query(dry_run: DryRun) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run == "server" else {}
