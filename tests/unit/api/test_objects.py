"""Create, read, update, patch: metadata, generation, versions, dry runs, field validation (05 B6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import APPLY, JSON_PATCH, MERGE, PODS, STRATEGIC, api, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
STALE = "the object has been modified; please apply your changes to the latest version and try again"


async def test_a_pod_right_after_post(tmp_path: Path) -> None:
    """06 E2, but for what profile `documents` adds."""
    async with api(tmp_path, "1.36") as ask:
        sent = pod(limits={"cpu": "500m", "memory": "128Mi"})
        sent["metadata"] |= {
            "uid": "mine",
            "generation": 7,
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "labels": {"app": "demo"},
        }
        sent["status"] = {"phase": "Running"}
        said = await ask("POST", PODS, sent, agent="kubectl/v1.36")
        assert said.code == 201
        found = said.json
        metadata = found["metadata"]
        assert (found["kind"], found["apiVersion"], metadata["namespace"]) == ("Pod", "v1", "default")
        assert (metadata["generation"], metadata["creationTimestamp"]) == (1, "2026-11-16T00:00:00Z")
        assert metadata["uid"] != "mine"
        assert metadata["managedFields"][0]["manager"] == "kubectl"
        assert "f:tolerations" not in metadata["managedFields"][0]["fieldsV1"]["f:spec"]
        assert found["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
        tolerations = [
            {
                "key": f"node.kubernetes.io/{taint}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for taint in ("not-ready", "unreachable")
        ]
        assert found["spec"] == {
            "containers": [
                {
                    "name": "c",
                    "image": "nginx:1.27",
                    "resources": {
                        "limits": {"cpu": "500m", "memory": "128Mi"},
                        "requests": {"cpu": "500m", "memory": "128Mi"},
                    },
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": tolerations,
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        assert (await ask.ok("GET", f"{PODS}/demo")) == found


async def test_profile_documents_allocates_at_create_and_defaults_policies(tmp_path: Path) -> None:
    async with api(tmp_path, "documents") as ask:
        found = await ask.ok("POST", PODS, pod(requests={"cpu": "1"}))
        (status,) = found["status"]["containerStatuses"]
        assert (status["name"], status["allocatedResources"], status["ready"]) == ("c", {"cpu": "1"}, False)
        assert found["spec"]["containers"][0]["resizePolicy"] == [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"}
        ]


REFUSED: list[Any] = [
    pytest.param("POST", PODS, {**pod(), "metadata": {"name": "a", "namespace": "other"}}, 400, "the namespace of the provided object does not match the namespace sent on the request", id="another namespace"),
    pytest.param("POST", PODS, {**pod(), "metadata": {"name": "a", "resourceVersion": "5"}}, 500, "resourceVersion should not be set on objects to be created", id="version on create"),
    pytest.param("POST", PODS, {**pod(), "metadata": {}}, 422, 'Pod "" is invalid: metadata.name: Required value: name or generateName is required', id="no name"),
    pytest.param("POST", "/api/v1/namespaces/nowhere/pods", pod(), 404, 'namespaces "nowhere" not found', id="no namespace"),
    pytest.param("PUT", f"{PODS}/nope", pod("nope"), 404, 'pods "nope" not found', id="put of nothing"),
    pytest.param("PUT", f"{PODS}/demo", pod("zzz"), 400, "the name of the object (zzz) does not match the name on the URL (demo)", id="another name"),
    pytest.param("PUT", f"{PODS}/demo", {**pod(), "metadata": {"name": "demo", "resourceVersion": "1"}}, 409, f'Operation cannot be fulfilled on pods "demo": {STALE}', id="stale"),
    pytest.param("PUT", f"{PODS}/demo", {**pod(), "metadata": {"name": "demo", "resourceVersion": "x"}}, 500, 'strconv.ParseUint: parsing "x": invalid syntax', id="no version at all"),
    pytest.param("POST", PODS, pod(requests={"cpu": "2"}, limits={"cpu": "1"}), 422, 'Pod "demo" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1', id="request above limit"),
    pytest.param("POST", "/api/v1/namespaces", {"metadata": {"name": "a.b"}}, 422, 'Namespace "a.b" is invalid: metadata.name: Invalid value: "a.b": must not contain dots', id="dots in a namespace"),
    pytest.param("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "p"}, "value": 1000000001}, 422, 'PriorityClass.scheduling.k8s.io "p" is invalid: value: Forbidden: maximum allowed value of a user defined priority is 1000000000', id="priority too high"),
    pytest.param("DELETE", f"{PODS}/nope", None, 404, 'pods "nope" not found', id="delete of nothing"),
    pytest.param("DELETE", "/api/v1/namespaces/default", None, 403, 'namespaces "default" is forbidden: this namespace may not be deleted', id="default stays"),
    pytest.param("GET", f"{PODS}/demo?resourceVersion=abc", None, 400, 'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax', id="version that is none"),
    pytest.param("POST", PODS, b"", 400, "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)", id="empty body"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "code", "message"), REFUSED)
async def test_refusals(tmp_path: Path, method: str, path: str, body: Any, code: int, message: str) -> None:
    async with api(tmp_path) as ask:
        if method != "POST":
            await ask.ok("POST", PODS, pod())
        said = await ask(method, path, body)
        assert (said.code, said.message) == (code, message)


async def test_a_name_is_in_use_until_its_object_is_deleted(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod(nodeName="n1"))
        assert (await ask("POST", PODS, pod())).message == 'pods "demo" already exists'
        await ask.ok("DELETE", f"{PODS}/demo")
        assert (await ask("POST", PODS, pod())).message == 'object is being deleted: pods "demo" already exists'


async def test_a_generated_name(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        found = await ask.ok("POST", PODS, {**pod(), "metadata": {"generateName": "web-"}})
        name = found["metadata"]["name"]
        assert name.startswith("web-")
        assert set(name[4:]) <= set("bcdfghjklmnpqrstvwxz2456789")
        assert len(name) == 9


async def test_generation_changes_with_the_spec_only(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod())

        async def generation(patch: Any, path: str = f"{PODS}/demo") -> int:
            found = await ask.ok("PATCH", path, patch, STRATEGIC)
            number: int = found["metadata"]["generation"]
            return number

        assert await generation({"metadata": {"labels": {"a": "b"}}}) == 1
        assert await generation({"status": {"phase": "Running"}}, f"{PODS}/demo/status") == 1
        assert await generation({"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}) == 2
        assert await generation({"spec": {"activeDeadlineSeconds": 9}}) == 3


async def test_other_kinds_have_no_generation(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        found = await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
        assert "generation" not in found["metadata"]
        found = await ask.ok(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "p"}, "value": 1}
        )
        assert found["metadata"]["generation"] == 1


async def test_an_identical_write_changes_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
        before = await ask.ok("GET", f"{CONFIG_MAPS}/a")
        version = ask.app.cluster.store.version
        ask.now_s += 60
        assert await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, MERGE) == before
        assert await ask.ok("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"x": "1"}}) == before
        assert ask.app.cluster.store.version == version


async def test_versions_in_patches_are_preconditions(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
        version = made["metadata"]["resourceVersion"]
        path = f"{CONFIG_MAPS}/a"
        await ask.ok("PATCH", path, {"metadata": {"resourceVersion": version}, "data": {"x": "2"}}, MERGE)
        said = await ask("PATCH", path, {"metadata": {"resourceVersion": version}, "data": {"x": "3"}}, MERGE)
        assert (said.code, said.json["reason"]) == (409, "Conflict")
        await ask.ok("PATCH", path, {"metadata": {"resourceVersion": None}, "data": {"x": "4"}}, MERGE)
        said = await ask("PATCH", path, {"metadata": {"uid": "1"}}, MERGE)
        assert (said.code, said.message) == (
            422,
            'ConfigMap "a" is invalid: metadata.uid: Invalid value: "1": field is immutable',
        )
        said = await ask("PUT", path, {"metadata": {"name": "a", "uid": "1"}})
        assert said.code == 409
        assert "the UID in the precondition (1) does not match the UID in record" in said.message


async def test_the_version_of_a_new_object(tmp_path: Path) -> None:
    """Storage refuses it, which a dry run does not ask; what is no number is no version. A PUT drops it."""

    def map_of(name: str, version: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "resourceVersion": version}}

    async with api(tmp_path) as ask:
        assert (await ask("POST", CONFIG_MAPS, map_of("a", "5"))).code == 500
        dry = await ask.ok("POST", f"{CONFIG_MAPS}?dryRun=All", map_of("a", "5"))
        assert dry["metadata"]["resourceVersion"] == "5"
        assert int((await ask.ok("POST", CONFIG_MAPS, map_of("a", "0")))["metadata"]["resourceVersion"]) > 0
        assert int((await ask.ok("POST", CONFIG_MAPS, map_of("b", "x")))["metadata"]["resourceVersion"]) > 0
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        made = await ask("PUT", f"{leases}/a", map_of("a", "5000000"))
        assert (made.code, made.json["metadata"]["resourceVersion"] == "5000000") == (201, False)
        said = await ask("PUT", f"{leases}/b", map_of("b", "x"))
        assert (said.code, said.message) == (500, 'strconv.ParseUint: parsing "x": invalid syntax')


async def test_dry_runs_store_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        version = ask.app.cluster.store.version
        said = await ask("POST", f"{PODS}?dryRun=All", pod())
        assert said.code == 201
        assert said.json["metadata"]["uid"]
        assert "resourceVersion" not in said.json["metadata"]
        assert (await ask("GET", f"{PODS}/demo")).code == 404
        made = await ask.ok("POST", PODS, pod())
        version = ask.app.cluster.store.version
        found = await ask.ok("PATCH", f"{PODS}/demo?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        assert found["metadata"]["labels"] == {"a": "b"}
        assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        await ask.ok("DELETE", f"{PODS}/demo?dryRun=All")
        assert await ask.ok("GET", f"{PODS}/demo") == made
        assert ask.app.cluster.store.version == version


BOGUS = {**pod(), "spec": {"containers": [{"name": "c", "image": "x", "bogus": 1}]}}


async def test_strict_warn_ignore_on_create(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", f"{PODS}?fieldValidation=Strict", BOGUS)
        assert said.json == {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.containers[0].bogus"',
            "reason": "BadRequest", "code": 400,
        }  # fmt: skip
        said = await ask("POST", f"{PODS}?fieldValidation=Ignore&dryRun=All", BOGUS)
        assert (said.code, "warning" in said.headers) == (201, False)
        said = await ask("POST", PODS, BOGUS)
        assert (said.code, said.headers["warning"]) == (201, '299 - "unknown field \\"spec.containers[0].bogus\\""')
        assert (await ask.ok("GET", f"{PODS}/demo"))["spec"]["containers"][0]["bogus"] == 1


async def test_strict_on_patch(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod())
        said = await ask("PATCH", f"{PODS}/demo?fieldValidation=Strict", {"spec": {"bogus": 1}}, MERGE)
        assert (said.code, said.json["reason"]) == (422, "Invalid")
        assert said.message.startswith(' "" is invalid: patch: Invalid value: "{')
        assert said.message.endswith('strict decoding error: unknown field "spec.bogus"')
        assert said.json["details"].keys() == {"causes"}


PATCHES: list[Any] = [
    pytest.param([{"op": "test", "path": "/data/x", "value": "9"}], JSON_PATCH, 422, "the server rejected our request due to an error in our request", id="failed test"),
    pytest.param({"data": {"x": 5}}, MERGE, 422, None, id="wrong type"),
    pytest.param("text", MERGE, 400, None, id="no object"),
    pytest.param({}, "application/json", 415, "415: Unsupported Media Type", id="no patch"),
    pytest.param({}, "", 415, "415: Unsupported Media Type", id="no type"),
    pytest.param({"data": {"$patch": "frob"}}, STRATEGIC, 500, "unknown patch type: frob in map: map[$patch:frob]", id="unknown directive"),
    pytest.param({"apiVersion": "v1", "kind": "Pod"}, APPLY, 400, "invalid object type: /v1, Kind=Pod", id="another kind"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "type_", "code", "message"), PATCHES)
async def test_patches_refused(tmp_path: Path, patch: Any, type_: str, code: int, message: str | None) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
        said = await ask("PATCH", f"{CONFIG_MAPS}/a?fieldManager=m", patch, type_)
        assert said.code == code
        assert message is None or said.message == message


async def test_force_is_for_apply(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        said = await ask("PATCH", f"{CONFIG_MAPS}/a?force=true", {}, MERGE)
        assert (
            said.message
            == 'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch'
        )


async def test_the_ownership_trace_of_06_e6(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        path = f"{CONFIG_MAPS}/a"

        async def apply(manager: str, data: Any, force: bool = False) -> Any:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
            return await ask("PATCH", f"{path}?fieldManager={manager}&force={str(force).lower()}", body, APPLY)

        async def owners() -> dict[str, set[str]]:
            entries = (await ask.ok("GET", path))["metadata"]["managedFields"]
            return {
                each["manager"]: {key.removeprefix("f:") for key in each["fieldsV1"]["f:data"] if key != "."}
                for each in entries
            }

        assert (await apply("m1", {"a": "1", "b": "1"})).code == 201
        assert await owners() == {"m1": {"a", "b"}}
        await ask.ok("PATCH", f"{path}?fieldManager=upd", {"data": {"a": "2"}}, MERGE)
        assert await owners() == {"m1": {"b"}, "upd": {"a"}}
        said = await apply("m1", {"a": "1", "b": "1"})
        assert (said.code, said.message) == (409, 'Apply failed with 1 conflict: conflict with "upd" using v1: .data.a')
        assert said.json["details"] == {
            "causes": [
                {"reason": "FieldManagerConflict", "message": 'conflict with "upd" using v1', "field": ".data.a"}
            ]
        }
        assert (await apply("m1", {"a": "2", "b": "1"})).code == 200
        assert await owners() == {"m1": {"a", "b"}, "upd": {"a"}}
        await apply("m1", {"b": "1"})
        assert await owners() == {"m1": {"b"}, "upd": {"a"}}
        await ask.ok("PATCH", f"{path}?fieldManager=upd2", {"data": {"a": None}}, MERGE)
        assert await owners() == {"m1": {"b"}}
        assert (await apply("m2", {"b": "7"}, force=True)).json["data"] == {"b": "7"}
        assert await owners() == {"m2": {"b"}}
        found = await ask.ok("PATCH", path, {"metadata": {"managedFields": [{}]}}, MERGE)
        assert "managedFields" not in found["metadata"]


async def test_apply_needs_a_manager_and_creates_only_objects(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        body = {"apiVersion": "v1", "kind": "Pod", **pod()}
        said = await ask("PATCH", f"{PODS}/demo", body, APPLY)
        assert (
            said.message
            == 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
        )
        assert (await ask("PATCH", f"{PODS}/demo/status?fieldManager=m", body, APPLY)).code == 404
        said = await ask("PATCH", f"{PODS}/demo?fieldManager=m", {**body, "spec": {"bogus": 1}}, APPLY)
        assert (said.code, "reason" in said.json) == (500, False)
        assert said.message.startswith(
            "failed to create typed patch object (/demo; /v1, Kind=Pod): .spec.bogus: field not declared in schema"
        )


async def test_body_forms(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", CONFIG_MAPS, b"metadata: {name: yy}\ndata: {a: b}\n", "application/yaml")
        assert (said.code, said.json["data"]) == (201, {"a": "b"})
        said = await ask("POST", CONFIG_MAPS, b'{"metadata":{"name":"z"}}', "")
        assert said.code == 201
        said = await ask("POST", CONFIG_MAPS, b"x", "text/plain")
        assert (said.code, said.json["reason"]) == (415, "UnsupportedMediaType")
        said = await ask("POST", CONFIG_MAPS, b"\xff" * 10, "application/vnd.kubernetes.protobuf")
        assert said.code == 400


async def test_immutable_config_maps(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}, "immutable": True})
        said = await ask("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "2"}}, MERGE)
        assert said.message == 'ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set'


async def test_a_lease_is_created_by_put_and_then_needs_its_version(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
        body = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40}}
        said = await ask("PUT", path, body)
        assert said.code == 201
        said = await ask("PUT", path, body)
        assert (
            said.message
            == 'Lease.coordination.k8s.io "n1" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update'
        )
        body["metadata"]["resourceVersion"] = (await ask.ok("GET", path))["metadata"]["resourceVersion"]  # type: ignore[index]
        body["spec"]["renewTime"] = "2026-11-15T20:30:00.000000Z"  # type: ignore[index]
        said = await ask("PUT", path, body)
        assert said.code == 200
        await ask("DELETE", path)
        uid = said.json["metadata"]["uid"]
        gone = await ask("PUT", path, said.json)
        assert (gone.code, gone.message) == (
            409,
            'Operation cannot be fulfilled on leases.coordination.k8s.io "n1": StorageError: invalid object, Code: 4, Key: '
            "/registry/leases/kube-node-lease/n1, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
            f"precondition: {uid}, UID in object meta: ",
        )


async def test_what_new_nodes_and_namespaces_get(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        capacity = {"cpu": "4", "memory": "8Gi"}
        node = await ask.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"capacity": capacity}})
        assert node["status"]["allocatable"] == capacity
        assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        namespace = await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "foo"}})
        assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "foo"}
        assert (namespace["spec"], namespace["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


@pytest.mark.parametrize("value", ["http", "80", "²%", "-1%", "9" * 5000 + "%", -1], ids=str)
async def test_rollout_and_budget_values_must_be_numbers(tmp_path: Path, value: Any) -> None:
    """What the loops could not compute with is never stored."""
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    async with api(tmp_path) as ask:
        for field in ("maxSurge", "maxUnavailable"):
            strategy = {"type": "RollingUpdate", "rollingUpdate": {field: value}}
            body = {"metadata": {"name": "d"}, "spec": {**spec, "strategy": strategy}}
            said = await ask("POST", "/apis/apps/v1/namespaces/default/deployments", body)
            assert (said.code, f"spec.strategy.rollingUpdate.{field}" in said.message) == (422, True)
        body = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": labels}, "minAvailable": value}}
        assert (await ask("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)).code == 422


_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"data": {"a/b": "x"}}, f'data[a/b]: Invalid value: "a/b": {_CONFIG_KEY}'),
        ({"binaryData": {"": "eA=="}}, f'binaryData[]: Invalid value: "": {_CONFIG_KEY}'),
        ({"data": {".": "x"}}, "data[.]: Invalid value: \".\": must not be '.'"),
        ({"data": {"..": "x"}}, "data[..]: Invalid value: \"..\": must not be '..'"),
        ({"data": {"..data": "x"}}, "data[..data]: Invalid value: \"..data\": must not start with '..'"),
        ({"data": {"k" * 254: "x"}}, "must be no more than 253 characters"),
        ({"data": {"k": "x"}, "binaryData": {"k": "eA=="}}, "duplicate of key present in binaryData"),
        ({"data": {"k": "x" * (1 << 20), "l": "x"}}, "[]: Too long: may not be more than 1048576 bytes"),
        ({"data": {"k": "\u4e2d" * 349_526}}, "[]: Too long: may not be more than 1048576 bytes"),
        ({"data": {"k": "x" * (1 << 20)}}, ""),
        ({"data": {".env": "x", "a.B_c-9": "y", "k" * 253: ""}}, ""),
        ({"binaryData": {"k": "A" * ((1 << 20) // 3 * 4)}}, ""),  # 1 MiB counts decoded
    ],
    ids=[
        "slash",
        "empty",
        "dot",
        "dots",
        "dot-dot prefix",
        "long",
        "twice",
        "size",
        "bytes",
        "full",
        "valid",
        "base64",
    ],
)
async def test_keys_and_sizes_of_config_maps(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}, **fields})
        assert said.code == (422 if problem else 201), said.json["message"][:500]
        assert problem in said.json.get("message", "")
