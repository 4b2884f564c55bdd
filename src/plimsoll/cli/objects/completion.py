"""Shell completion: arguments that are kinds and names of objects, and the script that a shell loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.client import completed


class ObjectWords(console.ParamType[str]):
    """`KIND NAME…` or `KIND/NAME…`; `kind` where the verb is about one kind only."""

    name = "words"

    def __init__(self, kind: str = "") -> None:
        self._kind = kind

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> str:
        return str(value)

    def shell_complete(
        self, ctx: console.Context, param: console.Parameter, incomplete: str
    ) -> list[console.Completion]:
        typed: Sequence[str] = () if self._kind else ctx.params.get(param.name) or ()
        return completed(ctx, self._kind, typed, incomplete)


@console.command("completion")
@console.argument("shell", type=console.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, options, kinds and names of objects.

    \b
    Examples:
      source <(plimsoll completion bash)
      plimsoll completion zsh > "${fpath[1]}/_plimsoll"
      plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish
    """
    from plimsoll.cli.console.completion import SCRIPTS

    console.echo(SCRIPTS[shell], nl=False)
