"""Shell completion: arguments that are kinds and names of objects, and the script that a shell loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from plimsoll.cli.client import completed

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class ObjectWords(click.ParamType[str]):
    """`KIND NAME…` or `KIND/NAME…`; `kind` where the verb is about one kind only."""

    name = "words"

    def __init__(self, kind: str = "") -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        typed: Sequence[str] = () if self._kind else ctx.params.get(param.name or "") or ()
        return completed(ctx, self._kind, typed, incomplete)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell: commands, options, kinds and names of objects.

    \b
    Examples:
      source <(plimsoll completion bash)
      plimsoll completion zsh > "${fpath[1]}/_plimsoll"
      plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    script = found(ctx.find_root().command, {}, "plimsoll", "_PLIMSOLL_COMPLETE")
    click.echo(script.source_template % script.source_vars())
