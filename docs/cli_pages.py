"""The reference of the command line: the help page of every command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module

from plimsoll.cli.console.commands import Command, Context, Group
from plimsoll.cli.main import VERBS


def cli_page() -> str:
    """One section for each verb, with its subcommands."""
    parts = [
        "# All commands\n\nThe help page of every command, as `plimsoll COMMAND --help` prints it. ",
        "[The command line](../verbs.md) explains them by task. `./dev docs` writes this page.\n",
    ]
    root = Context(Group("plimsoll"), "plimsoll")
    for verb, (module, attribute, _) in sorted(VERBS.items()):
        for path, text in _help_pages(getattr(import_module(module), attribute), Context(root.command, verb, root)):
            parts.append(f"\n{'#' * min(path.count(' ') + 1, 4)} {path}\n\n```text\n{text.rstrip()}\n```\n")
    return "".join(parts)


def _help_pages(command: Command, ctx: Context) -> Iterator[tuple[str, str]]:
    ctx.command = command
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"  # whatever the width of this terminal
    try:
        text = command.help_page(ctx)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    yield ctx.command_path, text
    if isinstance(command, Group):
        for name, inner in sorted(command.commands.items()):
            yield from _help_pages(inner, Context(inner, name, ctx))
