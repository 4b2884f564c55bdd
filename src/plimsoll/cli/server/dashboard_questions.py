"""What the dashboard asks the rules: `explain` for a pasted manifest, and the forecast of `plimsoll resize`."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from plimsoll.api.machinery.users import User
from plimsoll.api.server.app import App
from plimsoll.api.server.in_process import InProcess
from plimsoll.cli.client import ClusterClient
from plimsoll.cli.explain.run import sorted_out, workloads
from plimsoll.cli.manifests import Inputs, add_inputs
from plimsoll.cli.resize.forecast import forecast_resize, stored_pod
from plimsoll.codec.lean.lean import lean_pod, quantity_text
from plimsoll.errors import InvalidQuantityError, PlimsollError
from plimsoll.kube.http import HttpTransport
from plimsoll.rules.config.parse import reading
from plimsoll.rules.explain.explanation import explanation
from plimsoll.rules.model.cgroup_names import Driver, Runtime
from plimsoll.rules.model.objects import CPU, MEMORY
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.picture.explained import explained_picture
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resize.request import change_of, chosen_container, resize_patch

MANIFEST = "manifest"
CHOICES = {
    "cgroup": ("v2", "v1"),
    "driver": ("cgroupfs", "systemd"),
    "runtime": ("containerd", "crio", "process"),
}


class QuestionError(PlimsollError):
    """The question is incomplete or contains an invalid value; the text names the field."""


def explain_question(question: dict[str, Any]) -> dict[str, Any]:
    """The explanation of a manifest on one node, with its picture; problems instead of pods that are not valid."""
    setting, notes = _setting(question)
    inputs = Inputs([], [], [])
    add_inputs(inputs, [(MANIFEST, _text(question, "manifest").encode())], fragments=True)
    good, problems = sorted_out(inputs, setting)
    if not good and not problems:
        raise QuestionError("the manifest contains no pods")
    found = explanation(workloads(good, setting), setting)
    return {
        "picture": explained_picture(found, setting) if good else None,
        "pods": found.pods,
        "node": found.node,
        "notes": [*notes, *inputs.passed],
        "problems": [str(problem) for problem in problems],
    }


def _setting(question: dict[str, Any]) -> tuple[NodeConfig, list[str]]:
    chosen = {name: _text(question, name) or values[0] for name, values in CHOICES.items()}
    for name, value in chosen.items():
        if value not in CHOICES[name]:
            raise QuestionError(f"{name}: {value!r} is not one of {', '.join(CHOICES[name])}")
    profile = profile_named(_text(question, "profile") or "documents")
    gates = _text(question, "featureGates")
    read = reading(None, profile, {"featureGates": gates} if gates else {})
    capacity = {
        CPU: _quantity("cpu", _text(question, "cpu") or "4"),
        MEMORY: _quantity("memory", _text(question, "memory") or "8Gi"),
    }
    setting = resolved(
        machine_from_capacity(capacity),
        read.config,
        profile,
        cgroup_version=1 if chosen["cgroup"] == "v1" else 2,
        driver=cast(Driver, chosen["driver"]),
        runtime=cast(Runtime, chosen["runtime"]),
        profile_reason="chosen",
    )
    return setting, list(read.notes)


async def forecast_question(app: App, user: User, question: dict[str, Any]) -> dict[str, Any]:
    """By the very rules of `plimsoll resize`; reads as the user. Contains the patch that a resize sends."""
    # ClusterClient only sends: requests of this process need no connection.
    cluster = ClusterClient(cast(HttpTransport, InProcess(app, user)), _text(question, "namespace") or "default")
    stored = await stored_pod(cluster, _text(question, "pod"))
    pod = lean_pod(stored)
    container = chosen_container(pod, _text(question, "container"))
    amounts: dict[str, dict[str, Quantity]] = {"requests": {}, "limits": {}}
    for kind, chosen in amounts.items():
        given = question.get(kind)
        for resource in (CPU, MEMORY):
            if isinstance(given, dict) and given.get(resource):
                chosen[resource] = _quantity(f"{kind}.{resource}", str(given[resource]))
    change: Any = {}
    for kind, values in amounts.items():
        if values:
            one = change_of(container, values, (cast(Any, kind),))
            change = {**change, **one}
    if not change:
        raise QuestionError("requests, limits: no amount is given")
    subresource = "resize" in (await cluster.kind("pods")).subresources
    answer = await forecast_resize(cluster, stored, container.name, change, subresource=subresource)
    path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}{'/resize' if subresource else ''}"
    found: dict[str, Any] = msgspec.to_builtins(answer)
    return {**found, "patch": resize_patch(pod, container.name, change), "path": path}


def _text(question: dict[str, Any], name: str) -> str:
    value = question.get(name, "")
    if not isinstance(value, str):
        raise QuestionError(f"{name}: must be a string")
    return value


def _quantity(name: str, text: str) -> Quantity:
    try:
        return Quantity.parse(quantity_text(text) or "")
    except InvalidQuantityError as error:
        raise QuestionError(f"{name}: {error.reason}") from None
