"""`plimsoll logs`: prints the logs of a container; unchanged to a file or pipe, escaped on a terminal."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlencode

import click

from plimsoll.cli.client import ClusterClient, PodName, answered, cluster_options
from plimsoll.cli.terminal import inert, on_terminal


@click.command("logs")
@click.argument("pod", type=PodName(), metavar="POD")
@click.argument("named", required=False, metavar="[CONTAINER]")
@cluster_options
@click.option("-c", "--container", default="", help="The container. [default: the only one]")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the container ends.")
@click.option("-p", "--previous", is_flag=True, help="The log of the previous instance of the container.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines.")
@click.option("--since", "since_s", type=click.IntRange(1), metavar="SECONDS", help="Only lines of the last SECONDS.")
@click.option("--timestamps", is_flag=True, help="Print a timestamp on each line.")
@click.option("--raw", is_flag=True, help="Do not escape control characters on a terminal.")
def logs(pod: str, named: str | None, container: str, raw: bool, **options: Any) -> int:
    """Print the logs of a container.

    On a terminal, control characters are escaped.

    \b
    Examples:
      plimsoll logs web
      plimsoll logs web -c app -f --tail 20
      plimsoll logs web --previous
    """
    harmless = on_terminal() and not raw
    return answered(options, lambda cluster: _logs(cluster, pod, container or named or "", options, harmless))


async def _logs(cluster: ClusterClient, pod: str, container: str, options: dict[str, Any], harmless: bool) -> int:
    from plimsoll.kube.request import PODS, ApiResponse, Request, api_error

    asked = {
        "container": container,
        "follow": "true" if options["follow"] else "",
        "previous": "true" if options["previous"] else "",
        "tailLines": "" if options["tail"] is None else str(options["tail"]),
        "sinceSeconds": str(options["since_s"] or ""),
        "timestamps": "true" if options["timestamps"] else "",
    }
    query = urlencode({name: value for name, value in asked.items() if value})
    path = PODS.path(cluster.namespace, pod, "log") + (f"?{query}" if query else "")
    rest = b""
    async for part in cluster.transport.stream(Request("GET", path, accept="*/*")):
        if isinstance(part, ApiResponse):
            if part.status >= 400:
                raise api_error(part)
            continue
        if harmless:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                click.echo(_harmless(line))
        else:
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
    if rest:
        click.echo(_harmless(rest), nl=False)
    return 0


def _harmless(line: bytes) -> str:
    """Escape control characters except tabs."""
    return "\t".join(inert(piece) for piece in line.decode("utf-8", "backslashreplace").rstrip("\r").split("\t"))
