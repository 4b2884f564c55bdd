"""One scheduling cycle and its messages (05 A4): filter, score, else preempt, and report why.

`decide` returns the result as a value: the nodes for the pod, the victims of preemption, or the message that `kubectl
describe` shows. The scheduler loop binds, evicts and writes. Kubernetes breaks ties at random; here all of them are
returned.

Also here: the order of the scheduling queue, the back-off, and the messages of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.fit import Filter, FitVerdict, NodeLoad, PodLoad, verdict, waiting_load, with_nominated
from plimsoll.rules.scheduling.preemption import Nominated, Preemption, preempt
from plimsoll.rules.scheduling.score import (
    DEFAULT_WEIGHTS,
    LEAST_ALLOCATED,
    NodeScore,
    ScoringStrategy,
    Weights,
    best,
    nodes_to_find,
    scores,
)
from plimsoll.rules.scheduling.selectors import required_node_names
from plimsoll.rules.scheduling.topology import Topology

NO_NODES = "no nodes available to schedule pods"
AFFINITY_CONFLICT = "pod affinity terms conflict"
NOT_A_NAMED_NODE = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
DISRUPTION_MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"

INITIAL_BACKOFF_S = 1
LONGEST_BACKOFF_S = 10
LONGEST_WAIT_S = 300  # an unschedulable pod is retried after this in any case
WAIT_CHECK_S = 30


class SchedulingDecision(msgspec.Struct, frozen=True):
    """The pod goes to any of `nodes`; if there are none, `message` is the reason and `preemption` what may help."""

    nodes: tuple[str, ...] = ()
    scores: dict[str, NodeScore] = {}
    verdicts: dict[str, FitVerdict] = {}
    preemption: Preemption | None = None
    message: str = ""
    next_start: int = 0  # where the next search starts, so that large clusters fill evenly


def decide(
    pod: Pod,
    nodes: Sequence[NodeLoad],
    profile: Profile,
    *,
    nominated: Nominated | None = None,
    budgets: Sequence[PodDisruptionBudget] = (),
    strategy: ScoringStrategy = LEAST_ALLOCATED,
    weights: Weights = DEFAULT_WEIGHTS,
    start: int = 0,
    percent_to_find: int = 0,
    topology: Topology | None = None,
    volumes: Filter | None = None,
    blocked: str = "",
) -> SchedulingDecision:
    """`nominated`: the nominated pods by node; `start`: the last decision's `next_start`; `topology`: the other pods,
    where pod affinity or spread constraints count; `volumes`: which nodes can use the pod's claims; `blocked`: why no
    node can."""
    if not nodes:
        return SchedulingDecision(message=NO_NODES)
    waiting, nominated = waiting_load(pod), nominated or {}
    others = _both(None if topology is None else topology.refusal, volumes)
    if blocked:
        refused = {node.name: FitVerdict((blocked,), unresolvable=True) for node in nodes}
        message = f"0/{len(nodes)} nodes are available: {blocked}."
        return _failed(waiting, nodes, refused, message, profile, nominated, budgets, start, others)
    names = required_node_names(pod)
    if names is not None and not names:
        conflict = FitVerdict((AFFINITY_CONFLICT,), unresolvable=True)
        refused = {node.name: conflict for node in nodes}
        message = f"0/{len(nodes)} nodes are available: {AFFINITY_CONFLICT}."
        return _failed(waiting, nodes, refused, message, profile, nominated, budgets, start, others)

    own = pod.status.nominated_node_name
    if own:
        for node in nodes:
            if node.name == own and _tried(waiting, node, profile, nominated, others).fits:
                return SchedulingDecision((own,), next_start=start)

    searched = nodes if names is None else [node for node in nodes if node.name in names]
    fitting, refused = _filtered(waiting, searched, profile, nominated, start, percent_to_find, others)
    next_start = (start + len(fitting) + len(refused)) % len(nodes)
    if fitting:
        node_scores = {}
        if len(fitting) > 1:
            node_scores = scores(waiting, fitting, profile, strategy, weights, topology=topology)
        chosen = best(node_scores) if node_scores else (fitting[0].name,)
        return SchedulingDecision(chosen, node_scores, refused, next_start=next_start)
    if names is not None:
        elsewhere = FitVerdict((NOT_A_NAMED_NODE,), unresolvable=True)
        refused = {node.name: refused.get(node.name, elsewhere) for node in nodes}
    message = unavailable(len(nodes), refused.values())
    return _failed(waiting, nodes, refused, message, profile, nominated, budgets, next_start, others)


def _both(first: Filter | None, second: Filter | None) -> Filter | None:
    if first is None or second is None:
        return first or second
    return lambda node: first(node) or second(node)


def _tried(
    pod: PodLoad, node: NodeLoad, profile: Profile, nominated: Nominated, others: Filter | None = None
) -> FitVerdict:
    """A nominated pod may never come, so one that only satisfies pod affinity with it does not count (A2)."""
    expected = with_nominated(node, nominated.get(node.name, ()), pod)
    result = verdict(pod, expected, profile, others)
    if not result.fits or others is None or expected is node:
        return result
    return others(node) or result


def _filtered(
    pod: PodLoad,
    nodes: Sequence[NodeLoad],
    profile: Profile,
    nominated: Nominated,
    start: int,
    percent: int,
    others: Filter | None,
) -> tuple[list[NodeLoad], dict[str, FitVerdict]]:
    wanted = nodes_to_find(len(nodes), percent)
    fitting: list[NodeLoad] = []
    refused: dict[str, FitVerdict] = {}
    for index in range(len(nodes)):
        node = nodes[(start + index) % len(nodes)]
        result = _tried(pod, node, profile, nominated, others)
        if not result.fits:
            refused[node.name] = result
            continue
        fitting.append(node)
        if len(fitting) == wanted:
            break
    return fitting, refused


def _failed(
    pod: PodLoad,
    nodes: Sequence[NodeLoad],
    refused: dict[str, FitVerdict],
    message: str,
    profile: Profile,
    nominated: Nominated,
    budgets: Sequence[PodDisruptionBudget],
    next_start: int,
    others: Filter | None,
) -> SchedulingDecision:
    outcome = preempt(pod, nodes, refused, profile, nominated, budgets, others)
    if outcome.candidate is None:
        message = f"{message} {profile.preemption_text}preemption: {preemption_text(outcome)}"
    return SchedulingDecision((), {}, refused, outcome, message, next_start)


# --- messages ---


def unavailable(count: int, verdicts: Iterable[FitVerdict]) -> str:
    """Every reason with its number of nodes, sorted as text: `10 x` comes before `2 y`."""
    reasons = Counter(reason for refusal in verdicts for reason in refusal.reasons)
    histogram = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
    return f"0/{count} nodes are available: {histogram}."


def preemption_text(outcome: Preemption) -> str:
    """The text after `preemption: ` if no pod can be preempted."""
    return outcome.ineligible or unavailable(len(outcome.verdicts), outcome.verdicts.values())


def scheduled_message(pod: Pod, node: str) -> str:
    return f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"


def preempted_message(preemptor: Pod, node: str) -> str:
    return f"Preempted by pod {preemptor.metadata.uid} on node {node}"


# --- the queue ---


def queue_key(pod: Pod, queued_s: float) -> tuple[int, float]:
    """The sort key of the queue: higher priority first, then the longer wait."""
    return (-(pod.spec.priority or 0), queued_s)


def backoff_s(attempts: int) -> int:
    """The delay after this number of failed attempts: 1 s, doubling, at most 10 s."""
    return min(INITIAL_BACKOFF_S << min(max(attempts - 1, 0), 10), LONGEST_BACKOFF_S)


def by_node(pods: Iterable[PodLoad]) -> dict[str, list[PodLoad]]:
    """Waiting pods by the node that they are nominated to, for `decide`."""
    pods_by_node: dict[str, list[PodLoad]] = {}
    for load in pods:
        name = load.pod.status.nominated_node_name
        if name:
            pods_by_node.setdefault(name, []).append(load)
    return pods_by_node
