"""Shell completion: kinds and names from the cluster, and the script that a shell loads.

A completion that cannot reach the cluster offers nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from plimsoll.cli.client import ClusterClient, PodName, answered
from plimsoll.errors import PlimsollError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

WAIT_S = 3.0  # a shell waits for the answer


class ObjectWords(click.ParamType[str]):
    """`KIND NAME…` or `KIND/NAME…`; `kind` where the verb is about one kind only."""

    name = "words"

    def __init__(self, kind: str = "") -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        typed: Sequence[str] = () if self._kind else ctx.params.get(param.name or "") or ()
        return _items(_completed(ctx, self._kind, typed, incomplete), incomplete)


class CompletedPod(PodName):
    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items(_completed(ctx, "pods", (), incomplete), incomplete)


def _items(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _completed(ctx: click.Context, kind: str, typed: Sequence[str], incomplete: str) -> list[str]:
    options = {name: ctx.params.get(name) for name in ("kubeconfig", "context", "namespace")}
    options["context"], options["namespace"] = options["context"] or "", options["namespace"] or ""
    try:
        return answered(options, lambda cluster: _words(cluster, kind, typed, incomplete))
    except (PlimsollError, OSError):
        return []


async def _words(cluster: ClusterClient, kind: str, typed: Sequence[str], incomplete: str) -> list[str]:
    import asyncio

    async with asyncio.timeout(WAIT_S):
        if not kind and not typed and "/" not in incomplete:
            return sorted({each.plural for each in await cluster.kinds() if "list" in each.verbs})
        prefix, slash, _ = incomplete.rpartition("/")
        names = await _names(cluster, kind or prefix or typed[0])
        return [f"{prefix}{slash}{name}" for name in names if not kind] or names


async def _names(cluster: ClusterClient, word: str) -> list[str]:
    from plimsoll.kube.request import listing

    kind = await cluster.kind(word)
    found = await cluster.ask(listing(kind.resource, namespace=cluster.namespace if kind.namespaced else ""))
    return sorted(str(each["metadata"]["name"]) for each in found.get("items") or ())


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
