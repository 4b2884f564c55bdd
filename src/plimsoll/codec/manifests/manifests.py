"""Find the pods in a document: a Pod, a List of anything, or a kind with a pod template.

Each result is a Pod-shaped document and the path it came from, so that errors about `spec.containers[0]` of the pod can
name the field in the manifest, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.codec.manifests.unknown_fields import POD_SPEC
from plimsoll.rules.model.objects import POD_TEMPLATES

Path = tuple[str | int, ...]

MAX_LISTS = 20  # Lists are not nested in practice; far below Python's own limit
_VERSIONS = {  # of the kinds with pods that are not in v1
    **dict.fromkeys(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"), "apps/v1"),
    **dict.fromkeys(("CronJob", "Job"), "batch/v1"),
}
_OF_JOBS = frozenset({"activeDeadlineSeconds"})  # fields of pods that workloads have, too
_STEP = r"\.?([^.\[\]]+)|\[(\d+)\]|\[([^\]]*)\]"


class FoundPod(msgspec.Struct, frozen=True):
    document: dict[str, Any]  # apiVersion, kind Pod, metadata, spec, status
    at: Path  # the path of the pod (or template) in the document
    title: str  # `web`, `deployment/web`
    replicas: int = 1
    part: str = ""  # the field of the pod that a fragment consists of

    @property
    def base(self) -> str:
        """The user's path to the pod's spec."""
        return written_path((*self.at, "spec"))

    def written(self, field: str) -> str:
        """A field path of the pod, as a path in the manifest."""
        if self.part:
            return field.removeprefix(self.part).removeprefix(".")
        return written_path(self.at) + "." + field if self.at and field else field or written_path(self.at)


class Passed(msgspec.Struct, frozen=True):
    """An object without a pod, and the reason; or, beside a pod, what is odd about its object."""

    at: Path
    reason: str
    is_error: bool = False
    is_field: bool = False  # the reason is about the field at the path


def found_pods(document: Any, at: Path = ()) -> Iterator[FoundPod | Passed]:
    if len(at) > 2 * MAX_LISTS:
        yield Passed(at, f"Lists within Lists, more than {MAX_LISTS} deep", is_error=True)
    elif not isinstance(document, dict):
        yield Passed(at, "not an object", is_error=True)
    else:
        yield from _found_in(document, at)


def _found_in(document: dict[str, Any], at: Path) -> Iterator[FoundPod | Passed]:
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        yield Passed(at, "Object 'Kind' is missing", is_error=True)
    elif isinstance(document.get("items"), list) and kind.endswith("List"):
        for index, item in enumerate(document["items"]):
            yield from found_pods(_typed(item, kind.removesuffix("List")), (*at, "items", index))
    elif kind == "Pod":
        yield from _other_version(document, kind, at)
        yield FoundPod(document, at, _name(document) or "pod")
    elif kind in POD_TEMPLATES:
        yield from _other_version(document, kind, at)
        yield from _templated(document, kind, at)
    elif kind not in ("RuntimeClass", "PriorityClass"):  # `admitted_pods` reads those
        yield Passed(at, _foreign(document, kind) or passed_over(kind))


def _foreign(document: dict[str, Any], kind: str) -> str:
    """A custom resource with a template, as Rollouts have: which of its fields are a pod's is not known."""
    spec = document.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict):
        return ""
    return f"{kind} is not a kind of Kubernetes itself: its spec.template is not read"


def _other_version(document: dict[str, Any], kind: str, at: Path) -> Iterator[Passed]:
    """No release that has a profile serves another version of these kinds; `extensions/v1beta1` ended with 1.16."""
    written, served = document.get("apiVersion"), _VERSIONS.get(kind, "v1")
    if isinstance(written, str) and written != served:
        name = _name(document)
        title = f"{kind} {name}" if name else kind
        yield Passed(at, f"{title}: no API server has this kind in apiVersion {written}, but in {served}")


def passed_over(kind: str) -> str:
    """Why an object of the kind is not explained."""
    if kind == "LimitRange":
        return "LimitRange is not applied here: the API server fills in its defaults when it creates a pod"
    known = next((each for each in ("Pod", *POD_TEMPLATES) if each.lower() == kind.lower()), None)
    return f"{kind} is no kind; did you mean {known}?" if known else f"{kind} has no pod template"


def _typed(item: Any, kind: str) -> Any:
    """Items of a typed list may omit their kind."""
    if kind and isinstance(item, dict) and "kind" not in item:
        return {"kind": kind, **item}
    return item


def _templated(document: dict[str, Any], kind: str, at: Path) -> Iterator[FoundPod | Passed]:
    where = POD_TEMPLATES[kind]
    template: Any = document
    for depth, step in enumerate(where, 1):
        template = template.get(step) if isinstance(template, dict) else None
        yield from _misplaced(template, (*at, *where[:depth]), (*at, *where, "spec"))
    if not isinstance(template, dict):
        yield Passed((*at, *where), f"{kind} without a pod template", is_error=True)
        return
    name = _name(document) or kind.lower()
    owner = document.get("metadata") if isinstance(document.get("metadata"), dict) else {}
    metadata = template.get("metadata") if isinstance(template.get("metadata"), dict) else {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": (owner or {}).get("namespace"), **(metadata or {})},
        "spec": template.get("spec"),
    }
    spec = document.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    count = replicas if isinstance(replicas, int) and not isinstance(replicas, bool) and replicas >= 0 else 1
    yield FoundPod(pod, (*at, *where), f"{kind.lower()}/{name}", count)


def _misplaced(value: Any, at: Path, spec: Path) -> Iterator[Passed]:
    """Fields of pods above their place, as one step less of indentation makes them: they would have no effect."""
    if not isinstance(value, dict):
        return
    is_template = at[-1] in ("template", "jobTemplate")
    for name in value:
        if name not in ("metadata", "spec") if is_template else name in POD_SPEC - _OF_JOBS:
            owner = f"; it is a field of {written_path(spec)}" if name in POD_SPEC else ""
            yield Passed((*at, name), f"{written_path((*at, name))}: unknown field{owner}", is_field=True)


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    name = metadata.get("name") or metadata.get("generateName")
    return name if isinstance(name, str) else ""


def written_path(path: Path) -> str:
    """`("spec", "containers", 0)` → `spec.containers[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def path_steps(field: str) -> Path:
    """`spec.containers[0].resources.limits[cpu]` → its steps, to find a line."""
    steps: list[str | int] = []
    for match in re.finditer(_STEP, field):
        name, index, key = match.groups()
        steps.append(int(index) if index is not None else key if key is not None else name)
    return tuple(steps)
