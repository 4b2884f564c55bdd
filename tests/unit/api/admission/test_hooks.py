"""Webhooks and policies on a whole API server: a real HTTPS webhook, Kubernetes' messages."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plimsoll.api.server.services import controllers
from tests.unit.api.api_client import MERGE, TABLE, ApiClient, api

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Webhook:
    """An HTTPS server that answers reviews; `seen` has their requests."""

    def __init__(self, url: str, bundle: str) -> None:
        self.url, self.bundle = url, bundle
        self.seen: list[dict[str, Any]] = []
        self.answer: Answer = lambda request: {"allowed": True}
        self.is_silent = False


def _certificate(folder: Path) -> tuple[Path, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    now = datetime.now(UTC)
    names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("hook.default.svc")]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file = folder / "webhook.pem"
    file.write_bytes(pem + private)
    return file, base64.b64encode(pem).decode()


@asynccontextmanager
async def webhook(folder: Path) -> AsyncIterator[Webhook]:
    file, bundle = _certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            request = json.loads(await reader.readexactly(length))["request"]
            found.seen.append(request)
            if found.is_silent:
                await reader.read()
                return
            response = {"uid": request["uid"], **found.answer(request)}
            review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
            body = json.dumps(review).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    found = Webhook(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/check", bundle)
    try:
        yield found
    finally:
        server.close()


def configuration(hook: Webhook, **fields: Any) -> dict[str, Any]:
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    return {
        "metadata": {"name": "hooks"},
        "webhooks": [
            {
                "name": "one.example.com",
                "clientConfig": {"url": hook.url, "caBundle": hook.bundle},
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                **fields,
            }
        ],
    }


def config_map(name: str = "a", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}}


def _patch(*operations: dict[str, Any]) -> dict[str, Any]:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


async def test_a_validating_webhook_refuses(tmp_path: Path) -> None:
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        made = await ask.ok("POST", f"{GROUP}/validatingwebhookconfigurations", configuration(hook))
        assert made["webhooks"][0]["failurePolicy"] == "Fail"
        assert made["webhooks"][0]["timeoutSeconds"] == 10
        await ask.ok("POST", MAPS, config_map())
        request = hook.seen[0]
        assert (request["operation"], request["name"], request["namespace"]) == ("CREATE", "a", "default")
        assert request["object"]["kind"] == "ConfigMap"
        assert request["object"]["data"] == {"k": "v"}
        assert request["userInfo"]["username"] == "admin"
        assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
        hook.answer = lambda request: {"allowed": False, "status": {"message": "not today"}, "warnings": ["careful"]}
        for method, path, body, type_ in (
            ("POST", MAPS, config_map("b"), "application/json"),
            ("PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, MERGE),
            ("DELETE", f"{MAPS}/a", None, "application/json"),
        ):
            said = await ask(method, path, body, type_)
            assert said.code == 400
            assert said.message == 'admission webhook "one.example.com" denied the request: not today'
            assert any("careful" in each for each in said.warnings)
        assert [each["operation"] for each in hook.seen] == ["CREATE", "CREATE", "UPDATE", "DELETE"]
        assert hook.seen[2]["oldObject"]["data"] == {"k": "v"}
        assert hook.seen[3]["object"] is None
        assert (await ask.ok("GET", f"{MAPS}/a"))["data"] == {"k": "v"}
        await ask("DELETE", f"{GROUP}/validatingwebhookconfigurations/hooks")  # never refused by a webhook
        await ask.ok("POST", MAPS, config_map("b"))


async def test_a_webhook_is_asked_before_a_version_is_refused(tmp_path: Path) -> None:
    """ValidatingAdmissionPolicy can restrict access by-node: its second step creates an object that it has read."""
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        await ask.ok("POST", f"{GROUP}/validatingwebhookconfigurations", configuration(hook))
        again = config_map()
        again["metadata"]["resourceVersion"] = "5"
        assert (await ask("POST", MAPS, again)).message == "resourceVersion should not be set on objects to be created"
        hook.answer = lambda request: {"allowed": False, "status": {"message": "not today"}}
        assert (await ask("POST", MAPS, again)).message.endswith("denied the request: not today")
        assert hook.seen[-1]["object"]["metadata"]["resourceVersion"] == "5"


async def test_a_mutating_webhook_changes_the_object(tmp_path: Path) -> None:
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        await ask.ok("POST", f"{GROUP}/mutatingwebhookconfigurations", configuration(hook))
        hook.answer = lambda request: _patch(
            {"op": "add", "path": "/data/added", "value": "yes"},
            {"op": "replace", "path": "/metadata/name", "value": "z"},
        )
        made = await ask.ok("POST", MAPS, config_map())
        assert made["data"] == {"k": "v", "added": "yes"}
        assert made["metadata"]["name"] == "a"
        owned = json.dumps(made["metadata"]["managedFields"])
        assert "f:added" in owned
        hook.answer = lambda request: _patch({"op": "add", "path": "/data/second", "value": "yes"})
        changed = await ask.ok("PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, MERGE)
        assert changed["data"] == {"k": "w", "added": "yes", "second": "yes"}
        dry = await ask.ok("POST", f"{MAPS}?dryRun=All", config_map("dry"))
        assert dry["data"]["second"] == "yes" and hook.seen[-1]["dryRun"] is True
        hook.answer = lambda request: _patch({"op": "add", "path": "/data/x", "value": 5})
        said = await ask("POST", MAPS, config_map("c"))
        assert said.code == 500 and 'failed calling webhook "one.example.com"' in said.message


async def test_a_webhook_that_does_not_answer(tmp_path: Path) -> None:
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        path = f"{GROUP}/validatingwebhookconfigurations"
        await ask.ok("POST", path, configuration(hook, timeoutSeconds=1))
        hook.is_silent = True
        said = await ask("POST", MAPS, config_map())
        assert said.code == 500
        assert said.message == (
            'Internal error occurred: failed calling webhook "one.example.com": failed to call webhook: Post '
            f'"{hook.url}?timeout=1s": context deadline exceeded'
        )
        webhooks = configuration(hook, timeoutSeconds=1, failurePolicy="Ignore")["webhooks"]
        await ask.ok("PATCH", f"{path}/hooks", {"webhooks": webhooks}, MERGE)
        await ask.ok("POST", MAPS, config_map())
        other = {**webhooks[0], "clientConfig": {"url": hook.url}, "failurePolicy": "Fail"}
        await ask.ok("PATCH", f"{path}/hooks", {"webhooks": [other]}, MERGE)
        said = await ask("POST", MAPS, config_map("b"))
        assert said.code == 500 and "failed to verify certificate" in said.message


@pytest.mark.parametrize(
    ("fields", "is_called"),
    [
        ({"objectSelector": {"matchLabels": {"app": "a"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}, False),
        ({"matchConditions": [{"name": "c", "expression": "object.data.k == 'v'"}]}, True),
        ({"matchConditions": [{"name": "c", "expression": "request.userInfo.username != 'admin'"}]}, False),
        (
            {"rules": [{"operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]},
            False,
        ),
        ({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]}, True),
        (
            {
                "rules": [
                    {
                        "operations": ["*"],
                        "apiGroups": ["*"],
                        "apiVersions": ["*"],
                        "resources": ["*"],
                        "scope": "Cluster",
                    }
                ]
            },
            False,
        ),
    ],
)
async def test_which_requests_concern_a_webhook(tmp_path: Path, fields: dict[str, Any], is_called: bool) -> None:
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        await ask.ok("POST", f"{GROUP}/validatingwebhookconfigurations", configuration(hook, **fields))
        await ask.ok("POST", MAPS, config_map(app="a"))
        assert bool(hook.seen) is is_called


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "short"}, "webhooks[0].name", "should be a domain with at least three segments separated by dots"),
    ({"sideEffects": "Some"}, "webhooks[0].sideEffects", 'supported values: "None", "NoneOnDryRun"'),
    ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds", "the timeout value must be between 1 and 30 seconds"),
    ({"clientConfig": {}}, "webhooks[0].clientConfig", "exactly one of url or service is required"),
    ({"clientConfig": {"url": "http://a/b"}}, "webhooks[0].clientConfig.url", "'https' is the only allowed URL scheme"),
    (
        {"matchConditions": [{"name": "c", "expression": "object."}]},
        "webhooks[0].matchConditions[0].expression",
        "Syntax error",
    ),
    ({"admissionReviewVersions": ["v2"]}, "webhooks[0].admissionReviewVersions", "must include at least one of v1"),
]


async def test_configurations_that_are_refused(tmp_path: Path) -> None:
    hook = Webhook("https://127.0.0.1/", "")
    async with api(tmp_path) as ask:
        for fields, field, reason in REFUSED:
            said = await ask("POST", f"{GROUP}/validatingwebhookconfigurations", configuration(hook, **fields))
            assert said.code == 422, fields
            assert field in said.message and reason in said.message, said.message


# --- policies ---


def policy(*validations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    made = {"matchConstraints": {"resourceRules": rules}, "validations": list(validations), **spec}
    return {"metadata": {"name": "p"}, "spec": made}


def binding(*actions: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": list(actions), **spec}}


async def _enforced(ask: ApiClient, made: dict[str, Any], bound: dict[str, Any]) -> None:
    await ask.ok("POST", f"{GROUP}/validatingadmissionpolicies", made)
    await ask.ok("POST", f"{GROUP}/validatingadmissionpolicybindings", bound)


async def test_a_policy_denies(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = policy(
            {
                "expression": "variables.keys.all(k, k.size() < 3)",
                "messageExpression": "'long keys in ' + object.metadata.name",
            },
            {"expression": "!has(object.data.no)", "message": "no is forbidden", "reason": "Forbidden"},
            variables=[{"name": "keys", "expression": "object.data.map(k, k)"}],
            matchConditions=[{"name": "not-system", "expression": "!object.metadata.name.startsWith('system')"}],
        )
        await _enforced(ask, made, binding("Deny"))
        await ask.ok("POST", MAPS, config_map())
        said = await ask("POST", MAPS, {"metadata": {"name": "c"}, "data": {"long": "x"}})
        assert said.code == 422
        assert said.message == (
            "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: long keys in c"
        )
        assert said.json["reason"] == "Invalid"
        said = await ask("PATCH", f"{MAPS}/a", {"data": {"no": "x"}}, MERGE)
        assert said.code == 403 and said.message.endswith("denied request: no is forbidden")
        await ask.ok("POST", MAPS, {"metadata": {"name": "system-x"}, "data": {"long": "x"}})
        said = await ask("DELETE", f"{MAPS}/a")
        assert said.code == 422 and "resulted in error: no such overload" in said.message  # object is null


async def test_warnings_parameters_and_the_authorizer(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = policy(
            {"expression": "object.data.size() <= int(params.data.most)"},
            {"expression": "authorizer.group('').resource('pods').namespace('default').check('create').allowed()"},
            {"expression": "authorizer.requestResource.check('delete').allowed()"},
            {"expression": "namespaceObject.metadata.name == 'default' && request.operation == 'CREATE'"},
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        )
        reference = {"name": "limits", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}
        await _enforced(ask, made, binding("Warn", "Audit", paramRef=reference))
        said = await ask("POST", MAPS, config_map())
        assert said.code == 422
        assert "no params found for policy binding with `Deny` parameterNotFoundAction" in said.message
        limits = {"metadata": {"name": "limits", "namespace": "kube-system"}, "data": {"most": "1"}}
        await ask("DELETE", f"{GROUP}/validatingadmissionpolicybindings/b")
        await ask.ok("POST", "/api/v1/namespaces/kube-system/configmaps", limits)
        await ask.ok("POST", f"{GROUP}/validatingadmissionpolicybindings", binding("Warn", paramRef=reference))
        assert not (await ask("POST", MAPS, config_map())).warnings
        said = await ask("POST", MAPS, {"metadata": {"name": "c"}, "data": {"a": "x", "b": "y"}})
        assert said.code == 201
        (warning,) = said.warnings
        assert "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression:" in warning


async def test_policies_that_are_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for made, reason in (
            (policy({"expression": "object.x >"}), "compilation failed: ERROR: <input>:1:11: Syntax error"),
            (policy({"expression": "request.nothing == 1"}), "undefined field 'nothing'"),
            (policy({"expression": "variables.nothing == 1"}), "undefined field 'nothing'"),
            (policy({"expression": "params.x == 1"}), "undeclared reference to 'params'"),
            (policy({"expression": "1"}), "must evaluate to bool"),
            (policy({"expression": "true", "reason": "Odd"}), 'Unsupported value: "Odd"'),
            (policy(), "validations or auditAnnotations must be specified"),
        ):
            said = await ask("POST", f"{GROUP}/validatingadmissionpolicies", made)
            assert said.code == 422, made
            assert reason in said.message, said.message
        said = await ask("POST", f"{GROUP}/validatingadmissionpolicybindings", binding("Deny", "Warn"))
        assert "must not contain both Deny and Warn" in said.message


async def test_tables(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await _enforced(ask, policy({"expression": "true"}), binding("Deny"))
        for plural, cells in (
            ("validatingadmissionpolicies", ["p", 1, "<unset>"]),
            ("validatingadmissionpolicybindings", ["b", "p", "<unset>"]),
        ):
            said = await ask("GET", f"{GROUP}/{plural}", accept=TABLE)
            assert said.json["rows"][0]["cells"][:3] == cells


async def test_expressions_are_checked_against_the_types_of_resources(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        made = policy(
            {"expression": "object.spec.replicas > 1"},
            {"expression": "object.spec.nothing > 1"},
            {"expression": "object.metadata.name > 3"},
            {"expression": "object.spec.template.spec.containers.all(c, c.image.startsWith('a'))"},
        )
        rule = {"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
        made["spec"]["matchConstraints"]["resourceRules"] = [rule]
        path = f"{GROUP}/validatingadmissionpolicies"
        async with ask.watching(f"{path}?watch=1") as watched:
            await ask.ok("POST", path, made)
            while "typeChecking" not in (found := (await watched.event())["object"]).get("status", {}):
                pass
        assert found["status"]["observedGeneration"] == 1
        warnings = {each["fieldRef"]: each["warning"] for each in found["status"]["typeChecking"]["expressionWarnings"]}
        assert sorted(warnings) == ["spec.validations[1].expression", "spec.validations[2].expression"]
        assert warnings["spec.validations[1].expression"].startswith(
            "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nothing'"
        )
        assert (
            "found no matching overload for '_>_' applied to '(string, int)'"
            in warnings["spec.validations[2].expression"]
        )
