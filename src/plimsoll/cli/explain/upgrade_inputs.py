"""The fleet that `upgrade-check` is asked about: nodes with their configurations, pods, LimitRanges, quotas.

Dumps of a cluster are decoded item by item straight into lean objects: 5,000 pods need neither a document in memory nor
line numbers. Everything else is read as `explain` reads it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient
from plimsoll.cli.manifests import Inputs, ManifestProblem, add_inputs, files_in
from plimsoll.codec.lean.lean import from_document, json_document, pod_from_json
from plimsoll.codec.manifests.manifests import passed_over
from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.errors import InvalidObjectError
from plimsoll.rules.admission.limit_range import defaulted_limit_range, limit_ranged
from plimsoll.rules.explain.upgrade_trials import NamedPod
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Lean, Node, Pod
from plimsoll.rules.model.policies import LimitRange, ResourceQuota

PAGE = 500
_OTHER_KINDS: dict[str, type[Lean]] = {"Node": Node, "LimitRange": LimitRange, "ResourceQuota": ResourceQuota}


class Fleet(msgspec.Struct):
    nodes: list[Node] = []
    pods: list[NamedPod] = []
    limit_ranges: list[LimitRange] = []
    quotas: list[ResourceQuota] = []
    configs: dict[str, JsonObject] = {}  # by node, as /configz shows them or as files have them
    shown_by_node: set[str] = set()  # whose configuration is of /configz: defaults are written out
    cgroup_versions: dict[str, int] = {}
    problems: list[ManifestProblem] = []
    notes: list[str] = []

    def add(self, found: Lean) -> None:
        match found:
            case Node():
                self.nodes.append(found)
            case LimitRange():
                self.limit_ranges.append(defaulted_limit_range(found))
            case ResourceQuota():
                self.quotas.append(found)
            case Pod():
                self.add_pod(found, found.metadata.name)

    def add_pod(self, pod: Pod, name: str) -> None:
        if pod.status.phase not in ("Succeeded", "Failed"):
            self.pods.append(NamedPod(f"{pod.metadata.namespace or 'default'}/{name}", pod))


class _Item(msgspec.Struct):
    kind: str = ""


class _Page(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None
    metadata: dict[str, Any] = {}


def read_fleet(files: Sequence[str]) -> Fleet:
    fleet = Fleet()
    rest: list[tuple[str, bytes]] = []
    for file, data in files_in(files, fleet.problems):
        if not _read_dump(fleet, file, data):
            rest.append((file, data))
    _read_manifests(fleet, rest)
    _make_unique(fleet)
    return fleet


def _read_dump(fleet: Fleet, file: str, data: bytes) -> bool:
    """Whether it is a dump: a JSON list of kinds that are read here."""
    if data.lstrip()[:1] != b"{":
        return False
    try:
        page = msgspec.json.decode(data, type=_Page)
        kinds = [msgspec.json.decode(item, type=_Item).kind or page.kind[:-4] for item in page.items or ()]
    except (msgspec.MsgspecError, RecursionError):
        return False
    if not page.kind.endswith("List") or not set(kinds) <= {"Pod", *_OTHER_KINDS}:
        return False
    for index, (kind, item) in enumerate(zip(kinds, page.items or (), strict=True)):
        try:
            fleet.add(_lean(kind, item))
        except InvalidObjectError as error:
            fleet.problems.append(ManifestProblem(file, 1, None, f"items[{index}].{error}"))
    return True


def _lean(kind: str, item: msgspec.Raw | bytes) -> Lean:
    if kind == "Pod":
        return pod_from_json(bytes(item))
    return from_document(json_document(bytes(item)), _OTHER_KINDS[kind])


def _read_manifests(fleet: Fleet, files: Iterable[tuple[str, bytes]]) -> None:
    """Manifests: pods after the LimitRanges of their namespace have filled in what they lack."""
    inputs = Inputs([], [], [])
    for file, data in files:
        pods = []
        for document in read(data):
            if isinstance(document, YamlError):
                pods = [data]
                break
            for value in _objects(document.value):
                kind = value.get("kind") if isinstance(value, dict) else None
                if kind not in _OTHER_KINDS:
                    pods = [data]
                    continue
                try:
                    fleet.add(from_document(value, _OTHER_KINDS[str(kind)]))
                except InvalidObjectError as error:
                    fleet.problems.append(ManifestProblem(file, document.index, document.line, str(error)))
        add_inputs(inputs, [(file, each) for each in pods], fragments=True)
    without_pods = tuple(f": {passed_over(kind)}" for kind in _OTHER_KINDS)
    fleet.notes += [note for note in inputs.passed if not note.endswith(without_pods)]
    fleet.problems += inputs.problems
    for given in inputs.pods:
        if given.unreadable:
            fleet.problems += [
                ManifestProblem(given.file, given.document.index, given.document.line, str(error))
                for error in given.unreadable
            ]
            continue
        namespace = given.pod.metadata.namespace or "default"
        ranges = [each for each in fleet.limit_ranges if (each.metadata.namespace or "default") == namespace]
        pod = limit_ranged(given.pod, ranges) if ranges else given.pod
        if pod != given.pod:
            fleet.notes.append(_filled_in(namespace, ranges))
        fleet.add_pod(pod, given.found.title)


def _filled_in(namespace: str, ranges: Sequence[LimitRange]) -> str:
    names = ", ".join(each.metadata.name for each in ranges)
    return f"LimitRange {names} fills in what containers in manifests of namespace {namespace} lack"


def _objects(value: Any) -> Iterable[Any]:
    items = value.get("items") if isinstance(value, dict) else None
    return items if isinstance(items, list) else [value]


def _make_unique(fleet: Fleet) -> None:
    """Two pods of one name come from two files; their titles get a number."""
    seen: dict[str, int] = {}
    for index, each in enumerate(fleet.pods):
        count = seen[each.title] = seen.get(each.title, 0) + 1
        if count > 1:
            fleet.pods[index] = msgspec.structs.replace(each, title=f"{each.title} ({count})")


def read_configs(fleet: Fleet, folder: str) -> None:
    """`NODE.json` or `NODE.yaml` for each node: the output of /configz, or a KubeletConfiguration."""
    problems: list[ManifestProblem] = []
    for file, data in files_in([folder], problems):
        documents = list(read(data))
        if len(documents) != 1 or isinstance(documents[0], YamlError) or not isinstance(documents[0].value, dict):
            raise console.CommandError(f"--configz {file}: expected one KubeletConfiguration or the output of /configz")
        _add_config(fleet, Path(file).stem, documents[0].value)
    if problems:
        raise console.CommandError(f"--configz {problems[0]}")


def _add_config(fleet: Fleet, node: str, document: JsonObject) -> None:
    shown = document.get("kubeletconfig")
    if isinstance(shown, dict):
        fleet.shown_by_node.add(node)
    fleet.configs[node] = shown if isinstance(shown, dict) else document


# --- a live cluster ---


async def live_fleet(cluster: ClusterClient, namespace: str) -> Fleet:
    """`namespace`: only its pods; empty for all."""
    from plimsoll.kube.request import NODES, PODS, ResourcePath

    fleet = Fleet()
    ranges, quotas = ResourcePath("/api/v1", "limitranges"), ResourcePath("/api/v1", "resourcequotas")
    for resource, kind, within in (
        (NODES, "Node", ""),
        (PODS, "Pod", namespace),
        (ranges, "LimitRange", namespace),
        (quotas, "ResourceQuota", namespace),
    ):
        async for item in _listed(cluster, resource, within):
            try:
                fleet.add(_lean(kind, item))
            except InvalidObjectError as error:
                fleet.notes.append(f"{kind} that cannot be read is left out: {error}")
    for node in fleet.nodes:
        await _read_node(cluster, fleet, node.metadata.name)
    return fleet


async def _listed(cluster: ClusterClient, resource: Any, namespace: str) -> AsyncIterator[msgspec.Raw]:
    from plimsoll.kube.request import api_error, decoded_as, listing

    follow = ""
    while True:
        answer = await cluster.answer(listing(resource, namespace=namespace, limit=PAGE, follow=follow))
        if answer.status >= 400:
            raise api_error(answer)
        page = decoded_as(answer.body, _Page, f"the list of {resource.plural}")
        for item in page.items or ():
            yield item
        follow = str(page.metadata.get("continue") or "")
        if not follow:
            return


_CGROUP_VERSION = re.compile(rb"^kubelet_cgroup_version(?:\{[^}]*\})? ([12])\b", re.MULTILINE)


async def _read_node(cluster: ClusterClient, fleet: Fleet, name: str) -> None:
    from plimsoll.cli.node_info import kubelet_config
    from plimsoll.kube.request import Request

    config = await kubelet_config(cluster, name)
    if config:
        _add_config(fleet, name, {"kubeletconfig": config})
    else:
        fleet.notes.append(f"node {name}: /configz cannot be read; the defaults of its release are assumed")
    answer = await cluster.answer(Request("GET", f"/api/v1/nodes/{name}/proxy/metrics"))
    found = _CGROUP_VERSION.search(answer.body) if answer.status < 400 else None
    if found is not None:
        fleet.cgroup_versions[name] = int(found[1])
