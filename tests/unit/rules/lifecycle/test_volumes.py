"""Volumes made from the API: which files, with which modes, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.lifecycle.volumes import (
    VolumeError,
    VolumeFile,
    VolumeFiles,
    check_kind,
    mounted_volumes,
    volume_files,
)
from plimsoll.rules.model.runnable import ConfigMap, RunPod
from plimsoll.rules.quantity import QUANTITIES

AROUND = Surroundings(allocatable={"memory": QUANTITIES["1Gi"]})
MAPS = {"m": ConfigMap(data={"a": "1", "b": "é"}, binary_data={"c": base64.b64encode(b"\xff\0").decode()})}


def pod(**volume: Any) -> RunPod:
    return run_pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": "1"}},
            "spec": {
                "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", **volume}, {"name": "unused", "secret": {}}],
            },
        }
    )


def files(**volume: Any) -> VolumeFiles:
    it = pod(**volume)
    return volume_files(it.spec.volumes[0], it, MAPS, AROUND)


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
                        {"secret": {"name": "s", "optional": True}},
                    ],
                }
            },
            [VolumeFile("one", b"p", 0o600)],
            id="projected, the last wins",
        ),
    ],
)
def test_files(volume: dict[str, Any], expected: list[VolumeFile]) -> None:
    found = files(**volume)
    assert list(found.files) == expected
    assert found.notes == ()


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
            {"projected": {"sources": [{"secret": {"name": "s"}}]}},
            "projected volumes support configMap and downwardAPI on this node: remove secret, clusterTrustBundle and podCertificate",
        ),
    ],
)
def test_refused(volume: dict[str, Any], detail: str) -> None:
    with pytest.raises(VolumeError) as refused:
        files(**volume)
    assert str(refused.value) == f'MountVolume.SetUp failed for volume "v" : {detail}'
    assert refused.value.reason == "FailedMount"


def test_a_token_is_omitted_with_an_event() -> None:
    found = files(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]})
    assert found.files == ()
    assert [note.message for note in found.notes] == [
        "This node does not mount service account tokens: token is omitted"
    ]


@pytest.mark.parametrize(
    ("volume", "shown"),
    [
        ({"secret": {"secretName": "s"}}, "secret"),
        ({"persistentVolumeClaim": {"claimName": "c"}}, "persistentVolumeClaim"),
        ({"csi": {"driver": "d"}}, "csi"),
        ({}, "an unknown kind"),
    ],
)
def test_unsupported_kinds(volume: dict[str, Any], shown: str) -> None:
    with pytest.raises(VolumeError) as refused:
        check_kind(pod(**volume).spec.volumes[0])
    assert refused.value.detail == (
        f"this node does not support {shown}: use emptyDir, hostPath, configMap, downwardAPI, projected"
    )


def test_only_mounted_volumes_are_set_up() -> None:
    assert [volume.name for volume in mounted_volumes(pod(emptyDir={}))] == ["v"]
