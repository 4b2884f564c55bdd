"""Which volumes of a pod are measured, and which of them are on the node's disk (04 §1.2)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.node.pod_source import PodsShown
from plimsoll.node.pods.container_spec import NodePaths
from plimsoll.node.volumes.volumes import Volumes
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.model.observed import ObservedPod
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox

VOLUMES: list[tuple[dict[str, Any], bool | None]] = [
    ({"emptyDir": {}}, True),
    ({"emptyDir": {"medium": "Memory"}}, False),
    ({"emptyDir": {"medium": "HugePages"}}, False),
    ({"emptyDir": {"medium": "HugePages-2Mi"}}, False),
    ({"configMap": {"name": "words"}}, True),
    ({"hostPath": {"path": "/srv"}}, None),
    ({"downwardAPI": {"items": []}}, None),
]


@pytest.mark.parametrize(("source", "on_disk"), VOLUMES, ids=str)
def test_which_volumes_are_measured_and_which_are_on_disk(
    tmp_path: Path, source: dict[str, Any], on_disk: bool | None
) -> None:
    """A hostPath has no statistics of its own, so it is not counted."""
    document = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u-1"},
        "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v", **source}]},
    }
    worker = SimpleNamespace(uid="u-1", pod=run_pod(document))
    parts = ObservedPod(
        (ObservedSandbox("s", pod_uid="u-1", name="web", namespace="default"),),
        (ObservedContainer("c-id", "c", "running", sandbox_id="s", pod_uid="u-1"),),
    )
    agent: Any = SimpleNamespace(
        pods=[worker],
        view=SimpleNamespace(last={"u-1": parts}),
        cgroups=SimpleNamespace(enforced=False),
        paths=NodePaths(tmp_path, tmp_path / "logs"),
        volumes=Volumes(tmp_path),
    )
    (place,) = PodsShown(agent).places()
    assert [(each.name, each.on_disk) for each in place.volumes] == ([] if on_disk is None else [("v", on_disk)])


def test_a_volume_is_measured_where_it_is_created(tmp_path: Path) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    document = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u-1"},
        "spec": {
            "containers": [{"name": "c", "image": "x", "volumeMounts": mounts}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
    pod, volumes = run_pod(document), Volumes(tmp_path)
    made = volumes.set_up(pod, {}, Surroundings()).by_name["data"].path
    assert str(volumes.directory(pod, pod.spec.volumes[0])) == made
