"""Protobuf bodies as kubectl 1.33 sent them, and bodies that are none."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.protobuf.kube import ProtobufError, from_protobuf, object_from_protobuf
from plimsoll.codec.protobuf.wire import bytes_field, varint_field
from plimsoll.codec.schema.decode import decode_document
from plimsoll.codec.schema.schema import schema

Document = dict[str, Any]

# create namespace x; create configmap cm --from-literal=a=b; create quota q --hard=cpu=1,pods=2; create priorityclass pc
# --value=5 --description=d; create deployment dep --image=nginx --replicas=2 --port=80 -- sleep 5; create job jj
# --image=busybox -- date; create serviceaccount sa; create pdb pdb --selector=a=b --min-available=50%; auth can-i get
# pods; auth whoami; drain --grace-period=7 --disable-eviction
RECORDED = {
    "Namespace": ("azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhkKEQoBeBIAGgAiACoAMgA4AEIAEgAaAgoAGgAiAA=="),
    "ConfigMap": ("azhzAAoPCgJ2MRIJQ29uZmlnTWFwEhwKEgoCY20SABoAIgAqADIAOABCABIGCgFhEgFiGgAiAA=="),
    "ResourceQuota": (
        "azhzAAoTCgJ2MRINUmVzb3VyY2VRdW90YRIwChEKAXESABoAIgAqADIAOABCABIZCgoKA2NwdRIDCgExCgsKBHBvZHMSAwoBMhoAGgAiAA=="
    ),
    "PriorityClass": (
        "azhzAAolChRzY2hlZHVsaW5nLms4cy5pby92MRINUHJpb3JpdHlDbGFzcxIxChIKAnBjEgAaACIAKgAyADgAQgAQBRgAIgFkKhRQ"
        "cmVlbXB0TG93ZXJQcmlvcml0eRoAIgA="
    ),
    "Deployment": (
        "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EsIBCh8KA2RlcBIAGgAiACoAMgA4AEIAWgoKA2FwcBIDZGVwEpABCAISDAoKCgNh"
        "cHASA2RlcBp2ChwKABIAGgAiACoAMgA4AEIAWgoKA2FwcBIDZGVwElYSOAoFbmdpbngSBW5naW54GgVzbGVlcBoBNSoAMgoKABAA"
        "GFAiACoAQgBqAHIAgAEAiAEAkAEAogEAGgAyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBACICCgAoADgAGgwIABAAGAAgACgAOAAa"
        "ACIA"
    ),
    "Job": (
        "azhzAAoPCghiYXRjaC92MRIDSm9iEoABChIKAmpqEgAaACIAKgAyADgAQgASYDJeChAKABIAGgAiACoAMgA4AEIAEkoSJwoCamoS"
        "B2J1c3lib3gaBGRhdGUqAEIAagByAIABAIgBAJABAKIBABoFTmV2ZXIyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBABoIIAAoADAA"
        "OgAaACIA"
    ),
    "ServiceAccount": ("azhzAAoUCgJ2MRIOU2VydmljZUFjY291bnQSFAoSCgJzYRIAGgAiACoAMgA4AEIAGgAiAA=="),
    "PodDisruptionBudget": (
        "azhzAAogCglwb2xpY3kvdjESE1BvZERpc3J1cHRpb25CdWRnZXQSOAoTCgNwZGISABoAIgAqADIAOABCABIVCgkIARAAGgM1MCUS"
        "CAoGCgFhEgFiGgoIABgAIAAoADAAGgAiAA=="
    ),
    "SelfSubjectAccessReview": (
        "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPAoQCgASABoAIgAqADIAOABC"
        "ABIeChwKB2RlZmF1bHQSA2dldBoAIgAqBHBvZHMyADoAGggIABIAGgAgABoAIgA="
    ),
    "SelfSubjectReview": (
        "azhzAAotChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESEVNlbGZTdWJqZWN0UmV2aWV3EhoKEAoAEgAaACIAKgAyADgAQgASBgoE"
        "CgASABoAIgA="
    ),
    "DeleteOptions": ("azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxICCAcaACIA"),
}
META = {"name": "x"}
CONTAINER = {
    "name": "nginx",
    "image": "nginx",
    "command": ["sleep", "5"],
    "ports": [{"containerPort": 80}],
    "resources": {},
}
EXPECTED: dict[str, Document] = {
    "Namespace": {"metadata": META, "spec": {}, "status": {}},
    "ConfigMap": {"metadata": {"name": "cm"}, "data": {"a": "b"}},
    "ResourceQuota": {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "1", "pods": "2"}}, "status": {}},
    "PriorityClass": {"metadata": {"name": "pc"}, "value": 5, "description": "d", "preemptionPolicy": "PreemptLowerPriority"},
    "Deployment": {
        "metadata": {"name": "dep", "labels": {"app": "dep"}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "dep"}},
            "template": {"metadata": {"labels": {"app": "dep"}}, "spec": {"containers": [CONTAINER]}}, "strategy": {},
        },
        "status": {},
    },
    "Job": {
        "metadata": {"name": "jj"},
        "spec": {"template": {"metadata": {}, "spec": {
            "containers": [{"name": "jj", "image": "busybox", "command": ["date"], "resources": {}}], "restartPolicy": "Never"}}},
        "status": {},
    },
    "ServiceAccount": {"metadata": {"name": "sa"}},
    "PodDisruptionBudget": {
        "metadata": {"name": "pdb"},
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    },
    "SelfSubjectAccessReview": {
        "metadata": {}, "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}, "status": {"allowed": False},
    },
    "SelfSubjectReview": {"metadata": {}, "status": {"userInfo": {}}},
    "DeleteOptions": {"gracePeriodSeconds": 7},
}  # fmt: skip


def body(name: str) -> bytes:
    return base64.b64decode(RECORDED[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_recorded(name: str) -> None:
    found = from_protobuf(body(name))
    kind = schema(found["apiVersion"], found["kind"])
    assert decode_document(kind, found).document == {"kind": name, "apiVersion": kind.api_version, **EXPECTED[name]}


def field(number: int, value: bytes | str | int | Document) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    assert isinstance(data, bytes)
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw) + field(3, "") + field(4, "")


BUILT = [
    ("binding", "v1", "Binding", field(1, field(1, "p")) + field(2, field(1, "Node") + field(3, "n1")),
     {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}),
    ("eviction", "policy/v1", "Eviction", field(1, field(1, "p") + field(3, "default")) + field(2, field(1, 5) + field(2, field(1, "u"))),
     {"metadata": {"name": "p", "namespace": "default"}, "deleteOptions": {"gracePeriodSeconds": 5, "preconditions": {"uid": "u"}}}),
    ("times", "v1", "ConfigMap", field(1, field(8, field(1, 1_000_000_000)) + field(9, b"") + field(10, -1)),
     {"metadata": {"creationTimestamp": "2001-09-09T01:46:40Z", "deletionTimestamp": None, "deletionGracePeriodSeconds": -1}}),
    ("micro times", "coordination.k8s.io/v1", "Lease", field(2, field(4, field(1, 0) + field(2, 5_000))), {"spec": {"renewTime": "1970-01-01T00:00:00.000005Z"}}),
    ("bytes", "v1", "ConfigMap", field(3, field(1, "a") + field(2, b"hi")), {"binaryData": {"a": "aGk="}}),
    ("embedded messages", "v1", "Pod", field(2, field(1, field(1, "v") + field(2, field(2, field(1, "Memory"))))),
     {"spec": {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}}),
    ("probe and port", "v1", "Pod", field(2, field(2, field(1, "c") + field(10, field(1, field(2, field(2, field(2, 80)))) + field(4, 3)))),
     {"spec": {"containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 3}}]}}),
    ("packed and not", "v1", "Pod", field(2, field(14, field(4, 1) + field(4, b"\x02\x03"))), {"spec": {"securityContext": {"supplementalGroups": [1, 2, 3]}}}),
    ("unknown numbers", "v1", "ConfigMap", field(99, "x") + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4), {}),
    ("extra", "authentication.k8s.io/v1", "SelfSubjectReview", field(2, field(1, field(4, field(1, "k") + field(2, field(1, "a") + field(1, "b"))))),
     {"status": {"userInfo": {"extra": {"k": ["a", "b"]}}}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("api_version", "kind", "raw", "expected"), [row[1:] for row in BUILT], ids=[row[0] for row in BUILT]
)
def test_built(api_version: str, kind: str, raw: bytes, expected: Document) -> None:
    found = from_protobuf(envelope(api_version, kind, raw))
    assert found == {"kind": kind, "apiVersion": api_version, **expected}


BAD = [
    ("no envelope", b"{}", "expected prefix"),
    ("unknown kind", envelope("v1", "Foo", b""), 'no kind "Foo" is registered for version "v1"'),
    ("cut off", body("ConfigMap")[:30], "unexpected EOF"),
    ("cut off inside", envelope("v1", "ConfigMap", b"\x0a\x05ab"), "unexpected EOF"),
    ("group", envelope("v1", "ConfigMap", b"\x0b"), "illegal wireType 3"),
    ("number for a message", envelope("v1", "ConfigMap", field(1, 5)), "wrong wireType = 0"),
    ("text for a number", envelope("v1", "DeleteOptions", field(1, "x")), "wrong wireType = 2"),
    ("no UTF-8", envelope("v1", "ConfigMap", field(1, field(1, b"\xff"))), "invalid UTF-8"),
    ("endless number", envelope("v1", "DeleteOptions", b"\x08" + b"\xff" * 11), "integer overflow"),
    ("far future", envelope("v1", "ConfigMap", field(1, field(8, field(1, 2**60)))), "year outside of range"),
    (
        "owners are no JSON",
        envelope("v1", "ConfigMap", field(1, field(17, field(7, field(1, "x"))))),
        "fieldsV1 is not JSON",
    ),
]


@pytest.mark.parametrize(("data", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_refused(data: bytes, words: str) -> None:
    with pytest.raises(ProtobufError) as error:
        from_protobuf(data)
    assert words in error.value.message


@given(st.sampled_from(sorted(RECORDED)), st.data())
def test_damaged_bodies_are_read_or_refused(name: str, data: st.DataObject) -> None:
    damaged = bytearray(body(name))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = from_protobuf(bytes(damaged))
    except ProtobufError as error:
        assert error.message
    else:
        assert isinstance(found["kind"], str)


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [
        pytest.param(5, 1_999, "1970-01-01T00:00:05.000001Z", id="a microsecond"),
        pytest.param(5, -1_500, "1970-01-01T00:00:04.999999Z", id="negative, towards zero"),
        pytest.param(5, 2_000_000_000, "1970-01-01T00:00:07.000000Z", id="more than a second"),
        pytest.param(5, 2**32 + 7_000, "1970-01-01T00:00:05.000007Z", id="an int32"),
    ],
)
def test_the_nanoseconds_of_a_micro_time(seconds: int, nanos: int, text: str) -> None:
    time = bytes_field(4, varint_field(1, seconds) + varint_field(2, nanos))  # LeaseSpec.renewTime
    lease = object_from_protobuf("coordination.k8s.io/v1", "Lease", bytes_field(2, time))
    assert lease["spec"] == {"renewTime": text}
    decode_document(schema("coordination.k8s.io/v1", "Lease"), lease)
