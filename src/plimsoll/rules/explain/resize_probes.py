"""What a node and its API server would say to typical resizes of a pod: more CPU, less memory, and a pending one.

The node is judged as if the pod were alone on it: whether there is room now is another question (`resize --dry-run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from plimsoll.rules.admission.comparison import LISTS, PodVersion
from plimsoll.rules.explain.differences import Fact
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import (
    CPU,
    MEMORY,
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    Resources,
    listed,
)
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.quantity import Quantity, from_milli, from_units
from plimsoll.rules.resize.allocation import allocation_of
from plimsoll.rules.resize.forecast import Api
from plimsoll.rules.resize.verdict import ResizeSetting, resize_setting, resize_verdict
from plimsoll.rules.scheduling.fit import allocated_load

RESIZE = "resize: "
MORE_CPU, LESS_MEMORY, PENDING = f"{RESIZE}cpu + 10 %", f"{RESIZE}memory limit − 10 %", f"{RESIZE}the pending one"


class Resizable(msgspec.Struct, frozen=True):
    title: str
    allocated: Pod
    desired: Pod  # the same object, unless a resize is pending


def resize_facts(pods: Iterable[Resizable], setting: NodeConfig) -> Iterator[tuple[tuple[str, str], Fact]]:
    node = Node(Metadata(setting.machine.name or "node"), status=NodeStatus(setting.capacity, setting.allocatable))
    around = resize_setting(setting, allocated_load(node, ()))
    api = Api(
        setting.policy.gates, setting.profile.resize_subresource, setting.config.gate("InPlacePodVerticalScaling")
    )
    for each in pods:
        allocated = each.allocated
        for what, wanted in ((MORE_CPU, _more_cpu(allocated)), (LESS_MEMORY, _less_memory(allocated))):
            if wanted is not None:
                yield (each.title, what), _answer(allocated, wanted, api, around)
        if allocated is not each.desired:
            yield (each.title, PENDING), _answer(allocated, each.desired, api, around)


def _answer(before: Pod, after: Pod, api: Api, around: ResizeSetting) -> Fact:
    if api.errors(PodVersion(_document(before), before), PodVersion(_document(after), after), around.profile):
        return Fact("refused by the API server")
    verdict = resize_verdict(after, allocation_of(before, api.gates), around)
    text = f"{verdict.decision}: {verdict.message}" if verdict.decision == "Infeasible" else verdict.decision
    return Fact(text, formula=verdict.reason)


def _more_cpu(pod: Pod) -> Pod | None:
    return _scaled(pod, CPU, lambda amounts: {kind: amount.milli * 11 // 10 + 1 for kind, amount in amounts.items()})


def _less_memory(pod: Pod) -> Pod | None:
    return _scaled(pod, MEMORY, _smaller_limit)


def _smaller_limit(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """The request follows only if it equals the limit: the class must not change."""
    if "limits" not in amounts:
        return {}
    limit = amounts["limits"].value
    request = amounts["requests"].value if "requests" in amounts else 0
    smaller = limit * 9 // 10
    return {"requests": smaller, "limits": smaller} if request == limit else {"limits": max(smaller, request)}


def _scaled(pod: Pod, name: str, change: Callable[[dict[str, Quantity]], dict[str, int]]) -> Pod | None:
    """The first container that has the resource, changed; None if there is none, or nothing changes."""
    containers = list(pod.spec.containers)
    for index, container in enumerate(containers):
        amounts: dict[str, Quantity] = {}
        for kind in LISTS:
            if name in listed(container.resources, kind):
                amounts[kind] = listed(container.resources, kind)[name]
        new = change(amounts) if amounts else {}
        made = {kind: from_milli(number) if name == CPU else from_units(number) for kind, number in new.items()}
        if any(made[kind] != amounts.get(kind) for kind in made):
            containers[index] = _with(container, name, made)
            spec = msgspec.structs.replace(pod.spec, containers=tuple(containers))
            return msgspec.structs.replace(pod, spec=spec)
    return None


def _with(container: Container, name: str, made: Mapping[str, Quantity]) -> Container:
    lists = {kind: {**listed(container.resources, kind), name: amount} for kind, amount in made.items()}
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(container.resources, **lists))


def _document(pod: Pod) -> JsonObject:
    """What the comparison of two versions reads: the resources. Both have the same other fields."""
    spec: JsonObject = {
        "containers": [_container(each) for each in pod.spec.containers],
        "initContainers": [_container(each) for each in pod.spec.init_containers],
    }
    if pod.spec.resources is not None:
        spec["resources"] = _resources(pod.spec.resources)
    return {"metadata": {"name": pod.metadata.name}, "spec": spec}


def _container(container: Container) -> JsonObject:
    return {"name": container.name, "resources": _resources(container.resources)}


def _resources(resources: Resources) -> JsonObject:
    return {
        kind: {name: str(amount) for name, amount in listed(resources, kind).items()}
        for kind in LISTS
        if listed(resources, kind)
    }
