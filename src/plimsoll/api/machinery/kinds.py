"""What the server serves: one row per resource. Discovery, routing, storage and tables all read this table.

A resource is known by (group, version, plural). `storage` names the resource that its objects are stored as: both event
groups share one. `fields` are the field selectors beside `metadata.name` and `metadata.namespace` (05 B6 Selectors).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_EDIT = ("get", "patch", "update")
_PROXY = ("create", "delete", "get", "patch", "update")
_READ = ("get", "list")


class Subresource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""  # of the kind, where it is not the resource's own
    version: str = ""


class ApiResource(msgspec.Struct, frozen=True):
    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    storage: str = ""  # empty: nothing is stored (reviews, bindings, metrics)
    has_generation: bool = False
    graceful: bool = False  # deletion in two steps (pods)
    fields: tuple[str, ...] = ()
    own_fields: bool = False  # the kind has its own error for an unknown field selector
    dns_label_name: bool = False  # the name may have no dots

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """As errors name it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def subresource(self, name: str) -> Subresource | None:
        return next((subresource for subresource in self.subresources if subresource.name == name), None)

    def opening(self) -> bytes:
        """What precedes the stored members of one object of this kind."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.kind.encode(), self.group_version.encode())


def _status(kind: str) -> Subresource:
    return Subresource("status", kind, _EDIT)


_SCALE = Subresource("scale", "Scale", _EDIT, "autoscaling", "v1")
_OBJECT_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = ("reason", "source", "type")

RESOURCES: tuple[ApiResource, ...] = (
    ApiResource("", "v1", "bindings", "Binding", "binding", verbs=("create",)),
    ApiResource("", "v1", "configmaps", "ConfigMap", "configmap", ("cm",), storage="configmaps"),
    ApiResource(
        "",
        "v1",
        "events",
        "Event",
        "event",
        ("ev",),
        storage="events",
        fields=(*(f"involvedObject.{name}" for name in _OBJECT_REFERENCE), "reportingComponent", *_EVENT_FIELDS),
        own_fields=True,
    ),
    ApiResource("", "v1", "limitranges", "LimitRange", "limitrange", ("limits",), storage="limitranges"),
    ApiResource(
        "",
        "v1",
        "namespaces",
        "Namespace",
        "namespace",
        ("ns",),
        namespaced=False,
        verbs=_NO_COLLECTION_DELETE,
        subresources=(Subresource("finalize", "Namespace", ("update",)), _status("Namespace")),
        storage="namespaces",
        fields=("status.phase",),
        own_fields=True,
        dns_label_name=True,
    ),
    ApiResource(
        "",
        "v1",
        "nodes",
        "Node",
        "node",
        ("no",),
        namespaced=False,
        subresources=(Subresource("proxy", "NodeProxyOptions", _PROXY), _status("Node")),
        storage="nodes",
        fields=("spec.unschedulable",),
        own_fields=True,
    ),
    ApiResource(
        "",
        "v1",
        "pods",
        "Pod",
        "pod",
        ("po",),
        ("all",),
        subresources=(
            Subresource("binding", "Binding", ("create",)),
            Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
            Subresource("exec", "PodExecOptions", ("create", "get")),
            Subresource("log", "Pod", ("get",)),
            Subresource("resize", "Pod", _EDIT),
            _status("Pod"),
        ),
        storage="pods",
        has_generation=True,
        graceful=True,
        fields=(
            "spec.nodeName",
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ),
        own_fields=True,
    ),
    ApiResource(
        "",
        "v1",
        "resourcequotas",
        "ResourceQuota",
        "resourcequota",
        ("quota",),
        subresources=(_status("ResourceQuota"),),
        storage="resourcequotas",
    ),
    ApiResource("", "v1", "serviceaccounts", "ServiceAccount", "serviceaccount", ("sa",), storage="serviceaccounts"),
    ApiResource(
        "apps",
        "v1",
        "deployments",
        "Deployment",
        "deployment",
        ("deploy",),
        ("all",),
        subresources=(_SCALE, _status("Deployment")),
        storage="deployments",
        has_generation=True,
    ),
    ApiResource(
        "apps",
        "v1",
        "replicasets",
        "ReplicaSet",
        "replicaset",
        ("rs",),
        ("all",),
        subresources=(_SCALE, _status("ReplicaSet")),
        storage="replicasets",
        has_generation=True,
        fields=("status.replicas",),
        own_fields=True,
    ),
    ApiResource(
        "authentication.k8s.io",
        "v1",
        "selfsubjectreviews",
        "SelfSubjectReview",
        "selfsubjectreview",
        namespaced=False,
        verbs=("create",),
    ),
    ApiResource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreview",
        namespaced=False,
        verbs=("create",),
    ),
    ApiResource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreview",
        namespaced=False,
        verbs=("create",),
    ),
    ApiResource(
        "batch",
        "v1",
        "jobs",
        "Job",
        "job",
        (),
        ("all",),
        subresources=(_status("Job"),),
        storage="jobs",
        has_generation=True,
        fields=("status.successful",),
        own_fields=True,
    ),
    ApiResource(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        "certificatesigningrequest",
        ("csr",),
        namespaced=False,
        verbs=("create",),  # never stored
    ),
    ApiResource("coordination.k8s.io", "v1", "leases", "Lease", "lease", storage="leases"),
    ApiResource(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        "event",
        ("ev",),
        storage="events",
        fields=(*(f"regarding.{name}" for name in _OBJECT_REFERENCE), "reportingController", *_EVENT_FIELDS),
        own_fields=True,
    ),
    ApiResource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", namespaced=False, verbs=_READ),
    ApiResource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", verbs=_READ),
    ApiResource(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "poddisruptionbudget",
        ("pdb",),
        subresources=(_status("PodDisruptionBudget"),),
        storage="poddisruptionbudgets",
        has_generation=True,
    ),
    ApiResource(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        "priorityclass",
        ("pc",),
        namespaced=False,
        storage="priorityclasses",
        has_generation=True,
    ),
)

_BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}
_BY_STORAGE: dict[str, ApiResource] = {}
for _each in RESOURCES:
    if _each.storage:
        _BY_STORAGE.setdefault(_each.storage, _each)


def resource_at(group: str, version: str, plural: str) -> ApiResource | None:
    return _BY_PATH.get((group, version, plural))


def stored_resource(storage: str) -> ApiResource:
    """The resource whose form the stored objects have."""
    return _BY_STORAGE[storage]


def group_versions() -> Iterator[tuple[str, str, tuple[ApiResource, ...]]]:
    """(group, version, resources), core first, then by group name."""
    seen: dict[tuple[str, str], list[ApiResource]] = {}
    for resource in RESOURCES:
        seen.setdefault((resource.group, resource.version), []).append(resource)
    for (group, version), resources in sorted(seen.items()):
        yield group, version, tuple(resources)


GROUPS = frozenset((resource.group, resource.version) for resource in RESOURCES)
