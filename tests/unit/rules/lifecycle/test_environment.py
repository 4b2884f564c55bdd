"""Environments of containers: order, expansion, references, and the errors for missing sources."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import ContainerConfigError
from plimsoll.rules.lifecycle.api_objects import BundleWanted, PodObjects, TokenWanted, references
from plimsoll.rules.lifecycle.environment import (
    Surroundings,
    environment,
    expanded,
    map_text,
    resource_value,
    strictly_expanded,
)
from plimsoll.rules.model.run_volumes import ResourceField
from plimsoll.rules.model.runnable import ConfigMap, RunPod, Secret
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES

GI = 1024**3
AROUND = Surroundings(
    ("10.0.0.7", "fd00::7"),
    ("192.0.2.1",),
    {"cpu": QUANTITIES["4"], "memory": QUANTITIES["8Gi"], "ephemeral-storage": QUANTITIES["10Gi"]},
)
MAPS = PodObjects(
    {
        "settings": ConfigMap(data={"color": "red", "size": "$(HOME)", "1bad": "x", ".": "y", "a-b.c": "z"}),
        "empty": ConfigMap(),
    },
    {"login": Secret(data={"user": "cm9vdA==", "1bad": "eA=="}), "broken": Secret(data={"k": "no base64"})},
)


def pod(env: Any = (), env_from: Any = (), **spec: Any) -> RunPod:
    container = {"name": "c", "env": list(env), "envFrom": list(env_from), "resources": spec.pop("resources", {})}
    metadata = {"name": "p", "namespace": "ns", "uid": "u-1", "labels": {"app": "web"}, "annotations": {"n/a": 'q"x'}}
    return run_pod({"metadata": metadata, "spec": {"containers": [container], "nodeName": "node-1", **spec}})


def variables(env: Any = (), env_from: Any = (), **spec: Any) -> dict[str, str]:
    it = pod(env, env_from, **spec)
    return environment(it, it.spec.containers[0], MAPS, AROUND).variables


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("", ""),
        ("$(A)", "1"),
        ("$(A)$(B)", "12"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$(A", "$(A"),
        ("$(A$$", "$(A$"),
        ("$(A$(B)", "$(A$(B)"),
        ("$A", "$A"),
        ("$", "$"),
        ("a$", "a$"),
        ("$$", "$"),
        ("$)(A)", "$)(A)"),
        ("$()", "$()"),
        ("x$(A)y)z", "x1y)z"),
        ("$é$(A)", "$é1"),
    ],
)
def test_expansion(text: str, shown: str) -> None:
    assert expanded(text, {"A": "1", "B": "2"}) == shown


@given(st.text(alphabet="$()AB", max_size=12))
def test_expansion_is_the_kubelets_scanner(text: str) -> None:
    known = {"A": "1", "": "e"}

    def scanned() -> str:  # the rule step by step, as a cursor moves
        found, at = "", 0
        while at < len(text):
            if text[at] != "$" or at + 1 == len(text):
                found, at = found + text[at], at + 1
            elif text[at + 1] == "$":
                found, at = found + "$", at + 2
            elif text[at + 1] == "(" and (end := text.find(")", at + 2)) >= 0:
                name = text[at + 2 : end]
                found, at = found + known.get(name, f"$({name})"), end + 1
            else:
                found, at = found + text[at : at + 2], at + 2
        return found

    assert expanded(text, known) == scanned()


def test_a_path_needs_all_of_its_variables() -> None:
    assert strictly_expanded("a/$(A)", {"A": "x"}) == "a/x"
    for known in ({}, {"A": ""}):
        with pytest.raises(ContainerConfigError, match=r'^missing value for "A"$'):
            strictly_expanded("$(A)", known)


@pytest.mark.parametrize(
    ("env", "result"),
    [
        pytest.param([("A", "1"), ("B", "$(A)2")], {"A": "1", "B": "12"}, id="refers to an earlier variable"),
        pytest.param([("B", "$(A)"), ("A", "1")], {"B": "$(A)", "A": "1"}, id="not to a later one"),
        pytest.param([("A", "1"), ("A", "2")], {"A": "2"}, id="later wins"),
        pytest.param([("A", "1"), ("A", "$(A)$(A)")], {"A": "11"}, id="refers to its own former value"),
        pytest.param([("A", "")], {"A": ""}, id="empty"),
    ],
)
def test_values(env: list[tuple[str, str]], result: dict[str, str]) -> None:
    assert variables([{"name": name, "value": value} for name, value in env]) == result


def reference(**source: Any) -> dict[str, Any]:
    return {"name": "V", "valueFrom": source}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['n/a']", 'q"x'),
        ("metadata.labels['none']", ""),
        ("metadata.labels", 'app="web"'),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.0.0.7"),
        ("status.podIPs", "10.0.0.7,fd00::7"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1"),
    ],
)
def test_fields(path: str, value: str) -> None:
    assert variables([reference(fieldRef={"fieldPath": path})], serviceAccountName="robot") == {"V": value}


RESOURCES = {
    "requests": {"cpu": "250m", "memory": "100Mi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"},
    "limits": {"cpu": "1500m", "memory": "129Mi", "hugepages-2Mi": "4Mi"},
}


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("requests.cpu", None, "1"),
        ("requests.cpu", "1m", "250"),
        ("requests.cpu", "0", "1"),
        ("limits.cpu", None, "2"),
        ("limits.cpu", "100m", "15"),
        ("requests.memory", None, str(100 * 1024**2)),
        ("limits.memory", "1Mi", "129"),
        ("limits.memory", "1Gi", "1"),
        ("limits.memory", "128Mi", "2"),
        ("requests.ephemeral-storage", "1Gi", "1"),
        ("limits.ephemeral-storage", "1Gi", "10"),
        ("requests.hugepages-2Mi", "1Mi", "4"),
        ("limits.hugepages-1Gi", None, "0"),
    ],
)
def test_resources(resource: str, divisor: str | None, value: str) -> None:
    source = {"resource": resource, **({} if divisor is None else {"divisor": divisor})}
    assert variables([reference(resourceFieldRef=source)], resources=RESOURCES) == {"V": value}


def test_a_limit_that_is_not_set() -> None:
    source = [reference(resourceFieldRef={"resource": "limits.memory"})]
    assert variables(source) == {"V": str(8 * GI)}
    pod_level = {"limits": {"memory": "2Gi"}}
    it = run_pod({"spec": {"containers": [{"name": "c"}], "resources": pod_level}})
    found = resource_value(it, it.spec.containers[0], ResourceField("limits.memory"), AROUND.allocatable)
    assert found == str(2 * GI)
    assert variables([reference(resourceFieldRef={"resource": "requests.memory"})]) == {"V": "0"}


@given(st.integers(0, 10**7), st.integers(1, 10**4))
def test_rounding_up(milli: int, divisor_milli: int) -> None:
    it = run_pod({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{milli}m"}}}]}})
    field = ResourceField("requests.cpu", divisor=QUANTITIES[f"{divisor_milli}m"])
    parts = int(resource_value(it, it.spec.containers[0], field, {}))
    assert (parts - 1) * divisor_milli < milli <= parts * divisor_milli or milli == parts == 0


def test_config_maps() -> None:
    key = {"name": "settings", "key": "color"}
    assert variables([reference(configMapKeyRef=key)]) == {"V": "red"}
    assert variables([reference(configMapKeyRef={**key, "key": "size"})]) == {"V": "$(HOME)"}, "never expanded"
    for missing in ({**key, "key": "none"}, {**key, "name": "none"}):
        assert variables([reference(configMapKeyRef={**missing, "optional": True})]) == {}


def test_secrets() -> None:
    key = {"name": "login", "key": "user"}
    assert variables([reference(secretKeyRef=key)]) == {"V": "root"}
    for missing in ({**key, "key": "none"}, {**key, "name": "none"}):
        assert variables([reference(secretKeyRef={**missing, "optional": True})]) == {}
    it = pod((), [{"prefix": "S_", "secretRef": {"name": "login"}}])
    assert environment(it, it.spec.containers[0], MAPS, AROUND).variables == {"S_user": "root", "S_1bad": "x"}
    it = pod((), [{"secretRef": {"name": "login"}}])
    (note,) = environment(it, it.spec.containers[0], MAPS, AROUND).notes
    assert note.message.startswith("Keys [1bad] from the EnvFrom secret ns/login were skipped")


def test_all_of_a_config_map() -> None:
    it = pod([{"name": "X_color", "value": "$(X_color)er"}], [{"prefix": "X_", "configMapRef": {"name": "settings"}}])
    found = environment(it, it.spec.containers[0], MAPS, AROUND)
    assert found.variables == {"X_color": "reder", "X_size": "$(HOME)", "X_1bad": "x", "X_.": "y", "X_a-b.c": "z"}
    assert found.notes == ()


def test_invalid_names_are_skipped_with_an_event() -> None:
    it = pod((), [{"configMapRef": {"name": "settings"}}])
    found = environment(it, it.spec.containers[0], MAPS, AROUND)
    assert set(found.variables) == {"color", "size", "a-b.c"}
    assert [(note.reason, note.message) for note in found.notes] == [
        (
            "InvalidEnvironmentVariableNames",
            "Keys [., 1bad] from the EnvFrom configMap ns/settings were skipped since they are considered invalid "
            "environment variable names.",
        )
    ]


def test_later_versions_take_every_key() -> None:
    it = pod((), [{"configMapRef": {"name": "settings"}}])
    found = environment(it, it.spec.containers[0], MAPS, AROUND, profile=profile_named("1.36"))
    assert set(found.variables) == {"color", "size", "a-b.c", "1bad", "."}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("env", "env_from", "message"),
    [
        pytest.param(
            [reference(configMapKeyRef={"name": "none", "key": "k"})], [], 'configmap "none" not found', id="map"
        ),
        pytest.param(
            [reference(configMapKeyRef={"name": "settings", "key": "k"})],
            [],
            "couldn't find key k in ConfigMap ns/settings",
            id="key",
        ),
        pytest.param([], [{"configMapRef": {"name": "none"}}], 'configmap "none" not found', id="whole map"),
        pytest.param(
            [reference(secretKeyRef={"name": "s", "key": "k"})],
            [],
            'secret "s" not found',
            id="secret",
        ),
        pytest.param(
            [],
            [{"secretRef": {"name": "s"}}],
            'secret "s" not found',
            id="whole secret",
        ),
        pytest.param(
            [reference(secretKeyRef={"name": "login", "key": "k"})],
            [],
            "couldn't find key k in Secret ns/login",
            id="key of a secret",
        ),
        pytest.param(
            [reference(secretKeyRef={"name": "broken", "key": "k"})],
            [],
            "data[k] of the Secret is not base64",
            id="a secret that is not base64",
        ),
        pytest.param([reference(fieldRef={"fieldPath": "spec.x"})], [], "unsupported fieldPath: spec.x", id="field"),
        pytest.param(
            [reference(resourceFieldRef={"resource": "limits.pods"})],
            [],
            "Unsupported container resource : limits.pods",
            id="resource",
        ),
        pytest.param(
            [reference(resourceFieldRef={"resource": "limits.cpu", "containerName": "other"})],
            [],
            "container other not found",
            id="container",
        ),
        pytest.param(
            [reference(fileKeyRef={"path": "x"})],
            [],
            'environment variable "V": valueFrom supports fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef',
            id="unknown source",
        ),
    ],
)
def test_a_missing_source(env: Any, env_from: Any, message: str) -> None:
    with pytest.raises(ContainerConfigError) as refused:
        variables(env, env_from)
    assert str(refused.value) == message
    assert refused.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(
    "source", [{"secretRef": {"name": "s", "optional": True}}, {"configMapRef": {"name": "n", "optional": True}}]
)
def test_optional(source: Any) -> None:
    assert variables([reference(secretKeyRef={"name": "s", "key": "k", "optional": True})], [source]) == {}


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("a=b", "x"), ("a\0", "x"), ("a", "x\0y")])
def test_invalid_names_and_values(name: str, value: str) -> None:
    with pytest.raises(ContainerConfigError, match="must not be empty or contain"):
        variables([{"name": name, "value": value}])


def test_maps_as_text() -> None:
    assert map_text({"b": "1", "a": 'x"\n'}) == 'a="x\\"\\n"\nb="1"'
    assert map_text(None) == ""


def test_objects_to_fetch() -> None:
    it = run_pod(
        {
            "spec": {
                "initContainers": [
                    {"name": "i", "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "s1"}}]}
                ],
                "containers": [
                    {
                        "name": "c",
                        "env": [
                            reference(configMapKeyRef={"name": "b", "key": "k"}),
                            reference(secretKeyRef={"name": "s2", "key": "k"}),
                        ],
                    }
                ],
                "volumes": [
                    {"name": "v", "configMap": {"name": "d"}},
                    {"name": "x", "secret": {"secretName": "s3"}},
                    {
                        "name": "w",
                        "projected": {
                            "sources": [
                                {"configMap": {"name": "e"}},
                                {"downwardAPI": {}},
                                {"secret": {"name": "s4"}},
                                {"serviceAccountToken": {"path": "t", "audience": "vault"}},
                                {"clusterTrustBundle": {"name": "roots", "path": "ca"}},
                                {
                                    "clusterTrustBundle": {
                                        "signerName": "example.com/x",
                                        "labelSelector": {
                                            "matchLabels": {"live": "yes"},
                                            "matchExpressions": [
                                                {"key": "a", "operator": "In", "values": ["1", "2"]},
                                                {"key": "b", "operator": "DoesNotExist"},
                                            ],
                                        },
                                        "path": "ca2",
                                    }
                                },
                            ]
                        },
                    },
                ],
            }
        }
    )
    found = references(it)
    assert found.config_maps == {"a", "b", "d", "e"}
    assert found.secrets == {"s1", "s2", "s3", "s4"}
    assert found.tokens == {TokenWanted("vault", 3600)}
    selected = BundleWanted(signer="example.com/x", labels="live=yes,a in (1,2),!b")
    assert found.bundles == {BundleWanted(name="roots"), selected}
