"""Who owns what after creates and updates (05 B6, 06 E2)."""

from __future__ import annotations

import json
from typing import Any

from plimsoll.codec.defaults.objects import with_kind_defaults
from plimsoll.codec.patch.managed_fields import MAX_UPDATE_ENTRIES, same_but_times, track_update
from plimsoll.codec.schema.decode import decode_document
from plimsoll.codec.schema.schema import schema

Document = dict[str, Any]
POD, CONFIG_MAP = schema("v1", "Pod"), schema("v1", "ConfigMap")
NOW = "2026-11-15T20:38:46Z"


def config_map(owners: list[Document] | None = None, **data: str) -> Document:
    metadata: Document = {"name": "x"} if owners is None else {"name": "x", "managedFields": owners}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, **({"data": data} if data else {})}


def entries(document: Document) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"].get("managedFields", [])}


def update(
    before: Document | None, after: Document, manager: str, subresource: str = "", kind: Any = CONFIG_MAP
) -> Document:
    return track_update(kind, before, after, manager, subresource, NOW)


def test_a_created_pod() -> None:
    """Defaulted fields belong to the creator; fields that are always printed have no owner (E2)."""
    sent = {
        "metadata": {"name": "demo", "labels": {"app": "demo"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1.27", "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}}}]},
    }  # fmt: skip
    document = with_kind_defaults(POD, decode_document(POD, sent).document)
    found = update(None, document, "kubectl", kind=POD)["metadata"]["managedFields"]
    expected = (
        '[{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":"2026-11-15T20:38:46Z",'
        '"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":'
        '{"k:{\\"name\\":\\"c\\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},'
        '"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},'
        '"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},'
        '"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}]'
    )
    assert json.dumps(found, separators=(",", ":")) == expected


def test_an_update_takes_what_it_changes() -> None:
    first = update(None, config_map(a="1", b="1"), "one")
    second = update(first, config_map(a="2", b="1"), "two")
    assert entries(second) == {"one": {"f:data": {".": {}, "f:b": {}}}, "two": {"f:data": {"f:a": {}}}}


def test_an_identical_value_changes_no_owner() -> None:
    first = update(None, config_map(a="1"), "one")
    assert update(first, config_map(a="1"), "two")["metadata"] == first["metadata"]


def test_what_is_deleted_has_no_owner() -> None:
    first = update(None, config_map(a="1", b="1"), "one")
    assert entries(update(first, config_map(b="1"), "two")) == {"one": {"f:data": {".": {}, "f:b": {}}}}
    assert entries(update(first, config_map(), "two")) == {}


def test_finalizers_and_owners() -> None:
    metadata = {
        "name": "x",
        "finalizers": ["x.io/y"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u1"}],
    }
    found = update(None, {**config_map(), "metadata": metadata}, "one")
    assert entries(found)["one"] == {
        "f:metadata": {
            "f:finalizers": {".": {}, 'v:"x.io/y"': {}},
            "f:ownerReferences": {".": {}, 'k:{"uid":"u1"}': {}},
        }
    }


def test_each_endpoint_has_its_fields() -> None:
    before = decode_document(POD, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}).document
    first = update(None, before, "creator", kind=POD)
    changed = {**first, "spec": {**first["spec"], "nodeName": "n"}, "status": {"phase": "Running"}}
    assert entries(update(first, changed, "kubelet", "status", POD))["kubelet"] == {"f:status": {"f:phase": {}}}
    assert entries(update(first, changed, "main", "", POD))["main"] == {"f:spec": {"f:nodeName": {}}}
    found = update(first, changed, "kubelet", "status", POD)["metadata"]["managedFields"][1]
    assert found["subresource"] == "status"


def test_a_resize_owns_resources_only() -> None:
    before = decode_document(
        POD, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    ).document
    first = update(None, before, "creator", kind=POD)
    container = {"name": "c", "image": "j", "resources": {"requests": {"cpu": "1"}}}
    changed = {**first, "spec": {"containers": [container]}}
    found = entries(update(first, changed, "resizer", "resize", POD))
    resources: Document = {"f:requests": {".": {}, "f:cpu": {}}}
    assert found["resizer"] == {"f:spec": {"f:containers": {'k:{"name":"c"}': {"f:resources": resources}}}}


def test_owners_can_be_cleared_and_stay_so() -> None:
    first = update(None, config_map(a="1"), "one")
    ways: tuple[list[Document], ...] = ([], [{}])
    for cleared in ways:
        second = update(first, config_map(cleared, a="1"), "two")
        assert "managedFields" not in second["metadata"]
        assert "managedFields" not in update(second, config_map(a="2"), "three")["metadata"]


def test_owners_can_be_rewritten_but_not_through_a_subresource() -> None:
    first = update(None, config_map(a="1"), "one")
    mine = [
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        }
    ]
    assert list(entries(update(first, config_map(mine, a="1"), "two"))) == ["me"]
    assert list(entries(update(first, config_map(mine, a="1"), "two", "status"))) == ["one"]


def test_nonsense_is_ignored() -> None:
    first = update(None, config_map(a="1"), "one")
    nonsense: list[Document] = [{"manager": "x", "operation": "Frob"}, {"operation": "Apply"}]
    assert list(entries(update(first, config_map(nonsense, a="1"), "two"))) == ["one"]


def test_the_oldest_updaters_share_an_entry() -> None:
    document = update(None, config_map(k0="0"), "m0")
    for number in range(1, 15):
        data = {f"k{each}": "0" for each in range(number + 1)}
        document = track_update(
            CONFIG_MAP, document, config_map(None, **data), f"m{number}", "", f"2026-11-15T20:39:{number:02d}Z"
        )
    found = entries(document)
    assert len(found) == MAX_UPDATE_ENTRIES
    assert found["ancient-changes"]["f:data"].keys() >= {"f:k0", "f:k4"}
    assert "f:k14" in found["m14"]["f:data"]


def test_times_alone_are_no_change() -> None:
    first = update(None, config_map(a="1"), "one")
    later = track_update(CONFIG_MAP, None, config_map(a="1"), "one", "", "2027-01-01T00:00:00Z")
    assert first != later
    assert same_but_times(first, later)
    assert not same_but_times(first, update(None, config_map(a="2"), "two"))
