"""Placement that the API server changes: of gated pods by updates, and of label keys at create."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import MERGE, ApiClient, ApiReply, api, pod

PODS = "/api/v1/namespaces/default/pods"
DEMO = f"{PODS}/demo"
GATES = [{"name": "example.com/wait"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EXISTS = {"key": "disk", "operator": "Exists"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
NEAR = {"podAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {}}]}}


def nodes(*terms: list[dict[str, Any]], **others: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": each} for each in terms]}}, **others}


async def change(ask: ApiClient, **spec: Any) -> ApiReply:
    return await ask("PATCH", DEMO, {"spec": spec}, MERGE)


# what the gated pod has, what a patch changes, and the refusal
CHANGES = [
    pytest.param({}, {"nodeSelector": {"a": "b"}}, "", id="a selector"),
    pytest.param({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"c": "d"}}, "", id="one more"),
    pytest.param({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "x"}},
        'spec.nodeSelector: Invalid value: {"a":"x"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)',
        id="another value"),
    pytest.param({"nodeSelector": {"a": "b"}}, {"nodeSelector": None},
        "spec.nodeSelector: Invalid value: {}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        id="no selector"),
    pytest.param({}, {"affinity": nodes([EXISTS])}, "", id="terms"),
    pytest.param({"affinity": nodes([EXISTS])}, {"affinity": nodes([EXISTS, ZONE])}, "", id="one more requirement"),
    pytest.param({"affinity": NEAR}, {"affinity": nodes([EXISTS])}, "", id="beside affinity to pods"),
    pytest.param({"affinity": nodes([EXISTS])}, {"affinity": nodes([EXISTS], [ZONE])},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms: Invalid value: "
        '[{"MatchExpressions":[{"Key":"disk","Operator":"Exists","Values":null}],"MatchFields":null},'
        '{"MatchExpressions":[{"Key":"zone","Operator":"In","Values":["a"]}],"MatchFields":null}]: '
        "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        id="one more term"),
    pytest.param({"affinity": nodes([EXISTS])}, {"affinity": nodes([ZONE])},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]: Invalid value: "
        '{"MatchExpressions":[{"Key":"zone","Operator":"In","Values":["a"]}],"MatchFields":null}: '
        "only additions are allowed (no mutations or deletions)",
        id="another requirement"),
    pytest.param({}, {"affinity": NEAR}, "spec: Forbidden: pod updates may not change fields other than", id="near pods"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "changed", "refusal"), CHANGES)
async def test_a_gated_pod_may_get_more_requirements(
    tmp_path: Path, spec: dict[str, Any], changed: dict[str, Any], refusal: str
) -> None:
    async with api(tmp_path, "1.36") as ask:
        await ask.ok("POST", PODS, pod(schedulingGates=GATES, **spec))
        answer = await change(ask, **changed)
        if not refusal:
            assert answer.code == 200 and answer.json["metadata"]["generation"] == 2
            (name,) = changed
            assert answer.json["spec"][name] == {**spec.get(name, {}), **changed[name]}
        else:
            assert answer.code == 422
            assert answer.message.removeprefix('Pod "demo" is invalid: ').startswith(refusal)


@pytest.mark.parametrize("release", ["documents", "1.27", "1.37"])
async def test_a_pod_without_gates_may_not(tmp_path: Path, release: str) -> None:
    async with api(tmp_path, release) as ask:
        await ask.ok("POST", PODS, pod(schedulingGates=GATES))
        assert (await change(ask, nodeSelector={"a": "b"})).code == 200
        assert (await change(ask, schedulingGates=None)).code == 200
        refused = await change(ask, nodeSelector={"a": "b", "c": "d"})
        assert refused.code == 422 and "pod updates may not change fields other than" in refused.message


# release, whether the keys of affinity and of spread constraints are merged
@pytest.mark.parametrize(
    ("release", "affinity", "spread"), [("1.30", False, False), ("1.31", True, False), ("1.34", True, True)]
)
async def test_label_keys_become_requirements(tmp_path: Path, release: str, affinity: bool, spread: bool) -> None:
    keys = {"matchLabelKeys": ["app", "absent"], "mismatchLabelKeys": ["tenant"]}
    near = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"x": "y"}}, **keys}
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"x": "y"}},
        "matchLabelKeys": ["app"],
    }
    away = {PREFERRED: [{"weight": 1, "podAffinityTerm": near}]}
    sent = pod(
        affinity={"podAffinity": {REQUIRED: [near]}, "podAntiAffinity": away},
        topologySpreadConstraints=[constraint],
    )
    sent["metadata"]["labels"] = {"app": "web", "tenant": "t"}
    same_app = {"key": "app", "operator": "In", "values": ["web"]}
    other_tenant = {"key": "tenant", "operator": "NotIn", "values": ["t"]}
    async with api(tmp_path, release) as ask:
        spec = (await ask.ok("POST", PODS, sent))["spec"]
        terms = [
            spec["affinity"]["podAffinity"][REQUIRED][0],
            spec["affinity"]["podAntiAffinity"][PREFERRED][0]["podAffinityTerm"],
        ]
        for term in terms:
            found = term["labelSelector"].get("matchExpressions", [])
            assert found == ([same_app, other_tenant] if affinity else [])
        found = spec["topologySpreadConstraints"][0]["labelSelector"].get("matchExpressions", [])
        assert found == ([same_app] if spread else [])
