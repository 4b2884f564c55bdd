"""APIServices, the health check that they are registered, and the OpenAPI document of version 2 as JSON."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

from plimsoll import logs
from plimsoll.api.server.health import Health
from plimsoll.api.server.services import controllers
from plimsoll.codec.openapi import v2_json, v3
from tests.unit.api.api_client import MERGE, TABLE, api
from tests.unit.api.test_large_objects import longest_pause_s
from tests.unit.api.widgets import DEFINITIONS, NAME, served

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def local(name: str = "v1.other.example.com", **spec: Any) -> dict[str, Any]:
    version, _, group = name.partition(".")
    priorities = {"groupPriorityMinimum": 100, "versionPriority": 10}
    return {"metadata": {"name": name}, "spec": {"group": group, "version": version, **priorities, **spec}}


async def test_each_group_and_version_has_one(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        groups = (await ask.ok("GET", "/apis"))["groups"]
        versions = {f"{each['version']}.{group['name']}" for group in groups for each in group["versions"]}
        found = {each["metadata"]["name"]: each for each in (await ask.ok("GET", SERVICES))["items"]}
        assert found.keys() == versions | {"v1."}
        assert found["v1.apps"]["spec"] == {
            "group": "apps",
            "version": "v1",
            "groupPriorityMinimum": 17800,
            "versionPriority": 15,
        }
        table = await ask.ok("GET", f"{SERVICES}/v1.apps", accept=TABLE)
        assert table["rows"][0]["cells"][:3] == ["v1.apps", "Local", "True"]


async def test_custom_groups_come_and_go(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as ask,
        ask.watching(f"{SERVICES}?watch=1&fieldSelector=metadata.name%3Dv1.example.com") as watched,
    ):
        event = await watched.event()
        assert (event["type"], event["object"]["metadata"]["labels"]) == (
            "ADDED",
            {"kube-aggregator.kubernetes.io/automanaged": "true"},
        )
        assert event["object"]["status"]["conditions"][0]["reason"] == "Local"
        await ask.ok("DELETE", f"{DEFINITIONS}/{NAME}")
        assert (await watched.event())["type"] == "DELETED"


async def test_one_that_is_deleted_is_written_again(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("DELETE", f"{SERVICES}/v1.apps")
        assert Health().faults(ask.app.cluster, {})["autoregister-completion"] == "missing APIService: [v1.apps]"
        shown = await ask("GET", "/livez?verbose=1")  # as in Kubernetes it is enough that each was there once
        assert (shown.code, "[+]autoregister-completion ok" in shown.body.decode()) == (200, True)
    async with api(tmp_path, services=(controllers,)) as ask:
        assert (await ask("GET", "/readyz")).code == 200
        async with ask.watching(f"{SERVICES}?watch=1&fieldSelector=metadata.name%3Dv1.apps") as watched:
            await watched.event()
            await ask.ok("DELETE", f"{SERVICES}/v1.apps")
            assert [(await watched.event())["type"] for _ in range(2)] == ["DELETED", "ADDED"]


async def test_others_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        assert (await ask("POST", SERVICES, local())).code == 201
        remote = local("v1.remote.example.com", service={"namespace": "default", "name": "s"})
        refused = await ask("POST", SERVICES, remote)
        assert (refused.code, "does not forward requests to other API servers" in refused.message) == (422, True)
        misnamed = local()
        misnamed["metadata"]["name"] = "v2.other.example.com"
        assert "must be `spec.version" in (await ask("POST", SERVICES, misnamed)).message
        for field in ("groupPriorityMinimum", "versionPriority"):
            assert (await ask("POST", SERVICES, local("v1.b.example.com", **{field: 0}))).code == 422
        kept = {"spec": {"caBundle": "YQ=="}}
        assert (await ask("PATCH", f"{SERVICES}/v1.other.example.com", kept, MERGE)).code == 422


async def test_openapi_of_version_2_as_json(tmp_path: Path) -> None:
    async with served(tmp_path) as ask:
        said = await ask("GET", "/openapi/v2")
        assert said.headers["content-type"] == "application/json"
        found = said.json
        assert found["swagger"] == "2.0"
        pod = found["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]
        assert pod["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
        patch = found["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
        assert patch["parameters"][0]["in"] == "body"
        assert {"in": "query", "type": "string", "name": "fieldValidation"}.items() <= patch["parameters"][3].items()
        widget = found["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]
        assert widget["size"] == {"type": "integer", "minimum": 1, "maximum": 10}
        assert widget["free"] == {"x-kubernetes-preserve-unknown-fields": True}
        assert "nullable" not in widget["maybe"] and "anyOf" not in widget["port"]
        seen: list[str] = []
        for line in said.body.decode().split('"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":')[1:]:
            seen.append(line[:10])
        assert len(seen) == 1  # Go refuses names that are there twice
        assert (await ask("GET", "/openapi/v2", accept="text/html")).code == 406
        ask.headers = {"if-none-match": said.headers["etag"]}
        assert (await ask("GET", "/openapi/v2")).code == 304
        assert said.body.count(b"components/schemas") == 0


async def test_openapi_is_made_beside_the_event_loop(tmp_path: Path) -> None:
    """In CPU time of the loop's thread; it was 0.1 s."""
    async with served(tmp_path) as ask:
        for path in ("/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"):
            for made in (v2_json._built_in, v3._document, v3.openapi_hash):
                made.cache_clear()
            code, longest_s = await longest_pause_s(ask, "GET", path)
            assert code == 200
            assert longest_s < 0.02, path


def test_a_log_that_cannot_be_written_is_a_fault() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.log_to_stderr()
        stream = io.StringIO()
        root.handlers[0].stream = stream  # type: ignore[attr-defined]
        root.info("one")
        assert logs.fault() == ""
        stream.close()
        root.info("two")
        assert "not written" in logs.fault()
    finally:
        root.handlers[:], root.level = before


async def test_the_authorities_of_clients_are_published(tmp_path: Path) -> None:
    """Other API servers read them there."""
    async with api(tmp_path, root_ca="-----BEGIN") as ask:
        found = await ask.ok("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
        assert found["data"] == {"client-ca-file": "-----BEGIN"}
