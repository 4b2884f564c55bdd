"""Admission of a pod by the resource managers: hints, merge, then devices, CPUs and memory for each container (AD-4 to
AD-7).

A provider collects what it would assign. Nothing is changed on the node: the caller saves the results of an admitted
pod, and forgets those of a refused one.

Kubernetes: pkg/kubelet/cm/topologymanager/scope_container.go, scope_pod.go, scope_none.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from plimsoll.errors import StructuredError
from plimsoll.rules.config.manager_options import NO_TOPOLOGY_OPTIONS, TopologyOptions
from plimsoll.rules.model.objects import Container, Pod
from plimsoll.rules.numa import NO_HINT, Hint, HintLists
from plimsoll.rules.topologymanager.merge import NONE, NumaLayout, TopologyPolicy, explain_refusal, merged

Scope = Literal["container", "pod"]
AFFINITY_REASON = "TopologyAffinityError"
AFFINITY_MESSAGE = "Resources cannot be allocated with Topology locality"


class TopologyAffinityError(StructuredError):
    """`why`: which resources do not fit together, for explanations; the kubelet's message does not contain it."""

    reason = AFFINITY_REASON

    container: str
    why: str
    template = AFFINITY_MESSAGE


class HintProvider(Protocol):
    """A resource manager during the admission of one pod."""

    def hints(self, container: Container) -> HintLists: ...
    def pod_hints(self) -> HintLists: ...
    def allocate(self, container: Container, hint: Hint = ...) -> None: ...


class TopologySetting(msgspec.Struct, frozen=True):
    policy: TopologyPolicy = "none"
    scope: Scope = "container"
    options: TopologyOptions = NO_TOPOLOGY_OPTIONS
    layout: NumaLayout = NumaLayout()


NO_TOPOLOGY = TopologySetting()


def allocate(pod: Pod, providers: Sequence[HintProvider], setting: TopologySetting) -> dict[str, Hint]:
    """Container → the hint that its resources were assigned with. Raises TopologyAffinityError, or what a provider
    raises; its results are of no use then."""
    stored: dict[str, Hint] = {}
    whole: Hint | None = None
    if setting.policy != NONE and setting.scope == "pod":
        whole = _merged("", [provider.pod_hints() for provider in providers], setting)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        if setting.policy == NONE:
            hint = NO_HINT
        elif whole is not None:
            hint = whole
        else:
            hint = _merged(container.name, [provider.hints(container) for provider in providers], setting)
        stored[container.name] = hint
        for provider in providers:
            provider.allocate(container, hint)
    return stored


def _merged(container: str, answers: Sequence[HintLists], setting: TopologySetting) -> Hint:
    result = merged(setting.policy, setting.layout, answers, setting.options)
    if not result.admitted:
        raise TopologyAffinityError(container, explain_refusal(setting.policy, answers))
    return result.hint
