"""Workloads on a real node: what containers see, and a rollout that cannot succeed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, RealNode, real_node
from tests.e2e.waiting import until

RUNS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture(autouse=True)
def _cleaned(kube: Kubectl) -> Iterator[None]:
    """Owners first: their pods would be created again."""
    yield
    kube("delete", "deployments,statefulsets,daemonsets,jobs", "--all")
    until(lambda: kube("get", "pods", "-o", "name").out == "")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("workloads") / "cluster", "1.36") as made:
        exercised("workloads", "a node with the embedded runtime")
        yield made


def _manifest(api_version: str, kind: str, name: str, script: str, *, policy: str = "Always", **spec: Any) -> str:
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    pod_spec = {"containers": [container], "restartPolicy": policy, "terminationGracePeriodSeconds": 2}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec}
    if kind != "Job":
        spec["selector"] = {"matchLabels": {"app": name}}
    document = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }
    return json.dumps(document)


def test_a_rollout_that_fails_leaves_pods_running(kube: Kubectl) -> None:
    good = _manifest("apps/v1", "Deployment", "d", RUNS, replicas=4, progressDeadlineSeconds=5)
    bad = good.replace('["sh", "-c"', '["/no/such/program", "-c"')
    assert bad != good
    kube("apply", "-f", "-", stdin=good)
    kube("rollout", "status", "deploy/d", "--timeout=90s")
    kube("apply", "-f", "-", stdin=bad)
    failed = kube.run("rollout", "status", "deploy/d", "--timeout=60s")
    assert 'deployment "d" exceeded its progress deadline' in failed.err
    counts = "{.status.availableReplicas} {.status.replicas} {.status.updatedReplicas}"
    assert kube("get", "deploy", "d", "-o", f"jsonpath={counts}").out == "3 5 2", "25 % of 4: one more, one fewer"
    kube("rollout", "undo", "deploy/d")
    kube("rollout", "status", "deploy/d", "--timeout=60s")
    assert kube("get", "deploy", "d", "-o", "jsonpath={.status.availableReplicas}").out == "4"


def test_jobs_sets_and_daemons_run(kube: Kubectl) -> None:
    script = "echo $JOB_COMPLETION_INDEX $(hostname)"
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    kube("apply", "-f", "-", stdin=_manifest("batch/v1", "Job", "j", script, policy="Never", **indexed))
    kube("wait", "job/j", "--for=condition=Complete", "--timeout=90s")
    said = {kube("logs", name).out for name in kube("get", "pods", "-l", "job-name=j", "-o", "name").lines}
    assert said == {f"{index} j-{index}\n" for index in range(3)}
    assert kube("get", "job", "j", "-o", "jsonpath={.status.completedIndexes}").out == "0-2"

    kube("apply", "-f", "-", stdin=_manifest("apps/v1", "StatefulSet", "s", RUNS, replicas=2, serviceName="s"))
    kube("apply", "-f", "-", stdin=_manifest("apps/v1", "DaemonSet", "ds", RUNS))
    for what in ("sts/s", "ds/ds"):
        kube("rollout", "status", what, "--timeout=90s")
    assert kube("exec", "s-1", "--", "hostname").out == "s-1\n"
    assert kube("get", "pods", "-l", "app=ds", "-o", "jsonpath={.items[*].spec.nodeName}").out == NODE
