"""How webhooks are called: at a service, again after later changes, and for connections to pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from plimsoll.api.admission.webhook_client import WebhookError, webhook_address
from plimsoll.api.server.services import controllers
from tests.unit.api.admission.test_hooks import GROUP, MAPS, _patch, config_map, configuration, webhook
from tests.unit.api.api_client import api

NAMESPACE = "/api/v1/namespaces/default"


def _slice(name: str, address: str, *, ready: bool) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
        "ports": [{"name": "https", "port": 9443, "protocol": "TCP"}],
    }


async def test_a_service_is_called_under_its_own_name(tmp_path: Path) -> None:
    """The certificate of the webhook is for `hook.default.svc`."""
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        reference = {"namespace": "default", "name": "hook", "port": urlsplit(hook.url).port}
        client = {"service": reference, "caBundle": hook.bundle}
        await ask.ok("POST", f"{GROUP}/validatingwebhookconfigurations", configuration(hook, clientConfig=client))
        said = await ask("POST", MAPS, config_map("a"))
        assert (said.code, 'service "hook" not found' in said.message) == (500, True)
        spec = {"type": "ExternalName", "externalName": "localhost"}
        await ask.ok("POST", f"{NAMESPACE}/services", {"metadata": {"name": "hook"}, "spec": spec})
        await ask.ok("POST", MAPS, config_map("a"))
        assert [each["name"] for each in hook.seen] == ["a"]


async def test_the_address_of_a_service_is_that_of_a_ready_endpoint(tmp_path: Path) -> None:
    reference = {"namespace": "default", "name": "hook", "path": "/check", "port": 8443}
    async with api(tmp_path) as ask:
        spec = {"ports": [{"name": "https", "port": 8443}]}
        await ask.ok("POST", f"{NAMESPACE}/services", {"metadata": {"name": "hook"}, "spec": spec})
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        await ask.ok("POST", slices, _slice("a", "192.0.2.7", ready=False))
        with pytest.raises(WebhookError, match='no endpoints available for service "hook"'):
            webhook_address(ask.app.cluster, {"service": reference}, 5)
        await ask.ok("POST", slices, _slice("b", "192.0.2.8", ready=True))
        found = webhook_address(ask.app.cluster, {"service": reference}, 5)
        assert (found.host, found.port, found.path) == ("192.0.2.8", 9443, "/check?timeout=5s")
        assert found.server_name == "hook.default.svc"
        with pytest.raises(WebhookError, match="no service port 9 found"):
            webhook_address(ask.app.cluster, {"service": {**reference, "port": 9}}, 5)


async def test_a_webhook_is_called_again_if_a_later_one_changes_the_object(tmp_path: Path) -> None:
    """At most once more, and only one that asks for it (reinvocationPolicy)."""

    def counted(request: dict[str, Any]) -> dict[str, Any]:
        data = request["object"]["data"]
        if "sidecar" not in data and len(seen) == 1:
            return _patch({"op": "add", "path": "/data/sidecar", "value": "added"})
        return _patch({"op": "add", "path": "/data/calls", "value": str(len(seen))})

    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        seen = hook.seen
        for policy, calls in (("IfNeeded", ["first", "second", "first"]), ("Never", ["first", "second"])):
            body = configuration(hook, name="first.example.com", reinvocationPolicy=policy)
            second = {**body["webhooks"][0], "name": "second.example.com", "reinvocationPolicy": "Never"}
            body["webhooks"][0]["matchConditions"] = [{"name": "n", "expression": "true"}]
            body["webhooks"].append(second)
            await ask.ok("POST", f"{GROUP}/mutatingwebhookconfigurations", body)
            hook.answer = counted
            made = await ask.ok("POST", MAPS, config_map(policy.lower()))
            assert len(seen) == len(calls)
            assert "sidecar" in seen[1]["object"]["data"], "the second sees what the first has done"
            assert made["data"] == {"k": "v", "sidecar": "added", "calls": str(len(calls))}
            await ask.ok("DELETE", f"{GROUP}/mutatingwebhookconfigurations/hooks")
            seen.clear()


async def test_connections_to_pods(tmp_path: Path) -> None:
    """CONNECT: the options are the object. A log is no connection."""

    async def answered(app: Any, call: Any, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async with webhook(tmp_path) as hook, api(tmp_path, services=[controllers]) as ask:
        for name in ("exec", "log"):
            ask.app.options.streamers["", "pods", name] = answered
        rule = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/*"]}
        await ask.ok("POST", f"{GROUP}/validatingwebhookconfigurations", configuration(hook, rules=[rule]))
        path = f"{NAMESPACE}/pods/web/exec?command=sh&command=-c&container=c&stdin=true"
        assert (await ask("POST", path)).code == 200
        (request,) = hook.seen
        assert (request["operation"], request["name"], request["subResource"]) == ("CONNECT", "web", "exec")
        assert request["kind"] == {"group": "", "version": "v1", "kind": "PodExecOptions"}
        expected = {
            "kind": "PodExecOptions",
            "apiVersion": "v1",
            "command": ["sh", "-c"],
            "container": "c",
            "stdin": True,
        }
        assert request["object"] == expected
        hook.answer = lambda request: {"allowed": False, "status": {"message": "no shells"}}
        said = await ask("POST", path)
        assert (said.code, said.message) == (400, 'admission webhook "one.example.com" denied the request: no shells')
        assert (await ask("GET", f"{NAMESPACE}/pods/web/log")).code == 200
        assert len(hook.seen) == 2


@pytest.mark.parametrize(
    "response", [{"status": "no"}, {"auditAnnotations": ["a"]}, {"warnings": 5}, {"allowed": "yes"}]
)
async def test_a_response_that_is_no_admission_response_is_a_failed_call(
    tmp_path: Path, response: dict[str, Any]
) -> None:
    """The failurePolicy decides."""
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        hook.answer = lambda _: {"allowed": True, **response}
        for policy, code in (("Fail", 500), ("Ignore", 201)):
            body = configuration(hook, failurePolicy=policy)
            await ask.ok("POST", f"{GROUP}/validatingwebhookconfigurations", body)
            said = await ask("POST", MAPS, config_map(policy.lower()))
            assert said.code == code
            assert policy == "Ignore" or "failed calling webhook" in said.message
            await ask.ok("DELETE", f"{GROUP}/validatingwebhookconfigurations/hooks")
