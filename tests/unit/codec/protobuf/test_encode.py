"""Documents as protobuf: bytes of Go's encoder, every field of a pod, and values that cannot be written."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from plimsoll.codec.protobuf.encode import to_protobuf
from plimsoll.codec.protobuf.kube import MAGIC, from_protobuf
from plimsoll.codec.protobuf.wire import ProtobufError, bytes_field
from plimsoll.codec.schema.schema import KINDS, SchemaKind, Type, struct
from tests.unit.codec.protobuf.test_kube import EXPECTED, RECORDED

Document = dict[str, Any]
TIMES = {"Time": "2026-11-17T22:00:00Z", "MicroTime": "2026-11-17T22:00:00.000007Z"}


def read_back(api_version: str, kind: str, document: Document) -> Document:
    names = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    body = to_protobuf(api_version, kind, document)
    return from_protobuf(MAGIC + bytes_field(1, names) + bytes_field(2, body))


def sample(kind: Type, depth: int = 0) -> Any:
    """A value that is no zero for every field."""
    if kind.form == "object":
        return {field.name: sample(field.type, depth + 1) for field in struct(kind.struct).fields.values() if depth < 9}
    if kind.form == "list":
        return [sample(kind.item, depth)] if kind.item else []
    if kind.form == "map":
        return {"k": sample(kind.item, depth)} if kind.item else {}
    if kind.form in TIMES:
        return TIMES[kind.form]
    samples: Document = {
        "bool": True, "int32": 7, "int64": -1, "bytes": base64.b64encode(b"\x00\xff").decode(), "Quantity": "1500m",
        "IntOrString": "50%", "FieldsV1": {"f:metadata": {}},
    }  # fmt: skip
    return samples.get(kind.form, "text")


def test_every_field_of_a_pod_has_a_number_and_is_read_back() -> None:
    pod = {"metadata": sample(Type("object", "", "meta.ObjectMeta")), **sample(Type("object", "", "core.Pod"))}
    pod.pop("kind", None)
    pod.pop("apiVersion", None)
    assert read_back("v1", "Pod", pod) == {"kind": "Pod", "apiVersion": "v1", **pod}


def numbered(name: str, depth: int = 0) -> Document:
    """A value for every field of a struct that has a number and a form that can be written."""
    document: Document = {}
    for field in struct(name).fields.values():
        inner = field.type.item or field.type
        if field.number and inner.form not in ("JSON", "Duration") and depth < 7:
            value = numbered(inner.struct, depth + 1) if inner.form == "object" else sample(inner)
            document[field.name] = [value] if field.type.form == "list" else value
            if field.type.form == "map":
                document[field.name] = {"k": value}
    return document


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.group or 'core'}.{kind.name}")
def test_no_two_fields_of_a_kind_share_a_number(kind: SchemaKind) -> None:
    """Also those of messages in embedded messages, as `resourceRules` of admission policies have them."""
    document = numbered(kind.table)
    read = read_back(kind.api_version, kind.name, document)
    assert read == {"kind": kind.name, "apiVersion": kind.api_version, **document}


def test_rules_of_a_policy_are_read_from_a_message_in_an_embedded_message() -> None:
    # NamedRuleWithOperations: resourceNames 1, ruleWithOperations 2 {operations 1, rule 2 {apiGroups 1, …, scope 4}}
    rule = bytes_field(1, b"apps") + bytes_field(2, b"v1") + bytes_field(3, b"deployments") + bytes_field(4, b"*")
    constraints = bytes_field(
        3, bytes_field(1, b"web") + bytes_field(2, bytes_field(1, b"CREATE") + bytes_field(2, rule))
    )
    policy = bytes_field(2, bytes_field(2, constraints))  # spec 2, matchConstraints 2, resourceRules 3
    names = bytes_field(1, b"admissionregistration.k8s.io/v1") + bytes_field(2, b"ValidatingAdmissionPolicy")
    assert from_protobuf(MAGIC + bytes_field(1, names) + bytes_field(2, policy))["spec"] == {
        "matchConstraints": {
            "resourceRules": [
                {
                    "resourceNames": ["web"],
                    "operations": ["CREATE"],
                    "apiGroups": ["apps"],
                    "apiVersions": ["v1"],
                    "resources": ["deployments"],
                    "scope": "*",
                }
            ]
        }
    }


@pytest.mark.parametrize("kind", ["ConfigMap", "ResourceQuota", "Deployment", "PodDisruptionBudget"])
def test_what_clients_send_is_read_back(kind: str) -> None:
    """The same documents as are read from the bytes of Go's encoder in test_kube."""
    api_version = from_protobuf(base64.b64decode(RECORDED[kind]))["apiVersion"]
    assert read_back(api_version, kind, EXPECTED[kind]) == {"kind": kind, "apiVersion": api_version, **EXPECTED[kind]}


def test_bytes_as_go_writes_them() -> None:
    # v1.ConfigMap{ObjectMeta: {Name: "cm"}, Data: {"a": "b"}} without the zeros that Go adds to the metadata
    assert to_protobuf("v1", "ConfigMap", {"data": {"a": "b"}, "metadata": {"name": "cm"}}).hex() == (
        "0a04" "0a02636d" "1206" "0a0161" "120162"
    )  # fmt: skip


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ProtobufError, match="yesterday"):
        to_protobuf("v1", "Pod", {"metadata": {"creationTimestamp": "yesterday"}})
