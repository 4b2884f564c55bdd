"""Documents and RunPods."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.runnable import run_pod, run_pod_from_json, status_document
from plimsoll.errors import InvalidObjectError
from plimsoll.rules.model.objects import EmptyDir, Resources
from plimsoll.rules.model.pod_status import RunCondition, RunContainerStatus, Running, RunState, RunStatus, Terminated
from plimsoll.rules.model.run_volumes import ConfigMapVolume, HostPath, RunVolume, volume_kind
from plimsoll.rules.model.runnable import EnvVar, HttpGet, Probe, RunPod, container_named, containers_of
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resize.allocation import Allocation, allocated_pod
from plimsoll.rules.resources.qos import qos_class

DOCUMENT: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "creationTimestamp": None},
    "spec": {
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}],
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "command": None,
                "env": [{"name": "A", "value": "1"}],
                "ports": [{"name": "web", "containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 5},
                "resources": {"limits": {"cpu": 1, "memory": "128Mi"}},
            }
        ],
        "hostPID": True,
        "volumes": [
            {"name": "e", "emptyDir": {}},
            {"name": "h", "hostPath": {"path": "/x"}},
            {"name": "m", "configMap": {"name": "cm", "defaultMode": 420}},
            {"name": "d", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "v", "persistentVolumeClaim": {"claimName": "x"}},
            {"name": "o", "scaleIO": {}},
        ],
    },
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}]},
}


@pytest.mark.parametrize(
    "read", [lambda: run_pod_from_json(json.dumps(DOCUMENT)), lambda: run_pod(DOCUMENT)], ids=["json", "document"]
)
def test_reading(read: Any) -> None:
    pod: RunPod = read()
    container = pod.spec.containers[0]
    assert (pod.metadata.resource_version, pod.spec.host_pid) == ("7", True)
    assert (container.command, container.env) == ((), (EnvVar("A", "1"),))
    assert container.liveness_probe == Probe(http_get=HttpGet(port="web"), period_seconds=5)
    assert container.resources == Resources(None, {"cpu": QUANTITIES["1"], "memory": QUANTITIES["128Mi"]})
    empty, host, config, downward, *_ = pod.spec.volumes
    assert (empty.empty_dir, host.host_path) == (EmptyDir(), HostPath("/x"))
    assert config.config_map == ConfigMapVolume("cm", default_mode=420)
    assert downward.downward_api is not None and downward.downward_api.items[0].path == "n"
    kinds = ["emptyDir", "hostPath", "configMap", "downwardAPI", "persistentVolumeClaim", "scaleIO"]
    assert [volume_kind(each) for each in pod.spec.volumes] == kinds
    assert pod.status.conditions == (RunCondition("Ready", "True"),)


def test_a_kind_that_is_not_known() -> None:
    assert volume_kind(RunVolume("x")) == ""


def test_it_is_a_pod_to_every_rule() -> None:
    pod = run_pod(DOCUMENT)
    assert qos_class(pod) == "Burstable"
    grown = allocated_pod(pod, Allocation({"c": Resources({"cpu": QUANTITIES["2"]})}))
    assert isinstance(grown, RunPod)
    assert grown.spec.containers[0].resources.requests == {"cpu": QUANTITIES["2"]}
    assert grown.spec.containers[0].env == pod.spec.containers[0].env


def test_its_containers() -> None:
    pod = run_pod(DOCUMENT)
    assert [each.name for each in containers_of(pod)] == ["s", "i", "c"]
    assert container_named(pod, "i") is pod.spec.init_containers[1]
    assert container_named(pod, "x") is None


BROKEN = [
    pytest.param(b"{", "not JSON", id="no JSON"),
    pytest.param(b'{"spec": {"containers": [{"name": 5}]}}', "spec.containers[0].name", id="mistyped"),
    pytest.param(b'{"spec": {"overhead": {"cpu": "many"}}}', "quantities must match", id="quantity"),
    pytest.param(b'{"spec": {"overhead": {"cpu": true}}}', "quantities must match", id="no quantity at all"),
]


@pytest.mark.parametrize(("data", "words"), BROKEN)
def test_broken(data: bytes, words: str) -> None:
    with pytest.raises(InvalidObjectError) as caught:
        run_pod_from_json(data)
    assert words in str(caught.value)


def test_a_status_as_it_is_sent() -> None:
    status = RunStatus(
        phase="Running",
        conditions=(RunCondition("Ready", "True", last_transition_time="t"),),
        container_statuses=(
            RunContainerStatus(
                name="c",
                state=RunState(running=Running("t1")),
                last_state=RunState(terminated=Terminated(reason="Completed")),
                started=False,
                resources=Resources({"cpu": QUANTITIES["500m"]}),
            ),
        ),
    )
    assert status_document(status) == {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "t", "lastProbeTime": None}],
        "containerStatuses": [
            {
                "name": "c",
                "state": {"running": {"startedAt": "t1"}},
                "lastState": {
                    "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": None, "finishedAt": None}
                },
                "ready": False,
                "restartCount": 0,
                "image": "",
                "imageID": "",
                "started": False,
                "resources": {"requests": {"cpu": "500m"}},
            }
        ],
    }
    assert msgspec.convert(status_document(status)["conditions"][0], RunCondition) == status.conditions[0]
