"""Warnings with which a write is answered, in the words and with the limits of kube-apiserver."""

from __future__ import annotations

from pathlib import Path

from tests.unit.api.api_client import MERGE, PODS, api, pod

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def test_create_time_warnings(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        sent = pod(requests={"memory": "128m"})
        sent["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
        said = await ask("POST", PODS, sent)
        assert said.warnings == [
            '299 - "spec.containers[0].resources.requests[memory]: fractional byte value \\"128m\\" is invalid, must be an integer"',
            '299 - "spec.containers[0].env[1]: hides previous definition of \\"A\\", which may be dropped when using apply"',
        ]


async def test_many_warnings_are_cut(tmp_path: Path) -> None:
    """At 4096 letters, as kube-apiserver 1.36.4 does with the same pod."""
    async with api(tmp_path) as ask:
        sent = pod()
        sent["spec"]["containers"][0]["env"] = [{"name": "A"}] * 300
        said = await ask("POST", PODS, sent)
        assert (said.code, len(said.warnings)) == (201, 42)


async def test_a_changed_template_is_warned_of(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
        sent = {"metadata": {"name": "a.b"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        said = await ask("POST", DEPLOYMENTS, sent)
        (warning,) = said.warnings
        assert "this is used in Pod names and hostnames" in warning
        change = {"spec": {"template": {"spec": {"hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]}}}}
        said = await ask("PATCH", f"{DEPLOYMENTS}/a.b", change, MERGE)
        assert said.warnings == ['299 - "spec.template.spec.hostAliases[1].ip: duplicate ip \\"1.1.1.1\\""']
        labels = {"metadata": {"labels": {"x": "y"}}}
        assert (await ask("PATCH", f"{DEPLOYMENTS}/a.b", labels, MERGE)).warnings == []
