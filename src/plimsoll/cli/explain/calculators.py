"""`plimsoll explain qos|oom|memory-high|allocatable|weight`: one number and its formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.cli.parameters import FactorParam, QuantitiesParam, QuantityParam
from plimsoll.cli.terminal import inert
from plimsoll.errors import InvalidObjectError
from plimsoll.rules.admission.validation import resource_errors
from plimsoll.rules.cgroups.desired import workload
from plimsoll.rules.cgroups.reasons import (
    human_bytes,
    human_cores,
    memory_high_1_22_formula,
    memory_high_formula,
    quota_formula,
    shares_formula,
    weight_formula,
)
from plimsoll.rules.explain.advice import qos_sentence
from plimsoll.rules.explain.departures import memory_qos_gate_note, throttling_factor_note
from plimsoll.rules.model.objects import Container, Pod, PodSpec, ResourceList, Resources
from plimsoll.rules.profile import DEFAULT_PROFILE, PROFILE_NAMES, Profile, profile_named
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resources.cpu import quota_us, shares, weight_linear, weight_quadratic
from plimsoll.rules.resources.memory import FIRST_FACTOR, memory_high, memory_high_1_22
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.oom_score import burstable_score, clamped

DEFAULT_FACTOR = 0.9


@console.command("qos")
@console.option("--request", "requests", type=QuantitiesParam(), default="", help="cpu=250m,memory=1Gi")
@console.option("--limit", "limits", type=QuantitiesParam(), default="", help="cpu=500m,memory=2Gi")
def qos(requests: ResourceList, limits: ResourceList) -> None:
    """Show the QoS class of a pod with one such container."""
    question = NodeQuestion(_defaults())
    setting, _ = question.setting()
    resources = Resources(requests or None, limits or None)
    pod = Pod(spec=PodSpec(containers=(Container(name="c", image="i", resources=resources),)))
    work = workload(pod, setting)
    errors = resource_errors(work.pod.spec.containers[0].resources, "resources")
    if errors:
        raise InvalidObjectError(errors)
    console.echo(work.qos)
    console.echo(qos_sentence(work, setting))


@console.command("oom")
@console.option(
    "--request", type=QuantityParam(), default="0", show_default=True, help="The container's memory request."
)
@console.option(
    "--capacity",
    type=QuantityParam(),
    required=True,
    help="The memory capacity of the node, not its allocatable memory.",
)
def oom(request: Quantity, capacity: Quantity) -> None:
    """Show the oom_score_adj of a container in a Burstable pod."""
    if not capacity.value:
        raise console.BadParameterError("must be greater than 0", param_hint="--capacity")
    plain = burstable_score(request.value, capacity.value)
    score = clamped(plain)
    console.echo(str(score))
    text = f"1000 − ⌊1000 · {request.value} / {capacity.value}⌋ = {plain}"
    console.echo(text if plain == score else f"{text}; limited to 3…999: {score}")
    console.echo("Guaranteed and system-node-critical: −997; BestEffort: 1000")


@console.command("memory-high")
@console.option("--request", type=QuantityParam(), default="0", show_default=True)
@console.option("--limit", type=QuantityParam(), default="0", show_default=True, help="0 or absent: none.")
@console.option(
    "--allocatable",
    type=QuantityParam(),
    help="Node allocatable memory without the eviction threshold; needed without a limit.",
)
@console.option("--factor", type=FactorParam(), default=None, help="[default: 0.9, or 0.8 with --formula 1.22]")
@console.option(
    "--formula",
    type=console.Choice(["1.22", "1.27"]),
    default="1.27",
    show_default=True,
    help="That of 1.22 to 1.26, or today's.",
)
@console.option("--page-size", type=console.IntRange(1, 1 << 30), default=4096, show_default=True)
@console.option("--profile", type=console.Choice(PROFILE_NAMES), default=DEFAULT_PROFILE.name, show_default=True)
def memory_high_command(
    request: Quantity,
    limit: Quantity,
    allocatable: Quantity | None,
    factor: float | None,
    formula: str,
    page_size: int,
    profile: str,
) -> None:
    """Show the memory.high of a container with Memory QoS."""
    if limit.value and request > limit:
        raise console.BadParameterError(f"must be less than or equal to the limit of {limit}", param_hint="--request")
    chosen = profile_named(profile)
    available = allocatable.value if allocatable is not None else None
    if formula == "1.22":
        for line in _first_formula(request.value, limit.value, available, factor or FIRST_FACTOR):
            console.echo(line)
        return
    assumed = None if factor else throttling_factor_note(chosen, DEFAULT_FACTOR)
    factor = factor or DEFAULT_FACTOR
    high = memory_high(
        request.value,
        limit.value,
        available,
        factor,
        page_size=page_size,
        without_request=chosen.memory_high_without_request,
    )
    if high is None:
        console.echo("not set")
        console.echo(_why_not_high(request, limit, available, chosen))
        return
    policy = NodePolicy(0, available, throttling_factor=factor, page_size=page_size)
    console.echo(f"{high}  {human_bytes(high)}")
    console.echo(memory_high_formula(request.value, limit.value, high, policy))
    if not request.value and not limit.value:
        console.echo(chosen.notes["memory_high_without_request"])
    for note in filter(None, (memory_qos_gate_note(chosen), assumed)):
        console.echo(f"note: {note}")


def _first_formula(request: int, limit: int, available: int | None, factor: float) -> Iterator[str]:
    """The value of 1.22 to 1.26, what was wrong with it, and the value since 1.27 (KEP-2570)."""
    base = limit or available
    if not base:
        yield from ("not set", "without a limit, --allocatable is required")
        return
    high = memory_high_1_22(request, limit, available, factor)
    yield f"{high}  {human_bytes(high)}" if high is not None else "not set"
    yield memory_high_1_22_formula(limit, NodePolicy(0, available, throttling_factor=factor))
    if high is None:
        yield "not larger than the request: the container is never throttled before its limit"
    else:
        above, below = human_bytes(high - request), human_bytes(base - high)
        what = "limit" if limit else "allocatable"
        yield f"the request does not count: throttled {above} above the request, {below} below the {what}"
    now = memory_high(request, limit, available, DEFAULT_FACTOR)
    shown = f"{now}  {human_bytes(now)}" if now is not None else "not set"
    yield f"since 1.27, factor {DEFAULT_FACTOR}: {shown} (between request and limit, rounded down to a page)"


def _why_not_high(request: Quantity, limit: Quantity, allocatable: int | None, profile: Profile) -> str:
    neither = not request.value and not limit.value
    if request.value == limit.value and not (neither and profile.memory_high_without_request):
        return "the request equals the limit: memory.high is not set"
    if not limit.value and not allocatable:
        return "without a limit, --allocatable is required"
    return "the result is not larger than the request"


@console.command("allocatable")
@node_options
def allocatable(**options: Any) -> None:
    """Show what a node offers to pods: capacity minus reservations minus hard eviction thresholds."""
    from plimsoll.rules.explain.explanation import allocatable_steps

    setting, notes = NodeQuestion(options).setting()
    console.echo(f"profile {setting.profile.name}: {inert(setting.profile_reason)}")
    for name in setting.allocatable:
        console.echo(f"{inert(name):<20} {allocatable_steps(setting, name)}")
    absolute = setting.absolute["memory"].value
    console.echo(f"{'kubepods memory':<20} {absolute}  (without the eviction threshold)  {human_bytes(absolute)}")
    for note in notes:
        console.echo(f"note: {inert(note)}", err=True)


@console.command("weight")
@console.argument("cpu", type=QuantityParam())
@console.option("--period", type=console.IntRange(1000, 1_000_000), default=100_000, show_default=True, help="µs")
def weight(cpu: Quantity, period: int) -> None:
    """Convert a CPU amount to shares, weights (older and newer runtimes) and quota."""
    policy = NodePolicy(0, period_us=period)
    cpu_shares = shares(cpu.milli)
    console.echo(human_cores(cpu.milli))
    console.echo(f"{'cpu.shares':<22} {cpu_shares:>8}  {shares_formula(cpu.milli)}")
    linear = f"{weight_linear(cpu_shares):>8}  {weight_formula(cpu.milli, 'linear')}"
    console.echo(f"{'cpu.weight (linear)':<22} {linear}  ← kubelet; older runtimes")
    quadratic = f"{weight_quadratic(cpu_shares):>8}  {weight_formula(cpu.milli, 'quadratic')}"
    console.echo(f"{'cpu.weight (quadratic)':<22} {quadratic}  ← runc ≥ 1.3.2, crun ≥ 1.23")
    console.echo(
        f"{'quota µs':<22} {quota_us(cpu.milli, period):>8}  {quota_formula(cpu.milli, policy, systemd=False)}"
    )


def _defaults() -> dict[str, Any]:
    return {
        "config_file": None,
        "node_file": None,
        "capacity": "cpu=1,memory=1Gi",
        "profile": None,
        "cgroup": "v2",
        "driver": None,
        "runtime": "containerd",
        "container_weight": None,
    }


COMMANDS: dict[str, console.Command] = {
    "qos": qos,
    "oom": oom,
    "memory-high": memory_high_command,
    "allocatable": allocatable,
    "weight": weight,
}
