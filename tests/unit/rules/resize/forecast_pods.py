"""Shared by the tests of the forecast: a node, pods and one request."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.forecast import Forecast, forecast
from plimsoll.rules.resize.verdict import ResizeSetting
from plimsoll.rules.scheduling.fit import allocated_load

ALLOCATABLE = {"cpu": parse("4"), "memory": parse("4Gi"), "pods": parse("110")}


NODE = Node(Metadata("n1"), status=NodeStatus(ALLOCATABLE, ALLOCATABLE))


def version(requests: dict[str, str], limits: dict[str, str] | None = None, **extra: Any) -> PodVersion:
    resources = {"requests": requests, "limits": limits if limits is not None else requests}
    container = {"name": "c", "image": "i", "resources": resources, **extra}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u0"},
        "spec": {"containers": [container], "restartPolicy": "Always"},
        "status": {"phase": "Running"},
    }
    return PodVersion(document, from_document(document, Pod))


def other(name: str, cpu: str, memory: str = "1Mi") -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return from_document({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec}, Pod)


SMALL = {"cpu": "1", "memory": "1Gi"}


HALF = {"cpu": "1", "memory": "512Mi"}


def asked(
    new: PodVersion, *others: Pod, old: PodVersion | None = None, profile: str = "documents", used: int | None = None
) -> Forecast:
    setting = ResizeSetting(allocated_load(NODE, others), profile_named(profile))
    return forecast(old or version(SMALL), new, setting, working_sets=None if used is None else {"c": used})
