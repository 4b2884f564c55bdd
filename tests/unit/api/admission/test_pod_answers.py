"""624 odd pods and objects of other kinds, each with what kube-apiserver v1.36.4 answered to it (`pod_answers.jsonl`,
`object_answers.jsonl`): the same code, and mostly the same words.

`tests/e2e/test_real_control_plane.py` asks a real one again, where there is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests.unit.api.api_client import PODS, api

ANSWERS = Path(__file__).with_name("pod_answers.jsonl")
OBJECT_ANSWERS = Path(__file__).with_name("object_answers.jsonl")
# Why an answer here differs. "": the same code, but the message shows a Go struct.
DIFFERENT = {
    "resourceClaims bad": "there are no ResourceClaims: refused with 403 in admission",
    "resourceClaims both": "as above",
    "overhead": "refused with 403 in admission, before validation: there is no such RuntimeClass",
    "priv and no escalation": "",
    "sysadmin no escalation": "",
    "seccomp runtime with file": "",
}

# Refused as well, with other words: a Go struct or null as the value, a path, or a second finding that follows from the
# first.
OTHER_WORDS = {
    "deployment no selector", "deployment bad selector", "deployment strategy type", "deployment no template",
    "statefulset update", "statefulset ondelete with rolling", "daemonset type", "daemonset both zero", "job selector",
    "job manual selector mismatch", "job success not indexed", "job name long", "pdb both", "quota name",
    "limitrange type", "limitrange min>max", "limitrange default>max", "node taint",
    "service dup port",
}  # fmt: skip
# An empty list of policies is refused there, and the default here.
OTHER_CODES = {"hpa behavior no policies"}


def rows(path: Path = ANSWERS) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def pod(row: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": row["spec"]}


async def test_every_answer_is_the_real_ones(tmp_path: Path) -> None:
    wrong, differ = [], set()
    async with api(tmp_path, "1.36") as ask:
        for row in rows():
            said = await ask("POST", f"{PODS}?dryRun=All&fieldValidation=Strict", pod(row))
            message = said.message if said.code >= 300 else None
            if (said.code, message) == (row["code"], row.get("message")):
                continue
            differ.add(row["name"])
            if row["name"] not in DIFFERENT or (not DIFFERENT[row["name"]] and said.code != row["code"]):
                wrong.append((row["name"], row["code"], row.get("message"), said.code, message))
    assert not wrong
    assert differ == set(DIFFERENT), "a difference is gone: take it off the list"


async def test_objects_of_other_kinds(tmp_path: Path) -> None:
    codes, words = [], set()
    async with api(tmp_path, "1.36") as ask:
        for row in rows(OBJECT_ANSWERS):
            said = await ask("POST", f"{row['path']}?dryRun=All&fieldValidation=Strict", row["object"])
            if said.code != row["code"]:
                codes.append(row["name"])
            elif said.code >= 300 and said.message != row["message"]:
                words.add(row["name"])
    assert set(codes) == OTHER_CODES
    assert words == OTHER_WORDS, "a difference is gone, or a new one"


async def test_templates_are_validated_like_pods(tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    probed = {"name": "c", "image": "x", "livenessProbe": {}}
    template["spec"]["containers"] = [probed]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    async with api(tmp_path, "1.36") as ask:
        said = await ask("POST", "/apis/apps/v1/namespaces/default/deployments", deployment)
        assert said.code == 422
        where = "spec.template.spec.containers[0].livenessProbe"
        assert said.message.endswith(f"{where}: Required value: must specify a handler type")


async def test_rules_by_release(tmp_path: Path) -> None:
    """RelaxedEnvironmentVariableValidation, PodLifecycleSleepActionAllowZero, RelaxedDNSSearchValidation."""
    container = {"name": "c", "image": "x"}
    rows = [
        ({"containers": [{**container, "env": [{"name": "1 a", "value": "x"}]}]}, "1.31", "1.32"),
        ({"containers": [{**container, "lifecycle": {"preStop": {"sleep": {"seconds": 0}}}}]}, "1.32", "1.33"),
        ({"containers": [container], "dnsConfig": {"searches": ["_x.y", "."]}}, "1.32", "1.33"),
        (
            {"containers": [container], "securityContext": {"seLinuxChangePolicy": "MountOption"}},
            "1.36",
            "1.37",
        ),
    ]
    for number, (spec, before, after) in enumerate(rows):
        for release, code in ((before, 422), (after, 201)):
            async with api(tmp_path / f"{number}-{release}", release) as ask:
                said = await ask("POST", f"{PODS}?dryRun=All", pod({"spec": spec}))
                assert said.code == code, (release, said.body)


async def test_containers_mount_the_claims_of_a_stateful_set(tmp_path: Path) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{
        "name": "c", "image": "x", "volumeMounts": mounts}]}}  # fmt: skip
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}
    sent = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spec}
    async with api(tmp_path, "1.36") as ask:
        refused = await ask("POST", "/apis/apps/v1/namespaces/default/statefulsets", sent)
        assert refused.message.endswith('spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"')
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        await ask.ok("POST", "/apis/apps/v1/namespaces/default/statefulsets", sent)
