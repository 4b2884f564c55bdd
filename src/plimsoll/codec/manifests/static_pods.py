"""A manifest from a file or URL → static pods, as in the kubelet.

The node's name is appended to the pod's name, and the uid is a hash over the pod and its source: a changed manifest is
another pod. Annotations record the source and the hash; `mirror_document` is the mirror pod in the API. A static pod
must run without the API, so it may not refer to API objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from plimsoll.codec.defaults.objects import with_kind_defaults
from plimsoll.codec.lean.lean import read_as_far
from plimsoll.codec.lean.runnable import run_pod_from_json
from plimsoll.codec.manifests.manifests import FoundPod, found_pods
from plimsoll.codec.manifests.unknown_fields import unknown_fields
from plimsoll.codec.schema.schema import KINDS
from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.errors import InvalidObjectError, PlimsollError, StructuredError
from plimsoll.rules.admission.pod_spec.spec import spec_errors
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.lifecycle.api_objects import references
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import MIRROR_ANNOTATION, SOURCE_ANNOTATION, Pod
from plimsoll.rules.model.run_volumes import volume_kind
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resources.defaulting import BUILT_IN, defaulted

HASH_ANNOTATION, SEEN_ANNOTATION = "kubernetes.io/config.hash", "kubernetes.io/config.seen"
Source = Literal["file", "http"]
_POD = next(kind for kind in KINDS if kind.name == "Pod")
_TOLERATION = {"operator": "Exists", "effect": "NoExecute"}
# Volumes from API objects; other unsupported kinds are refused when volumes are set up.
_API_VOLUMES = {"secret": "secrets", "persistentVolumeClaim": "persistentvolumeclaims", "ephemeral": "volumes"}


class StaticPodError(StructuredError):
    where: str
    reason: str
    template = "static pod {where}: {reason}"


class StaticPod(msgspec.Struct, frozen=True):
    uid: str
    namespace: str
    name: str
    where: str  # file or URL
    document: JsonObject
    body: bytes  # the same as JSON

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def static_pods(data: bytes, where: str, source: Source, node_name: str, seen: str) -> tuple[StaticPod, ...]:
    """`seen`: the time for the annotation. A file contains one Pod, a URL a Pod or a PodList."""
    pods = [_static(pod, where, source, node_name, seen) for pod in _pods(data, where)]
    if source == "file" and len(pods) != 1:
        raise StaticPodError(where, f"a file must contain one Pod, this one contains {len(pods)}")
    return tuple(pods)


def _pods(data: bytes, where: str) -> Iterator[FoundPod]:
    for each in read(data):
        if isinstance(each, YamlError):
            raise StaticPodError(where, f"line {each.line}: {each.message}" if each.line else each.message)
        if each.value.get("kind") not in ("Pod", "PodList", "List"):
            raise StaticPodError(where, f"kind {each.value.get('kind')!r} is not a Pod")
        for found in found_pods(each.value):
            if not isinstance(found, FoundPod):
                raise StaticPodError(where, found.reason)
            yield found


def _static(found: FoundPod, where: str, source: Source, node_name: str, seen: str) -> StaticPod:
    metadata, spec = (_object(found.document, name) for name in ("metadata", "spec"))
    if not metadata.get("name"):
        raise StaticPodError(where, "metadata.name: Required value")
    try:
        document = with_kind_defaults(_POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    except InvalidObjectError as error:
        raise StaticPodError(where, str(error)) from None
    uid = _uid(document, where, source, node_name)
    namespace = str(metadata.get("namespace") or "default")
    copied = {key: value for key, value in metadata.items() if key in ("labels", "annotations", "generateName")}
    annotations = {
        **(metadata.get("annotations") or {}),
        HASH_ANNOTATION: uid,
        SEEN_ANNOTATION: seen,
        SOURCE_ANNOTATION: source,
    }
    document["metadata"] = {
        **copied,
        "name": f"{metadata['name']}-{node_name.lower()}",
        "namespace": namespace,
        "uid": uid,
        "annotations": annotations,
    }
    spec = document["spec"]
    spec = {**spec, "nodeName": node_name, "tolerations": [*(spec.get("tolerations") or ()), _TOLERATION]}
    if spec.get("priority") is None and spec.get("priorityClassName") in BUILT_IN:
        spec["priority"] = BUILT_IN[spec["priorityClassName"]]
    document["spec"] = spec
    body = msgspec.json.encode(document)
    _check(document, body, where)
    return StaticPod(uid, namespace, document["metadata"]["name"], where, document, body)


def _object(document: JsonObject, name: str) -> JsonObject:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _uid(document: JsonObject, where: str, source: Source, node_name: str) -> str:
    """32 hexadecimal digits, as in the kubelet; the same manifest from the same source on the same node has the same
    uid."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "uid"}
    content = msgspec.json.encode({**document, "metadata": metadata}, order="sorted")
    origin = "file" if source == "file" else "url"
    return hashlib.md5(content + f"host:{node_name}{origin}:{where}".encode(), usedforsecurity=False).hexdigest()


def _check(document: JsonObject, body: bytes, where: str) -> None:
    pod, errors = read_as_far(document, Pod)
    errors += [each for each in create_errors(defaulted(pod)) if each not in errors]
    if not errors:
        errors = spec_errors(document["spec"], pod_name=document["metadata"]["name"])
    if errors:
        raise StaticPodError(where, "; ".join(map(str, errors)))
    wrong = [each for each in unknown_fields(document) if each.is_error]
    if wrong:
        raise StaticPodError(where, f"{wrong[0].field}: {wrong[0].message()}")
    try:
        run = run_pod_from_json(body)
    except PlimsollError as error:
        raise StaticPodError(where, str(error)) from None
    if kind := _from_api(run):
        raise StaticPodError(where, f"static pods may not reference {kind}: they run without the API")


def _from_api(pod: RunPod) -> str:
    named = references(pod)
    if named.config_maps:
        return "configmaps"
    if named.secrets:
        return "secrets"
    if pod.spec.service_account_name:
        return "serviceaccounts"
    return next((_API_VOLUMES[kind] for kind in map(volume_kind, pod.spec.volumes) if kind in _API_VOLUMES), "")


def mirror_document(pod: StaticPod, node_uid: str) -> JsonObject:
    """The mirror pod: the same pod, owned by the node, with the hash of the running pod."""
    metadata = pod.document["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": pod.document["spec"]["nodeName"],
        "uid": node_uid,
        "controller": True,
    }
    return {
        **pod.document,
        "metadata": {
            **{key: value for key, value in metadata.items() if key != "uid"},
            "annotations": {**metadata["annotations"], MIRROR_ANNOTATION: pod.uid},
            "ownerReferences": [owner],
        },
    }
