"""The field tree of every kind that the API server serves.

The tables in `codec.schema` describe the API of Kubernetes 1.36. A line without indent opens a struct: its name here
(`core.PodSpec`), its name in Go's error messages (`v1.PodSpec`), optionally `atomic`, and after `|` its description.
Indented lines are its fields in Go's order: name, protobuf number, type, flags, description.

    type    string bool int32 int64 bytes Quantity IntOrString Time MicroTime Duration FieldsV1 JSON (any), a struct,
            `[]T`, `{T}` (a map); `/v1.PodPhase` is the Go name of the type where it is not the plain one
    *       a pointer in Go: an explicit zero is kept (elsewhere it is dropped)
    !       printed even when it is absent: as zero, `{}`, or null for lists, times and pointers
    number  `1.8` is field 8 of an embedded message that is field 1; `-` is unknown and never sent by kubectl
    flags   required · merge (strategic patch merges the list) · merge=KEY · retainKeys · replace · map=KEY,KEY and set
            (server-side apply; other lists are atomic) · atomic (a map or struct with one owner) · default=TEXT (of a
            key that may be omitted)

A struct is parsed on first use.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

Scalar = Literal[
    "string",
    "bool",
    "int32",
    "int64",
    "bytes",
    "Quantity",
    "IntOrString",
    "Time",
    "MicroTime",
    "Duration",
    "FieldsV1",
    "JSON",
]
Form = Literal[Scalar, "object", "list", "map"]
_SCALARS = frozenset(Scalar.__args__)  # type: ignore[attr-defined]
_GO_NAMES = {"Quantity": "resource.Quantity", "Time": "string", "MicroTime": "string", "IntOrString": "int32"}


class Type(msgspec.Struct, frozen=True):
    form: Form
    go: str  # as in Go's error messages
    struct: str = ""  # of an object: its name in the tables
    item: Type | None = None  # of a list or map


class Field(msgspec.Struct, frozen=True):
    name: str
    number: tuple[int, ...]  # protobuf, with the embedded messages around it; empty if unknown
    type: Type
    description: str
    pointer: bool = False
    always: bool = False
    required: bool = False
    merges: bool = False
    merge_key: str = ""
    retain_keys: bool = False
    replaces: bool = False
    keys: tuple[str, ...] = ()  # of a list that server-side apply treats as a map
    is_set: bool = False
    atomic: bool = False
    default: str = ""


class StructType(msgspec.Struct, frozen=True, eq=False):
    name: str
    go: str
    description: str
    atomic: bool
    fields: dict[str, Field]

    @property
    def go_struct(self) -> str:
        """Without its package: `Container` of `v1.Container`."""
        return self.go.rpartition(".")[2]


class SchemaKind(msgspec.Struct, frozen=True, cache_hash=True):
    """A served kind. `root` is its struct; a custom kind has a schema instead (`codec.schema.custom`)."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    table: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> StructType:
        return _root(self.table)


_CORE, _APPS, _EVENTS = "", "apps", "events.k8s.io"
_AUTOSCALER = "HorizontalPodAutoscaler"
KINDS: tuple[SchemaKind, ...] = (
    SchemaKind(_CORE, "v1", "Pod", "pods", True, "core.Pod"),
    SchemaKind(_CORE, "v1", "Node", "nodes", False, "core.Node"),
    SchemaKind(_CORE, "v1", "Namespace", "namespaces", False, "core.Namespace"),
    SchemaKind(_CORE, "v1", "Event", "events", True, "core.Event"),
    SchemaKind(_CORE, "v1", "ConfigMap", "configmaps", True, "core.ConfigMap"),
    SchemaKind(_CORE, "v1", "Secret", "secrets", True, "core.Secret"),
    SchemaKind(_CORE, "v1", "ServiceAccount", "serviceaccounts", True, "core.ServiceAccount"),
    SchemaKind(_CORE, "v1", "LimitRange", "limitranges", True, "core.LimitRange"),
    SchemaKind(_CORE, "v1", "ResourceQuota", "resourcequotas", True, "core.ResourceQuota"),
    SchemaKind(_CORE, "v1", "Binding", "bindings", True, "core.Binding"),
    SchemaKind(_CORE, "v1", "Service", "services", True, "core.Service"),
    SchemaKind(_CORE, "v1", "Endpoints", "endpoints", True, "core.Endpoints"),
    SchemaKind(_CORE, "v1", "PersistentVolume", "persistentvolumes", False, "core.PersistentVolume"),
    SchemaKind(_CORE, "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, "core.PersistentVolumeClaim"),
    SchemaKind("storage.k8s.io", "v1", "CSINode", "csinodes", False, "storage.CSINode"),
    SchemaKind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, "storage.StorageClass"),
    SchemaKind(
        "storage.k8s.io",
        "v1",
        "VolumeAttributesClass",
        "volumeattributesclasses",
        False,
        "storage.VolumeAttributesClass",
    ),
    SchemaKind(_CORE, "v1", "DeleteOptions", "", True, "meta.DeleteOptions"),
    SchemaKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True, "discovery.EndpointSlice"),
    SchemaKind("networking.k8s.io", "v1", "Ingress", "ingresses", True, "networking.Ingress"),
    SchemaKind("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False, "networking.IngressClass"),
    SchemaKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, "networking.NetworkPolicy"),
    SchemaKind(_EVENTS, "v1", "Event", "events", True, "events.Event"),
    SchemaKind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        False,
        "apiextensions.CustomResourceDefinition",
    ),
    SchemaKind("apiregistration.k8s.io", "v1", "APIService", "apiservices", False, "apiregistration.APIService"),
    SchemaKind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, "scheduling.PriorityClass"),
    SchemaKind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False, "node.RuntimeClass"),
    SchemaKind("coordination.k8s.io", "v1", "Lease", "leases", True, "coordination.Lease"),
    SchemaKind(_CORE, "v1", "ReplicationController", "replicationcontrollers", True, "core.ReplicationController"),
    SchemaKind(_CORE, "v1", "PodTemplate", "podtemplates", True, "core.PodTemplate"),
    SchemaKind(_APPS, "v1", "ControllerRevision", "controllerrevisions", True, "apps.ControllerRevision"),
    SchemaKind(_APPS, "v1", "DaemonSet", "daemonsets", True, "apps.DaemonSet"),
    SchemaKind(_APPS, "v1", "StatefulSet", "statefulsets", True, "apps.StatefulSet"),
    SchemaKind("batch", "v1", "CronJob", "cronjobs", True, "batch.CronJob"),
    SchemaKind(_APPS, "v1", "ReplicaSet", "replicasets", True, "apps.ReplicaSet"),
    SchemaKind(_APPS, "v1", "Deployment", "deployments", True, "apps.Deployment"),
    SchemaKind("batch", "v1", "Job", "jobs", True, "batch.Job"),
    SchemaKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, "policy.PodDisruptionBudget"),
    SchemaKind("policy", "v1", "Eviction", "", True, "policy.Eviction"),
    SchemaKind("policy", "v1beta1", "Eviction", "", True, "policy.Eviction"),
    SchemaKind("autoscaling", "v1", "Scale", "", True, "autoscaling.Scale"),
    *(
        SchemaKind("autoscaling", version, _AUTOSCALER, "horizontalpodautoscalers", True, f"{table}.{_AUTOSCALER}")
        for version, table in (("v2", "autoscaling2"), ("v1", "autoscaling"))
    ),
    *(
        SchemaKind("authorization.k8s.io", "v1", name, f"{name.lower()}s", namespaced, f"authorization.{name}")
        for name, namespaced in (
            ("LocalSubjectAccessReview", True),
            ("SelfSubjectAccessReview", False),
            ("SelfSubjectRulesReview", False),
            ("SubjectAccessReview", False),
        )
    ),
    *(
        SchemaKind("authentication.k8s.io", "v1", name, f"{name.lower()}s", False, f"authentication.{name}")
        for name in ("SelfSubjectReview", "TokenReview")
    ),
    SchemaKind("authentication.k8s.io", "v1", "TokenRequest", "", True, "authentication.TokenRequest"),
    *(
        SchemaKind("rbac.authorization.k8s.io", "v1", name, f"{name.lower()}s", namespaced, f"rbac.{name}")
        for name, namespaced in (
            ("ClusterRole", False),
            ("ClusterRoleBinding", False),
            ("Role", True),
            ("RoleBinding", True),
        )
    ),
    SchemaKind(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        False,
        "certificates.CertificateSigningRequest",
    ),
    SchemaKind(
        "certificates.k8s.io",
        "v1",
        "ClusterTrustBundle",
        "clustertrustbundles",
        False,
        "certificates.ClusterTrustBundle",
    ),
    *(
        SchemaKind("admissionregistration.k8s.io", "v1", name, plural, False, f"admissionregistration.{name}")
        for name, plural in (
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
            ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        )
    ),
    *(
        SchemaKind("metrics.k8s.io", version, name, plural, is_namespaced, f"metrics.{name}")
        for version in ("v1", "v1beta1")
        for name, plural, is_namespaced in (("PodMetrics", "pods", True), ("NodeMetrics", "nodes", False))
    ),
)
_BY_NAME = {(kind.api_version, kind.name): kind for kind in KINDS}
# Inline in every object (TypeMeta), before its other fields.
_TYPE_META = (
    "  kind - string | Kind of the object.",
    "  apiVersion - string | Group and version of the kind.",
)


def schema(api_version: str, kind: str) -> SchemaKind:
    """The kind, e.g. `schema("v1", "Pod")`, `schema("apps/v1", "Deployment")`; raises KeyError."""
    return _BY_NAME[api_version, kind]


@cache
def _blocks() -> dict[str, list[str]]:
    """The lines of each struct, by its name."""
    from plimsoll.codec.schema import (
        accounts,
        admission,
        autoscaling,
        cluster,
        container,
        controllers,
        extensions,
        meta,
        networking,
        pod,
        pod_parts,
        services,
        storage,
        volumes,
        workloads,
    )

    modules = (
        meta,
        pod,
        pod_parts,
        container,
        volumes,
        cluster,
        extensions,
        services,
        networking,
        workloads,
        autoscaling,
        controllers,
        accounts,
        admission,
        storage,
    )
    blocks: dict[str, list[str]] = {}
    lines: list[str] = []
    for module in modules:
        for line in module.TABLE.splitlines():
            if line.startswith(" "):
                lines.append(line)
            elif line:
                lines = blocks[line.partition(" ")[0]] = [line]
    return blocks


def struct_names() -> tuple[str, ...]:
    return tuple(_blocks())


@cache
def struct(name: str) -> StructType:
    """A struct of the tables, e.g. `core.PodSpec`; raises KeyError."""
    return _parsed(name, ())


@cache
def _root(name: str) -> StructType:
    return _parsed(name, _TYPE_META)


def _parsed(name: str, first: tuple[str, ...]) -> StructType:
    head, *lines = _blocks()[name]
    words, _, description = head.partition(" | ")
    _, go, *flags = words.split()
    fields = [_field(line) for line in (*first, *lines)]
    return StructType(name, go, description, "atomic" in flags, {field.name: field for field in fields})


def _field(line: str) -> Field:
    words, _, description = line.partition(" | ")
    name, number, written, *flags = words.split()
    always = written.endswith("!")
    written = written.removesuffix("!")
    pointer = written.endswith("*")
    options = dict(flag.partition("=")[::2] for flag in flags)
    merge_key, _, retain = options.get("merge", "").partition(",")
    return Field(
        name,
        () if number == "-" else tuple(map(int, number.split("."))),
        _type(written.removesuffix("*")),
        description,
        pointer=pointer,
        always=always,
        required="required" in options,
        merges="merge" in options,
        merge_key=merge_key,
        retain_keys=bool(retain) or "retainKeys" in options,
        replaces="replace" in options,
        keys=tuple(options["map"].split(",")) if "map" in options else (),
        is_set="set" in options,
        atomic="atomic" in options,
        default=options.get("default", ""),
    )


@cache
def _type(written: str) -> Type:
    written, _, go = written.partition("/")
    if written.startswith("[]"):
        item = _type(f"{written[2:]}/{go}" if go else written[2:])
        return Type("list", f"[]{item.go}", item=item)
    if written.startswith("{"):
        item = _type(written[1:-1])
        return Type("map", go or f"map[string]{item.go}", item=item)
    if written in _SCALARS:
        return Type(written, go or _GO_NAMES.get(written, written))  # type: ignore[arg-type]
    return Type("object", _blocks()[written][0].split()[1], struct=written)
