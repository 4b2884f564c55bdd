"""What the server fills in: pods, templates, workloads, policies (05 B6 "Metadata on create", 06 E2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.codec.defaults.objects import pull_policy, with_kind_defaults
from plimsoll.codec.schema.decode import decode, decode_document
from plimsoll.codec.schema.schema import SchemaKind, schema
from plimsoll.rules.model.gates import Gates

Document = dict[str, Any]
POD = schema("v1", "Pod")
POD_DEFAULTS: Document = {
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
    "schedulerName": "default-scheduler", "enableServiceLinks": True,
}  # fmt: skip
CONTAINER_DEFAULTS: Document = {
    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
}  # fmt: skip


def defaulted(kind: SchemaKind, document: Document, **options: bool) -> Document:
    """Defaulted, and checked: idempotent, Go's order, argument unchanged."""
    decoded = decode_document(kind, document).document
    before = json.dumps(decoded)
    found = with_kind_defaults(kind, decoded, **options)
    assert json.dumps(decoded) == before
    assert with_kind_defaults(kind, found, **options) == found
    assert json.dumps(decode_document(kind, found).document) == json.dumps(found)
    return found


def test_the_pod_of_the_example() -> None:
    data = (
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"demo"},"spec":{"containers":[{"name":"c","image":"nginx:1.27",'
        b'"resources":{"limits":{"cpu":"500m","memory":"128Mi"}}}]}}'
    )
    found = with_kind_defaults(POD, decode(POD, data).document)
    assert json.dumps(found["spec"], separators=(",", ":")) == (
        '{"containers":[{"name":"c","image":"nginx:1.27","resources":{"limits":{"cpu":"500m","memory":"128Mi"},'
        '"requests":{"cpu":"500m","memory":"128Mi"}},"terminationMessagePath":"/dev/termination-log",'
        '"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always",'
        '"terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},'
        '"schedulerName":"default-scheduler","enableServiceLinks":true}'
    )


CONTAINERS = [
    ("ports", {"ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]},
     {"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]}),
    ("probes", {"livenessProbe": {"httpGet": {"port": 80}}},
     {"livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}}),
    ("explicit values stay", {"readinessProbe": {"tcpSocket": {"port": "x"}, "periodSeconds": 3}},
     {"readinessProbe": {"tcpSocket": {"port": "x"}, "timeoutSeconds": 1, "periodSeconds": 3, "successThreshold": 1, "failureThreshold": 3}}),
    ("grpc", {"startupProbe": {"grpc": {"port": 5}}},
     {"startupProbe": {"grpc": {"port": 5, "service": ""}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}}),
    ("hooks", {"lifecycle": {"preStop": {"httpGet": {"port": 80}}}}, {"lifecycle": {"preStop": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}}}}),
    ("field references", {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
     {"env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]}),
    ("pull policy", {"imagePullPolicy": "Never"}, {"imagePullPolicy": "Never"}),
]  # fmt: skip


@pytest.mark.parametrize("place", ["containers", "initContainers"])
@pytest.mark.parametrize(("sent", "expected"), [row[1:] for row in CONTAINERS], ids=[row[0] for row in CONTAINERS])
def test_containers(place: str, sent: Document, expected: Document) -> None:
    spec = {"containers": [{"name": "x"}], place: [{"name": "c", "image": "i:1", **sent}]}
    (found,) = defaulted(POD, {"spec": spec})["spec"][place]
    assert found == {"name": "c", "image": "i:1", "resources": {}, **CONTAINER_DEFAULTS, **expected}


IMAGES = [
    ("nginx", "Always"),
    ("nginx:latest", "Always"),
    ("nginx:1.27", "IfNotPresent"),
    ("host:5000/a/b", "Always"),
    ("host:5000/a/b:v1", "IfNotPresent"),
    ("a@sha256:" + "0" * 64, "IfNotPresent"),
    ("a:latest@sha256:" + "0" * 64, "Always"),
    ("UPPER", "IfNotPresent"),
    ("", "IfNotPresent"),
]


@pytest.mark.parametrize(("image", "policy"), IMAGES)
def test_pull_policy(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


VOLUMES = [
    ("nothing said", {}, {"emptyDir": {}}),
    ("host path", {"hostPath": {"path": "/"}}, {"hostPath": {"path": "/", "type": ""}}),
    ("secret", {"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 420}}),
    ("mode 0", {"configMap": {"name": "c", "defaultMode": 0}}, {"configMap": {"name": "c", "defaultMode": 0}}),
    ("downward", {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "f"}}]}},
     {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "f"}}], "defaultMode": 420}}),
    ("token", {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
     {"projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3600, "path": "t"}}], "defaultMode": 420}}),
    ("claim", {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["x"]}}}},
     {"ephemeral": {"volumeClaimTemplate": {"metadata": {}, "spec": {"accessModes": ["x"], "resources": {}, "volumeMode": "Filesystem"}}}}),
    ("image", {"image": {"reference": "a"}}, {"image": {"reference": "a", "pullPolicy": "Always"}}),
    ("claim by name", {"persistentVolumeClaim": {"claimName": "c"}}, {"persistentVolumeClaim": {"claimName": "c"}}),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "expected"), [row[1:] for row in VOLUMES], ids=[row[0] for row in VOLUMES])
def test_volumes(sent: Document, expected: Document) -> None:
    spec = {"containers": [{"name": "x"}], "volumes": [{"name": "v", **sent}]}
    assert defaulted(POD, {"spec": spec})["spec"]["volumes"] == [{"name": "v", **expected}]


def test_the_host_network_takes_the_ports() -> None:
    spec = {"hostNetwork": True, "containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}]}
    ports = defaulted(POD, {"spec": spec})["spec"]["containers"][0]["ports"]
    assert ports == [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]
    kind = schema("apps/v1", "ReplicaSet")
    template = defaulted(kind, {"spec": {"template": {"spec": spec}}})["spec"]["template"]["spec"]
    assert template["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(("sent", "stored"), [(None, 30), (0, 0), (5, 5), (-1, 1), (-(2**63), 1)])
def test_a_negative_grace_period_becomes_one_second(sent: int | None, stored: int) -> None:
    found = defaulted(POD, {"spec": {"containers": [], "terminationGracePeriodSeconds": sent}})
    assert found["spec"]["terminationGracePeriodSeconds"] == stored


def test_pod_level_resources_follow_the_gate() -> None:
    spec = {"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "1"}}}
    assert defaulted(POD, {"spec": spec})["spec"]["resources"]["requests"] == {"cpu": "1"}
    assert "requests" not in defaulted(POD, {"spec": spec}, gates=Gates(pod_level=False))["spec"]["resources"]


def test_resize_policies_of_documents() -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    found = defaulted(POD, {"spec": spec}, resize_policy=True)["spec"]["containers"][0]
    assert found["resizePolicy"] == [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]


TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "0.1m"}}}]},
}
FULL_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1m"}}, **CONTAINER_DEFAULTS}],
        **POD_DEFAULTS,
    },
}
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
WORKLOADS = [
    ("replica set", "apps/v1", "ReplicaSet", {}, {"replicas": 1, "selector": None}),
    ("none is a number", "apps/v1", "ReplicaSet", {"replicas": 0}, {"replicas": 0, "selector": None}),
    ("deployment", "apps/v1", "Deployment", {}, {"replicas": 1, "selector": None, "strategy": ROLLING, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}),
    ("recreate", "apps/v1", "Deployment", {"strategy": {"type": "Recreate"}},
     {"replicas": 1, "selector": None, "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}),
    ("job", "batch/v1", "Job", {},
     {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False, "podReplacementPolicy": "TerminatingOrFailed"}),
    ("job with parallelism", "batch/v1", "Job", {"parallelism": 3},
     {"parallelism": 3, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False, "podReplacementPolicy": "TerminatingOrFailed"}),
    ("job with a limit per index", "batch/v1", "Job", {"completions": 2, "backoffLimitPerIndex": 1, "completionMode": "Indexed"},
     {"parallelism": 1, "completions": 2, "backoffLimit": 2147483647, "backoffLimitPerIndex": 1, "completionMode": "Indexed", "suspend": False, "podReplacementPolicy": "TerminatingOrFailed"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "kind", "sent", "expected"), [row[1:] for row in WORKLOADS], ids=[row[0] for row in WORKLOADS]
)
def test_workloads(version: str, kind: str, sent: Document, expected: Document) -> None:
    found = defaulted(schema(version, kind), {"metadata": {"name": "x"}, "spec": {**sent, "template": TEMPLATE}})
    assert found["spec"] == {**expected, "template": FULL_TEMPLATE}
    assert found["metadata"] == ({"name": "x", "labels": {"a": "b"}} if kind == "Job" else {"name": "x"})


OTHERS = [
    ("limit range", "v1", "LimitRange", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"}}]}},
     {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1", "memory": "1Mi"}}]}}),
    ("limit range of pods", "v1", "LimitRange", {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "0.1m"}}]}}, {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1m"}}]}}),
    ("quota", "v1", "ResourceQuota", {"spec": {"hard": {"cpu": "0.0001", "pods": "1"}}}, {"spec": {"hard": {"cpu": "1m", "pods": "1"}}, "status": {}}),
    ("priority class", "scheduling.k8s.io/v1", "PriorityClass", {"value": 1}, {"value": 1, "preemptionPolicy": "PreemptLowerPriority"}),
    ("config map", "v1", "ConfigMap", {"data": {"a": "b"}}, {"data": {"a": "b"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "kind", "sent", "expected"), [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS]
)
def test_other_kinds(version: str, kind: str, sent: Document, expected: Document) -> None:
    assert defaulted(schema(version, kind), sent) == {"kind": kind, "apiVersion": version, "metadata": {}, **expected}


def test_node_lists_are_rounded() -> None:
    found = defaulted(schema("v1", "Node"), {"status": {"capacity": {"cpu": "1.00001"}}})
    assert found["status"]["capacity"] == {"cpu": "1001m"}
