"""`plimsoll logs`: what a container has written. Bytes as they are into a file or pipe; made harmless on a terminal."""

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
@click.option("-c", "--container", default="", help="Which one. [default: the only one]")
@click.option("-f", "--follow", is_flag=True, help="And whatever comes, until the container ends.")
@click.option("-p", "--previous", is_flag=True, help="Of the run before the last restart.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last ones.")
@click.option("--since", "since_s", type=click.IntRange(1), metavar="SECONDS", help="Not older than this.")
@click.option("--timestamps", is_flag=True, help="Each line with its time.")
@click.option("--raw", is_flag=True, help="Control characters as they are, on a terminal too.")
def logs(pod: str, named: str | None, container: str, raw: bool, **options: Any) -> int:
    """Print a container's log.

    On a terminal, control characters of the log are shown, not obeyed: a log may hold anything.

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
    """Tabs are part of many logs, and do nothing."""
    return "\t".join(inert(piece) for piece in line.decode("utf-8", "backslashreplace").rstrip("\r").split("\t"))
