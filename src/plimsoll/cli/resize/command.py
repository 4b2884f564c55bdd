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

from plimsoll.cli.client import ClusterClient, PodName, answered, cluster_options
from plimsoll.cli.parameters import QuantityParam
from plimsoll.cli.printers import json_text
from plimsoll.cli.resize.answer import DONE, NOT_NOW, REFUSED, ResizeAnswer, lines
from plimsoll.cli.terminal import Paint, colourful, inert
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import CPU, MEMORY
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.resize.request import ListName

WAIT_S = 60.0


class ResizeOptions(msgspec.Struct, frozen=True):
    pod: str
    container: str
    amounts: dict[str, Quantity]
    kinds: tuple[ListName, ...]
    dry_run: bool
    wait: bool
    yes: bool
    timeout_s: float
    output: str


class _Cpu(QuantityParam):
    examples = "2 or 500m"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Quantity:
        try:
            QUANTITIES[str(value)]
        except InvalidQuantityError:
            self.fail(f"{value!r} is no amount; write it as {self.examples}", param, ctx)
        return super().convert(value, param, ctx)


class _Memory(_Cpu):
    examples = "1Gi, 300Mi or 2000M"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Quantity:
        quantity = super().convert(value, param, ctx)
        if quantity.milli % 1000:
            self.fail(
                f"{value!r} is no whole number of bytes (m stands for thousandths); is it {self.examples}?", param, ctx
            )
        return quantity


@click.command("resize")
@click.argument("pod", type=PodName(), metavar="POD")
@cluster_options
@click.option("-c", "--container", default="", help="Which one. [default: the only one]")
@click.option("--cpu", type=_Cpu(), help="In CPUs: 2, 500m.")
@click.option("--memory", type=_Memory(), help="In bytes: 1Gi, 300Mi.")
@click.option("--limits-only", is_flag=True, help="The limit, and leave the request.")
@click.option("--requests-only", is_flag=True, help="The request, and leave the limit.")
@click.option("--dry-run", is_flag=True, help="Say what will come of it, ask the server the same, change nothing.")
@click.option("--wait", is_flag=True, help="Follow it: proposed → allocated → kernel → reported.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to --wait.",
)
@click.option("-y", "--yes", is_flag=True, help="Send it though it must wait, restarts or ends something or is unsafe.")
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
    if dry_run and wait:
        raise click.UsageError("--dry-run changes nothing that --wait could follow")
    wanted = ResizeOptions(pod, container, amounts, kinds, dry_run, wait, yes, timeout_s, output)
    # A question on a terminal is asked between two runs of the client: inside one, Ctrl-C would not end it.
    prepared = answered(options, lambda cluster: _prepared(cluster, wanted))
    code = _decided(wanted, prepared.answer)
    if code is not None:
        return code
    try:
        return answered(options, lambda cluster: _carried_out(cluster, wanted, prepared))
    except KeyboardInterrupt:
        click.echo(f"plimsoll: not waited for; how far it is: `plimsoll describe pod {inert(pod)}`", err=True)
        raise


class _Prepared(msgspec.Struct, frozen=True):
    patch: JsonObject
    subresource: str  # "": a plain PATCH
    answer: ResizeAnswer
    generation: int | None  # of the pod before


async def _prepared(cluster: ClusterClient, wanted: ResizeOptions) -> _Prepared:
    from plimsoll.cli.resize.forecast import foreseen, stored_pod
    from plimsoll.codec.lean.lean import lean_pod
    from plimsoll.rules.resize.request import change_of, chosen_container, resize_patch

    stored = await stored_pod(cluster, wanted.pod)
    pod = lean_pod(stored)
    container = chosen_container(pod, wanted.container)
    change = change_of(container, wanted.amounts, wanted.kinds)
    subresource = "resize" if "resize" in (await cluster.kind("pods")).subresources else ""
    answer = await foreseen(cluster, stored, container.name, change, subresource=bool(subresource))
    patch = resize_patch(pod, container.name, change)
    return _Prepared(patch, subresource, answer, stored["metadata"].get("generation"))


def _decided(wanted: ResizeOptions, answer: ResizeAnswer) -> int | None:
    """Says what will come of it; None where the server is to be asked."""
    _say(answer, wanted.output)
    if answer.outcome == "refused":
        click.echo("nothing was sent", err=True)
        return REFUSED
    if wanted.dry_run:
        return None
    if answer.outcome == "unchanged":
        return DONE
    return NOT_NOW if answer.risky and not wanted.yes and not _agreed() else None


async def _carried_out(cluster: ClusterClient, wanted: ResizeOptions, prepared: _Prepared) -> int:
    if wanted.dry_run:
        return await _asked(cluster, wanted, prepared)
    sent = await _sent(cluster, wanted.pod, prepared)
    click.echo(f"pod/{inert(wanted.pod)} resize asked for", err=wanted.output == "json")
    if not wanted.wait:
        return prepared.answer.exit_code
    from plimsoll.cli.resize.wait import followed

    paint = Paint(colourful(sys.stderr))
    return await followed(cluster, sent, wanted.timeout_s, paint, generation_before=prepared.generation)


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
    try:
        agreed = click.confirm("ask for it all the same?", err=True)
    except click.Abort:
        click.echo("\nnothing was sent", err=True)
        raise
    if not agreed:
        click.echo("nothing was sent", err=True)
    return agreed


async def _asked(cluster: ClusterClient, wanted: ResizeOptions, prepared: _Prepared) -> int:
    """The server's own word, which also knows quotas and limit ranges."""
    from plimsoll.kube.request import ApiError

    try:
        await _sent(cluster, wanted.pod, prepared, dry_run=True)
    except ApiError as error:
        click.echo(f"the server would refuse it: {inert(str(error))}", err=True)
        return REFUSED
    click.echo("dry run: the server would take the request; nothing was changed", err=wanted.output == "json")
    return prepared.answer.exit_code


async def _sent(cluster: ClusterClient, pod: str, prepared: _Prepared, *, dry_run: bool = False) -> JsonObject:
    from plimsoll.kube.request import PODS
    from plimsoll.kube.request import patch as patching

    request = patching(PODS, pod, prepared.patch, cluster.namespace, prepared.subresource)
    if dry_run:
        request = msgspec.structs.replace(request, path=f"{request.path}?{urlencode({'dryRun': 'All'})}")
    return await cluster.ask(request)
