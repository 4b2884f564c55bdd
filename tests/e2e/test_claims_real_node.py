"""A pod on a real node writes to the volume of its claim, which is bound when the pod has a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import RealNode, real_node
from tests.e2e.waiting import until

OBJECTS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: late
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  restartPolicy: Never
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]
  containers:
  - name: c
    image: busybox
    command: [sh, -c, echo kept > /d/file]
    volumeMounts: [{name: d, mountPath: /d}]
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("claims") / "cluster", "1.36") as made:
        exercised("node agent", "this machine, embedded runtime")
        yield made


def test_what_a_pod_writes_to_its_claim_stays(kube: Kubectl, tmp_path: Path) -> None:
    directory = tmp_path / "volume"
    directory.mkdir()
    host = kube("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}").out
    term: dict[str, Any] = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    spec = {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "local": {"path": str(directory)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}
    kube("apply", "-f", "-", stdin=OBJECTS)
    until(lambda: "didn't find available persistent volumes" in kube("describe", "pod", "writer").out)
    kube("apply", "-f", "-", stdin=json.dumps(volume))
    until(lambda: kube("get", "pod", "writer", "-o", "jsonpath={.status.phase}").out == "Succeeded")
    assert (directory / "file").read_text() == "kept\n"
    assert kube("get", "pvc", "data", "-o", "jsonpath={.status.phase}").out == "Bound"
    kube("delete", "pod", "writer")
    kube("delete", "pvc", "data")
    assert (directory / "file").exists()
