"""What every kind has in common when it is written: YAML bodies, metadata through /status, dry runs (05 B6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.api.server.services import controllers
from tests.unit.api.api_client import APPLY, MERGE, PODS, api

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
# As client programs write it by hand: a flow mapping with tabs and trailing commas, which is YAML and not JSON.
FLOW_POD = b"""{
\t"apiVersion": "v1",
\t"kind": "Pod",
\t"metadata": {"name": "flow"}, # a comment
\t"spec": {
\t\t"containers": [{
\t\t\t"name":  "nginx",
\t\t\t"image": "nginx:1.27",
\t\t}]
\t}
}"""


async def test_an_applied_body_that_begins_with_a_brace_is_yaml(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        said = await ask("PATCH", f"{PODS}/flow?fieldManager=m", FLOW_POD, APPLY)
        assert said.code == 201, said.body
        owners = said.json["metadata"]["managedFields"][0]["fieldsV1"]
        assert owners["f:spec"]["f:containers"] == {'k:{"name":"nginx"}': {".": {}, "f:image": {}, "f:name": {}}}
        status = b'{"apiVersion": "v1", "kind": "Pod", "status": {"conditions": [{"type": "Mine", "status": "True",}]}}'
        main = await ask.ok("PATCH", f"{PODS}/flow?fieldManager=m2", status, APPLY)
        assert "conditions" not in main["status"]
        applied = await ask.ok("PATCH", f"{PODS}/flow/status?fieldManager=m2", status, APPLY)
        assert [each["type"] for each in applied["status"]["conditions"]] == ["Mine"]


async def test_a_created_body_that_begins_with_a_brace_is_yaml(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", PODS, FLOW_POD, "application/yaml")
        assert said.code == 201, said.body


async def test_what_is_neither_json_nor_yaml_is_refused_in_yaml_s_words(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        said = await ask("PATCH", f"{PODS}/x?fieldManager=m", b'{"a": [}', APPLY)
        assert said.code == 400
        assert said.message.startswith("error decoding YAML: error converting YAML to JSON: yaml: line 1: ")


@pytest.mark.parametrize("verb", ["PATCH", "PUT"])
async def test_a_write_to_status_changes_annotations_and_labels(tmp_path: Path, verb: str) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "one"}})
        marks = {"annotations": {"a": "1"}, "labels": {**made["metadata"]["labels"], "l": "2"}}
        path = "/api/v1/namespaces/one/status"
        if verb == "PATCH":
            found = await ask.ok("PATCH", path, {"metadata": marks, "status": {"phase": "Active"}}, MERGE)
        else:
            found = await ask.ok("PUT", path, {**made, "metadata": {**made["metadata"], **marks}})
        assert found["metadata"]["annotations"] == {"a": "1"}
        assert found["metadata"]["labels"]["l"] == "2"
        assert found["spec"] == made["spec"]


async def test_a_write_to_status_of_a_deployment_keeps_its_labels(tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    async with api(tmp_path) as ask:
        await ask.ok("POST", DEPLOYMENTS, {"metadata": {"name": "d", "labels": {"l": "1"}}, "spec": spec})
        change = {"metadata": {"labels": {"l": "2"}, "annotations": {"a": "1"}}, "status": {"replicas": 3}}
        found = await ask.ok("PATCH", f"{DEPLOYMENTS}/d/status", change, MERGE)
        assert found["metadata"]["labels"] == {"l": "1"}
        assert found["metadata"]["annotations"] == {"a": "1"}
        assert found["status"]["replicas"] == 3


async def test_health_pages_list_what_was_started(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        for page in ("healthz", "livez", "readyz"):
            lines = (await ask("GET", f"/{page}?verbose=1")).body.decode().splitlines()
            assert lines[:4] == ["[+]ping ok", "[+]log ok", "[+]etcd ok", "[+]informer-sync ok"]
            assert "[+]autoregister-completion ok" in lines
            assert lines[-1] == f"{page} check passed"
            for hook in (
                "start-system-namespaces-controller",
                "scheduling/bootstrap-system-priority-classes",
                "bootstrap-controller",
                "start-service-ip-repair-controllers",
                "start-apiextensions-informers",
                "crd-informer-synced",
                "start-apiextensions-controllers",
                "generic-apiserver-start-informers",
                "start-apiserver-admission-initializer",
                "storage-readiness",
                "start-cluster-authentication-info-controller",
                "kube-apiserver-autoregistration",
                "start-kube-aggregator-informers",
                "apiservice-registration-controller",
                "apiservice-status-local-available-controller",
                "apiservice-status-remote-available-controller",
                "apiservice-openapi-controller",
            ):
                assert f"[+]poststarthook/{hook} ok" in lines
                assert (await ask("GET", f"/{page}/poststarthook/{hook}")).body == b"ok"
        ask.app.start_hooks["bootstrap-controller"] = "not written"
        assert (await ask("GET", "/readyz")).code == 500
        assert (await ask("GET", "/readyz?exclude=poststarthook/bootstrap-controller")).code == 200


async def test_a_review_is_no_table(tmp_path: Path) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with api(tmp_path) as ask:
        assert (await ask("POST", path, review, accept=table)).code == 406
        assert (await ask("POST", path, review, accept=f"{table},application/json")).code == 201


async def test_the_life_of_pod_templates(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default/podtemplates"
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    async with api(tmp_path) as ask:
        for name in ("one", "two", "three"):
            await ask.ok("POST", path, {"metadata": {"name": name, "labels": {"set": "x"}}, "template": template})
        await ask.ok("PATCH", f"{path}/one", {"metadata": {"labels": {"set": "y"}}}, MERGE)
        made = await ask.ok("GET", f"{path}/two")
        assert made["template"]["spec"]["restartPolicy"] == "Always"
        replaced = await ask.ok(
            "PUT", f"{path}/two", {**made, "metadata": {**made["metadata"], "annotations": {"a": "1"}}}
        )
        assert replaced["metadata"]["annotations"] == {"a": "1"}
        every = await ask.ok("GET", "/api/v1/podtemplates?labelSelector=set%3Dx")
        assert sorted(each["metadata"]["name"] for each in every["items"]) == ["three", "two"]
        await ask.ok("DELETE", f"{path}?labelSelector=set%3Dx")
        left = await ask.ok("GET", path)
        assert [each["metadata"]["name"] for each in left["items"]] == ["one"]


async def test_the_life_of_volume_attributes_classes(tmp_path: Path) -> None:
    """e2e: VolumeAttributesClass should run through the lifecycle of a VolumeAttributesClass."""
    path = "/apis/storage.k8s.io/v1/volumeattributesclasses"
    async with api(tmp_path) as ask:
        for name in ("gold", "silver"):
            body = {"metadata": {"name": name, "labels": {"set": "x"}}, "driverName": "d", "parameters": {"iops": "1"}}
            made = await ask.ok("POST", path, body)
        assert made["driverName"] == "d"
        await ask.ok("PATCH", f"{path}/gold", {"metadata": {"labels": {"tier": "1"}}}, MERGE)
        changed = {**made, "metadata": {**made["metadata"], "annotations": {"a": "1"}}}
        assert (await ask.ok("PUT", f"{path}/silver", changed))["metadata"]["annotations"] == {"a": "1"}
        refused = await ask("PATCH", f"{path}/gold", {"parameters": {"iops": "2"}}, MERGE)
        assert (refused.code, "updates to parameters are forbidden" in refused.message) == (422, True), refused.message
        assert len((await ask.ok("GET", f"{path}?labelSelector=set%3Dx"))["items"]) == 2
        await ask.ok("DELETE", f"{path}/gold")
        await ask.ok("DELETE", f"{path}?labelSelector=set%3Dx")
        assert (await ask.ok("GET", path))["items"] == []
