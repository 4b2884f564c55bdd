"""What the cluster adds and refuses: priorities, tolerations, LimitRanges, quotas (05 A5, B6; 01 §8–9)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import MERGE, PODS, STRATEGIC, ApiClient, api, pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def test_priorities(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CLASSES, {"metadata": {"name": "hi"}, "value": 1000, "preemptionPolicy": "Never"})
        spec = (await ask.ok("POST", PODS, pod("a", priorityClassName="hi")))["spec"]
        assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
        spec = (await ask.ok("POST", PODS, pod("b", priorityClassName="system-node-critical")))["spec"]
        assert spec["priority"] == 2000001000
        await ask.ok("POST", CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
        spec = (await ask.ok("POST", PODS, pod("c")))["spec"]
        assert (spec["priority"], spec["priorityClassName"]) == (5, "usual")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "c"}, "no PriorityClass with name c was found"),
        ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name"),
        ({"preemptionPolicy": "Never"}, "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name"),
    ],
)  # fmt: skip
async def test_priorities_refused(tmp_path: Path, spec: Any, why: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", PODS, pod("x", **spec))
        assert (said.code, said.message) == (403, f'pods "x" is forbidden: {why}')
        assert said.json["details"] == {"name": "x", "kind": "pods"}


async def test_priority_classes_keep_their_value_and_the_system_its_classes(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CLASSES, {"metadata": {"name": "hi"}, "value": 1000})
        said = await ask("PATCH", f"{CLASSES}/hi", {"value": 1}, MERGE)
        assert (
            said.message
            == 'PriorityClass.scheduling.k8s.io "hi" is invalid: value: Forbidden: may not be changed in an update.'
        )
        assert (await ask("POST", CLASSES, {"metadata": {"name": "system-x"}, "value": 1})).code == 422
        assert (await ask("DELETE", f"{CLASSES}/system-node-critical")).code == 403


async def test_runtime_classes(tmp_path: Path) -> None:
    """A pod gets overhead, selector and tolerations of its class; the class keeps its handler."""
    async with api(tmp_path) as ask:
        scheduling = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
        document = {"metadata": {"name": "kata"}, "handler": "kata-qemu", "overhead": {"podFixed": {"memory": "120Mi"}}}
        await ask.ok("POST", RUNTIME_CLASSES, {**document, "scheduling": scheduling})
        spec = (await ask.ok("POST", PODS, pod("a", runtimeClassName="kata", nodeSelector={"a": "b"})))["spec"]
        assert spec["overhead"] == {"memory": "120Mi"}
        assert spec["nodeSelector"] == {"a": "b", "disk": "ssd"}
        assert {"key": "kata", "operator": "Exists"} in spec["tolerations"]
        said = await ask("PATCH", f"{RUNTIME_CLASSES}/kata", {"handler": "runc"}, MERGE)
        wanted = 'RuntimeClass.node.k8s.io "kata" is invalid: handler: Invalid value: "runc": field is immutable'
        assert (said.code, said.message) == (422, wanted)
        said = await ask("PATCH", f"{RUNTIME_CLASSES}/kata", {"overhead": {"podFixed": {"cpu": "-1"}}}, MERGE)
        assert (said.code, "must be greater than or equal to 0" in said.message) == (422, True)
        created = await ask("PUT", f"{RUNTIME_CLASSES}/other", {"metadata": {"name": "other"}, "handler": "runc"})
        assert created.code == 201
        await ask.ok("PATCH", f"{RUNTIME_CLASSES}/kata", {"overhead": None}, MERGE)
        assert "overhead" not in (await ask.ok("POST", PODS, pod("b", runtimeClassName="kata")))["spec"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "kata"}, 'pod rejected: RuntimeClass "kata" not found'),
        ({"runtimeClassName": "runc", "nodeSelector": {"disk": "hdd"}}, "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; pod.spec.nodeSelector[disk] = hdd"),
        ({"runtimeClassName": "runc", "overhead": {"cpu": "1"}}, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        ({"overhead": {"cpu": "1"}}, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ],
)  # fmt: skip
async def test_runtime_classes_refused(tmp_path: Path, spec: Any, why: str) -> None:
    async with api(tmp_path) as ask:
        document = {"metadata": {"name": "runc"}, "handler": "runc", "overhead": {"podFixed": {"cpu": "250m"}}}
        await ask.ok("POST", RUNTIME_CLASSES, {**document, "scheduling": {"nodeSelector": {"disk": "ssd"}}})
        said = await ask("POST", PODS, pod("x", **spec))
        assert (said.code, said.message) == (403, f'pods "x" is forbidden: {why}')


@pytest.mark.parametrize(
    ("given", "added"),
    [
        pytest.param([], ["not-ready", "unreachable"], id="none given"),
        pytest.param([{"operator": "Exists"}], [], id="everything tolerated"),
        pytest.param([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}], ["unreachable"], id="one given"),
        pytest.param([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}], ["not-ready", "unreachable"], id="of another effect"),
    ],
)  # fmt: skip
async def test_default_tolerations(tmp_path: Path, given: Any, added: list[str]) -> None:
    async with api(tmp_path) as ask:
        found = (await ask.ok("POST", PODS, pod(tolerations=given)))["spec"]["tolerations"]
        assert found[: len(given)] == given
        assert [each["key"].partition("/")[2] for each in found[len(given) :]] == added


async def test_limit_ranges_fill_in_and_refuse(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        limits = [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m"}}]
        await ask.ok("POST", LIMIT_RANGES, {"metadata": {"name": "lr"}, "spec": {"limits": limits}})
        found = await ask.ok("POST", PODS, pod("a"))
        assert found["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}
        assert found["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        )
        assert found["status"]["qosClass"] == "Burstable"
        said = await ask("POST", PODS, pod("x", limits={"cpu": "5"}))
        assert (said.code, said.message) == (
            403,
            'pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 5',
        )


@pytest.mark.parametrize(("profile", "code"), [("documents", 200), ("1.36", 403)])
async def test_limit_ranges_on_resize_by_profile(tmp_path: Path, profile: str, code: int) -> None:
    async with api(tmp_path, profile) as ask:
        await ask.ok("POST", PODS, pod(requests={"cpu": "1"}))
        limits = [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}}]
        await ask.ok("POST", LIMIT_RANGES, {"metadata": {"name": "lr"}, "spec": {"limits": limits}})
        patch = {
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}]}
        }
        said = await ask("PATCH", f"{PODS}/demo/resize", patch, STRATEGIC)
        assert said.code == code


async def quota(ask: ApiClient, **hard: str) -> None:
    await ask.ok("POST", QUOTAS, {"metadata": {"name": "rq"}, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    await ask.ok("PATCH", f"{QUOTAS}/rq/status", status, MERGE)


async def used(ask: ApiClient) -> Any:
    return (await ask.ok("GET", f"{QUOTAS}/rq"))["status"]["used"]


async def test_quota_is_charged_with_the_pod(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await quota(ask, cpu="1", pods="3")
        await ask.ok("POST", PODS, pod("a", requests={"cpu": "600m"}))
        assert await used(ask) == {"cpu": "600m", "pods": "1"}
        said = await ask("POST", PODS, pod("x", requests={"cpu": "5"}))
        assert (
            said.message
            == 'pods "x" is forbidden: exceeded quota: rq, requested: cpu=5, used: cpu=600m, limited: cpu=1'
        )
        assert (
            await ask("POST", PODS, pod("y"))
        ).message == 'pods "y" is forbidden: failed quota: rq: must specify cpu for: c'
        await ask.ok("POST", f"{PODS}?dryRun=All", pod("z", requests={"cpu": "100m"}))
        assert await used(ask) == {"cpu": "600m", "pods": "1"}


async def test_one_of_many_gets_the_last_of_a_quota(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await quota(ask, pods="3")
        said = await asyncio.gather(*(ask("POST", PODS, pod(f"p{number}")) for number in range(12)))
        assert sorted(each.code for each in said) == [201] * 3 + [403] * 9
        assert await used(ask) == {"pods": "3"}


@pytest.mark.parametrize("profile", ["documents", "1.36"])
async def test_quota_on_resize(tmp_path: Path, profile: str) -> None:
    async with api(tmp_path, profile) as ask:
        await quota(ask, cpu="1")
        await ask.ok("POST", PODS, pod(requests={"cpu": "500m"}))

        async def resize(cpu: str) -> Any:
            patch = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
            return await ask("PATCH", f"{PODS}/demo/resize", patch, STRATEGIC)

        assert (await resize("900m")).code == 200
        assert await used(ask) == {"cpu": "900m"}
        said = await resize("2")
        assert (
            said.message
            == 'pods "demo" is forbidden: exceeded quota: rq, requested: cpu=1100m, used: cpu=900m, limited: cpu=1'
        )


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]},
            'pods "demo" is forbidden: spec.resourceClaims: this API server has no ResourceClaims: remove it',
        ),
    ],
    ids=["claims"],
)
async def test_what_no_node_could_do_is_refused(tmp_path: Path, spec: dict[str, Any], refusal: str) -> None:
    async with api(tmp_path, "1.36") as ask:
        answer = await ask("POST", PODS, pod(**spec))
        assert (answer.code, answer.message) == (403, refusal)


async def test_what_has_no_effect_is_a_warning(tmp_path: Path) -> None:
    """kubectl prints the header."""
    async with api(tmp_path) as ask:
        spec = {"schedulingGroup": {"podGroupName": "g"}}
        answer = await ask("POST", PODS, pod(**spec))
        assert answer.code == 201, answer.body
        for field in spec:
            assert any(f"spec.{field}: no effect" in warning for warning in answer.warnings), (field, answer.warnings)
        ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]
        container = {"name": "c", "image": "i", "ports": ports}
        answer = await ask("POST", PODS, pod("port", containers=[container]))
        (warning,) = answer.warnings
        assert "spec.containers[0].ports[1].hostPort: no effect without hostNetwork" in warning
        own = {"name": "c", "image": "i", "ports": [{"containerPort": 81, "hostPort": 81}]}
        assert (await ask("POST", PODS, pod("host", containers=[own], hostNetwork=True))).warnings == []
        assert (await ask("POST", PODS, pod("plain"))).warnings == []
