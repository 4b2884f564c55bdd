"""Pod Security admission through the API: refusals, Warning headers, audit annotations, labels of namespaces."""

from __future__ import annotations

import json
from pathlib import Path

from plimsoll.api.machinery.audit import Audit, AuditFile
from tests.unit.api.api_client import MERGE, PODS, STRATEGIC, api, pod

NAMESPACES = "/api/v1/namespaces"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LABEL = "pod-security.kubernetes.io/"
ROOT = 'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)'


def labelled(**levels: str) -> dict[str, object]:
    return {"metadata": {"labels": {LABEL + mode: level for mode, level in levels.items()}}}


async def test_pods_are_refused_warned_about_and_audited(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log")
    async with api(tmp_path / "state", audit=Audit(file)) as ask:
        await ask.ok("PATCH", f"{NAMESPACES}/default", labelled(enforce="baseline", warn="restricted"), MERGE)
        refused = await ask("POST", PODS, pod("bad", hostNetwork=True))
        assert refused.code == 403
        assert refused.message == (
            'pods "bad" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
        )
        assert (await ask("GET", f"{PODS}/bad")).code == 404
        said = await ask("POST", PODS, pod("warned"))
        assert said.code == 201
        assert any("would violate PodSecurity" in each and "runAsNonRoot != true" in each for each in said.warnings)
    file.close()
    events = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    noted = [
        event["annotations"]
        for event in events
        if event["objectRef"]["resource"] == "pods" and event["verb"] == "create"
    ]
    assert noted == [{f"{LABEL}enforce-policy": "baseline:latest"}] * 2


async def test_an_update_is_checked_if_it_changes_images(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod("p", hostNetwork=True))
        warned = await ask("PATCH", f"{NAMESPACES}/default", labelled(enforce="baseline"), MERGE)
        assert [each.partition("299 - ")[2] for each in warned.warnings] == [
            '"existing pods in namespace \\"default\\" violate the new PodSecurity enforce level \\"baseline:latest\\""',
            '"p: host namespaces"',
        ]
        assert (await ask("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, MERGE)).code == 200
        image = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
        assert (await ask("PATCH", f"{PODS}/p", image, STRATEGIC)).code == 403


async def test_workloads_are_warned_about(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("PATCH", f"{NAMESPACES}/default", labelled(enforce="restricted"), MERGE)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        said = await ask("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
        assert said.code == 201
        assert len(said.warnings) == 1
        assert "would violate PodSecurity" in said.warnings[0]


async def test_labels_of_a_namespace_are_checked(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        body = {"metadata": {"name": "n", "labels": {f"{LABEL}enforce": "strict"}}}
        refused = await ask("POST", NAMESPACES, body)
        assert refused.code == 422
        assert "must be one of privileged, baseline, restricted" in refused.message
