"""`plimsoll explain eviction-order`: who goes first when a node runs short, and which key decided.

From manifests and assumed usages, or from a live node. The ranking is the agent's own (`rules.eviction.decision`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import click
import msgspec

from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.explain.usage import assumed, matched, usage_for
from plimsoll.cli.manifests import read_inputs, refused
from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.cli.printers import order_lines
from plimsoll.cli.terminal import Paint, colourful, inert
from plimsoll.codec.lean.lean import from_document
from plimsoll.codec.node_pages import PressurePage
from plimsoll.errors import InvalidConfigsError
from plimsoll.rules.config.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    PID_AVAILABLE,
    FsLayout,
    Threshold,
    ThresholdValue,
    with_containerfs,
)
from plimsoll.rules.eviction.assessment import RESOURCE_OF, Observation, met_thresholds
from plimsoll.rules.eviction.decision import EvictionDecision, decision
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.model.objects import MEMORY, Node, Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES, ZERO, Quantity, from_units
from plimsoll.rules.resources.allocated_status import allocated_from_status

# Of a KubeletConfiguration, what evictions depend on.
_COUNTS = (
    "enforceNodeAllocatable",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "featureGates",
    "kubeReserved",
    "mergeDefaultEvictionSettings",
    "systemReserved",
)


class EvictionOrder(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    decision: EvictionDecision
    met: bool | None = None  # None: no threshold, or it is not known how much is available, or of how much
    usage_from: str = ""
    notes: tuple[str, ...] = ()


class _Asked(msgspec.Struct, frozen=True):
    signal: str
    available: str | None
    layout: FsLayout | None
    hard_grace_s: int | None  # of the extras in --config
    as_told: bool  # no option describes the node: a live one tells
    capacity: Quantity | None = None  # of the signal, by the node's own word


@click.command("eviction-order")
@click.argument("files", nargs=-1, metavar="[FILE|DIR|-...]")
@node_options
@click.option("--usage", "usage_text", default="", metavar="LIST", help="web=500Mi,shop/api=2Gi (pods or inodes: 300)")
@click.option("--usage-file", metavar="FILE", help="The same as a mapping, a /stats/summary or a PodMetricsList.")
@click.option("--signal", default="memory.available", show_default=True, type=click.Choice(sorted(RESOURCE_OF)))
@click.option("--available", default=None, metavar="AMOUNT", help="How much is left: who would be evicted, and how.")
@click.option(
    "--layout",
    default=None,
    type=click.Choice(get_args(FsLayout)),
    help="Disk signals: all on one file system, images and writable layers on one of their own, or images only. "
    "[default: as a live node tells, else single]",
)
@click.option("--on", "node_name", default="", metavar="NODE", help="Live: which node. [default: the only one]")
@cluster_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def eviction_order(files: tuple[str, ...], output: str, **options: Any) -> int:
    """Say who is evicted first, and why that one.

    Without files the question is about a live node: its pods and what they use now, and its own thresholds unless
    options say others.

    \b
    Examples:
      plimsoll explain eviction-order pods.yaml --usage web=900Mi,batch=200Mi
      plimsoll explain eviction-order pods.json --usage-file summary.json --available 50Mi
      plimsoll explain eviction-order pods.yaml --signal pid.available --usage web=300
      plimsoll explain eviction-order --on n1
    """
    question = NodeQuestion(options)
    setting, _ = question.setting()
    asked = _Asked(
        options["signal"],
        options["available"],
        options["layout"],
        question.extras.eviction_hard_grace_s,
        as_told=not question.describes_node,
    )
    if files:
        found = _from_files(files, setting, asked, options)
    else:
        if options["usage_text"] or options["usage_file"]:
            raise click.UsageError("--usage is about pods in files; a live node tells what its pods use")
        found = answered(options, lambda cluster: _live(cluster, setting, asked, options))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        for line in _lines(found, Paint(colourful())):
            click.echo(line)
    return 0


def _from_files(files: Sequence[str], setting: NodeConfig, asked: _Asked, options: dict[str, Any]) -> EvictionOrder:
    inputs = read_inputs(files)
    problems = [*inputs.problems, *(problem for given in inputs.pods for problem in refused(given, setting))]
    if problems:
        raise click.ClickException("\n".join(map(str, problems)))
    if not inputs.pods:
        raise click.ClickException("no pod in the input")
    pods = [
        _with_uid(allocated_from_status(given.pod), f"{given.found.title} {index}", given.found.title)
        for index, given in enumerate(inputs.pods)
    ]
    amounts, reported = assumed(options["usage_text"], options["usage_file"])
    keys = [(pod.metadata.namespace, pod.metadata.name) for pod in pods]
    said = matched(amounts, keys)
    usage: dict[str, PodUsage] = {}
    for pod, key in zip(pods, keys, strict=True):
        if key in said:
            usage[pod.metadata.uid] = usage_for(asked.signal, said[key], asked.layout or "single")
        elif (found := reported.get((key[0] or "default", key[1])) or reported.get(key)) is not None:
            usage[pod.metadata.uid] = found
    silent = len(pods) - len(usage)
    notes = [f"{silent} of {len(pods)} pods have no usage: the kubelet suspects such pods first"] if silent else []
    return _decided(pods, usage, setting, asked, "what you assume", notes)


def _with_uid(pod: Pod, uid: str, title: str) -> Pod:
    """Manifests have no uid, and templates no name; the ranking wants the one and people the other."""
    name = pod.metadata.name or title
    metadata = msgspec.structs.replace(pod.metadata, uid=pod.metadata.uid or uid, name=name)
    return msgspec.structs.replace(pod, metadata=metadata)


async def _live(cluster: ClusterClient, setting: NodeConfig, asked: _Asked, options: dict[str, Any]) -> EvictionOrder:
    from plimsoll.cli.node_info import chosen_node, pods_on, pressure_on, usage_on

    described = await chosen_node(cluster, options["node_name"])
    node = str(described["metadata"]["name"])
    pods = [allocated_from_status(pod) for pod in await pods_on(cluster, node)]
    if not pods:
        raise click.ClickException(f"node {node} has no pods")
    page = await pressure_on(cluster, node)  # first: to answer, the node looks at its disks
    known = await usage_on(cluster, node)
    notes = [] if known.source else ["neither the node nor metrics.k8s.io tells what the pods use"]
    if page is None:
        notes.append("the node does not say which pods it could end now: all that have not ended are here")
    else:
        asked = _as_seen(asked, page)
        pods = _evictable(pods, page, notes)
    if not pods:
        raise click.ClickException(f"node {node}: no pod has anything running that could be ended")
    usage = {pod.metadata.uid: found for pod in pods if (found := known.by_pod.get(_key(pod))) is not None}
    if asked.as_told:
        setting = await _as_told(cluster, described, setting, notes)
    elif asked.available is not None:
        notes.append("thresholds are those of the options; without them the node's own count")
    return _decided(pods, usage, setting, asked, known.source, notes)


def _as_seen(asked: _Asked, page: PressurePage) -> _Asked:
    """What no kubelet tells: its file systems, every signal's capacity, and our own settings."""
    capacities = {each.signal: QUANTITIES[each.capacity] for each in page.signals}
    return msgspec.structs.replace(
        asked,
        layout=asked.layout or page.layout,
        hard_grace_s=page.hard_grace_s if asked.as_told else asked.hard_grace_s,
        capacity=capacities.get(asked.signal),
    )


def _evictable(pods: Sequence[Pod], page: PressurePage, notes: list[str]) -> list[Pod]:
    """Of which something runs that nobody is ending yet; adds to the notes."""
    if not page.order:  # without a threshold nobody is ranked
        return list(pods)
    # Every signal ranks the same pods.
    ranked = {(each.namespace, each.name) for order in page.order.values() for each in order}
    left_out = [_key(pod) for pod in pods if _key(pod) not in ranked]
    notes += [f"{'/'.join(key)} is left out: nothing of it runs, or it is being ended" for key in left_out]
    return [pod for pod in pods if _key(pod) in ranked]


def _key(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


async def _as_told(
    cluster: ClusterClient, described: dict[str, Any], setting: NodeConfig, notes: list[str]
) -> NodeConfig:
    """The node by its own words, else as the options' defaults have it; adds to the notes."""
    from plimsoll.cli.node_info import kubelet_config, told_setting

    told = await kubelet_config(cluster, str(described["metadata"]["name"]))
    if not told:
        notes.append("the node does not tell how it is configured: defaults are assumed (--config says otherwise)")
        return setting
    try:
        profile = profile_named(await cluster.profile_name())
        return told_setting(told, _COUNTS, from_document(described, Node), profile)
    except InvalidConfigsError as error:
        notes.append(f"how the node is configured cannot be read here ({error}): defaults are assumed")
        return setting


def _decided(
    pods: Sequence[Pod],
    usage: dict[str, PodUsage],
    setting: NodeConfig,
    asked: _Asked,
    source: str,
    notes: Sequence[str],
) -> EvictionOrder:
    signal, layout = asked.signal, asked.layout or "single"
    available = None if asked.available is None else _amount(asked.available)
    capacity = asked.capacity or _capacity(signal, setting)
    observed = Observation(available or ZERO, capacity or ZERO)
    configured = [each for each in with_containerfs(setting.thresholds, layout) if each.signal == signal]
    # A share of nobody knows what can be neither met nor not met.
    known = [each for each in configured if capacity is not None or each.value.quantity is not None]
    met = met_thresholds(known, {signal: observed}) if available is not None else ()
    # What is met decides; without that the order is the same whatever the threshold.
    urgent = met or tuple(known) or (Threshold(signal, ThresholdValue(ZERO)),)
    found = decision(
        urgent,
        {signal: observed},
        pods,
        usage,
        layout=layout,
        max_pod_grace_s=setting.config.eviction_max_pod_grace_period_s,
        hard_grace_s=asked.hard_grace_s,
        gates=setting.policy.gates,
        most=None,
    )
    assert found is not None  # every signal that can be chosen has a resource
    if available is None:
        return EvictionOrder(found, None, source, tuple(notes))
    if not configured:
        unset = f"no threshold is set for {signal}: nobody is evicted for it (--eviction-hard sets one)"
        return EvictionOrder(found, None, source, (*notes, unset))
    if len(known) < len(configured) and not met:
        unknown = f"a threshold is a share of all there is for {signal}, and how much that is is not known"
        return EvictionOrder(found, None, source, (*notes, unknown))
    return EvictionOrder(found, bool(met), source, tuple(notes))


def _amount(text: str) -> Quantity:
    from plimsoll.errors import InvalidQuantityError

    try:
        return QUANTITIES[text]
    except InvalidQuantityError as error:
        raise click.BadParameter(f"{text!r}: {error.reason}", param_hint="--available") from None


def _capacity(signal: str, setting: NodeConfig) -> Quantity | None:
    """As far as a node's description goes, which has no inodes; images may have a file system of their own."""
    if signal == ALLOCATABLE_MEMORY_AVAILABLE:
        return setting.absolute.get(MEMORY)
    if signal == PID_AVAILABLE:
        most = setting.machine.pid_capacity
        return None if most is None else from_units(most)
    return setting.capacity.get(RESOURCE_OF[signal])


def _lines(found: EvictionOrder, paint: Paint) -> Iterator[str]:
    made = found.decision
    if found.met is None:
        yield paint(f"in order of eviction for {made.signal}", "bold")
    else:
        verdict = paint("met", "red") if found.met else paint("not met: nobody is evicted", "green")
        grace = "hard" if made.hard else "soft"
        yield f"{paint(made.signal, 'bold')}: {made.available} available, {grace} threshold {made.threshold}: {verdict}"
    yield from order_lines(made.order, made.resource, paint)
    if made.victim is not None:
        name = paint(inert(f"{made.victim.namespace or 'default'}/{made.victim.name}"), "bold")
        alike = ", or another that is equal to it" if made.victim.before == "equal" else ""
        yield f"first: {name}{alike}{f', grace {made.grace_s:g} s' if found.met else ''}"
        if found.met:
            yield f"  {inert(made.message.strip())}"
    elif made.order:
        yield "all of them are exempt: nobody can be evicted"
    for note in found.notes:
        yield f"note: {inert(note)}"
