"""Fragments of manifests: those of the five documents as they are printed, and what is assumed about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.console import Ran, run
from tests.unit.documents import printed

NODE = ("--capacity", "cpu=48,memory=263192560Ki", "--cgroup", "v2")


def explained(path: Path, text: str, *words: str) -> Ran:
    path.write_text(text)
    return run("explain", str(path), *NODE, *words)


# Values as in examples/documents/expected.yaml; `assumed` is the whole line.
PODS = [
    ("000-02", printed.EXAMPLE, "Burstable", {"cpu": "250m", "memory": "64Mi"}, ["assumed: an image for nginx"]),
    ("002-20", printed.LIMITS_ONLY, "Guaranteed", {"cpu": "110m", "memory": "1124Mi"},
     ["no YAML: `- ` is assumed before `name:` in line 2, 7",
      "assumed: kind Pod, name pod, an image for foo, an image for bar"]),
    ("002-22", printed.EQUAL, "Guaranteed", {"cpu": "110m", "memory": "1124Mi"},
     ["no YAML: `- ` is assumed before `name:` in line 2, 10",
      "assumed: kind Pod, name pod, an image for foo, an image for bar"]),
    ("002-26", printed.BAR_EMPTY, "Burstable", {"cpu": "10m", "memory": "1Gi"},
     ["no YAML: `- ` is assumed before `name:` in line 2, 10",
      "assumed: kind Pod, name pod, an image for foo, an image for bar"]),
    ("002-27", printed.MEMORY_OR_CPU, "Burstable", {"cpu": "100m", "memory": "1Gi"},
     ["no YAML: `- ` is assumed before `name:` in line 2, 6",
      "assumed: kind Pod, name pod, an image for foo, an image for bar"]),
    ("002-31", printed.BEST_EFFORT, "BestEffort", {},
     ["no YAML: `- ` is assumed before `name:` in line 2, 4",
      "assumed: kind Pod, name pod, an image for foo, an image for bar"]),
    ("002-57", printed.QOS_DEMO, "Burstable", {"cpu": "250m", "memory": "1Gi"}, []),
    ("003-64", printed.DEMO, "Guaranteed", {"cpu": "1", "memory": "200Mi"}, []),
    ("003-65", printed.RUNNING, "Guaranteed", {"cpu": "1", "memory": "200Mi"},
     ["assumed: kind Pod, name pod, name container-1, an image for container-1"]),
    ("003-67", printed.IN_PROGRESS, "Guaranteed", {"cpu": "2", "memory": "200Mi"},
     ["assumed: kind Pod, name pod, name container-1, an image for container-1"]),
    ("004-06", printed.BUSYBOX, "Burstable", {"cpu": "250m", "memory": "300Mi"}, ["assumed: name pod"]),
    ("one container", "resources:\n  requests: {cpu: 1}\n", "Burstable", {"cpu": "1"},
     ["assumed: kind Pod, name pod, name container-1, an image for container-1"]),
    ("its resources", "requests: {cpu: 1}\nlimits: {cpu: 2}\n", "Burstable", {"cpu": "1"},
     ["assumed: kind Pod, name pod, name container-1, an image for container-1"]),
    ("an init container", "initContainers: [{resources: {requests: {cpu: 1}}}]\ncontainers: [{name: c}]\n",
     "Burstable", {"cpu": "1"}, ["assumed: kind Pod, name pod, name init-1, an image for init-1, an image for c"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "qos", "requests", "assumed"), [row[1:] for row in PODS], ids=[row[0] for row in PODS]
)
def test_pods(tmp_path: Path, text: str, qos: str, requests: dict[str, str], assumed: list[str]) -> None:
    file = tmp_path / "printed.yaml"
    ran = explained(file, text, "-o", "json")
    assert ran.code == 0, ran.err
    (pod,) = json.loads(ran.out)["pods"]
    assert (pod["qosClass"], pod["requests"]) == (qos, requests)
    assert ran.err.splitlines() == [f"note: {file}: {line}" for line in assumed]


CONFIGS = [
    ("000-40", printed.MEMORY_QOS, "memory.min", "67108864"),
    ("003-62", printed.RESIZE_GATE, "allocatable", "cpu 48"),
    ("004-22", printed.RESERVED, "allocatable", "cpu 46"),
    ("004-75", printed.CGROUPS, "", "kubepods/burstable"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "row", "value"), [row[1:] for row in CONFIGS], ids=[row[0] for row in CONFIGS])
def test_kubelet_configurations(tmp_path: Path, text: str, row: str, value: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text.removeprefix("...\n"))  # that line stands for others
    ran = explained(tmp_path / "pod.yaml", printed.EXAMPLE, "--config", str(config))
    assert ran.code == 0, ran.err
    assert any(row in line and value in line for line in ran.out.splitlines()), ran.out


RESIZES = [
    ("003-66", printed.PATCH_2, (), 0, ["accepted", "cpu.max     100000 100000 → 200000 100000"]),
    ("003-70", printed.PATCH_QOS, (), 2, ["Pod QoS is immutable"]),
    ("003-76", printed.PATCH_3, (), 0, ["accepted", "cpu.max     100000 100000 → 300000 100000"]),
]


@pytest.mark.parametrize(
    ("patch", "words", "code", "texts"), [row[1:] for row in RESIZES], ids=[row[0] for row in RESIZES]
)
def test_patches(tmp_path: Path, patch: str, words: tuple[str, ...], code: int, texts: list[str]) -> None:
    old, new = tmp_path / "demo.yaml", tmp_path / "patch.json"
    old.write_text(printed.DEMO)
    new.write_text(patch)
    ran = run("explain", "resize", str(old), str(new), *NODE, *words)
    assert ran.code == code, ran.err
    assert all(text in ran.out for text in texts), ran.out
    assert f"note: {new}: no kind: taken as a patch of demo\n" in ran.err


def test_pod_metrics(tmp_path: Path) -> None:
    """004-76: usable as printed but for the comma after selfLink, which is not JSON."""
    pod, metrics = tmp_path / "pod.yaml", tmp_path / "metrics.json"
    pod.write_text("kind: Pod\nmetadata: {name: smoke-pod-01}\nspec: {containers: [{name: netperf}]}\n")
    words = ("explain", "eviction-order", str(pod), *NODE, "--usage-file", str(metrics), "-o", "json")
    metrics.write_text(printed.METRICS)
    ran = run(*words)
    assert ran.code == 2
    assert "line 7" in ran.err
    metrics.write_text(printed.METRICS.replace('smoke-pod-01",\n  }', 'smoke-pod-01"\n  }'))
    order = json.loads(run(*words).out)["decision"]["order"]
    assert [(each["name"], each["usage"]) for each in order] == [("smoke-pod-01", 1808 << 10)]


NOT_PARTS = [
    ("nothing of a pod", "metadata: {name: web}\n", "Object 'Kind' is missing"),
    ("a typing error", "containers: [{name: c}]\nresource: {}\n", "Object 'Kind' is missing"),
    ("YAML that no dash mends", "containers:\n  name: foo\n   image: i\n", "mapping values are not allowed"),
    ("kubelet settings", printed.CGROUPS, "these are settings of the kubelet: use --config FILE"),
    ("a bad amount", "containers: [{name: c, resources: {requests: {cpu: x}}}]\n",
     "containers[0].resources.requests[cpu]: Invalid value"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), [row[1:] for row in NOT_PARTS], ids=[row[0] for row in NOT_PARTS])
def test_errors(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "printed.yaml"
    ran = explained(file, text)
    assert (ran.code, error in ran.err) == (2, True), ran.err
    assert "spec.containers" not in ran.err


def test_other_verbs_say_what_they_assume(tmp_path: Path) -> None:
    file = tmp_path / "printed.yaml"
    file.write_text(printed.LIMITS_ONLY)
    for verb in ("eviction-order", "oom-order"):
        ran = run("explain", verb, str(file), *NODE)
        assert ran.code == 0, ran.err
        assert "assumed: kind Pod, name pod, an image for foo, an image for bar" in ran.out + ran.err


def test_what_acts_takes_whole_pods_only(tmp_path: Path) -> None:
    file = tmp_path / "printed.yaml"
    file.write_text(printed.EXAMPLE)
    ran = run("cgroup", "apply", str(file), *NODE, "--simulate", "--dry-run", "--state-dir", str(tmp_path / "state"))
    assert (ran.code, "spec.containers[0].image: Required value" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("metadata", [{"name": 123}, {"generateName": True}, "web"])
def test_a_name_that_is_no_text_is_not_replaced(tmp_path: Path, metadata: object) -> None:
    file = tmp_path / "pod.json"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    ran = run("explain", str(file), *NODE)
    assert (ran.code, "assumed" in ran.err) == (2, False), ran.err
    assert "metadata" in ran.err
