"""The packages of attach, shown to the real tools: privileges, modes, policy, and the unit."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.attach import first_process
from plimsoll.cli.attach.command import attach
from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.rules.attach.policy import attach_policy
from tests.e2e.kubectl import NoKubectlError, any_binary, helm
from tests.e2e.test_packages import DEPLOY, daemon_set, documents, ran

WAYS = ["overlays/observe", "overlays/canary", "overlays/enforce", "overlays/repair-scores", "helm"]
CHART = DEPLOY / "helm/plimsoll-attach"


@cache
def rendered(way: str, *options: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        try:
            if way == "helm":
                words = ["template", "plimsoll-attach", CHART, "-n", "plimsoll", *options]
                return documents(ran(helm(), *words, home=home))
            return documents(ran(any_binary().path, "kustomize", DEPLOY / "attach" / way, home=home))
        except NoKubectlError as problem:
            pytest.skip(str(problem))


@pytest.mark.parametrize("way", WAYS)
def test_attach_has_the_least_privileges(way: str) -> None:
    found = rendered(way)
    spec = daemon_set(found)
    (container,) = spec["containers"]
    scores = way == "overlays/repair-scores"
    assert spec.get("hostPID", False) is scores
    assert not spec.get("hostNetwork") and not spec.get("hostIPC")
    capabilities = {"drop": ["ALL"], **({"add": ["SYS_RESOURCE", "DAC_OVERRIDE"]} if scores else {})}
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": capabilities,
    }
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/sys/fs/cgroup", "/var/run/nri", "/run/plimsoll"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    (role,) = [each for each in found if each["kind"] == "ClusterRole"]
    verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}


@pytest.mark.parametrize("way", WAYS)
def test_the_mode_and_the_options(way: str) -> None:
    (container,) = daemon_set(rendered(way))["containers"]
    assert container["command"] == ["python", "-m", first_process.__name__, "plimsoll"]
    words: list[str] = container["args"]
    mode = {"helm": "observe", "overlays/repair-scores": "enforce"}.get(way, way.rpartition("/")[2])
    assert words[:3] == ["attach", "--mode", mode]
    known = {name for option in attach.options() for name in option.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
    assert ("--canary-label=plimsoll.dev/attach=canary" in words) is (mode == "canary")


@pytest.mark.parametrize("way", WAYS)
def test_the_policy_is_valid(way: str) -> None:
    (config,) = [each for each in rendered(way) if each["kind"] == "ConfigMap"]
    (document,) = read(config["data"]["policy.yaml"].encode())
    assert not isinstance(document, YamlError)
    policy = attach_policy(document.value)
    assert (policy.default.memory_qos, policy.of("kube-system").memory_qos) == ("tiered", "off")


def test_the_chart(tmp_path: Path) -> None:
    try:
        assert "1 chart(s) linted, 0 chart(s) failed" in ran(helm(), "lint", "--strict", CHART, home=tmp_path)
    except NoKubectlError as problem:
        pytest.skip(str(problem))
    options = "mode=canary,canary.label=,canary.namespaces={shop},policy.repairOomScoreAdj=true,systemd=false"
    spec = daemon_set(rendered("helm", "--set", options))
    (container,) = spec["containers"]
    assert container["args"][-2:] == ["--canary", "shop"]
    assert spec["hostPID"] is True and "dbus" not in {volume["name"] for volume in spec["volumes"]}
    with pytest.raises(AssertionError, match="mode: on is not one of observe, canary, enforce"):
        rendered("helm", "--set-string", "mode=on")
