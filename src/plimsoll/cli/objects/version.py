"""`plimsoll version`: the versions of this program and of the server."""

from __future__ import annotations

import platform
from typing import Any

from plimsoll import __version__
from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.printers import shown
from plimsoll.cli.terminal import inert
from plimsoll.cli.verb import Verb
from plimsoll.rules.model.json_object import JsonObject


@console.command("version", cls=Verb)
@console.option("--client", "only_client", is_flag=True, help="Do not ask a server.")
@console.option("-o", "--output", type=console.Choice(["json", "yaml"]), help="[default: text]")
@cluster_options
def version(only_client: bool, output: str | None, **options: Any) -> int:
    """Print the versions of this program and of the server."""
    found: dict[str, JsonObject] = {"clientVersion": client_version()}
    try:
        if not only_client:
            found["serverVersion"] = answered(options, _server)
    finally:  # the version of this program also if no server answers, as kubectl does
        _show(found, output)
    return 0


def _show(found: dict[str, JsonObject], output: str | None) -> None:
    if output:
        console.echo(shown(found, output))
    else:
        for who, about in found.items():
            console.echo(f"{who.removesuffix('Version').capitalize()} Version: {inert(str(about.get('gitVersion')))}")


async def _server(cluster: ClusterClient) -> JsonObject:
    from plimsoll.kube.request import Request

    return await cluster.ask(Request("GET", "/version"))


def client_version() -> JsonObject:
    major, minor, *_ = __version__.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{__version__}",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
