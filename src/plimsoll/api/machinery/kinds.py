"""What the server serves: one row per resource. Discovery, routing, storage and tables all read this table.

A resource is known by (group, version, plural). Its objects are stored by its plural, which both event groups and both
versions of autoscalers share, in the form of the first one here.
`fields` are the field selectors beside `metadata.name` and `metadata.namespace` (05 B6 Selectors).
"""

from __future__ import annotations

import msgspec

from plimsoll.codec.schema.custom import CustomKind
from plimsoll.rules.model.json_object import JsonObject

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_CREATE = ("create",)
_EDIT = ("get", "patch", "update")
_PROXY = ("create", "delete", "get", "patch", "update")
_READ = ("get", "list")


class Subresource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""  # of the kind, where it is not the resource's own
    version: str = ""


class ScalePaths(msgspec.Struct, frozen=True):
    """Where /scale finds its values: `spec.replicas` and others, without the first dot."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


class CustomResource(msgspec.Struct, frozen=True, eq=False):
    """What a CustomResourceDefinition says about one of its versions, beside what every resource has."""

    kind: CustomKind
    singular: str
    list_kind: str
    columns: tuple[JsonObject, ...] = ()  # additionalPrinterColumns
    scale: ScalePaths | None = None
    deprecation: str = ""  # the warning for every request
    uid: str = ""  # of the definition


class ApiResource(msgspec.Struct, frozen=True, cache_hash=True):
    group: str
    version: str
    plural: str
    kind: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    has_generation: bool = False
    graceful: bool = False  # deletion in two steps (pods)
    fields: tuple[str, ...] = ()  # a kind that has some also has its own error for an unknown field selector
    dns_label_name: bool = False  # the name may have no dots
    path_name: bool = False  # the name may have whatever a path can have
    custom: CustomResource | None = None

    @property
    def singular(self) -> str:
        """metrics-server has none."""
        if self.custom is not None:
            return self.custom.singular
        return "" if self.group == "metrics.k8s.io" else self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.custom.list_kind if self.custom is not None else f"{self.kind}List"

    @property
    def storage(self) -> str:
        """Under which name its objects are stored; empty for reviews, bindings and metrics, which are not."""
        if self.custom is not None:
            return self.group_resource
        return self.plural if "update" in self.verbs else ""

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


_ADMISSION = "admissionregistration.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_SCALE = Subresource("scale", "Scale", _EDIT, "autoscaling", "v1")
_OBJECT_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _event_fields(about: str, reporter: str) -> tuple[str, ...]:
    return (*(f"{about}.{name}" for name in _OBJECT_REFERENCE), reporter, "reason", "source", "type")


def _review(group: str, kind: str, *short_names: str, namespaced: bool = False) -> ApiResource:
    """A request that is answered and never stored."""
    return ApiResource(group, "v1", f"{kind.lower()}s", kind, short_names, namespaced=namespaced, verbs=_CREATE)


RESOURCES: tuple[ApiResource, ...] = (
    ApiResource("", "v1", "bindings", "Binding", verbs=_CREATE),
    ApiResource("", "v1", "configmaps", "ConfigMap", ("cm",)),
    ApiResource("", "v1", "endpoints", "Endpoints", ("ep",)),
    ApiResource("", "v1", "events", "Event", ("ev",), fields=_event_fields("involvedObject", "reportingComponent")),
    ApiResource("", "v1", "limitranges", "LimitRange", ("limits",)),
    ApiResource(
        "",
        "v1",
        "namespaces",
        "Namespace",
        ("ns",),
        namespaced=False,
        verbs=_NO_COLLECTION_DELETE,
        subresources=(Subresource("finalize", "Namespace", ("update",)), _status("Namespace")),
        fields=("status.phase",),
        dns_label_name=True,
    ),
    ApiResource(
        "",
        "v1",
        "nodes",
        "Node",
        ("no",),
        namespaced=False,
        subresources=(Subresource("proxy", "NodeProxyOptions", _PROXY), _status("Node")),
        fields=("spec.unschedulable",),
    ),
    ApiResource(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        ("pvc",),
        subresources=(_status("PersistentVolumeClaim"),),
    ),
    ApiResource(
        "",
        "v1",
        "persistentvolumes",
        "PersistentVolume",
        ("pv",),
        namespaced=False,
        subresources=(_status("PersistentVolume"),),
    ),
    ApiResource(
        "",
        "v1",
        "pods",
        "Pod",
        ("po",),
        ("all",),
        subresources=(
            Subresource("attach", "PodAttachOptions", ("create", "get")),
            Subresource("binding", "Binding", _CREATE),
            Subresource("ephemeralcontainers", "Pod", _EDIT),
            Subresource("eviction", "Eviction", _CREATE, "policy", "v1"),
            Subresource("exec", "PodExecOptions", ("create", "get")),
            Subresource("log", "Pod", ("get",)),
            Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
            Subresource("proxy", "PodProxyOptions", _PROXY),
            Subresource("resize", "Pod", _EDIT),
            _status("Pod"),
        ),
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
    ),
    ApiResource("", "v1", "podtemplates", "PodTemplate", has_generation=True),
    ApiResource(
        "",
        "v1",
        "replicationcontrollers",
        "ReplicationController",
        ("rc",),
        ("all",),
        subresources=(_SCALE, _status("ReplicationController")),
        has_generation=True,
        fields=("status.replicas",),
    ),
    ApiResource("", "v1", "resourcequotas", "ResourceQuota", ("quota",), subresources=(_status("ResourceQuota"),)),
    ApiResource("", "v1", "secrets", "Secret", fields=("type",)),
    ApiResource(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        ("sa",),
        subresources=(Subresource("token", "TokenRequest", _CREATE, "authentication.k8s.io", "v1"),),
    ),
    ApiResource(
        "",
        "v1",
        "services",
        "Service",
        ("svc",),
        ("all",),
        subresources=(Subresource("proxy", "ServiceProxyOptions", _PROXY), _status("Service")),
        fields=("spec.clusterIP", "spec.type"),
        dns_label_name=True,
    ),
    *(
        ApiResource(
            _ADMISSION,
            "v1",
            plural,
            kind,
            categories=("api-extensions",),
            namespaced=False,
            subresources=subresources,
            has_generation=True,
        )
        for plural, kind, subresources in (
            ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", ()),
            ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", ()),
            ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", ()),
            (
                "validatingadmissionpolicies",
                "ValidatingAdmissionPolicy",
                (_status("ValidatingAdmissionPolicy"),),
            ),
            ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", ()),
            ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", ()),
        )
    ),
    ApiResource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        ("crd", "crds"),
        ("api-extensions",),
        namespaced=False,
        subresources=(_status("CustomResourceDefinition"),),
        has_generation=True,
    ),
    ApiResource(
        "apiregistration.k8s.io",
        "v1",
        "apiservices",
        "APIService",
        categories=("api-extensions",),
        namespaced=False,
        subresources=(_status("APIService"),),
        path_name=True,
    ),
    ApiResource("apps", "v1", "controllerrevisions", "ControllerRevision"),
    ApiResource(
        "apps",
        "v1",
        "daemonsets",
        "DaemonSet",
        ("ds",),
        ("all",),
        subresources=(_status("DaemonSet"),),
        has_generation=True,
    ),
    ApiResource(
        "apps",
        "v1",
        "deployments",
        "Deployment",
        ("deploy",),
        ("all",),
        subresources=(_SCALE, _status("Deployment")),
        has_generation=True,
    ),
    ApiResource(
        "apps",
        "v1",
        "replicasets",
        "ReplicaSet",
        ("rs",),
        ("all",),
        subresources=(_SCALE, _status("ReplicaSet")),
        has_generation=True,
        fields=("status.replicas",),
    ),
    ApiResource(
        "apps",
        "v1",
        "statefulsets",
        "StatefulSet",
        ("sts",),
        ("all",),
        subresources=(_SCALE, _status("StatefulSet")),
        has_generation=True,
    ),
    _review("authentication.k8s.io", "SelfSubjectReview"),
    _review("authentication.k8s.io", "TokenReview"),
    _review("authorization.k8s.io", "LocalSubjectAccessReview", namespaced=True),
    _review("authorization.k8s.io", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "SelfSubjectRulesReview"),
    _review("authorization.k8s.io", "SubjectAccessReview"),
    *(
        ApiResource(
            "autoscaling",
            version,
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            ("hpa",),
            ("all",),
            subresources=(_status("HorizontalPodAutoscaler"),),
        )
        for version in ("v2", "v1")
    ),
    ApiResource(
        "batch",
        "v1",
        "cronjobs",
        "CronJob",
        ("cj",),
        ("all",),
        subresources=(_status("CronJob"),),
        has_generation=True,
    ),
    ApiResource(
        "batch",
        "v1",
        "jobs",
        "Job",
        categories=("all",),
        subresources=(_status("Job"),),
        has_generation=True,
        fields=("status.successful",),
    ),
    ApiResource(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        ("csr",),
        namespaced=False,
        subresources=(
            Subresource("approval", "CertificateSigningRequest", _EDIT),
            _status("CertificateSigningRequest"),
        ),
        fields=("spec.signerName",),
        path_name=True,
    ),
    ApiResource(
        "certificates.k8s.io",
        "v1",
        "clustertrustbundles",
        "ClusterTrustBundle",
        namespaced=False,
        fields=("spec.signerName",),
        path_name=True,
    ),
    ApiResource("coordination.k8s.io", "v1", "leases", "Lease"),
    ApiResource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", has_generation=True),
    ApiResource(
        "events.k8s.io", "v1", "events", "Event", ("ev",), fields=_event_fields("regarding", "reportingController")
    ),
    *(
        resource
        for version in ("v1", "v1beta1")
        for resource in (
            ApiResource("metrics.k8s.io", version, "nodes", "NodeMetrics", namespaced=False, verbs=_READ),
            ApiResource("metrics.k8s.io", version, "pods", "PodMetrics", verbs=_READ),
        )
    ),
    ApiResource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False, has_generation=True),
    ApiResource(
        "networking.k8s.io",
        "v1",
        "ingresses",
        "Ingress",
        ("ing",),
        subresources=(_status("Ingress"),),
        has_generation=True,
    ),
    ApiResource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", ("netpol",), has_generation=True),
    ApiResource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    ApiResource(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        ("pdb",),
        subresources=(_status("PodDisruptionBudget"),),
        has_generation=True,
    ),
    *(
        ApiResource(_RBAC, "v1", f"{kind.lower()}s", kind, namespaced=not kind.startswith("Cluster"), path_name=True)
        for kind in ("ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role")
    ),
    ApiResource(
        "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", ("pc",), namespaced=False, has_generation=True
    ),
    ApiResource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
    ApiResource("storage.k8s.io", "v1", "storageclasses", "StorageClass", ("sc",), namespaced=False),
    ApiResource("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", ("vac",), namespaced=False),
)

GROUPS = frozenset((resource.group, resource.version) for resource in RESOURCES)
_BY_STORAGE = {resource.storage: resource for resource in reversed(RESOURCES) if resource.storage}


def stored_resource(storage: str) -> ApiResource:
    """The resource whose form the stored objects have."""
    return _BY_STORAGE[storage]
