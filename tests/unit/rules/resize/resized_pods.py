"""Pods, a node and a verdict for the tests of resizes."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resize.allocation import (
    allocation_of,
)
from plimsoll.rules.resize.verdict import (
    ResizeSetting,
    ResizeVerdict,
    resize_verdict,
)
from plimsoll.rules.scheduling.fit import allocated_load


def container(
    name: str = "c", cpu: str = "", memory: str = "", *, guaranteed: bool = True, **more: Any
) -> dict[str, Any]:
    amounts = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts if guaranteed else {}}, **more}


def pod(*containers: dict[str, Any], name: str = "p", **spec: Any) -> Pod:
    annotations = spec.pop("annotations", None)
    metadata = {"name": name, "uid": name, "annotations": annotations}
    return from_document({"metadata": metadata, "spec": {"containers": list(containers), **spec}}, Pod)


def node(cpu: str = "4", memory: str = "8Gi", pods: str = "110") -> Node:
    return from_document({"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}}}, Node)


def setting(**fields: Any) -> ResizeSetting:
    load = allocated_load(fields.pop("node", node()), fields.pop("others", ()))
    return ResizeSetting(load, profile=fields.pop("profile", profile_named("1.36")), **fields)


def verdict(old: Pod, new: Pod, around: ResizeSetting | None = None) -> ResizeVerdict:
    around = around or setting()
    return resize_verdict(new, allocation_of(old, around.gates), around)


ONE, TWO = pod(container(cpu="1", memory="1Gi")), pod(container(cpu="2", memory="1Gi"))
