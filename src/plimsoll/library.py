"""The rules as a Python library: `explain`, `plan` and `qos_class` for manifests, without a cluster.

A manifest is YAML or JSON text, an object, or a list of objects: pods, Lists, and every kind with a pod template.
A RuntimeClass adds its overhead to the pods of the class; other objects without a pod are skipped. The node is
described by keyword arguments (`NodeOptions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import msgspec

from plimsoll.codec.lean.lean import quantity_text
from plimsoll.codec.manifests.admitted_pods import Classes, admitted_pod, found_classes
from plimsoll.codec.manifests.manifests import FoundPod, Passed, found_pods, written_path
from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.errors import FieldError, InvalidConfigError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.cgroups.desired import defaulted_on, defaulted_workload
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.batch import block_plans
from plimsoll.rules.explain.explanation import Explanation, explanation
from plimsoll.rules.explain.plan import PodPlan, placement
from plimsoll.rules.explain.refusal import refusal_errors
from plimsoll.rules.model.cgroup_names import Driver, Runtime
from plimsoll.rules.model.gates import DEFAULT_GATES
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import Pod, QoSClass
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import DEFAULT_PROFILE, UNKNOWN_VERSION, profile_named
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resources import qos
from plimsoll.rules.resources.defaulting import defaulted

Manifest = str | bytes | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class NodeOptions(TypedDict, total=False):
    """The node that a question is about. Every option may be left out."""

    capacity: Mapping[str, object]  # {"cpu": 4, "memory": "16Gi"}; default: this machine
    profile: str  # "documents", or a release from "1.27" to "1.37"; default: documents
    kubelet_config: Mapping[str, Any] | str | bytes  # a KubeletConfiguration, as an object or as YAML
    cgroup_version: CgroupVersion  # default: this machine's, or 2 with `capacity`
    cgroup_driver: Driver  # default: the kubelet configuration's
    runtime: Runtime  # whose container cgroup names are used; default: containerd


class _Candidate(msgspec.Struct, frozen=True):
    found: FoundPod
    pod: Pod
    unreadable: list[FieldError]

    def checked(self, errors: list[FieldError]) -> None:
        """Raises InvalidObjectError, with field paths as the manifest has them."""
        if errors:
            raise InvalidObjectError(
                [msgspec.structs.replace(error, field=self.found.written(error.field)) for error in errors]
            )


def explain(manifest: Manifest, *, advise: bool = False, **node: Unpack[NodeOptions]) -> Explanation:
    """QoS class, OOM scores, eviction keys and every cgroup file of the pods on one node, each with its reason.

    `advise` adds the changes that would make a pod Guaranteed. Raises PlimsollError for a manifest or a configuration
    that Kubernetes would refuse.
    """
    setting = _node_config(**node)
    works = []
    for candidate in _candidates(manifest):
        desired = _desired(candidate, setting)
        works.append(defaulted_workload(desired, setting, base=candidate.found.base, title=candidate.found.title))
    return explanation(works, setting, advise=advise)


def plan(manifest: Manifest, **node: Unpack[NodeOptions]) -> list[PodPlan]:
    """The same values without reasons, one PodPlan for each pod: for fleets."""
    setting = _node_config(**node)
    pods = [_desired(candidate, setting) for candidate in _candidates(manifest)]
    return block_plans(pods, setting.policy, placement(setting.pods_root, setting.driver))


def qos_class(manifest: Manifest) -> QoSClass:
    """The QoS class of the one pod in the manifest: the class in its status, or computed from its spec."""
    candidates = list(_candidates(manifest))
    if len(candidates) != 1:
        raise InvalidObjectError([FieldError("FieldValueInvalid", "", f"expected one pod, found {len(candidates)}")])
    (candidate,) = candidates
    desired = defaulted(candidate.pod)
    candidate.checked(refusal_errors(desired, candidate.unreadable, DEFAULT_GATES))
    return qos.qos_class(desired)


def _desired(candidate: _Candidate, setting: NodeConfig) -> Pod:
    desired = defaulted_on(candidate.pod, setting)
    candidate.checked(refusal_errors(desired, candidate.unreadable, setting.policy.gates))
    return desired


def _candidates(manifest: Manifest) -> Iterator[_Candidate]:
    documents = list(_documents(manifest))
    classes = Classes()
    for each in (each for document in documents for each in found_classes(document)):
        if each.errors:
            raise InvalidObjectError(each.errors)
        classes.add(each.found)
    for document in documents:
        for found in found_pods(document):
            if isinstance(found, Passed):
                if found.is_error:
                    error = FieldError("FieldValueInvalid", written_path(found.at), found.reason)
                    raise InvalidObjectError([error])
                continue
            read = admitted_pod(found, classes)
            yield _Candidate(read.found, read.pod, list(read.unreadable))


def _documents(manifest: Manifest) -> Iterator[Any]:
    if isinstance(manifest, Mapping):
        yield manifest
    elif isinstance(manifest, str | bytes):
        for document in read(manifest.encode() if isinstance(manifest, str) else manifest):
            if isinstance(document, YamlError):
                raise document
            yield document.value
    else:
        yield from manifest


def _node_config(
    *,
    capacity: Mapping[str, object] | None = None,
    profile: str = DEFAULT_PROFILE.name,
    kubelet_config: Mapping[str, Any] | str | bytes | None = None,
    cgroup_version: CgroupVersion | None = None,
    cgroup_driver: Driver | None = None,
    runtime: Runtime = "containerd",
) -> NodeConfig:
    if capacity is None:
        from plimsoll.linux import machine as linux

        machine, found_version = linux.this_machine(), linux.cgroup_version()
    else:
        machine = machine_from_capacity({name: _quantity(name, amount) for name, amount in capacity.items()})
        found_version = 2
    document = None if kubelet_config is None else _one(kubelet_config)
    return resolved(
        machine,
        reading(document, profile_named(profile)).config,
        profile_named(profile),
        cgroup_version=cgroup_version or found_version,
        driver=cgroup_driver,
        runtime=runtime,
        profile_reason="profile" if profile != DEFAULT_PROFILE.name else UNKNOWN_VERSION.reason,
    )


def _one(config: Mapping[str, Any] | str | bytes) -> Any:
    documents = list(_documents(config))
    if len(documents) != 1:
        raise InvalidConfigError("kubelet_config", f"expected one document, found {len(documents)}")
    return documents[0]


def _quantity(name: str, amount: object) -> Quantity:
    try:
        return Quantity.parse(quantity_text(amount) or "")
    except InvalidQuantityError as error:
        raise InvalidConfigError(f"capacity[{name}]", error.reason) from None
