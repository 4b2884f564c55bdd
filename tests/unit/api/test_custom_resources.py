"""CustomResourceDefinitions and their objects: schemas, subresources, tables, discovery, deletion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.server.services import controllers
from tests.unit.api.api_client import APPLY, JSON_PATCH, MERGE, STRATEGIC, TABLE, api
from tests.unit.api.widgets import DEFINITIONS, NAME, SPEC, WIDGETS, definition, is_established, served, until, widget


async def test_a_definition_is_established_with_its_names(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        found = await ask.ok("GET", f"{DEFINITIONS}/{NAME}")
        assert found["spec"]["names"]["listKind"] == "WidgetList"
        assert found["spec"]["conversion"] == {"strategy": "None"}
        assert found["status"]["storedVersions"] == ["v1"]
        assert found["status"]["acceptedNames"] == found["spec"]["names"]
        reasons = {each["type"]: each["reason"] for each in found["status"]["conditions"]}
        assert reasons == {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}


async def test_objects_live_like_any_other(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        made = await ask.ok("POST", WIDGETS, widget(parts=[{"name": "a"}]))
        assert made["spec"] == {"size": 3, "color": "red", "parts": [{"name": "a", "count": 1}]}
        assert made["metadata"]["generation"] == 1
        listed = await ask.ok("GET", WIDGETS)
        assert (listed["kind"], len(listed["items"])) == ("WidgetList", 1)
        async with ask.watching(f"{WIDGETS}?watch=1") as watched:
            assert (await watched.event())["object"]["spec"]["color"] == "red"
            changed = await ask.ok("PATCH", f"{WIDGETS}/w", {"spec": {"size": 4}}, MERGE)
            assert changed["metadata"]["generation"] == 2
            assert (await watched.event())["object"]["spec"]["size"] == 4
        patch = [{"op": "replace", "path": "/spec/size", "value": 5}]
        assert (await ask.ok("PATCH", f"{WIDGETS}/w", patch, JSON_PATCH))["spec"]["size"] == 5
        said = await ask("PATCH", f"{WIDGETS}/w", {"spec": {"size": 6}}, STRATEGIC)
        assert said.code == 415 and "application/merge-patch+json" in said.message
        current = await ask.ok("GET", f"{WIDGETS}/w")
        current["spec"]["size"] = 7
        assert (await ask.ok("PUT", f"{WIDGETS}/w", current))["spec"]["size"] == 7
        assert "must be specified for an update" in (await ask("PUT", f"{WIDGETS}/w", widget())).message
        assert (await ask("DELETE", f"{WIDGETS}/w")).json["status"] == "Success"


INVALID = [
    ({"size": "x"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
    ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    ({"size": 11}, "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
    ({"color": "blue"}, 'spec.color: Unsupported value: "blue": supported values: "red", "green"'),
    ({"code": "AB"}, "spec.code: Invalid value: \"AB\": spec.code in body should match '^[a-z]+$'"),
    ({"code": "a"}, "spec.code in body should be at least 2 chars long"),
    ({"code": "abcdef"}, "spec.code: Too long: may not be more than 5 bytes"),
    ({"port": True}, "spec.port in body must be of type integer,string"),
    ({"when": "now"}, 'spec.when in body must be of type date-time: "now"'),
    ({"parts": [{"name": "a"}, {"name": "a"}]}, 'spec.parts[1]: Duplicate value: {"name":"a"}'),
    ({"labels": {"a": 1}}, "spec.labels.a in body must be of type string"),
    ({"template": {"a": 1}}, "spec.template.apiVersion: Required value: must not be empty"),
]


async def test_an_invalid_object_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        for spec, message in INVALID:
            said = await ask("POST", WIDGETS, widget(**spec))  # type: ignore[arg-type]
            assert said.code == 422, spec
            assert message in said.message.replace('\\"', '"')
            assert said.message.startswith('Widget.example.com "w" is invalid: ')


async def test_unknown_fields_are_pruned_and_reported(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        sent = widget(extra=1, free={"any": {"thing": [1]}}, maybe=None)
        sent["metadata"]["odd"] = 1
        said = await ask("POST", WIDGETS, sent)
        assert said.json["spec"] == {"size": 3, "free": {"any": {"thing": [1]}}, "maybe": None, "color": "red"}
        assert sorted(said.warnings) == [
            '299 - "unknown field \\"metadata.odd\\""',
            '299 - "unknown field \\"spec.extra\\""',
        ]
        said = await ask("POST", f"{WIDGETS}?fieldValidation=Strict", sent | {"metadata": {"name": "x", "odd": 1}})
        assert said.code == 400
        assert 'strict decoding error: unknown field "metadata.odd", unknown field "spec.extra"' in said.message
        twice = b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"y"},"spec":{"size":1,"size":2}}'
        said = await ask("POST", f"{WIDGETS}?fieldValidation=Strict", twice)
        assert 'duplicate field "spec.size"' in said.message
        assert not (await ask("POST", f"{WIDGETS}?fieldValidation=Ignore", twice)).warnings


async def test_apply_uses_the_list_types_of_the_schema(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        one = widget(parts=[{"name": "a", "count": 2}], free={"x": {"y": 1}})
        two = widget(parts=[{"name": "b"}])
        await ask.ok("PATCH", f"{WIDGETS}/w?fieldManager=one", one, APPLY)
        found = await ask.ok("PATCH", f"{WIDGETS}/w?fieldManager=two", two, APPLY)
        assert [each["name"] for each in found["spec"]["parts"]] == ["a", "b"]
        owners = {each["manager"]: each["fieldsV1"]["f:spec"] for each in found["metadata"]["managedFields"]}
        assert owners["one"]["f:parts"] == {'k:{"name":"a"}': {".": {}, "f:count": {}, "f:name": {}}}
        assert owners["one"]["f:free"] == {"f:x": {".": {}, "f:y": {}}}  # a map, not a struct
        said = await ask("PATCH", f"{WIDGETS}/w?fieldManager=two", widget(size=4), APPLY)
        assert said.code == 409 and 'conflict with "one"' in said.message
        said = await ask("PATCH", f"{WIDGETS}/w?fieldManager=two", widget(unknown=1), APPLY)
        assert ".spec.unknown: field not declared in schema" in said.message


async def test_status_and_scale(tmp_path: Path) -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    async with served(tmp_path, definition(subresources={"status": {}, "scale": scale})) as ask:
        made = await ask.ok("POST", WIDGETS, {**widget(replicas=2), "status": {"replicas": 9}})
        assert "status" not in made
        change = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"replicas": 2}}
        found = await ask.ok("PATCH", f"{WIDGETS}/w/status", change, MERGE)
        assert (found["status"], found["spec"]["size"]) == ({"replicas": 2}, 3)
        assert "labels" not in found["metadata"] and found["metadata"]["generation"] == 1
        shown = await ask.ok("GET", f"{WIDGETS}/w/scale")
        assert (shown["spec"], shown["status"]) == ({"replicas": 2}, {"replicas": 2, "selector": ""})
        scaled = await ask.ok("PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": 5}}, MERGE)
        assert scaled["spec"] == {"replicas": 5}
        assert (await ask.ok("GET", f"{WIDGETS}/w"))["spec"]["replicas"] == 5


async def test_columns_and_field_selectors(tmp_path: Path) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Code", "type": "string", "jsonPath": ".spec.code"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    fields = [{"jsonPath": ".spec.color"}]
    async with served(tmp_path, definition(additionalPrinterColumns=columns, selectableFields=fields)) as ask:
        await ask.ok("POST", WIDGETS, widget("a"))
        await ask.ok("POST", WIDGETS, widget("b", color="green"))
        table = await ask.ok("GET", WIDGETS, accept=TABLE)
        assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Size", "Code", "Age"]
        assert [row["cells"] for row in table["rows"]] == [["a", 3, None, "0s"], ["b", 3, None, "0s"]]
        chosen = await ask.ok("GET", f"{WIDGETS}?fieldSelector=spec.color=green")
        assert [each["metadata"]["name"] for each in chosen["items"]] == ["b"]
        assert (await ask("GET", f"{WIDGETS}?fieldSelector=spec.size=3")).code == 400


async def test_several_versions_and_defaults_on_read(tmp_path: Path) -> None:
    sent = definition()
    beta = {**sent["spec"]["versions"][0], "name": "v1beta1", "storage": False, "deprecated": True}
    sent["spec"]["versions"].append(beta)
    async with served(tmp_path, sent) as ask:
        await ask.ok("POST", WIDGETS, widget())
        said = await ask("GET", WIDGETS.replace("v1", "v1beta1") + "/w")
        assert said.json["apiVersion"] == "example.com/v1beta1"
        assert said.warnings == ['299 - "example.com/v1beta1 Widget is deprecated"']
        groups = await ask.ok("GET", "/apis/example.com")
        assert [each["version"] for each in groups["versions"]] == ["v1", "v1beta1"]
        assert groups["preferredVersion"]["version"] == "v1"
        path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/code/default"
        async with ask.watching(f"{DEFINITIONS}?watch=1") as watched:
            await watched.event()
            change = [{"op": "add", "path": path, "value": "abc"}]
            await ask.ok("PATCH", f"{DEFINITIONS}/{NAME}", change, JSON_PATCH)
            await watched.event()
            # Another definition is established after this one has been read again.
            other = definition()
            other["metadata"]["name"] = "others.example.com"
            other["spec"]["names"] = {"plural": "others", "kind": "Other"}
            await ask.ok("POST", DEFINITIONS, other)
            while not is_established((event := await watched.event())["object"]) or event["type"] == "ADDED":
                pass
        assert (await ask.ok("GET", f"{WIDGETS}/w"))["spec"]["code"] == "abc"


async def test_discovery_and_openapi(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        (row,) = (await ask.ok("GET", "/apis/example.com/v1"))["resources"]
        assert (row["name"], row["singularName"]) == ("widgets", "widget")
        assert (row["shortNames"], row["categories"]) == (["wd"], ["all"])
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        groups = (await ask.ok("GET", "/apis", accept=accept))["items"]
        assert "example.com" in [group["metadata"]["name"] for group in groups]
        assert "apis/example.com/v1" in (await ask.ok("GET", "/openapi/v3"))["paths"]
        schemas = (await ask.ok("GET", "/openapi/v3/apis/example.com/v1"))["components"]["schemas"]
        assert schemas["com.example.v1.Widget"]["properties"]["spec"]["properties"]["size"]["maximum"] == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": {"plural": "gadgets", "kind": "Gadget"}}, 'metadata.name: Invalid value: "widgets.example.com"'),
        ({"scope": "Galaxy"}, 'spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'),
        ({"versions": []}, "must have exactly one version marked as storage version"),
        ({"conversion": {"strategy": "Webhook"}}, "conversion by webhooks is not supported by this API server"),
        ({"group": "example"}, "should be a domain with at least one dot"),
    ],
)
async def test_an_invalid_definition_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    async with api(tmp_path) as ask:
        sent = definition()
        said = await ask("POST", DEFINITIONS, {**sent, "spec": {**sent["spec"], **change}})
        assert said.code == 422
        assert message in said.message


async def test_rules_are_evaluated(tmp_path: Path) -> None:
    rules = [{"rule": "self.size > 1"}, {"rule": "self.size >= oldSelf.size", "message": "may not shrink"}]
    schema = {"type": "object", "properties": {"spec": {**SPEC, "x-kubernetes-validations": rules}}}
    async with served(tmp_path, definition(schema={"openAPIV3Schema": schema})) as ask:
        said = await ask("POST", WIDGETS, widget(size=1))
        assert said.code == 422
        expected = 'Widget.example.com "w" is invalid: spec: Invalid value: "object": failed rule: self.size > 1'
        assert said.message == expected
        await ask.ok("POST", WIDGETS, widget(size=3))
        said = await ask("PATCH", f"{WIDGETS}/w", {"spec": {"size": 2}}, MERGE)
        assert said.message.endswith("may not shrink")
        said = await ask("POST", WIDGETS, widget(size="a", code="x"))
        assert "some validation rules were not checked because the object was invalid" in said.message


async def test_a_rule_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"spec": {**SPEC, "x-kubernetes-validations": [{"rule": "self.z == 1"}]}}}
    async with api(tmp_path) as ask:
        said = await ask("POST", DEFINITIONS, definition(schema={"openAPIV3Schema": schema}))
        assert said.code == 422
        assert "undefined field 'z'" in said.message


async def test_an_update_may_keep_what_is_wrong_already(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        await ask.ok("POST", WIDGETS, widget(size=3))
        narrow = {**SPEC, "properties": {**SPEC["properties"], "size": {"type": "integer", "maximum": 2}}}
        versions = definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": narrow}}})["spec"]
        await ask.ok("PATCH", f"{DEFINITIONS}/{NAME}", {"spec": {"versions": versions["versions"]}}, MERGE)
        await ask.ok("PATCH", f"{WIDGETS}/w", {"spec": {"color": "green"}}, MERGE)
        said = await ask("PATCH", f"{WIDGETS}/w", {"spec": {"size": 4}}, MERGE)
        assert said.code == 422


async def test_a_deleted_definition_takes_its_objects_with_it(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        await ask.ok("POST", WIDGETS, widget())
        async with ask.watching(f"{DEFINITIONS}?watch=1") as watched:
            said = await ask.ok("DELETE", f"{DEFINITIONS}/{NAME}")
            assert said["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
            while (await watched.event())["type"] != "DELETED":
                pass
            assert ask.app.cluster.store.count("example.com/widgets/") == 0
            await ask.ok("POST", DEFINITIONS, definition())
            while not is_established((await watched.event())["object"]):
                pass
        assert (await ask.ok("GET", WIDGETS))["items"] == []


async def test_a_namespace_takes_custom_objects_with_it(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "gone"}})
        await ask.ok("POST", WIDGETS.replace("default", "gone"), widget())
        async with ask.watching("/api/v1/namespaces?watch=1&fieldSelector=metadata.name=gone") as watched:
            await ask.ok("DELETE", "/api/v1/namespaces/gone")
            while (await watched.event())["type"] != "DELETED":
                pass
        assert ask.app.cluster.store.count("example.com/widgets/gone/") == 0


async def test_names_that_another_definition_has_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        other = definition()
        other["metadata"]["name"] = "others.example.com"
        other["spec"]["names"] = {"plural": "others", "singular": "other", "kind": "Widget"}
        await ask.ok("POST", DEFINITIONS, other)
        event = await until(ask, "others.example.com", lambda each: bool(each["status"]["conditions"]))
        reasons = {each["type"]: each["reason"] for each in event["object"]["status"]["conditions"]}
        assert reasons == {"NamesAccepted": "KindConflict", "Established": "NotAccepted"}


async def test_a_restart_serves_what_was_defined(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        await ask.ok("POST", WIDGETS, widget())
    async with api(tmp_path, services=(controllers,)) as ask:
        assert (await ask.ok("GET", f"{WIDGETS}/w"))["spec"]["size"] == 3


async def test_quotas_count_custom_objects(tmp_path: Path) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    async with served(tmp_path) as ask:
        await ask.ok("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"count/widgets.example.com": "1"}}})
        async with ask.watching(f"{quotas}?watch=1") as watched:
            while not (await watched.event())["object"].get("status", {}).get("used"):
                pass
        await ask.ok("POST", WIDGETS, widget())
        said = await ask("POST", WIDGETS, widget("second"))
        assert said.code == 403 and "exceeded quota: q, requested: count/widgets.example.com=1" in said.message


async def test_appliers_of_custom_objects(tmp_path: Path) -> None:
    """Retold from "ServerSideApply should work for CRDs": two versions, finalizers as a set, conflicts, list items."""
    port = {"type": "object", "required": ["containerPort", "protocol"]}
    port["properties"] = {name: {"type": "string"} for name in ("name", "protocol")}  # type: ignore[assignment]
    port["properties"]["containerPort"] = {"type": "integer", "format": "int32"}  # type: ignore[call-overload,index]
    ports = {"type": "array", "x-kubernetes-list-type": "map", "items": port}
    ports["x-kubernetes-list-map-keys"] = ["containerPort", "protocol"]
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"ports": ports}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    sent = definition(schema=schema)
    sent["spec"]["versions"].append({"name": "v1beta1", "served": True, "storage": False, "schema": schema})
    one = {"name": "x", "containerPort": 80, "protocol": "TCP"}

    def body(version: str = "v1", finalizers: bool = False, **spec: Any) -> dict[str, Any]:
        metadata = {"name": "w", **({"finalizers": ["test-finalizer"]} if finalizers else {})}
        return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": metadata, "spec": spec}

    async with served(tmp_path, sent) as ask:
        path, apply = f"{WIDGETS}/w", f"{WIDGETS}/w?fieldManager=apply_test"
        whole = body(finalizers=True, replicas=1, ports=[one])
        await ask.ok("PATCH", apply, whole, APPLY)
        beta = apply.replace("v1", "v1beta1")
        await ask.ok("PATCH", beta, body("v1beta1", replicas=1, ports=[one]), APPLY)
        more = {"metadata": {"finalizers": ["test-finalizer", "another-one"]}}
        await ask.ok("PATCH", path, more, MERGE)
        again = await ask.ok("PATCH", apply, whole, APPLY)
        assert set(again["metadata"]["finalizers"]) == {"test-finalizer", "another-one"}
        await ask.ok("PATCH", path, {"spec": {"replicas": 5}}, MERGE)
        said = await ask("PATCH", apply, whole, APPLY)
        assert (said.code, len(said.json["details"]["causes"])) == (409, 1)
        assert (await ask.ok("PATCH", f"{apply}&force=true", whole, APPLY))["spec"]["replicas"] == 1
        other = f"{path}?fieldManager=apply_test_2"
        said = await ask("PATCH", other, body(ports=[{**one, "name": "y"}]), APPLY)
        assert (said.code, len(said.json["details"]["causes"])) == (409, 1)
        two = {"name": "y", "containerPort": 8080, "protocol": "TCP"}
        assert len((await ask.ok("PATCH", other, body(ports=[two]), APPLY))["spec"]["ports"]) == 2
        assert (await ask.ok("PATCH", apply, body(replicas=1), APPLY))["spec"]["ports"] == [two]


async def test_chunks_dry_runs_and_metadata_views(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        for name in "abc":
            await ask.ok("POST", WIDGETS, widget(name))
        assert (await ask("POST", f"{WIDGETS}?dryRun=All", widget("d"))).code == 201
        first = await ask.ok("GET", f"{WIDGETS}?limit=2")
        assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (2, 1)
        rest = await ask.ok("GET", f"{WIDGETS}?limit=2&continue={first['metadata']['continue']}")
        assert [each["metadata"]["name"] for each in rest["items"]] == ["c"]
        accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        assert (await ask.ok("GET", WIDGETS, accept=accept))["kind"] == "PartialObjectMetadataList"
        watch = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with ask.watching(f"{WIDGETS}?{watch}") as watched:
            assert [each for each, _ in await watched.shown(4)] == ["ADDED", "ADDED", "ADDED", "BOOKMARK"]
        assert (await ask("DELETE", f"{WIDGETS}?dryRun=All")).code == 200
        assert len((await ask.ok("GET", WIDGETS))["items"]) == 3


async def test_numbers_and_depths_that_cannot_be_stored(tmp_path: Path) -> None:
    large = b"123456789012345678901234567890"
    async with served(tmp_path) as ask:
        body = (
            b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"n"},"spec":{"size":1,"free":{"x":%s}}}'
        )
        made = await ask.ok("POST", WIDGETS, body % large)
        assert made["spec"]["free"] == {"x": 1.2345678901234568e29}
        patched = await ask.ok("PATCH", f"{WIDGETS}/n", b'{"spec":{"free":{"y":[%s]}}}' % large, MERGE)
        assert patched["spec"]["free"]["y"] == [1.2345678901234568e29]
        text = b"kind: Widget\napiVersion: example.com/v1\nspec:\n  size: 1\n  free:\n    x: %s\n" % large
        assert (await ask("PATCH", f"{WIDGETS}/m?fieldManager=a", text, APPLY)).code == 201
        deep: Any = "x"
        for _ in range(120):
            deep = {"default": deep}
        said = await ask("POST", DEFINITIONS, definition(schema={"openAPIV3Schema": deep}))
        assert said.code in (400, 422)


async def test_objects_of_a_kind_that_is_not_served_disturb_no_controller(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        sent = widget()
        sent["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "gone"}]
        stop = [{"op": "replace", "path": "/spec/versions/0/served", "value": False}]
        async with ask.watching(f"{DEFINITIONS}?watch=1") as watched:
            await ask.ok("PATCH", f"{DEFINITIONS}/{NAME}", stop, JSON_PATCH)
            while (await watched.event())["object"]["spec"]["versions"][0]["served"]:
                pass
            # Another definition is accepted after this one has been read again.
            other = definition()
            other["metadata"]["name"] = "others.example.com"
            other["spec"]["names"] = {"plural": "others", "kind": "Other"}
            await ask.ok("POST", DEFINITIONS, other)
            while (event := await watched.event())["object"]["metadata"]["name"] == NAME or not is_established(
                event["object"]
            ):
                pass
        assert (await ask("GET", WIDGETS)).code == 404
        assert (await ask.ok("GET", WIDGETS.replace("widgets", "others")))["items"] == []
