"""`plimsoll explain eviction-order`: which pods are evicted first, and which sort key decides.

From manifests and assumed usage, or from a live node. The agent uses the same ranking (`rules.eviction.decision`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.explain.usage import assumed, matched, usage_file_option, usage_for
from plimsoll.cli.manifests import stored_inputs
from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.cli.printers import order_lines
from plimsoll.cli.terminal import Paint, colourful, echo_json, inert
from plimsoll.codec.lean.lean import from_document
from plimsoll.codec.node_pages import PressurePage
from plimsoll.errors import InvalidConfigsError
from plimsoll.rules.config.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    MEMORY_AVAILABLE,
    PID_AVAILABLE,
    FsLayout,
    Threshold,
    ThresholdValue,
    with_containerfs,
)
from plimsoll.rules.eviction.assessment import RESOURCE_OF, Observation, met_thresholds
from plimsoll.rules.eviction.decision import EvictionDecision, decision
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.explain.departures import class_order_note
from plimsoll.rules.model.objects import MEMORY, Node, Pod
from plimsoll.rules.node.node_config import NodeConfig, withheld_hugepages
from plimsoll.rules.profile import profile_of
from plimsoll.rules.quantity import QUANTITIES, ZERO, Quantity, from_units
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.resources.qos import qos_class

# The fields of a KubeletConfiguration that evictions depend on.
_FIELDS = (
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
    profile: str  # with the reason
    decision: EvictionDecision
    met: bool | None = None  # None: no threshold, or available amount or capacity unknown
    usage_from: str = ""
    notes: tuple[str, ...] = ()


class _Question(msgspec.Struct, frozen=True):
    signal: str
    available: str | None
    layout: FsLayout | None
    hard_grace_s: int | None  # of the extras in --config
    by_node: bool  # no option describes the node: use its own configuration
    capacity: Quantity | None = None  # of the signal, as the node reports it


@console.command("eviction-order")
@console.argument("files", nargs=-1, metavar="[FILE|DIR|-...]")
@node_options
@console.option(
    "--usage", "usage_text", default="", metavar="LIST", help="web=500Mi,shop/api=2Gi (pods or inodes: 300)"
)
@usage_file_option
@console.option("--signal", default="memory.available", show_default=True, type=console.Choice(sorted(RESOURCE_OF)))
@console.option(
    "--available",
    default=None,
    metavar="AMOUNT",
    help="The available amount: which pod would be evicted, and with which grace period.",
)
@console.option(
    "--layout",
    default=None,
    type=console.Choice(get_args(FsLayout)),
    help="For disk signals: one file system, a separate one for images and writable layers, or for images only. "
    "[default: that of the live node, else single]",
)
@console.option("--on", "node_name", default="", metavar="NODE", help="The live node. [default: the only one]")
@cluster_options
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text")
def eviction_order(files: tuple[str, ...], output: str, **options: Any) -> int:
    """Show which pods are evicted first, and why.

    Without files, ranks the pods of a live node by their current usage, with the node's own thresholds unless options
    describe others.

    \b
    Examples:
      plimsoll explain eviction-order pods.yaml --usage web=900Mi,batch=200Mi
      plimsoll explain eviction-order pods.json --usage-file summary.json --available 50Mi
      plimsoll explain eviction-order pods.yaml --signal pid.available --usage web=300
      plimsoll explain eviction-order --on n1
    """
    node = NodeQuestion(options)
    setting, _ = node.setting()
    question = _Question(
        options["signal"],
        options["available"],
        options["layout"],
        node.extras.eviction_hard_grace_s,
        by_node=not node.describes_node,
    )
    if files:
        order = _from_files(files, setting, question, options)
    else:
        if options["usage_text"] or options["usage_file"]:
            raise console.UsageError("--usage needs files; a live node reports the usage of its pods")
        order = answered(options, lambda cluster: _live(cluster, setting, question, options))
    if output == "json":
        echo_json(order)
    else:
        for line in _lines(order, Paint(colourful())):
            console.echo(line)
    return 0


def _from_files(
    files: Sequence[str], setting: NodeConfig, question: _Question, options: dict[str, Any]
) -> EvictionOrder:
    inputs = stored_inputs(files, setting.policy.gates, fragments=True)
    if not inputs.pods:
        raise console.CommandError("the input contains no pods")
    pods = [
        _with_uid(allocated_from_status(given.pod), f"{given.found.title} {index}", given.found.title)
        for index, given in enumerate(inputs.pods)
    ]
    amounts, reported = assumed(options["usage_text"], options["usage_file"])
    keys = [(pod.metadata.namespace, pod.metadata.name) for pod in pods]
    assumed_usage = matched(amounts, keys)
    usage: dict[str, PodUsage] = {}
    for pod, key in zip(pods, keys, strict=True):
        if key in assumed_usage:
            usage[pod.metadata.uid] = usage_for(question.signal, assumed_usage[key], question.layout or "single")
        elif (known := reported.get((key[0] or "default", key[1])) or reported.get(key)) is not None:
            usage[pod.metadata.uid] = known
    notes = list(inputs.passed)
    for given in inputs.pods:
        name = given.pod.spec.priority_class_name
        if name and given.pod.spec.priority is None:
            notes.append(f"PriorityClass {name} of {given.found.title} is not in the input: priority 0 is assumed")
    silent = len(pods) - len(usage)
    if silent:
        notes.append(f"{silent} of {len(pods)} pods have no known usage: the kubelet ranks such pods first")
    return _decided(pods, usage, setting, question, "assumed", notes)


def _with_uid(pod: Pod, uid: str, title: str) -> Pod:
    """The pod with a uid, which manifests lack, and a name, which templates lack."""
    name = pod.metadata.name or title
    metadata = msgspec.structs.replace(pod.metadata, uid=pod.metadata.uid or uid, name=name)
    return msgspec.structs.replace(pod, metadata=metadata)


async def _live(
    cluster: ClusterClient, setting: NodeConfig, question: _Question, options: dict[str, Any]
) -> EvictionOrder:
    from plimsoll.cli.node_info import chosen_node, pods_on, pressure_on, usage_on

    described = await chosen_node(cluster, options["node_name"])
    node = str(described["metadata"]["name"])
    pods = [allocated_from_status(pod) for pod in await pods_on(cluster, node)]
    if not pods:
        raise console.CommandError(f"node {node} has no pods")
    page = await pressure_on(cluster, node)  # first: the request makes the node measure its disks
    known = await usage_on(cluster, node)
    notes = [] if known.source else ["usage is unknown: neither the node nor metrics.k8s.io reports it"]
    if page is None:
        notes.append("the node does not report which pods it can evict: all that have not ended are listed")
    else:
        question = _with_page(question, page)
        pods = _evictable(pods, page, notes)
    if not pods:
        raise console.CommandError(f"node {node}: no running pod can be evicted")
    usage = {pod.metadata.uid: used for pod in pods if (used := known.by_pod.get(_key(pod))) is not None}
    if question.by_node:
        setting = await _reported(cluster, described, setting, notes)
    elif question.available is not None:
        notes.append("the thresholds come from the options; without options, those of the node are used")
    return _decided(pods, usage, setting, question, known.source, notes)


def _with_page(question: _Question, page: PressurePage) -> _Question:
    """Add what only Plimsoll's agent reports: file systems, the capacity of the signal, the hard grace period."""
    capacities = {signal.signal: QUANTITIES[signal.capacity] for signal in page.signals}
    return msgspec.structs.replace(
        question,
        layout=question.layout or page.layout,
        hard_grace_s=page.hard_grace_s if question.by_node else question.hard_grace_s,
        capacity=capacities.get(question.signal),
    )


def _evictable(pods: Sequence[Pod], page: PressurePage, notes: list[str]) -> list[Pod]:
    """The pods that run and are not being terminated. Adds the others to the notes."""
    if not page.order:  # without a threshold no pods are ranked
        return list(pods)
    # All signals rank the same pods.
    ranked = {(pod.namespace, pod.name) for order in page.order.values() for pod in order}
    left_out = [_key(pod) for pod in pods if _key(pod) not in ranked]
    notes += [f"{'/'.join(key)} is left out: it does not run, or is being terminated" for key in left_out]
    return [pod for pod in pods if _key(pod) in ranked]


def _key(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


async def _reported(
    cluster: ClusterClient, described: dict[str, Any], setting: NodeConfig, notes: list[str]
) -> NodeConfig:
    """The node by its own configuration, else `setting`; adds to the notes."""
    from plimsoll.cli.node_info import kubelet_config, reported_setting

    reported = await kubelet_config(cluster, str(described["metadata"]["name"]))
    if not reported:
        notes.append("the node does not report its configuration: defaults are assumed (override with --config)")
        return setting
    try:
        node = from_document(described, Node)
        version = node.status.node_info.kubelet_version
        chosen = profile_of(version, f"kubeletVersion of node {node.metadata.name}")
        found = reported_setting(reported, _FIELDS, node, chosen.profile)
        return msgspec.structs.replace(found, profile_reason=chosen.reason)
    except InvalidConfigsError as error:
        notes.append(f"the configuration of the node cannot be read ({error}): defaults are assumed")
        return setting


def _decided(
    pods: Sequence[Pod],
    usage: dict[str, PodUsage],
    setting: NodeConfig,
    question: _Question,
    source: str,
    notes: Sequence[str],
) -> EvictionOrder:
    signal, layout = question.signal, question.layout or "single"
    available = None if question.available is None else _amount(question.available)
    capacity = question.capacity or _capacity(signal, setting)
    observed = Observation(available or ZERO, capacity or ZERO)
    configured = [one for one in with_containerfs(setting.thresholds, layout) if one.signal == signal]
    # A percentage of an unknown capacity is neither met nor not met.
    known = [one for one in configured if capacity is not None or one.value.quantity is not None]
    met = met_thresholds(known, {signal: observed}) if available is not None else ()
    # If no threshold is met, the order does not depend on the threshold.
    urgent = met or tuple(known) or (Threshold(signal, ThresholdValue(ZERO)),)
    decided = decision(
        urgent,
        {signal: observed},
        pods,
        usage,
        layout=layout,
        max_pod_grace_s=setting.config.eviction_max_pod_grace_period_s,
        hard_grace_s=question.hard_grace_s,
        gates=setting.policy.gates,
        most=None,
    )
    profile = f"profile {setting.profile.name}: {setting.profile_reason}"
    assert decided is not None  # every signal of --signal has a resource
    classes = {pod.metadata.uid: qos_class(pod, gates=setting.policy.gates) for pod in pods}
    departure = class_order_note(decided.order, classes)
    notes = [*notes, departure] if departure else notes
    if available is None:
        return EvictionOrder(profile, decided, None, source, tuple(notes))
    if not configured:
        unset = f"no threshold is set for {signal}: no pod is evicted for it (set one with --eviction-hard)"
        return EvictionOrder(profile, decided, None, source, (*notes, unset))
    if len(known) < len(configured) and not met:
        unknown = f"a threshold of {signal} is a percentage, and the capacity is unknown"
        return EvictionOrder(profile, decided, None, source, (*notes, unknown))
    return EvictionOrder(profile, decided, bool(met), source, tuple(notes))


def _amount(text: str) -> Quantity:
    from plimsoll.errors import InvalidQuantityError

    try:
        return QUANTITIES[text]
    except InvalidQuantityError as error:
        raise console.BadParameterError(f"{text!r}: {error.reason}", param_hint="--available") from None


def _capacity(signal: str, setting: NodeConfig) -> Quantity | None:
    """The capacity of a signal, if the node's description has it; it has no inodes."""
    if signal == ALLOCATABLE_MEMORY_AVAILABLE:
        return setting.absolute.get(MEMORY)
    if signal == PID_AVAILABLE:
        most = setting.machine.pid_capacity
        return None if most is None else from_units(most)
    if signal == MEMORY_AVAILABLE and (withheld := withheld_hugepages(setting)):
        return from_units(max(setting.machine.memory_bytes - withheld, 0), "BinarySI")
    return setting.capacity.get(RESOURCE_OF[signal])


def _lines(order: EvictionOrder, paint: Paint) -> Iterator[str]:
    decided = order.decision
    yield paint(inert(order.profile), "dim")
    if order.met is None:
        yield paint(f"in order of eviction for {decided.signal}", "bold")
    else:
        verdict = paint("met", "red") if order.met else paint("not met: no pod is evicted", "green")
        grace = "hard" if decided.hard else "soft"
        amounts = f"{decided.available} available, {grace} threshold {decided.threshold}"
        yield f"{paint(decided.signal, 'bold')}: {amounts}: {verdict}"
    yield from order_lines(decided.order, decided.resource, paint)
    if decided.victim is not None:
        name = paint(inert(f"{decided.victim.namespace or 'default'}/{decided.victim.name}"), "bold")
        alike = " (or another pod with equal rank)" if decided.victim.before == "equal" else ""
        yield f"first: {name}{alike}{f', grace {decided.grace_s:g} s' if order.met else ''}"
        if order.met:
            yield f"  {inert(decided.message.strip())}"
    elif decided.order:
        yield "all pods are exempt: none can be evicted"
    for note in order.notes:
        yield f"note: {inert(note)}"
