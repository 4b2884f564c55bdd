"""Workloads with real kubectl: rollouts and their history, StatefulSets, DaemonSets, CronJobs and their tables."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.e2e.kubectl import Kubectl
from tests.e2e.waiting import until

KUBECTL_PAIRS = (("1.36", "package"),)  # what controllers do is the same for every kubectl
LABELS = {"app": "w"}


def _workload(kind: str, name: str, **spec: Any) -> str:
    template = {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}], "terminationGracePeriodSeconds": 0},
    }
    whole = {"selector": {"matchLabels": LABELS}, "template": template, **spec}
    return json.dumps({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": whole})


def _image(kubectl: Kubectl, what: str) -> str:
    return kubectl("get", what, "-o", "jsonpath={.spec.template.spec.containers[0].image}").out


def test_rollouts(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_workload("Deployment", "d", replicas=2))
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/d", "--timeout=90s").out
    kubectl("set", "image", "deploy/d", "c=nginx:2")
    kubectl("rollout", "status", "deploy/d", "--timeout=90s")
    assert [line.split()[0] for line in kubectl("rollout", "history", "deploy/d").lines[2:] if line] == ["1", "2"]
    assert "nginx:1" in kubectl("rollout", "history", "deploy/d", "--revision=1").out
    assert kubectl("rollout", "undo", "deploy/d").out == "deployment.apps/d rolled back\n"
    kubectl("rollout", "status", "deploy/d", "--timeout=90s")
    assert _image(kubectl, "deploy/d") == "nginx:1"
    assert [line.split()[0] for line in kubectl("rollout", "history", "deploy/d").lines[2:] if line] == ["2", "3"]
    assert kubectl("rollout", "pause", "deploy/d").out == "deployment.apps/d paused\n"
    kubectl("set", "image", "deploy/d", "c=nginx:3")
    assert kubectl("rollout", "resume", "deploy/d").out == "deployment.apps/d resumed\n"
    kubectl("rollout", "status", "deploy/d", "--timeout=90s")
    assert kubectl("rollout", "restart", "deploy/d").out == "deployment.apps/d restarted\n"
    kubectl("rollout", "status", "deploy/d", "--timeout=90s")
    described = kubectl("describe", "deploy", "d").out
    assert re.search(r"NewReplicaSet: +d-\w+ \(2/2 replicas created\)", described)
    assert re.search(r"ScalingReplicaSet .*deployment-controller +Scaled up replica set d-\w+ from 0 to 2", described)
    kubectl("delete", "deploy", "d", "--cascade=orphan")
    assert len(kubectl("get", "rs", "-o", "name").lines) == 4
    kubectl("delete", "rs", "--all")


def test_stateful_sets(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_workload("StatefulSet", "s", replicas=2, serviceName="svc"))
    kubectl("rollout", "status", "sts/s", "--timeout=90s")
    assert sorted(kubectl("get", "pods", "-o", "name").lines) == ["pod/s-0", "pod/s-1"]
    assert kubectl("get", "sts").table[0][:2] == ["s", "2/2"]
    kubectl("set", "image", "sts/s", "c=nginx:2")
    kubectl("rollout", "status", "sts/s", "--timeout=90s")
    assert kubectl("rollout", "undo", "sts/s").out == "statefulset.apps/s rolled back\n"
    kubectl("rollout", "status", "sts/s", "--timeout=90s")
    assert _image(kubectl, "sts/s") == "nginx:1"
    rows = kubectl("get", "controllerrevisions").table
    assert sorted(row[1:3] for row in rows) == [["statefulset.apps/s", "2"], ["statefulset.apps/s", "3"]]
    kubectl("scale", "sts/s", "--replicas=1")
    until(lambda: kubectl("get", "pods", "-o", "name").lines == ["pod/s-0"])
    assert "create Pod s-0 in StatefulSet s successful" in kubectl("describe", "sts", "s").out
    kubectl("delete", "sts", "s")
    until(lambda: kubectl("get", "pods", "-o", "name").out == "")


def test_daemon_sets(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_workload("DaemonSet", "ds"))
    kubectl("rollout", "status", "ds/ds", "--timeout=90s")
    assert kubectl("get", "ds").table[0][:7] == ["ds", "1", "1", "1", "1", "1", "<none>"]
    kubectl("set", "image", "ds/ds", "c=nginx:2")
    kubectl("rollout", "status", "ds/ds", "--timeout=90s")
    kubectl("rollout", "undo", "ds/ds")
    kubectl("rollout", "status", "ds/ds", "--timeout=90s")
    (pod,) = kubectl("get", "pods", "-o", "name").lines
    assert kubectl("get", pod, "-o", "jsonpath={.spec.containers[0].image} {.spec.nodeName}").out == "nginx:1 n1"
    assert "SuccessfulCreate" in kubectl("describe", "ds", "ds").out
    kubectl("delete", "ds", "ds")


def test_jobs_and_cron_jobs(kubectl: Kubectl) -> None:
    kubectl("create", "cronjob", "c", "--image=busybox:1", "--schedule=0 0 1 1 *", "--", "true")
    assert kubectl("get", "cj").table[0][:8] == ["c", "0", "0", "1", "1", "*", "<none>", "False"]
    assert kubectl("create", "job", "j", "--from=cronjob/c").out == "job.batch/j created\n"
    kubectl("wait", "job/j", "--for=condition=Complete", "--timeout=90s")
    described = kubectl("describe", "job", "j").out
    assert re.search(r"Completed .*job-controller +Job completed", described), described
    assert "Schedule:" in kubectl("describe", "cronjob", "c").out
    assert kubectl.refused("create", "cronjob", "x", "--image=b", "--schedule=never").endswith(
        "expected exactly 5 fields, found 1: [never]"
    )


def test_every_workload_has_a_short_name_and_a_category(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(_replication_controller()))
    kubectl("wait", "rc/rc", "--for=jsonpath={.status.availableReplicas}=2", "--timeout=90s")
    assert kubectl("get", "rc").table[0][:4] == ["rc", "2", "2", "2"]
    assert "replicationcontroller/rc" in kubectl("get", "all", "-o", "name").lines
    described = kubectl("describe", "rc", "rc").out
    assert re.search(r"Replicas: +2 current / 2 desired", described)
    kubectl("scale", "rc/rc", "--replicas=1")
    until(lambda: kubectl("get", "rc").table[0][1:4] == ["1", "1", "1"])
    resources = {line.split()[0]: line for line in kubectl("api-resources", "--categories=all").lines[1:]}
    assert {"daemonsets", "statefulsets", "cronjobs", "jobs", "replicationcontrollers"} <= resources.keys()
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}}
    template["template"] = _replication_controller()["spec"]["template"]
    kubectl("create", "-f", "-", stdin=json.dumps(template))
    assert kubectl("get", "podtemplates").table[0][:4] == ["t", "c", "nginx:1", "app=w"]
    kubectl("create", "quota", "q", "--hard=count/statefulsets.apps=0")
    until(lambda: kubectl("get", "quota", "q", "-o", "jsonpath={.status.used}").out)
    refused = kubectl.refused("create", "-f", "-", stdin=_workload("StatefulSet", "no"))
    assert "exceeded quota: q, requested: count/statefulsets.apps=1" in refused


def _replication_controller() -> dict[str, Any]:
    template = json.loads(_workload("Deployment", "x"))["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "rc"},
        "spec": {"replicas": 2, "template": template},
    }
