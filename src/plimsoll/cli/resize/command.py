"""`plimsoll resize`: changes the CPU or memory of a running pod in place; prints a forecast, then sends the request.

The forecast is computed locally from the pod, its node, the other pods of the node and their usage; it only reads. The
request is one PATCH: to the `resize` subresource of the pod if the server has it, else to the pod.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlencode

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, PodName, answered, cluster_options
from plimsoll.cli.parameters import DurationParam, QuantityParam
from plimsoll.cli.printers import json_text
from plimsoll.cli.resize.answer import DONE, NOT_NOW, REFUSED, ResizeAnswer, lines
from plimsoll.cli.terminal import Paint, colourful, inert
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import CPU, MEMORY
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.resize.request import ListName

WAIT = "60s"


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

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> Quantity:
        try:
            QUANTITIES[str(value)]
        except InvalidQuantityError:
            self.fail(f"{value!r} is not a valid amount; write it as {self.examples}", param, ctx)
        return super().convert(value, param, ctx)


class _Memory(_Cpu):
    examples = "1Gi, 300Mi or 2000M"

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> Quantity:
        quantity = super().convert(value, param, ctx)
        if quantity.milli % 1000:
            self.fail(
                f"{value!r} is not a whole number of bytes (m means thousandths); did you mean {self.examples}?",
                param,
                ctx,
            )
        return quantity


@console.command("resize")
@console.argument("pod", type=PodName(), metavar="POD")
@cluster_options
@console.option("-c", "--container", default="", help="The container. [default: the only one]")
@console.option("--cpu", type=_Cpu(), help="CPU: 2, 500m.")
@console.option("--memory", type=_Memory(), help="Memory: 1Gi, 300Mi.")
@console.option("--limits-only", is_flag=True, help="Change only the limit.")
@console.option("--requests-only", is_flag=True, help="Change only the request.")
@console.option("--dry-run", is_flag=True, help="Only print the forecast, and let the server check the request.")
@console.option(
    "--wait", is_flag=True, help="Wait until the node has applied it: proposed → allocated → kernel → reported."
)
@console.option(
    "--timeout",
    "timeout_s",
    type=DurationParam(positive=True),
    default=WAIT,
    show_default=True,
    help="Timeout of --wait.",
)
@console.option(
    "-y", "--yes", is_flag=True, help="Do not ask for confirmation of a deferred, disruptive or unsafe resize."
)
@console.option(
    "-o", "--output", type=console.Choice(["text", "json"]), default="text", help="Output format of the forecast."
)
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
    """Change the CPU or memory of a running pod without a restart; prints a forecast first.

    An amount applies to the request, and to the limit if the container has one.

    Exit code 0: done, or accepted by the forecast; 1: Deferred, Infeasible, timed out or not sent; 2: rejected.

    \b
    Examples:
      plimsoll resize web --cpu 2
      plimsoll resize web -c app --memory 1Gi --wait
      plimsoll resize web --memory 2Gi --limits-only --dry-run
    """
    amounts = {name: amount for name, amount in ((CPU, cpu), (MEMORY, memory)) if amount is not None}
    if not amounts:
        raise console.UsageError("specify --cpu, --memory or both")
    if limits_only and requests_only:
        raise console.UsageError("--limits-only and --requests-only exclude each other")
    kinds: tuple[ListName, ...] = ("limits",) if limits_only else ("requests",) if requests_only else ()
    if dry_run and wait:
        raise console.UsageError("--dry-run and --wait exclude each other")
    request = ResizeOptions(pod, container, amounts, kinds, dry_run, wait, yes, timeout_s, output)
    # Ask for confirmation between two runs of the client: inside one, Ctrl-C would not end it.
    prepared = answered(options, lambda cluster: _prepared(cluster, request))
    code = _decided(request, prepared.answer)
    if code is not None:
        return code
    try:
        return answered(options, lambda cluster: _carried_out(cluster, request, prepared))
    except KeyboardInterrupt:
        console.echo(
            f"plimsoll: interrupted; see `plimsoll describe pod {inert(pod)}` for the state of the resize", err=True
        )
        raise


class _Prepared(msgspec.Struct, frozen=True):
    patch: JsonObject
    subresource: str  # "": a plain PATCH
    answer: ResizeAnswer
    generation: int | None  # of the pod before the resize


async def _prepared(cluster: ClusterClient, request: ResizeOptions) -> _Prepared:
    from plimsoll.cli.resize.forecast import forecast_resize, stored_pod
    from plimsoll.codec.lean.lean import lean_pod
    from plimsoll.rules.resize.request import change_of, chosen_container, resize_patch

    stored = await stored_pod(cluster, request.pod)
    pod = lean_pod(stored)
    container = chosen_container(pod, request.container)
    change = change_of(container, request.amounts, request.kinds)
    subresource = "resize" if "resize" in (await cluster.kind("pods")).subresources else ""
    answer = await forecast_resize(cluster, stored, container.name, change, subresource=bool(subresource))
    patch = resize_patch(pod, container.name, change)
    return _Prepared(patch, subresource, answer, stored["metadata"].get("generation"))


def _decided(request: ResizeOptions, answer: ResizeAnswer) -> int | None:
    """Print the forecast; the exit code, or None if the request must be sent."""
    _print(answer, request.output)
    if answer.outcome == "refused":
        console.echo("The resize was not sent.", err=True)
        return REFUSED
    if request.dry_run:
        return None
    if answer.outcome == "unchanged":
        return DONE
    return NOT_NOW if answer.risky and not request.yes and not _agreed() else None


async def _carried_out(cluster: ClusterClient, request: ResizeOptions, prepared: _Prepared) -> int:
    if request.dry_run:
        return await _dry_run(cluster, request, prepared)
    sent = await _sent(cluster, request.pod, prepared)
    console.echo(f"pod/{inert(request.pod)} resize requested", err=request.output == "json")
    if not request.wait:
        return prepared.answer.exit_code
    from plimsoll.cli.resize.wait import followed

    paint = Paint(colourful(sys.stderr))
    return await followed(cluster, sent, request.timeout_s, paint, generation_before=prepared.generation)


def _print(answer: ResizeAnswer, output: str) -> None:
    if output == "json":
        console.echo(json_text(answer))
        return
    for line in lines(answer, Paint(colourful())):
        console.echo(line)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        console.echo("The resize was not sent; use --yes to send it anyway.", err=True)
        return False
    try:
        agreed = console.confirm("Send the resize anyway?", err=True)
    except KeyboardInterrupt:
        console.echo("\nThe resize was not sent.", err=True)
        raise SystemExit(console.INTERRUPTED) from None
    if not agreed:
        console.echo("The resize was not sent.", err=True)
    return agreed


async def _dry_run(cluster: ClusterClient, request: ResizeOptions, prepared: _Prepared) -> int:
    """Let the server check the request, which also knows quotas and limit ranges."""
    from plimsoll.kube.request import ApiError

    try:
        await _sent(cluster, request.pod, prepared, dry_run=True)
    except ApiError as error:
        console.echo(f"The server would reject the resize: {inert(str(error))}", err=True)
        return REFUSED
    console.echo("The server would accept the resize (dry run).", err=request.output == "json")
    return prepared.answer.exit_code


async def _sent(cluster: ClusterClient, pod: str, prepared: _Prepared, *, dry_run: bool = False) -> JsonObject:
    from plimsoll.kube.request import PODS
    from plimsoll.kube.request import patch as patching

    request = patching(PODS, pod, prepared.patch, cluster.namespace, prepared.subresource)
    if dry_run:
        request = msgspec.structs.replace(request, path=f"{request.path}?{urlencode({'dryRun': 'All'})}")
    return await cluster.ask(request)
