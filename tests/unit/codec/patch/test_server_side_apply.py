"""Server-side apply: the rules of spec 05 B6 and the traces of 06 E6."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.codec.patch.json_patch import apply_merge_patch
from plimsoll.codec.patch.managed_fields import track_update
from plimsoll.codec.patch.server_side_apply import LAST_APPLIED, ApplyConflictError, ApplyError, apply_server_side
from plimsoll.codec.schema.decode import decode_document
from plimsoll.codec.schema.schema import SchemaKind, schema

Document = dict[str, Any]
POD, CONFIG_MAP = schema("v1", "Pod"), schema("v1", "ConfigMap")
NOW = "2026-11-15T20:38:46Z"


def applied(
    kind: SchemaKind,
    live: Document | None,
    document: Document,
    manager: str,
    *,
    force: bool = False,
    subresource: str = "",
    now: str = NOW,
) -> Document:
    named = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    found = apply_server_side(kind, live, named, manager, force=force, subresource=subresource, now=now)
    return decode_document(kind, found).document


def apply(live: Document | None, manager: str, data: Document | None, *, force: bool = False) -> Document:
    document: Document = {"metadata": {"name": "x"}} if data is None else {"metadata": {"name": "x"}, "data": data}
    return applied(CONFIG_MAP, live, document, manager, force=force)


def patch(live: Document, manager: str, data: Document) -> Document:
    after = decode_document(CONFIG_MAP, apply_merge_patch(live, {"data": data})).document
    return track_update(CONFIG_MAP, live, after, manager, "", NOW)


def owned(document: Document) -> dict[str, set[str]]:
    entries = document["metadata"].get("managedFields", [])
    return {
        entry["manager"]: {name[2:] for name in entry["fieldsV1"].get("f:data", {}) if name != "."} for entry in entries
    }


def test_the_ownership_trace() -> None:
    """06 E6, step by step."""
    live = apply(None, "m1", {"a": "1", "b": "1"})
    assert owned(live) == {"m1": {"a", "b"}}
    live = patch(live, "upd", {"a": "2"})
    assert owned(live) == {"m1": {"b"}, "upd": {"a"}}
    with pytest.raises(ApplyConflictError) as error:
        apply(live, "m1", {"a": "1", "b": "1"})
    assert str(error.value) == 'Apply failed with 1 conflict: conflict with "upd" using v1: .data.a'
    live = apply(live, "m1", {"a": "2", "b": "1"})
    assert owned(live) == {"m1": {"a", "b"}, "upd": {"a"}}
    live = apply(live, "m1", {"b": "1"})
    assert owned(live) == {"m1": {"b"}, "upd": {"a"}}
    assert live["data"] == {"a": "2", "b": "1"}
    live = patch(live, "upd2", {"a": None})
    assert owned(live) == {"m1": {"b"}}
    assert live["data"] == {"b": "1"}
    live = apply(live, "m2", {"b": "7"}, force=True)
    assert owned(live) == {"m2": {"b"}}
    assert live["data"] == {"b": "7"}


def test_fields_without_another_owner_are_removed() -> None:
    live = apply(apply(None, "m1", {"a": "1", "b": "1"}), "m1", {"b": "1"})
    assert live["data"] == {"b": "1"}


def test_an_empty_map_is_owned() -> None:
    live = apply(None, "m1", {})
    assert live["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {}}


def test_a_manager_without_fields_has_no_entry() -> None:
    assert "managedFields" not in apply(apply(None, "m1", {"a": "1"}), "m1", None)["metadata"]


def test_co_ownership_has_no_time_of_its_own() -> None:
    live = apply(apply(None, "m1", {"a": "1"}), "m2", {"a": "1"})
    assert owned(live) == {"m1": {"a"}, "m2": {"a"}}
    assert ["time" in entry for entry in live["metadata"]["managedFields"]] == [False, True]


def test_the_same_name_by_apply_and_update() -> None:
    live = patch(apply(None, "m", {"a": "1"}), "m", {"b": "1"})
    entries = [(each["manager"], each["operation"]) for each in live["metadata"]["managedFields"]]
    assert entries == [("m", "Apply"), ("m", "Update")]


def test_several_conflicts() -> None:
    live = patch(apply(None, "m0", {"x": "1"}), "kubectl-edit", {"y": "1", "z": "1"})
    with pytest.raises(ApplyConflictError) as error:
        apply(live, "m1", {"y": "2", "z": "2"})
    assert str(error.value) == (
        'Apply failed with 2 conflicts: conflicts with "kubectl-edit" using v1:\n- .data.y\n- .data.z'
    )
    assert [(each.field, each.message) for each in error.value.conflicts] == [
        (".data.y", 'conflict with "kubectl-edit" using v1'),
        (".data.z", 'conflict with "kubectl-edit" using v1'),
    ]


def test_several_managers() -> None:
    live = patch(apply(None, "m0", {"x": "1"}), "upd", {"y": "1"})
    with pytest.raises(ApplyConflictError) as error:
        apply(live, "m1", {"x": "2", "y": "2"})
    assert str(error.value) == (
        'Apply failed with 2 conflicts: conflicts with "m0":\n- .data.x\nconflicts with "upd" using v1:\n- .data.y'
    )


POD_BODY: Document = {
    "metadata": {"name": "p"},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}]},
}  # fmt: skip


def test_a_pod() -> None:
    """The entries of 06 E6: exactly the applied fields, keys with their defaults, and /resize as an owner of its own."""
    live = applied(POD, None, POD_BODY, "m1")
    entry = (
        '{"f:spec":{"f:containers":{"k:{\\"name\\":\\"c\\"}":{".":{},"f:env":{"k:{\\"name\\":\\"A\\"}":{".":{},'
        '"f:name":{},"f:value":{}}},"f:image":{},"f:name":{},"f:ports":{"k:{\\"containerPort\\":80,\\"protocol\\":'
        '\\"TCP\\"}":{".":{},"f:containerPort":{}}}}},"f:nodeName":{}}}'
    )
    assert json.dumps(live["metadata"]["managedFields"][0]["fieldsV1"], separators=(",", ":")) == entry
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    resized = applied(POD, live, body, "m9", force=True, subresource="resize")["metadata"]["managedFields"][1]
    assert resized["subresource"] == "resize"
    assert resized["fieldsV1"] == {
        "f:spec": {
            "f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:resources": {"f:requests": {"f:cpu": {}}}}}
        }
    }


def test_quantities_are_compared_as_texts() -> None:
    def body(cpu: str) -> Document:
        return {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]},
        }

    live = applied(POD, None, body("1"), "m1")
    with pytest.raises(ApplyConflictError, match=r"resources\.limits\.cpu"):
        applied(POD, live, body("1000m"), "m2")


def test_status_through_the_main_resource_is_not_owned() -> None:
    live = applied(POD, None, {**POD_BODY, "status": {"phase": "Running"}}, "m1")
    assert "f:status" not in live["metadata"]["managedFields"][0]["fieldsV1"]


def test_a_conflict_with_a_subresource() -> None:
    live = applied(POD, None, POD_BODY, "m1")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    live = applied(POD, live, {"metadata": {"name": "p"}, "status": ready}, "kubelet", subresource="status")
    other = {"conditions": [{"type": "Ready", "status": "False"}]}
    with pytest.raises(ApplyConflictError) as error:
        applied(POD, live, {"metadata": {"name": "p"}, "status": other}, "m2", subresource="status")
    (conflict,) = error.value.conflicts
    assert conflict.message == 'conflict with "kubelet" with subresource "status"'
    assert conflict.field == '.status.conditions[type="Ready"].status'


def test_list_elements_come_and_go() -> None:
    def body(*names: str) -> Document:
        return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": name, "image": "i"} for name in names]}}

    def names(document: Document) -> str:
        return "".join(each["name"] for each in document["spec"]["containers"])

    live = applied(POD, None, body("a", "b", "c"), "m1")
    live = applied(POD, live, body("x", "b"), "m2")
    assert names(live) == "axbc"
    live = applied(POD, live, body("c", "a"), "m1")
    assert names(live) == "xbca"
    live = applied(POD, live, body("b"), "m2")
    assert names(live) == "bca"


def test_sets() -> None:
    def finalizers(live: Document | None, manager: str, *values: str) -> Document:
        return applied(CONFIG_MAP, live, {"metadata": {"name": "x", "finalizers": list(values)}}, manager)

    live = finalizers(finalizers(None, "m1", "a.io/a", "b.io/b"), "m2", "c.io/c")
    assert live["metadata"]["finalizers"] == ["a.io/a", "b.io/b", "c.io/c"]
    live = finalizers(live, "m1", "b.io/b")
    assert live["metadata"]["finalizers"] == ["b.io/b", "c.io/c"]
    assert live["metadata"]["managedFields"][0]["fieldsV1"] == {"f:metadata": {"f:finalizers": {'v:"b.io/b"': {}}}}


def test_atomic_parts_have_one_owner() -> None:
    def body(**selector: str) -> Document:
        return {
            "metadata": {"name": "p"},
            "spec": {"nodeSelector": selector, "containers": [{"name": "c", "image": "i"}]},
        }

    live = applied(POD, None, body(a="1"), "m1")
    with pytest.raises(ApplyConflictError, match=r"\.spec\.nodeSelector$"):
        applied(POD, live, body(b="1"), "m2")
    assert applied(POD, live, body(b="1"), "m2", force=True)["spec"]["nodeSelector"] == {"b": "1"}


def test_an_untracked_object_gets_an_owner_before_the_first_apply() -> None:
    live = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"a": "1", "b": "1"}}
    with pytest.raises(ApplyConflictError, match=r'conflict with "before-first-apply" using v1: \.data\.a'):
        apply(live, "m1", {"a": "2"})
    assert owned(apply(live, "m1", {"a": "2"}, force=True)) == {"m1": {"a"}, "before-first-apply": {"b"}}


def test_kubectl_takes_over_from_its_client_side_apply() -> None:
    last = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}})
    sent = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "x", "annotations": {LAST_APPLIED: last}},
        "data": {"a": "1"},
    }
    live = track_update(CONFIG_MAP, None, sent, "kubectl-client-side-apply", "", NOW)
    found = apply(live, "kubectl", {"a": "2"})
    assert found["data"] == {"a": "2"}
    assert json.loads(found["metadata"]["annotations"][LAST_APPLIED])["data"] == {"a": "2"}
    with pytest.raises(ApplyConflictError):
        apply(live, "other", {"a": "2"})


ERRORS = [
    ("unknown field", POD, {"spec": {"containers": [{"name": "c", "bogus": 1}]}}, '(/; /v1, Kind=Pod): .spec.containers[name="c"].bogus: field not declared in schema'),
    ("wrong scalar", CONFIG_MAP, {"metadata": {"name": "s1"}, "data": {"z": 5}}, "(/s1; /v1, Kind=ConfigMap): .data.z: expected string, got &value.valueUnstructured{Value:5}"),
    ("two with one key", POD, {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c"}, {"name": "c"}]}}, '(n/p; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name="c"]'),
    ("no key", POD, {"spec": {"containers": [{}]}}, '(/; /v1, Kind=Pod): .spec.containers: element 0: associative list with keys has an element that omits key field "name" (and doesn\'t have default value)'),
    ("map wanted", POD, {"spec": "x"}, '(/; /v1, Kind=Pod): .spec: expected map, got &value.valueUnstructured{Value:"x"}'),
    ("list wanted", POD, {"spec": {"tolerations": True}}, "(/; /v1, Kind=Pod): .spec.tolerations: expected list, got &value.valueUnstructured{Value:true}"),
    ("two problems", POD, {"x": 1, "y": 2}, "(/; /v1, Kind=Pod): errors:\n  .x: field not declared in schema\n  .y: field not declared in schema"),
    ("named group", schema("apps/v1", "Deployment"), {"spec": {"replicas": "x"}}, '(/; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got &value.valueUnstructured{Value:"x"}'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "document", "words"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_documents_that_do_not_fit(kind: SchemaKind, document: Document, words: str) -> None:
    with pytest.raises(ApplyError) as error:
        applied(kind, None, document, "m")
    assert error.value.message == f"failed to create typed patch object {words}"


def _calls(run: Callable[[], object]) -> int:
    """How many functions are called, Python's and C's: a measure of work that does not depend on the machine."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("what", ["own field", "all fields", "refused", "updaters"])
def test_the_work_grows_linearly_with_the_managers(what: str) -> None:
    def work(managers: int) -> int:
        numbers = range(managers)
        data = {f"k{number}": "v" for number in numbers}
        operation = "Update" if what == "updaters" else "Apply"
        entries = [
            {"manager": f"m{number}", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
             "time": NOW, "fieldsV1": {"f:data": {f"f:k{number}": {}}}}
            for number in numbers
        ]  # fmt: skip
        metadata = {"name": "x", "namespace": "default"}
        live = {"metadata": {**metadata, "managedFields": entries}, "data": data}
        changed = {"k0": "w"} if what == "own field" else dict.fromkeys(data, "w")
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": changed}

        def run() -> None:
            if what == "updaters":
                after = {**live, "data": {**data, "new": "w"}}
                found = track_update(CONFIG_MAP, live, after, "another", "", NOW)["metadata"]["managedFields"]
                assert len(found) == 10
                return
            try:
                apply_server_side(CONFIG_MAP, live, applied, "m0", force=what != "refused", subresource="", now=NOW)
            except ApplyConflictError as error:
                assert what == "refused" and len(str(error).splitlines()) == 2 * (managers - 1)

        return _calls(run)

    assert work(400) < 4.5 * work(100)
