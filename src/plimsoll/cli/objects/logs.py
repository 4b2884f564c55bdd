"""`plimsoll logs`: prints the logs of containers; unchanged to a file or pipe, escaped on a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options, server_text
from plimsoll.cli.failure import FailedError
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.parameters import DurationParam
from plimsoll.cli.terminal import inert, on_terminal
from plimsoll.cli.verb import Verb
from plimsoll.rules.model.json_object import JsonObject

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
SELECTED_TAIL = 10  # lines of each container, if pods are selected by labels


class LogSource(msgspec.Struct, frozen=True):
    namespace: str
    pod: str
    container: str

    @property
    def prefix(self) -> str:
        return f"[pod/{self.pod}/{self.container}] "


@console.command("logs", cls=Verb)
@console.argument("pod", required=False, type=ObjectWords("pods"), metavar="[POD|KIND/NAME]")
@console.argument("named", required=False, metavar="[CONTAINER]")
@cluster_options
@console.option("-c", "--container", default="", help="The container. [default: the first one]")
@console.option("--all-containers", is_flag=True, help="All containers of the pod.")
@console.option("-l", "--selector", default="", metavar="LABELS", help="The pods with these labels.")
@console.option("-f", "--follow", is_flag=True, help="Follow the log until the container ends.")
@console.option("-p", "--previous", is_flag=True, help="The log of the previous instance of the container.")
@console.option(
    "--tail", type=int, default=None, metavar="LINES", help="Only the last lines. [default: all; 10 with -l]"
)
@console.option(
    "--since", "since_s", type=DurationParam(), metavar="DURATION", help="Only lines of the last 5s, 2m, 3h."
)
@console.option("--since-time", default="", metavar="TIME", help="Only lines since 2026-01-31T12:00:00Z.")
@console.option("--timestamps", is_flag=True, help="Print a timestamp on each line.")
@console.option("--prefix", is_flag=True, help="Print pod and container before each line.")
@console.option("--limit-bytes", type=console.IntRange(1), metavar="BYTES", help="Print at most this many bytes.")
@console.option("--ignore-errors", is_flag=True, help="Continue with the other containers after an error.")
@console.option(
    "--max-log-requests",
    type=console.IntRange(1),
    default=5,
    show_default=True,
    help="With -f and -l: how many logs are followed at most.",
)
@console.option("--raw", is_flag=True, help="Do not escape control characters on a terminal.")
def logs(pod: str | None, named: str | None, container: str, raw: bool, **options: Any) -> int:
    """Print the logs of containers.

    On a terminal, control characters are escaped.

    \b
    Examples:
      plimsoll logs web
      plimsoll logs web -c app -f --tail 20 --since 5m
      plimsoll logs web --previous
      plimsoll logs -l app=web --all-containers --prefix
      plimsoll logs deployment/web
    """
    if bool(pod) == bool(options["selector"]):
        raise console.UsageError("specify POD, KIND/NAME or -l LABELS")
    if options["since_s"] is not None and options["since_time"]:
        raise FailedError("error: at most one of `sinceTime` or `sinceSeconds` may be specified")
    query = log_query(options)
    escape = on_terminal() and not raw
    return answered(
        options, lambda cluster: _logs(cluster, pod or "", container or named or "", query, escape, options)
    )


def log_query(options: dict[str, Any]) -> dict[str, str]:
    """The PodLogOptions, without the container. Raises FailedError."""
    from plimsoll.codec.golang.times import TimeError, utc_time

    since_time = options["since_time"]
    try:
        since_time = since_time and utc_time(since_time)
    except TimeError as error:
        raise FailedError(f"error: {error}") from None
    tail = options["tail"]
    if tail is None and options["selector"]:
        tail = SELECTED_TAIL
    asked = {
        "follow": "true" if options["follow"] else "",
        "previous": "true" if options["previous"] else "",
        "tailLines": "" if tail is None or tail < 0 else str(tail),
        "sinceSeconds": "" if options["since_s"] is None else str(round(options["since_s"])),
        "sinceTime": since_time,
        "timestamps": "true" if options["timestamps"] else "",
        "limitBytes": str(options["limit_bytes"] or ""),
    }
    return {name: value for name, value in asked.items() if value}


async def _logs(
    cluster: ClusterClient, word: str, container: str, query: dict[str, str], escape: bool, options: dict[str, Any]
) -> int:
    from plimsoll.kube.request import ApiError

    pods = await _pods(cluster, word, options["selector"])
    if not pods:
        console.echo(f"No resources found in {inert(cluster.namespace)} namespace.", err=True)
        return 0
    sources = [source for pod in pods for source in chosen(pod, container, everything=options["all_containers"])]
    if options["follow"] and len(sources) > 1:
        most = options["max_log_requests"]
        if len(sources) > most:
            raise FailedError(
                f"error: you are attempting to follow {len(sources)} log streams, but maximum allowed concurrency is "
                f"{most}, use --max-log-requests to increase the limit"
            )
        await asyncio.gather(*(_stream(cluster, each, query, escape, options["prefix"]) for each in sources))
        return 0
    for source in sources:
        try:
            await _stream(cluster, source, query, escape, options["prefix"])
        except ApiError as error:
            if not options["ignore_errors"]:
                raise
            console.echo(inert(server_text(error)), err=True)
    return 0


async def _pods(cluster: ClusterClient, word: str, selector: str) -> Sequence[JsonObject]:
    """The named pod, the first pod of a workload, or the selected pods."""
    from plimsoll.kube.request import PODS, ApiError, get, listing

    if selector:
        found = await cluster.ask(listing(PODS, namespace=cluster.namespace, labels=selector))
        return [*(found.get("items") or ())]
    kind_word, slash, name = word.rpartition("/")
    kind = await cluster.kind(kind_word) if slash else None
    if kind is not None and kind.kind != "Pod":
        workload = await cluster.ask(get(kind.resource, name, cluster.namespace if kind.namespaced else ""))
        wanted = ((workload.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        if not wanted:
            raise FailedError(f"error: cannot get the logs from {inert(word)}: it selects no pods by matchLabels")
        labels = ",".join(f"{key}={value}" for key, value in wanted.items())
        pods = (await cluster.ask(listing(PODS, namespace=cluster.namespace, labels=labels))).get("items") or []
        if len(pods) > 1:
            console.echo(f"Found {len(pods)} pods, using pod/{inert(pods[0]['metadata']['name'])}", err=True)
        return [*pods[:1]]
    try:
        return [await cluster.ask(get(PODS, name, cluster.namespace))]
    except ApiError as error:
        if not error.is_gone:
            raise
        where = f'not found in namespace "{cluster.namespace}"'
        raise FailedError(f'error: error from server (NotFound): pods "{name}" {where}') from error


def chosen(pod: JsonObject, container: str, *, everything: bool) -> list[LogSource]:
    """The containers to read; the first one by default, which is reported. Raises FailedError."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    by_kind = [[str(each["name"]) for each in spec.get(kind) or ()] for kind in _CONTAINERS]
    regular, init, ephemeral = by_kind
    names = [*regular, *(f"{name} (init)" for name in init), *(f"{name} (ephem)" for name in ephemeral)]
    wanted = [container]
    if everything:
        wanted = [*init, *regular, *ephemeral]
    elif container:
        if container not in (*regular, *init, *ephemeral):
            valid = ", ".join(map(inert, names))
            raise FailedError(f"error: container {container} is not valid for pod {metadata['name']} out of: {valid}")
    else:
        default = (metadata.get("annotations") or {}).get(DEFAULT_CONTAINER)
        wanted = [default] if default in regular else regular[:1]
        if len(names) > 1 and default not in regular:
            console.echo(f'Defaulted container "{inert(wanted[0])}" out of: {", ".join(map(inert, names))}', err=True)
    return [LogSource(str(metadata.get("namespace") or ""), str(metadata["name"]), name) for name in wanted]


_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


async def _stream(
    cluster: ClusterClient, source: LogSource, query: dict[str, str], escape: bool, with_prefix: bool
) -> None:
    from plimsoll.kube.request import PODS, ApiResponse, Request, api_error

    asked = urlencode({"container": source.container, **query})
    path = f"{PODS.path(source.namespace, source.pod, 'log')}?{asked}"
    prefix, rest = source.prefix if with_prefix else "", b""
    async for part in cluster.transport.stream(Request("GET", path, accept="*/*")):
        if isinstance(part, ApiResponse):
            if part.status >= 400:
                raise api_error(part)
        elif escape or prefix:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                _print(prefix, line, escape, b"\n")
        else:
            _print("", part, False)
    if rest:
        _print(prefix, rest, escape)


def _print(prefix: str, line: bytes, escape: bool, end: bytes = b"") -> None:
    text = _escaped(line).encode() if escape else line
    sys.stdout.buffer.write(inert(prefix).encode() + text + end)
    sys.stdout.buffer.flush()


def _escaped(line: bytes) -> str:
    """Escape control characters except tabs."""
    return "\t".join(inert(piece) for piece in line.decode("utf-8", "backslashreplace").rstrip("\r").split("\t"))
