"""Volumes made from the API: which files, with which modes, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.rules.lifecycle.api_objects import (
    BundleWanted,
    PodObjects,
    TokenWanted,
    certificates,
    is_token_due,
    publishes_itself,
)
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.lifecycle.volumes import (
    VolumeError,
    VolumeFile,
    check_kind,
    mounted_volumes,
    volume_files,
)
from plimsoll.rules.model.runnable import ConfigMap, RunPod, Secret
from plimsoll.rules.quantity import QUANTITIES

AROUND = Surroundings(allocatable={"memory": QUANTITIES["1Gi"]})
OBJECTS = PodObjects(
    {"m": ConfigMap(data={"a": "1", "b": "é"}, binary_data={"c": base64.b64encode(b"\xff\0").decode()})},
    {"s": Secret(data={"key": base64.b64encode(b"\xfe").decode()})},
    {TokenWanted("", 3600): "the token"},
    {TokenWanted("other", 3600): 'failed to fetch token: serviceaccounts "default" not found'},
    {BundleWanted(name="roots"): "PEM"},
)


def pod(security: dict[str, Any] | None = None, **volume: Any) -> RunPod:
    return run_pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": "1"}},
            "spec": {
                "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", **volume}, {"name": "unused", "secret": {}}],
                **({} if security is None else {"securityContext": security}),
            },
        }
    )


def files(security: dict[str, Any] | None = None, **volume: Any) -> tuple[VolumeFile, ...]:
    it = pod(security, **volume)
    return volume_files(it.spec.volumes[0], it, OBJECTS, AROUND)


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param(
            {"configMap": {"name": "m"}},
            [VolumeFile("a", b"1"), VolumeFile("b", "é".encode()), VolumeFile("c", b"\xff\0")],
            id="all keys",
        ),
        pytest.param(
            {
                "configMap": {
                    "name": "m",
                    "items": [{"key": "a", "path": "x/./y", "mode": 0o400}, {"key": "b", "path": "z"}],
                    "defaultMode": 0o640,
                }
            },
            [VolumeFile("x/y", b"1", 0o400), VolumeFile("z", "é".encode(), 0o640)],
            id="items and modes",
        ),
        pytest.param({"configMap": {"name": "none", "optional": True}}, [], id="optional map"),
        pytest.param(
            {"configMap": {"name": "m", "optional": True, "items": [{"key": "q", "path": "q"}]}}, [], id="optional key"
        ),
        pytest.param({"secret": {"secretName": "s"}}, [VolumeFile("key", b"\xfe")], id="secret"),
        pytest.param(
            {"secret": {"secretName": "s", "items": [{"key": "key", "path": "k", "mode": 0o400}]}},
            [VolumeFile("k", b"\xfe", 0o400)],
            id="items of a secret",
        ),
        pytest.param({"secret": {"secretName": "none", "optional": True}}, [], id="optional secret"),
        pytest.param(
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token"}},
                        {"secret": {"name": "s"}},
                        {"clusterTrustBundle": {"name": "roots", "path": "ca.crt"}},
                        {"clusterTrustBundle": {"name": "none", "path": "none.crt", "optional": True}},
                    ]
                }
            },
            [
                VolumeFile("token", b"the token"),
                VolumeFile("key", b"\xfe"),
                VolumeFile("ca.crt", b"PEM"),
                VolumeFile("none.crt", b""),
            ],
            id="projected: token, secret, bundles",
        ),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            [VolumeFile("labels", b'a="1"\nb="2"')],
            id="labels",
        ),
        pytest.param(
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "m",
                            "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"},
                        }
                    ]
                }
            },
            [VolumeFile("m", b"1024")],
            id="resource",
        ),
        pytest.param(
            {
                "projected": {
                    "defaultMode": 0o600,
                    "sources": [
                        {"configMap": {"name": "m", "items": [{"key": "a", "path": "one"}]}},
                        {"downwardAPI": {"items": [{"path": "one", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                        {"secret": {"name": "none", "optional": True}},
                    ],
                }
            },
            [VolumeFile("one", b"p", 0o600)],
            id="projected, the last wins",
        ),
    ],
)
def test_files(volume: dict[str, Any], expected: list[VolumeFile]) -> None:
    assert list(files(**volume)) == expected


def item(path: str) -> dict[str, Any]:
    return {"configMap": {"name": "m", "items": [{"key": "a", "path": path}]}}


@pytest.mark.parametrize(
    ("volume", "detail"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        (
            {"configMap": {"name": "m", "items": [{"key": "q", "path": "q"}]}},
            "configmap references non-existent config key: q",
        ),
        (item("/etc/passwd"), "invalid path: must be relative path: /etc/passwd"),
        (item("../x"), "invalid path: must not start with '..': ../x"),
        (item("..data"), "invalid path: must not start with '..': ..data"),
        (item("a/../../x"), "invalid path: must not contain '..': a/../../x"),
        (item("."), "invalid path: must not contain '..': ."),
        (item("x" * 300), f"invalid path: a name has more than 255 bytes: {'x' * 300}"),
        (item(""), "invalid path: must have 1 to 4096 bytes, none of them zero"),
        (item("a\0b"), "invalid path: must have 1 to 4096 bytes, none of them zero"),
        (
            {"configMap": {"name": "m", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}},
            "x is both a file and a directory",
        ),
        ({"downwardAPI": {"items": [{"path": "x"}]}}, 'item "x" has neither fieldRef nor resourceFieldRef'),
        ({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "q"}}]}}, "unsupported fieldPath: q"),
        (
            {"projected": {"sources": [{"podCertificate": {"signerName": "s"}}]}},
            "podCertificate is not supported by this node: remove the source",
        ),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        (
            {"secret": {"secretName": "s", "items": [{"key": "q", "path": "q"}]}},
            "references non-existent secret key: q",
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "other"}}]}},
            'failed to fetch token: serviceaccounts "default" not found',
        ),
        (
            {"projected": {"sources": [{"clusterTrustBundle": {"name": "none", "path": "ca"}}]}},
            'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "none" not found',
        ),
        (
            {"projected": {"sources": [{"clusterTrustBundle": {"signerName": "none", "path": "ca"}}]}},
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
        ),
    ],
)
def test_refused(volume: dict[str, Any], detail: str) -> None:
    with pytest.raises(VolumeError) as refused:
        files(**volume)
    assert str(refused.value) == f'MountVolume.SetUp failed for volume "v" : {detail}'
    assert refused.value.reason == "FailedMount"


@pytest.mark.parametrize(
    ("security", "mode", "user"),
    [
        (None, 0o644, None),
        ({"runAsUser": 7}, 0o600, 7),  # only that user needs it
        ({"fsGroup": 8}, 0o600, None),  # the writer adds the group's rights
    ],
)
def test_the_owner_of_a_token(security: Any, mode: int, user: int | None) -> None:
    (found,) = files(security, projected={"sources": [{"serviceAccountToken": {"path": "token"}}]})
    assert (found.mode, found.user) == (mode, user)


@pytest.mark.parametrize(("age_s", "due"), [(0, False), (2879, False), (2881, True), (4000, True)])
def test_a_token_is_renewed_at_80_percent_of_its_life(age_s: float, due: bool) -> None:
    assert is_token_due(expires_s=3600.0, lifetime_s=3600.0, now_s=age_s) is due


def test_a_long_token_is_renewed_after_a_day() -> None:
    year_s = 365 * 86400.0
    assert not is_token_due(year_s, year_s, 86399.0)
    assert is_token_due(year_s, year_s, 86401.0)


def test_certificates_of_several_bundles() -> None:
    block = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
    assert certificates([block.format("B") + block.format("A"), block.format("A")]) == block.format("A") + block.format(
        "B"
    )


@pytest.mark.parametrize(
    ("volume", "shown"),
    [
        ({"ephemeral": {"volumeClaimTemplate": {}}}, "ephemeral"),
        ({"csi": {"driver": "d"}}, "csi"),
        ({}, "an unknown kind"),
    ],
)
def test_unsupported_kinds(volume: dict[str, Any], shown: str) -> None:
    with pytest.raises(VolumeError) as refused:
        check_kind(pod(**volume).spec.volumes[0])
    assert refused.value.detail == (
        f"this node does not support {shown}: use emptyDir, hostPath, configMap, secret, downwardAPI, projected, image, "
        "persistentVolumeClaim"
    )


def test_only_mounted_volumes_are_set_up() -> None:
    assert [volume.name for volume in mounted_volumes(pod(emptyDir={}))] == ["v"]


def shown(path: str) -> dict[str, Any]:
    return {"path": "f", "fieldRef": {"fieldPath": path}}


PUBLISHES = [
    ("a label", {"downwardAPI": {"items": [shown("metadata.labels['a']")]}}, True),
    ("annotations", {"projected": {"sources": [{"downwardAPI": {"items": [shown("metadata.annotations")]}}]}}, True),
    ("a limit", {"downwardAPI": {"items": [{"path": "f", "resourceFieldRef": {"resource": "limits.cpu"}}]}}, True),
    ("one of two", {"downwardAPI": {"items": [shown("metadata.name"), shown("metadata.labels")]}}, True),
    (
        "as in the volume of a token: the namespace never changes",
        {"projected": {"sources": [{"downwardAPI": {"items": [shown("metadata.namespace")]}}]}},
        False,
    ),
    ("nothing of the pod", {"configMap": {"name": "m"}}, False),
]


@pytest.mark.parametrize(("volume", "publishes"), [row[1:] for row in PUBLISHES], ids=[row[0] for row in PUBLISHES])
def test_volumes_that_follow_the_pod(volume: dict[str, Any], publishes: bool) -> None:
    assert publishes_itself(pod(**volume)) == publishes
