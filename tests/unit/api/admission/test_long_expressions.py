"""Expressions of policies and match conditions that take long: other requests are answered meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.admission import evaluation
from tests.unit.api.admission.test_hooks import Webhook, config_map, configuration
from tests.unit.api.api_client import ApiClient, ApiReply, api
from tests.unit.api.widgets import WIDGETS, definition, served, widget

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
# 32 × 32 × 32 members, some 130,000 units: below the limit of one call, and many times what is evaluated at once.
NUMBERS = "[" + ",".join(map(str, range(32))) + "]"
LONG = f"{NUMBERS}.all(a, {NUMBERS}.all(b, {NUMBERS}.all(c, c >= 0)))"
MEANWHILE = 30  # more than a write that is evaluated in the event loop lets pass between its steps


def rule(*operations: str) -> dict[str, Any]:
    return {"operations": list(operations), "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}


async def policy(ask: ApiClient, expression: str, *operations: str) -> None:
    spec = {"matchConstraints": {"resourceRules": [rule(*operations)]}, "validations": [{"expression": expression}]}
    await ask.ok("POST", f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    await ask.ok("POST", f"{GROUP}/validatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": bound})


async def answered_during(ask: ApiClient, write: asyncio.Task[ApiReply]) -> int:
    """How many requests were answered, one after the other, before the write was refused; no more than matter."""
    count = 0
    while not write.done() and count < MEANWHILE:
        await ask.ok("GET", "/api/v1/namespaces/default")
        await asyncio.sleep(0)
        count += 1
    return count


async def test_of_a_validating_policy(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await policy(ask, f"!{LONG}", "CREATE")
        write = asyncio.create_task(ask("POST", MAPS, config_map()))
        assert await answered_during(ask, write) == MEANWHILE
        assert "failed expression" in (await write).message


async def mutating(ask: ApiClient, expression: str) -> None:
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    rules = {"resourceRules": [rule("CREATE")]}
    spec = {"matchConstraints": rules, "mutations": [mutation], "reinvocationPolicy": "Never"}
    await ask.ok("POST", f"{GROUP}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    await ask.ok("POST", f"{GROUP}/mutatingadmissionpolicybindings", bound)


async def test_of_a_mutating_policy(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await mutating(ask, f'{LONG} ? Object{{data: {{"long": dyn(object).none}}}} : Object{{}}')
        write = asyncio.create_task(ask("POST", MAPS, config_map()))
        assert await answered_during(ask, write) == MEANWHILE
        assert (await write).message.endswith("no such key: none")


async def test_a_long_mutation_is_applied(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await mutating(ask, f'{LONG} ? Object{{data: {{"long": object.data.k}}}} : Object{{}}')
        assert (await ask.ok("POST", MAPS, config_map()))["data"] == {"k": "v", "long": "v"}


async def test_of_the_match_condition_of_a_webhook(tmp_path: Path) -> None:
    condition = {"name": "long", "expression": f"{LONG} && dyn(object).none"}
    async with api(tmp_path) as ask:
        hook = configuration(Webhook("https://127.0.0.1:1/", ""), matchConditions=[condition])
        await ask.ok("POST", f"{GROUP}/validatingwebhookconfigurations", hook)
        write = asyncio.create_task(ask("POST", MAPS, config_map()))
        assert await answered_during(ask, write) == MEANWHILE
        assert (await write).message.endswith("no such key: none")


async def test_of_a_custom_kind_that_a_policy_concerns_too(tmp_path: Path) -> None:
    """An update that is judged by a policy evaluates the kind's own rules elsewhere, too."""
    spec = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": {"type": "integer"}, "maxItems": 50}},
        "x-kubernetes-validations": [{"rule": "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c < 93)))"}],
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    async with served(tmp_path, definition(schema=schema)) as ask:
        await policy(ask, "true", "UPDATE")
        made = await ask.ok("POST", WIDGETS, {**widget(), "spec": {"list": [1]}})
        made["spec"]["list"] = list(range(32))  # 31 + 31 + 31 is seen last
        write = asyncio.create_task(ask("PUT", f"{WIDGETS}/w", made))
        assert await answered_during(ask, write) == MEANWHILE
        assert "failed rule" in (await write).message


async def test_the_authorizer_answers_there_too(tmp_path: Path) -> None:
    check = "authorizer.group('').resource('pods').namespace('default').check('delete').allowed()"
    async with api(tmp_path) as ask:
        await policy(ask, f"{LONG} && {check}", "CREATE")
        assert (await ask("POST", MAPS, config_map("a"))).code == 201


async def test_one_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "TIME_S", 0.0)
    async with api(tmp_path) as ask:
        await policy(ask, LONG, "CREATE")
        refused = await ask("POST", MAPS, config_map("a"))
        assert refused.code == 422
        assert refused.message.endswith("resulted in error: operation interrupted")
