"""securityContext: whose field counts, what is refused, and the rule of runAsNonRoot."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import ContainerConfigError
from plimsoll.rules.lifecycle.security_context import (
    Abilities,
    SecurityValues,
    app_armor_profiles,
    only_user,
    security_values,
    without_effect,
)
from plimsoll.rules.model.runnable import SeLinuxOptions

EMBEDDED = Abilities(has_selinux=True, applies_profiles=False)


def values(
    own: Any = None,
    shared: Any = None,
    image_user: int | None = None,
    abilities: Abilities = EMBEDDED,
    **spec: Any,
) -> SecurityValues:
    container = {"name": "c", **({} if own is None else {"securityContext": own})}
    pod = run_pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {
                "initContainers": [{"name": "i"}],
                "containers": [{"name": "first"}, container],
                **({} if shared is None else {"securityContext": shared}),
                **spec,
            },
        }
    )
    return security_values(pod, pod.spec.containers[1], image_user, abilities)


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [
        pytest.param(None, None, SecurityValues(), id="nothing said"),
        pytest.param(
            {"runAsUser": 5},
            {"runAsUser": 1, "runAsGroup": 2},
            SecurityValues(user=5, group=2),
            id="the container's first",
        ),
        pytest.param({"runAsUser": 0}, {"runAsUser": 1}, SecurityValues(user=0), id="zero is a value"),
        pytest.param(None, {"runAsUser": 1}, SecurityValues(user=1), id="the pod's"),
        pytest.param(
            None, {"supplementalGroups": [7, 8], "fsGroup": 8}, SecurityValues(groups=(8, 7)), id="groups, each once"
        ),
        pytest.param(
            {"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}},
            None,
            SecurityValues(add_capabilities=("NET_ADMIN",), drop_capabilities=("ALL",)),
            id="capabilities",
        ),
        pytest.param({"privileged": True}, None, SecurityValues(privileged=True), id="privileged"),
        pytest.param({"allowPrivilegeEscalation": True}, None, SecurityValues(), id="may escalate"),
        pytest.param({"allowPrivilegeEscalation": False}, None, SecurityValues(no_new_privileges=True), id="may not"),
        pytest.param({"readOnlyRootFilesystem": True}, None, SecurityValues(read_only_root=True), id="read-only root"),
        pytest.param(
            None,
            {"seccompProfile": {"type": "RuntimeDefault"}},
            SecurityValues(seccomp="RuntimeDefault"),
            id="the pod's seccomp profile",
        ),
        pytest.param(
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}},
            {"seccompProfile": {"type": "Unconfined"}},
            SecurityValues(seccomp="localhost/a/b.json"),
            id="the container's seccomp profile",
        ),
        pytest.param(
            {"procMount": "Default"},
            {"fsGroupChangePolicy": "OnRootMismatch", "appArmorProfile": {"type": "Unconfined"}},
            SecurityValues(app_armor="Unconfined"),
            id="values without effect",
        ),
        pytest.param({"windowsOptions": {"runAsUserName": "x"}}, None, SecurityValues(), id="Windows"),
        pytest.param({"procMount": "Unmasked"}, None, SecurityValues(unmasked_proc=True), id="proc"),
        pytest.param(None, {"supplementalGroupsPolicy": "Strict"}, SecurityValues(groups_policy="Strict"), id="strict"),
    ],
)
def test_values(own: Any, shared: Any, expected: SecurityValues) -> None:
    assert values(own, shared) == expected


OWN = "spec.containers[1].securityContext"


@pytest.mark.parametrize(
    ("own", "shared", "spec", "path"),
    [
        ({"appArmorProfile": {"type": "Localhost"}}, None, {}, f"{OWN}.appArmorProfile"),
        ({"seLinuxOptions": {"level": "s0"}}, None, {}, f"{OWN}.seLinuxOptions"),
        (None, None, {"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
    ],
)
def test_refused_with_its_path(own: Any, shared: Any, spec: dict[str, Any], path: str) -> None:
    with pytest.raises(ContainerConfigError) as refused:
        values(own, shared, **spec)
    assert str(refused.value) == f"{path}: not supported by this node, remove it"


def test_all_refused_fields_are_named() -> None:
    with pytest.raises(ContainerConfigError) as refused:
        values({"seLinuxOptions": {"level": "s0"}}, None, resourceClaims=[{"name": "gpu"}])
    assert str(refused.value) == f"spec.resourceClaims, {OWN}.seLinuxOptions: not supported by this node, remove them"


WHICH = '(pod: "p_ns(u)", container: c)'


@pytest.mark.parametrize(
    ("own", "shared", "image_user", "message"),
    [
        ({"runAsNonRoot": True, "runAsUser": 0}, None, None, f"container's runAsUser breaks non-root policy {WHICH}"),
        ({"runAsUser": 0}, {"runAsNonRoot": True}, 7, f"container's runAsUser breaks non-root policy {WHICH}"),
        ({"runAsNonRoot": True}, None, None, f"container has runAsNonRoot and image will run as root {WHICH}"),
        ({"runAsNonRoot": True}, None, 0, f"container has runAsNonRoot and image will run as root {WHICH}"),
        ({"runAsNonRoot": True}, None, 7, ""),
        ({"runAsNonRoot": True}, {"runAsUser": 7}, 0, ""),
        ({"runAsNonRoot": False}, {"runAsNonRoot": True}, 0, ""),
    ],
)
def test_non_root(own: Any, shared: Any, image_user: int | None, message: str) -> None:
    if not message:
        values(own, shared, image_user)
        return
    with pytest.raises(ContainerConfigError) as refused:
        values(own, shared, image_user)
    assert str(refused.value) == message


def test_selinux_options_where_the_kernel_has_no_selinux() -> None:
    """Accepted, as by a kubelet and its runtime, and named in an event."""
    options = {"seLinuxOptions": {"level": "s0:c1"}}
    containers = [{"name": "a", "securityContext": options}, {"name": "b"}]
    pod = run_pod({"metadata": {"name": "p"}, "spec": {"securityContext": options, "containers": containers}})
    for container in pod.spec.containers:
        security_values(pod, container, abilities=Abilities(has_selinux=False, applies_profiles=False))
    assert without_effect(pod, has_selinux=False, forwards_ports=False) == [
        "spec.securityContext.seLinuxOptions, spec.containers[0].securityContext.seLinuxOptions: no effect, SELinux is "
        "not enabled on this node"
    ]
    assert without_effect(pod, has_selinux=True, forwards_ports=False) == []


@pytest.mark.parametrize("host_network", [True, False])
def test_host_ports_have_no_effect_in_a_network_of_the_pod(host_network: bool) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]
    spec = {"hostNetwork": host_network, "containers": [{"name": "a"}, {"name": "b", "ports": ports}]}
    sentence = "spec.containers[1].ports[1].hostPort: no effect, this node forwards no ports to pods"
    pod = run_pod({"metadata": {"name": "p"}, "spec": spec})
    assert without_effect(pod, has_selinux=False, forwards_ports=False) == ([] if host_network else [sentence])
    assert without_effect(pod, has_selinux=False, forwards_ports=True) == []


def test_profiles_and_labels_for_a_runtime_that_applies_them() -> None:
    able = Abilities(has_selinux=True)
    labels, other = {"level": "s0:c1", "type": "a_t"}, {"level": "s0"}
    assert values(None, {"seLinuxOptions": labels}, abilities=able).se_linux == SeLinuxOptions(
        level="s0:c1", type="a_t"
    )
    assert values({"seLinuxOptions": other}, {"seLinuxOptions": labels}, abilities=able).se_linux == SeLinuxOptions(
        level="s0"
    )
    localhost = {"appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"}}
    assert values(localhost, RUNTIME_DEFAULT, abilities=able).app_armor == "localhost/mine"
    assert values(None, RUNTIME_DEFAULT, abilities=able).app_armor == "RuntimeDefault"


@pytest.mark.parametrize(
    ("shared", "own", "other", "expected"),
    [(7, None, None, 7), (7, 8, 8, 8), (7, 8, None, None), (None, 8, None, None), (None, None, None, None)],
)
def test_the_only_user_of_a_pod(shared: int | None, own: int | None, other: int | None, expected: int | None) -> None:
    containers = [{"name": name, "securityContext": {"runAsUser": user}} for name, user in (("a", own), ("b", other))]
    spec = {"containers": containers, "securityContext": {"runAsUser": shared}}
    assert only_user(run_pod({"metadata": {"name": "p"}, "spec": spec})) == expected


RUNTIME_DEFAULT = {"appArmorProfile": {"type": "RuntimeDefault"}}
ANNOTATION = "container.apparmor.security.beta.kubernetes.io/c"


@pytest.mark.parametrize(
    ("annotations", "shared", "own", "asks"),
    [
        ({}, {}, {}, False),
        ({}, RUNTIME_DEFAULT, {}, True),
        ({}, {}, {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}, True),
        ({}, RUNTIME_DEFAULT, {"appArmorProfile": {"type": "Unconfined"}}, False),
        ({}, RUNTIME_DEFAULT, {"privileged": True}, False),
        ({ANNOTATION: "runtime/default"}, {}, {}, True),
        ({ANNOTATION: "unconfined"}, {}, {}, False),
    ],
)
def test_app_armor_profiles(annotations: Any, shared: Any, own: Any, asks: bool) -> None:
    metadata = {"name": "p", "annotations": annotations}
    container = {"name": "c", "securityContext": own}
    pod = run_pod({"metadata": metadata, "spec": {"securityContext": shared, "containers": [container]}})
    assert app_armor_profiles(pod) is asks
