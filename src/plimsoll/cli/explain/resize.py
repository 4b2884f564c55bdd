"""`plimsoll explain resize OLD NEW`: the forecast of a resize from two manifests and a node, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.manifests import GivenManifest, on_node, stored_inputs
from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.cli.resize.answer import ResizeAnswer, lines, resize_answer
from plimsoll.cli.resize.forecast import cpu_refusal, predicted_cpus
from plimsoll.cli.terminal import Paint, colourful, echo_json, inert
from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.resize import kept_for_resize, spec_changed
from plimsoll.rules.cgroups.desired import workload
from plimsoll.rules.explain.departures import resize_notes
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus, Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resize.forecast import Api, forecast
from plimsoll.rules.resize.steps import FileChange, resize_writes
from plimsoll.rules.resize.verdict import resize_setting
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.scheduling.fit import allocated_load


@console.command("resize")
@console.argument("old", metavar="OLD")
@console.argument("new", metavar="NEW")
@node_options
@console.option(
    "--others",
    multiple=True,
    metavar="FILE|DIR",
    help="Manifests of the other pods on the node, such as a `kubectl get pods -o json` dump.",
)
@console.option(
    "--used", default="", metavar="LIST", help="Working sets: app=300Mi,sidecar=20Mi, or one amount for all containers."
)
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text")
def explain_resize(old: str, new: str, others: tuple[str, ...], used: str, output: str, **options: Any) -> int:
    """Forecast a resize of the pod OLD to NEW: the verdict, restarts, and the cgroup writes in order.

    NEW is the whole pod, or a patch as `kubectl patch` takes it.

    Exit code 0: accepted; 1: Deferred or Infeasible; 2: rejected by the API server.

    \b
    Examples:
      plimsoll explain resize pod.yaml bigger.yaml
      plimsoll explain resize pod.yaml patch.json
      plimsoll explain resize pod.yaml bigger.yaml --capacity cpu=8,memory=16Gi --others pods.json
      plimsoll explain resize pod.yaml smaller.yaml --used 300Mi --node node.yaml --profile 1.36
    """
    question = NodeQuestion(options)
    setting, notes = question.setting()
    before = _only_pod(old, setting, notes)
    after = _only_pod(new, setting, notes, before)
    beside, passed = _beside(others, question.node, before.pod, setting)
    answer = _answer(before, after, beside, used, setting, question.node)
    console.echo(f"profile {setting.profile.name}: {inert(setting.profile_reason)}", err=output == "json")
    if output == "json":
        echo_json(answer)
    else:
        paint = Paint(colourful())
        console.echo("\n".join(lines(answer, paint)))
    for note in (*notes, *passed):
        console.echo(f"note: {inert(note)}", err=True)
    return answer.exit_code


def _only_pod(file: str, setting: NodeConfig, notes: list[str], old: GivenManifest | None = None) -> GivenManifest:
    patched = None if old is None else old.found
    inputs = stored_inputs([file], setting.policy.gates, fragments=True, patched=patched)
    notes += inputs.passed
    if len(inputs.pods) != 1:
        raise console.CommandError(f"{file}: contains {len(inputs.pods)} pods, expected one")
    return inputs.pods[0]


def _beside(
    files: tuple[str, ...], node: Node | None, pod: Pod, setting: NodeConfig
) -> tuple[list[Pod], Sequence[str]]:
    """The other pods of the node, and notes. A dump of the node may contain the pod itself."""
    if not files:
        return [], ()
    inputs = on_node(stored_inputs(files, setting.policy.gates), node)
    return [other.pod for other in inputs.pods if not _is_same(other.pod, pod)], inputs.passed


def _is_same(one: Pod, other: Pod) -> bool:
    """Whether two pods have the same name; manifests have no uid, and often no namespace."""
    named = [(pod.metadata.namespace or "default", pod.metadata.name) for pod in (one, other)]
    return bool(one.metadata.name) and named[0] == named[1]


def _answer(
    old: GivenManifest, new: GivenManifest, others: list[Pod], used: str, setting: NodeConfig, given_node: Node | None
) -> ResizeAnswer:
    name = setting.machine.name or "node"
    before = _version(old.found.document, name, setting)
    # As the subresource does: only resources and resize policies can change.
    sent = _version(new.found.document, name, setting, before.pod).document
    wanted = {**sent, "metadata": before.document.get("metadata")}
    gates = setting.policy.gates
    kept = kept_for_resize(before.document, wanted, gates, setting.profile)
    after = _version(kept, name, setting, before.pod)
    notes = []
    if not _is_same(old.pod, new.pod):
        notes.append(f"NEW has another name, {new.pod.metadata.name}: only its resources are used")
    if spec_changed(wanted, kept):
        notes.append("NEW differs in more than resources; a resize ignores the other changes")
    status = NodeStatus(setting.capacity, setting.allocatable)
    node = Node(Metadata(name), status=status)
    if given_node is not None:
        node = msgspec.structs.replace(given_node, status=status)
    allocated = [allocated_from_status(pod) for pod in others]
    predicted = predicted_cpus(setting, [*allocated, allocated_from_status(before.pod)])
    found = forecast(
        before,
        after,
        resize_setting(
            setting,
            allocated_load(node, allocated),
            cpu_refusal=cpu_refusal(predicted),
        ),
        working_sets=_working_sets(used, before.pod),
        api=Api(gates, in_place=setting.config.gate("InPlacePodVerticalScaling")),
    )
    writes: tuple[FileChange, ...] = ()
    if found.outcome in ("accepted", "deferred"):
        title = old.found.title
        works = [workload(pod, setting, title=f"other {index}") for index, pod in enumerate(others)]
        writes = resize_writes(
            workload(allocated_from_status(before.pod), setting, title=title), workload(_settled(after.pod), setting,
            title=title), works, setting,
        )  # fmt: skip
    cpus = predicted.changes(after.pod) if predicted is not None and found.outcome == "accepted" else ()
    if found.outcome == "accepted":
        notes += resize_notes(setting, cpus_change=bool(cpus))
    return resize_answer(found, before.pod, after.pod, writes, notes, cpus)


def _version(document: JsonObject, node: str, setting: NodeConfig, stored: Pod | None = None) -> PodVersion:
    """The pod as the API server stores it: with defaults, bound to the node."""
    bound = {**document, "spec": {**(document.get("spec") or {}), "nodeName": node}}
    return with_defaults(
        bound,
        gates=setting.policy.gates,
        resize_policy=setting.profile.resize_policy_defaulted and setting.policy.gates.in_place,
        stored=stored,
    )


def _settled(pod: Pod) -> Pod:
    """The pod after the resize: its status no longer differs from its spec."""
    return msgspec.structs.replace(pod, status=Pod().status)


def _working_sets(text: str, pod: Pod) -> dict[str, int] | None:
    from plimsoll.cli.explain.usage import named_amounts

    if not text:
        return None
    names = [each.name for each in (*pod.spec.init_containers, *pod.spec.containers)]
    amounts = named_amounts(text, "--used", bare=True)
    if "" in amounts:
        return dict.fromkeys(names, amounts[""])
    if unknown := amounts.keys() - set(names):
        raise console.BadParameterError(
            f"no container {', '.join(sorted(unknown))}; the containers are: {', '.join(names)}"
        )
    return amounts
