"""`plimsoll resize`: a running pod's CPU or memory, in place; first what will come of it, then the request.

The forecast is made here, from the pod, its node, the node's other pods and what they use; nothing is sent for it but
questions. Then one request goes out: to the pod's `resize` subresource where the server has one, else a plain PATCH.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlencode

import click
import msgspec

from plimsoll.cli.calculators import Amount
from plimsoll.cli.cluster import Cluster, answered, cluster_options
from plimsoll.cli.documents_print import json_text
from plimsoll.cli.output import Paint, colourful, inert
from plimsoll.cli.resize_answer import DONE, NOT_NOW, REFUSED, ResizeAnswer, lines
from plimsoll.rules.objects import CPU, MEMORY
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resize_wish import ListName

Document = dict[str, Any]
WAIT_S = 60.0


class Wanted(msgspec.Struct, frozen=True):
    pod: str
    container: str
    amounts: dict[str, Quantity]
    kinds: tuple[ListName, ...]
    dry_run: bool
    wait: bool
    yes: bool
    timeout_s: float
    output: str


@click.command("resize")
@click.argument("pod", metavar="POD")
@cluster_options
@click.option("-c", "--container", default="", help="Which one. [default: the only one]")
@click.option("--cpu", type=Amount(), help="2, 500m")
@click.option("--memory", type=Amount(), help="1Gi, 300Mi")
@click.option("--limits-only", is_flag=True, help="The limit, and leave the request.")
@click.option("--requests-only", is_flag=True, help="The request, and leave the limit.")
@click.option("--dry-run", is_flag=True, help="Say what will come of it, ask the server the same, change nothing.")
@click.option("--wait", is_flag=True, help="Follow it: proposed → allocated → kernel → reported.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), default=WAIT_S, show_default=True)
@click.option("-y", "--yes", is_flag=True, help="Send it though it must wait, restarts something or is unsafe.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Of the forecast.")
def resize(
    pod: str,
    container: str,
    cpu: Quantity | None,
    memory: Quantity | None,
    limits_only: bool,
    requests_only: bool,
    dry_run: bool,
    wait: bool,
    timeout_s: float,
    yes: bool,
    output: str,
    **options: Any,
) -> int:
    """Change a running pod's CPU or memory without a restart; says first what will come of it.

    An amount is for the request, and for the limit too where the container has one.

    Exit code 0: done, or accepted as far as can be foreseen; 1: Deferred, Infeasible, not done in time, or not sent;
    2: refused.

    \b
    Examples:
      plimsoll resize web --cpu 2
      plimsoll resize web -c app --memory 1Gi --wait
      plimsoll resize web --memory 2Gi --limits-only --dry-run
    """
    amounts = {name: amount for name, amount in ((CPU, cpu), (MEMORY, memory)) if amount is not None}
    if not amounts:
        raise click.UsageError("how much? give --cpu, --memory or both")
    if limits_only and requests_only:
        raise click.UsageError("--limits-only and --requests-only leave nothing to change")
    kinds: tuple[ListName, ...] = ("limits",) if limits_only else ("requests",) if requests_only else ()
    name = pod.removeprefix("pod/").removeprefix("pods/")
    wanted = Wanted(name, container, amounts, kinds, dry_run, wait, yes, timeout_s, output)
    return answered(options, lambda cluster: _resize(cluster, wanted))


async def _resize(cluster: Cluster, wanted: Wanted) -> int:
    from plimsoll.cli.resize_foreseen import foreseen
    from plimsoll.codec.lean import lean_pod
    from plimsoll.kube.request import PODS, get
    from plimsoll.rules.resize_wish import change_of, chosen_container, resize_patch

    stored = await cluster.ask(get(PODS, wanted.pod, cluster.namespace))
    pod = lean_pod(stored)
    container = chosen_container(pod, wanted.container)
    change = change_of(container, wanted.amounts, wanted.kinds)
    patch = resize_patch(pod, container.name, change)
    subresource = "resize" if "resize" in (await cluster.kind("pods")).subresources else ""
    answer = await foreseen(cluster, stored, container.name, change, subresource=bool(subresource))
    _say(answer, wanted.output)
    if answer.outcome == "refused":
        click.echo("nothing was sent", err=True)
        return REFUSED
    if wanted.dry_run:
        return await _asked(cluster, wanted, patch, subresource, answer)
    if answer.outcome == "unchanged":
        return DONE
    if answer.risky and not wanted.yes and not _agreed():
        return NOT_NOW
    sent = await _sent(cluster, wanted.pod, patch, subresource)
    click.echo(f"pod/{inert(wanted.pod)} resize asked for", err=wanted.output == "json")
    if not wanted.wait:
        return answer.exit_code
    from plimsoll.cli.resize_wait import followed

    return await followed(cluster, sent, wanted.timeout_s, Paint(colourful(sys.stderr)))


def _say(answer: ResizeAnswer, output: str) -> None:
    if output == "json":
        click.echo(json_text(answer))
        return
    for line in lines(answer, Paint(colourful())):
        click.echo(line)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        click.echo("nothing was sent: give --yes to ask for it all the same", err=True)
        return False
    agreed = click.confirm("ask for it all the same?", err=True)
    if not agreed:
        click.echo("nothing was sent", err=True)
    return agreed


async def _asked(cluster: Cluster, wanted: Wanted, patch: Document, subresource: str, answer: ResizeAnswer) -> int:
    """The server's own word, which also knows quotas and limit ranges."""
    from plimsoll.kube.request import ApiError

    try:
        await _sent(cluster, wanted.pod, patch, subresource, dry_run=True)
    except ApiError as error:
        click.echo(f"the server would refuse it: {inert(str(error))}", err=True)
        return REFUSED
    click.echo("dry run: the server would take the request; nothing was changed", err=wanted.output == "json")
    return answer.exit_code


async def _sent(cluster: Cluster, pod: str, patch: Document, subresource: str, *, dry_run: bool = False) -> Document:
    from plimsoll.kube.request import PODS
    from plimsoll.kube.request import patch as patching

    request = patching(PODS, pod, patch, cluster.namespace, subresource)
    if dry_run:
        request = msgspec.structs.replace(request, path=f"{request.path}?{urlencode({'dryRun': 'All'})}")
    return await cluster.ask(request)
