"""Mutating admission policies on a whole API server, as Kubernetes' documentation and suite use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.admission.test_hooks import _patch, config_map, configuration, webhook
from tests.unit.api.api_client import MERGE, PODS, TABLE, ApiClient, api, pod

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/mutatingadmissionpolicies", f"{GROUP}/mutatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"


def apply(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def policy(*mutations: dict[str, Any], resource: str = "configmaps", **spec: Any) -> dict[str, Any]:
    rule = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
    made = {"matchConstraints": {"resourceRules": [rule]}, "mutations": list(mutations), "reinvocationPolicy": "Never"}
    return {"metadata": {"name": "p"}, "spec": {**made, **spec}}


async def bound(ask: ApiClient, document: dict[str, Any], **spec: Any) -> None:
    name = document["metadata"]["name"]
    await ask.ok("POST", POLICIES, document)
    await ask.ok("POST", BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name, **spec}})


SIDECAR = """
Object{
  spec: Object.spec{
    initContainers: [
      Object.spec.initContainers{
        name: "mesh-proxy",
        image: "mesh/proxy:v1.0.0",
        restartPolicy: "Always"
      }
    ]
  }
}"""


async def test_a_sidecar_is_added(tmp_path: Path) -> None:
    condition = {
        "name": "once",
        "expression": '!object.spec.?initContainers.orValue([]).exists(c, c.name == "mesh-proxy")',
    }
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", POLICIES, policy(apply(SIDECAR), resource="pods", matchConditions=[condition]))
        assert (made["spec"]["failurePolicy"], made["metadata"]["generation"]) == ("Fail", 1)
        await ask.ok("POST", PODS, pod("before"))
        await ask.ok("POST", BINDINGS, {"metadata": {"name": "b"}, "spec": {"policyName": "p"}})
        made = await ask.ok("POST", PODS, pod("after"))
        (added,) = made["spec"]["initContainers"]
        assert (added["name"], added["restartPolicy"]) == ("mesh-proxy", "Always")
        assert added["terminationMessagePath"] == "/dev/termination-log", "it has defaults like any other"
        assert [each["name"] for each in made["spec"]["containers"]] == ["c"], "a list by keys is merged"
        changed = await ask.ok("PATCH", f"{PODS}/after", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        assert len(changed["spec"]["initContainers"]) == 1
        assert "initContainers" not in (await ask.ok("GET", f"{PODS}/before"))["spec"]


async def test_replicas_of_a_deployment(tmp_path: Path) -> None:
    """e2e: MutatingAdmissionPolicy should mutate a Deployment."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    document = policy(apply("Object{spec: Object.spec{replicas: 1337}}"), resource="deployments")
    document["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = ["apps"]
    async with api(tmp_path) as ask:
        await bound(ask, document)
        made = await ask.ok("POST", path, {"metadata": {"name": "d"}, "spec": spec})
        assert made["spec"]["replicas"] == 1337
        made = await ask.ok("PATCH", f"{path}/d", {"spec": {"replicas": 2}}, MERGE)
        assert made["spec"]["replicas"] == 1337
        await ask.ok("DELETE", f"{BINDINGS}/p")
        made = await ask.ok("PATCH", f"{path}/d", {"spec": {"replicas": 2}}, MERGE)
        assert made["spec"]["replicas"] == 2


async def test_json_patches(tmp_path: Path) -> None:
    """Keys are escaped; where a test does not hold nothing changes."""
    add = 'JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/env"), value: "test"}'
    test = 'JSONPatch{op: "test", path: "/data/k", value: "v"}'
    async with api(tmp_path) as ask:
        await bound(ask, policy(patch(f"[{test}, {add}]")))
        made = await ask.ok("POST", MAPS, config_map("a", app="x"))
        assert made["metadata"]["labels"] == {"app": "x", "example.com/env": "test"}
        other = {**config_map("b", app="x"), "data": {"k": "w"}}
        assert (await ask.ok("POST", MAPS, other))["metadata"]["labels"] == {"app": "x"}


async def test_parameters_and_variables(tmp_path: Path) -> None:
    """Mutations come one after the other, and each sees what those before it have done."""
    first = apply('Object{data: {"owner": variables.owner}}')
    second = apply('Object{data: {"copy": object.data.owner + "!"}}')
    variable = {"name": "owner", "expression": "params.data.owner"}
    document = policy(first, second, variables=[variable], paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    skip = {"name": "not-params", "expression": 'object.metadata.name != "settings"'}
    document["spec"]["matchConditions"] = [skip]
    async with api(tmp_path) as ask:
        await ask.ok("POST", MAPS, {"metadata": {"name": "settings"}, "data": {"owner": "ann"}})
        reference = {"name": "settings", "namespace": "default", "parameterNotFoundAction": "Deny"}
        await bound(ask, document, paramRef=reference)
        made = await ask.ok("POST", MAPS, config_map("a"))
        assert made["data"] == {"k": "v", "owner": "ann", "copy": "ann!"}
        await ask.ok("DELETE", f"{MAPS}/settings")
        said = await ask("POST", MAPS, config_map("b"))
        assert (said.code, "policy 'p' with binding 'p' denied request: no params found" in said.message) == (422, True)


async def test_a_policy_is_applied_again_after_webhooks(tmp_path: Path) -> None:
    """reinvocationPolicy: a webhook removes the label; only the policy that asks for it sets it again."""
    label = 'Object{metadata: Object.metadata{labels: {"%s": "yes"}}}'
    async with webhook(tmp_path) as hook, api(tmp_path) as ask:
        for name, again in (("often", "IfNeeded"), ("once", "Never")):
            document = {**policy(apply(label % name), reinvocationPolicy=again), "metadata": {"name": name}}
            await bound(ask, document)
        hook.answer = lambda request: _patch(
            {"op": "replace", "path": "/metadata/labels", "value": {"hook": "was-here"}}
        )
        await ask.ok("POST", f"{GROUP}/mutatingwebhookconfigurations", configuration(hook))
        made = await ask.ok("POST", MAPS, config_map("a"))
        assert hook.seen[0]["object"]["metadata"]["labels"] == {"often": "yes", "once": "yes"}, "policies come first"
        assert made["metadata"]["labels"] == {"hook": "was-here", "often": "yes"}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (apply("Object{data: {'a': object.data.none}}"), "resulted in error: no such key: none"),
        (apply("Object{dta: {'a': 'b'}}"), ".dta: field not declared in schema"),
        (apply("Object{metadata: Object.metadata{name: 'other', labels: {'a b': 'c'}}}"), "a b"),
        (patch("[JSONPatch{op: 'remove', path: '/data/none'}]"), "JSON Patch:"),
    ],
    ids=["no value", "no field", "result is validated", "no path"],
)
async def test_failures(tmp_path: Path, expression: dict[str, Any], message: str) -> None:
    async with api(tmp_path) as ask:
        await bound(ask, policy(expression))
        said = await ask("POST", MAPS, config_map("a"))
        assert (said.code, message in said.message) == (422, True), said.message
        if "a b" not in message:
            await ask.ok("PATCH", f"{POLICIES}/p", {"spec": {"failurePolicy": "Ignore"}}, MERGE)
            await ask.ok("POST", MAPS, config_map("a"))


async def test_what_has_one_owner_is_not_set(tmp_path: Path) -> None:
    """A list that is replaced as a whole would lose what the policy does not repeat."""
    expression = 'Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", command: ["sh"]}]}}'
    async with api(tmp_path) as ask:
        await bound(ask, policy(apply(expression), resource="pods"))
        said = await ask("POST", PODS, pod())
        expected = "may not mutate atomic arrays, maps or structs: .spec.containers[0].command"
        assert (said.code, expected in said.message) == (422, True), said.message


REFUSED = [
    ("no mutations", policy(), "spec.mutations: Required value: mutations must contain at least one item"),
    ("type", policy({"patchType": "Merge"}), 'spec.mutations[0].patchType: Unsupported value: "Merge"'),
    (
        "no expression",
        policy({"patchType": "JSONPatch"}),
        "spec.mutations[0].jsonPatch: Required value: must be specified",
    ),
    (
        "both",
        policy({**patch("[]"), "applyConfiguration": {"expression": "Object{}"}}),
        "spec.mutations[0].applyConfiguration: Invalid value",
    ),
    ("again", policy(apply("Object{}"), reinvocationPolicy=""), "spec.reinvocationPolicy: Required value"),
    ("result", policy(apply("1 + 1")), "must evaluate to Object"),
    ("patch", policy(patch("'a'")), "must evaluate to list(JSONPatch)"),
    ("names", policy(apply("Object{spec: Object.status{}}")), "expected type of field 'spec' is 'Object.spec'"),
    ("field", policy(patch("[JSONPatch{oops: 'a'}]")), "undefined field 'oops'"),
    ("syntax", policy(apply("Object{data: }")), "Syntax error"),
]


@pytest.mark.parametrize(("document", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_refused(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", POLICIES, document)
        assert (said.code, message in said.message) == (422, True), said.message


async def test_only_creations_and_updates(tmp_path: Path) -> None:
    document = policy(apply("Object{}"))
    document["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["DELETE"]
    async with api(tmp_path) as ask:
        said = await ask("POST", POLICIES, document)
        assert 'matchConstraints.resourceRules.operations: Unsupported value: "DELETE"' in said.message
        said = await ask("POST", BINDINGS, {"metadata": {"name": "b"}, "spec": {}})
        assert "spec.policyName: Required value" in said.message


async def test_other_policies_make_no_patches(tmp_path: Path) -> None:
    """`Object{…}` is a type only where a patch is made."""
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "Object{} == object"}]}
    async with api(tmp_path) as ask:
        said = await ask("POST", f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": "v"}, "spec": spec})
        assert (said.code, "undeclared reference to 'Object'" in said.message) == (422, True)
        await bound(ask, policy(apply("Object{}")))
        table = await ask.ok("GET", POLICIES, accept=TABLE)
        assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Mutations", "ParamKind", "Age"]
        assert table["rows"][0]["cells"][:3] == ["p", 1, "<unset>"]


async def test_an_update_that_changes_nothing_is_checked(tmp_path: Path) -> None:
    """As in Kubernetes: its caller may not be one that may write the object."""
    rule = {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    checks = [{"expression": "object.metadata.name == 'mine'", "message": "not yours"}]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": checks}
    async with api(tmp_path) as ask:
        binding = {"policyName": "v", "validationActions": ["Deny"]}
        for kind, document in (("validatingadmissionpolicies", spec), ("validatingadmissionpolicybindings", binding)):
            made = await ask("POST", f"{GROUP}/{kind}", {"metadata": {"name": "v"}, "spec": document})
            assert made.code == 201, made.body
        for name, code in (("mine", 200), ("other", 422)):
            stored = await ask("POST", MAPS, {"metadata": {"name": name}})
            said = await ask("PUT", f"{MAPS}/{name}", stored.json)
            assert (said.code, b"not yours" in said.body) == (code, code == 422), said.body
