"""The outer forms: Status bodies, content negotiation, discovery, version and health (05 B1–B3, 06 E1, E5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.discovery.discovery import discovery
from plimsoll.api.machinery import status
from plimsoll.api.machinery.catalog import BUILT_IN
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.negotiate import DISCOVERY, MediaType, accepted_form, wants_discovery
from plimsoll.api.machinery.status import StatusError
from plimsoll.errors import FieldError
from tests.unit.api.api_client import TABLE, api


def resource(plural: str, group: str = "") -> ApiResource:
    found = BUILT_IN.at(group, "v1", plural)
    assert found is not None
    return found


PODS, LEASES = resource("pods"), resource("leases", "coordination.k8s.io")
_HEAD = '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'

STATUSES = [
    (status.not_found(PODS, "nope"), r'"pods \"nope\" not found","reason":"NotFound","details":{"name":"nope","kind":"pods"},"code":404}'),
    (status.not_found(LEASES, "x"), r'"leases.coordination.k8s.io \"x\" not found","reason":"NotFound","details":{"name":"x","group":"coordination.k8s.io","kind":"leases"},"code":404}'),
    (status.no_such_resource(), '"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}'),
    (status.already_exists(PODS, "a"), r'"pods \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","kind":"pods"},"code":409}'),
    (
        status.conflict(PODS, "u"),
        r'"Operation cannot be fulfilled on pods \"u\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"u","kind":"pods"},"code":409}',
    ),
    (
        status.invalid_object(PODS, "t", [FieldError("FieldValueInvalid", "spec.containers[0].resources.requests", "must be less than or equal to cpu limit of 1", "2")]),
        r'"Pod \"t\" is invalid: spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1","reason":"Invalid","details":{"name":"t","kind":"Pod","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"2\": must be less than or equal to cpu limit of 1","field":"spec.containers[0].resources.requests"}]},"code":422}',
    ),
    (
        status.invalid_options("PatchOptions", [FieldError("FieldValueRequired", "fieldManager", "is required for apply patch")]),
        r'"PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"PatchOptions","causes":[{"reason":"FieldValueRequired","message":"Required value: is required for apply patch","field":"fieldManager"}]},"code":422}',
    ),
    (status.method_not_allowed(), '"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}'),
    (status.unsupported_patch(), '"415: Unsupported Media Type","reason":"UnsupportedMediaType","details":{},"code":415}'),
    (
        status.too_large_version(99999999, 157),
        '"Timeout: Too large resource version: 99999999, current: 157","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}',
    ),
    (status.internal("map: x"), '"map: x","code":500}'),
    (status.unauthorized(), '"Unauthorized","reason":"Unauthorized","code":401}'),
    (status.rejected_patch(), '"the server rejected our request due to an error in our request","reason":"Invalid","details":{},"code":422}'),
    (status.too_large_body(), '"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","details":{},"code":413}'),
]  # fmt: skip


@pytest.mark.parametrize(("error", "text"), STATUSES, ids=[each[0].message[:30] for each in STATUSES])
def test_statuses_to_the_letter(error: StatusError, text: str) -> None:
    assert error.body().decode() == f"{_HEAD}{text}\n"


def test_repeated_findings_are_one_message_and_several_causes() -> None:
    finding = FieldError("FieldValueForbidden", "spec", "no")
    error = status.invalid_object(PODS, "x", [finding, FieldError("FieldValueRequired", "a"), finding])
    assert error.message == 'Pod "x" is invalid: [spec: Forbidden: no, a: Required value]'
    assert error.details is not None
    assert len(error.details["causes"]) == 3


def test_success_of_a_plain_deletion_has_no_code() -> None:
    assert status.success(details={"name": "l0", "kind": "configmaps", "uid": "4"}) == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"l0","kind":"configmaps","uid":"4"}}\n'
    )
    assert status.success(201) == b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'


# --- negotiation ---

KUBECTL_GET = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", MediaType()),
        ("*/*", MediaType()),
        ("application/json", MediaType()),
        (KUBECTL_GET, MediaType("Table", "v1")),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", MediaType("Table", "v1beta1")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", MediaType()),
        ("application/vnd.kubernetes.protobuf,application/json", MediaType()),
        ("application/vnd.kubernetes.protobuf, */*", MediaType()),
        ("application/yaml", MediaType(is_yaml=True)),
        ("text/html, application/json;q=0.1, application/yaml", MediaType(is_yaml=True)),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", MediaType("PartialObjectMetadata", "v1")),
    ],
)
def test_accepted_media_types(accept: str, form: MediaType) -> None:
    assert accepted_form(accept) == form


@pytest.mark.parametrize(
    ("accept", "is_list", "message"),
    [
        ("text/html", False, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"),
        ("application/json;as=Foo;v=v1;g=meta.k8s.io", False, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", True, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"),
        ("application/vnd.kubernetes.protobuf", False, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml"),
    ],
)  # fmt: skip
def test_nothing_acceptable(accept: str, is_list: bool, message: str) -> None:
    with pytest.raises(StatusError) as refusal:
        accepted_form(accept, is_list=is_list)
    assert (refusal.value.code, refusal.value.message, refusal.value.details) == (406, message, {})


# --- discovery ---

AGGREGATED = f"{DISCOVERY.format('v2')},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"


def test_which_discovery() -> None:
    assert wants_discovery(AGGREGATED)
    assert not wants_discovery("application/json")
    with pytest.raises(StatusError):
        wants_discovery("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")


def entry(page: bytes, name: str) -> Any:
    (group,) = json.loads(page)["items"]
    return next(each for each in group["versions"][0]["resources"] if each["resource"] == name)


def test_aggregated_pods() -> None:
    pods = entry(discovery("h:1").aggregated["v2"]["/api"].body, "pods")
    assert {key: pods[key] for key in pods if key != "subresources"} == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "", "kind": "Pod"},
        "scope": "Namespaced",
        "singularResource": "pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    subresources = {each["subresource"]: each for each in pods["subresources"]}
    assert subresources["resize"] == {
        "subresource": "resize",
        "responseKind": {"group": "", "version": "", "kind": "Pod"},
        "verbs": ["get", "patch", "update"],
    }
    assert subresources["eviction"]["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


def test_aggregated_groups_have_names_and_versions() -> None:
    groups = json.loads(discovery("h:1").aggregated["v2"]["/apis"].body)["items"]
    assert {each["metadata"]["name"] for each in groups} == {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "authentication.k8s.io", "authorization.k8s.io",
        "autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "metrics.k8s.io",
        "networking.k8s.io", "node.k8s.io", "policy",
        "rbac.authorization.k8s.io", "scheduling.k8s.io",
        "storage.k8s.io",
    }  # fmt: skip
    assert all(version["freshness"] == "Current" for each in groups for version in each["versions"])


def test_legacy_documents() -> None:
    pages = {path: json.loads(page.body) for path, page in discovery("h:1").legacy.items()}
    assert pages["/api"] == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "h:1"}],
    }
    core = pages["/api/v1"]
    assert (core["kind"], core["groupVersion"], "apiVersion" in core) == ("APIResourceList", "v1", False)
    found = {each["name"]: each for each in core["resources"]}
    assert found["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert found["pods/resize"]["verbs"] == ["get", "patch", "update"]
    metrics = pages["/apis/metrics.k8s.io/v1beta1"]
    assert metrics["apiVersion"] == "v1"
    assert metrics["resources"][0] == {
        "name": "nodes",
        "singularName": "",
        "namespaced": False,
        "kind": "NodeMetrics",
        "verbs": ["get", "list"],
    }
    assert pages["/apis/policy"] == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "policy",
        "versions": [{"groupVersion": "policy/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "policy/v1", "version": "v1"},
    }


# --- through the server ---


async def test_pages(tmp_path: Path) -> None:
    async with api(tmp_path, "1.36") as ask:
        said = await ask("GET", "/api", accept=AGGREGATED)
        assert (said.code, said.headers["content-type"], said.headers["vary"]) == (
            200,
            DISCOVERY.format("v2"),
            "Accept",
        )
        assert said.headers["etag"]
        assert (await ask("GET", "/apis/", accept="application/json")).json["kind"] == "APIGroupList"
        assert (await ask("GET", "/version")).json["minor"] == "36"
        for path in ("/healthz", "/livez", "/readyz", "/readyz/etcd"):
            assert ((await ask("GET", path)).body, (await ask("GET", path)).code) == (b"ok", 200)
        shown = (await ask("GET", "/readyz?verbose")).body.decode().splitlines()
        assert shown == [
            "[+]ping ok",
            "[+]log ok",
            "[+]etcd ok",
            "[+]informer-sync ok",
            "[+]poststarthook/generic-apiserver-start-informers ok",
            "[+]poststarthook/start-apiserver-admission-initializer ok",
            "[+]poststarthook/storage-readiness ok",
            "[+]poststarthook/start-system-namespaces-controller ok",
            "[+]poststarthook/scheduling/bootstrap-system-priority-classes ok",
            "[+]poststarthook/start-cluster-authentication-info-controller ok",
            "[+]poststarthook/kube-apiserver-autoregistration ok",
            "[+]autoregister-completion ok",
            "readyz check passed",
        ]
        for path in ("/foo", "/apis/foo", "/apis/foo/v1", "/api/v2"):
            said = await ask("GET", path)
            assert (said.code, said.headers["content-type"], said.body) == (
                404,
                "text/plain; charset=utf-8",
                b"404 page not found\n",
            )
        assert (await ask("POST", "/version")).code == 405
        refused = await ask("GET", "/version?timeout=invalid")
        assert refused.code == 400
        assert refused.message.startswith("invalid timeout specified in the request URL")
        index = (await ask("GET", "/openapi/v3")).json["paths"]
        assert "Pod" in json.dumps((await ask("GET", "/openapi/v3/api/v1")).json)
        assert {"api/v1", "apis/apps/v1", "apis/scheduling.k8s.io/v1"} <= set(index)


async def test_forms_of_an_object(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        path = "/api/v1/namespaces/default"
        said = await ask("GET", path)
        assert said.headers["content-type"] == "application/json"
        assert said.body.startswith(b'{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default",')
        assert said.body.endswith(b"}\n")
        assert (await ask("GET", path, accept=TABLE)).json["rows"][0]["cells"] == ["default", "Active", "0s"]
        said = await ask("GET", path, accept="application/yaml")
        assert said.headers["content-type"] == "application/yaml"
        assert b"kind: Namespace\n" in said.body
        said = await ask(
            "GET", "/api/v1/namespaces", accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        )
        assert said.json["items"][0]["metadata"]["name"] == "default"
        assert (await ask("GET", path, accept="text/html")).code == 406
