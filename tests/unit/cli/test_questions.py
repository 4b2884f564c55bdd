"""`plimsoll explain resize|eviction-order|oom-order`: results from manifests, and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.console import run

DOCUMENTS = Path(__file__).resolve().parents[3] / "examples" / "documents"
DEMO = str(DOCUMENTS / "003-demo.yaml")
ROOM = ("--capacity", "cpu=8,memory=16Gi", "--cgroup", "v2")


def pod(name: str, request: str | None = None, *, priority: int | None = None, cpu: str = "1") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": request}} if request else {}
    spec: dict[str, Any] = {"containers": [{"name": "app", "image": "i", "resources": resources}]}
    if priority is not None:
        spec["priority"] = priority
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def written(path: Path, *pods: dict[str, Any]) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}))
    return str(path)


# --- resize ---

RESIZES = [
    ("in place", "resized-cpu-2", (), 0, ["accepted", "cpu.max     100000 100000 → 200000 100000"]),
    ("with a restart", "resized-memory-500mi", (), 0, ["restart: container demo", "at the restart of the container"]),
    ("another class", "refused-qos-change", (), 2, ["Pod QoS is immutable", '{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}']),
    ("another class, 1.36", "refused-qos-change", ("--profile", "1.36"), 2, ["Pod QOS Class may not change"]),
    ("the v1 files", "resized-cpu-2", ("--cgroup", "v1"), 0, ["cpu.cfs_quota_us  100000 → 200000"]),
    ("nothing", "", (), 0, ["no change"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("new", "options", "code", "texts"), [row[1:] for row in RESIZES], ids=[row[0] for row in RESIZES]
)
def test_resize(new: str, options: tuple[str, ...], code: int, texts: list[str]) -> None:
    ran = run("explain", "resize", DEMO, str(DOCUMENTS / f"003-demo-{new}.yaml") if new else DEMO, *ROOM, *options)
    assert ran.code == code, ran.err
    assert all(text in ran.out for text in texts), ran.out


def test_resize_with_other_pods(tmp_path: Path) -> None:
    """Which pods must be removed, and the largest request that fits."""
    old, new = (
        written(tmp_path / "old.json", pod("web", "1Gi")),
        written(tmp_path / "new.json", pod("web", "1Gi", cpu="4")),
    )
    others = written(tmp_path / "others.json", pod("a", "1Gi", cpu="3"), pod("b", "1Gi", cpu="2500m"))
    ran = run("explain", "resize", old, new, *ROOM, "--others", others, "-o", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["outcome"]) == (1, "deferred")
    assert found["room"] == {"short": {"cpu": "1500m"}, "pods": ["shop/b"], "freed": {"cpu": "2500m"}}
    assert found["largest"] == [{"container": "app", "resource": "cpu", "ever": "8", "now": "2500m"}]
    both = written(tmp_path / "both.json", pod("web", "15Gi", cpu="4"))
    ran = run("explain", "resize", old, both, *ROOM, "--others", others)
    assert "short of cpu 1500m, memory " in ran.out
    assert re.search("fits after removal of shop/[ab], shop/[ab] \\(frees cpu 5500m, memory 2Gi\\)\n", ran.out)
    huge = written(tmp_path / "huge.json", pod("web", "1Gi", cpu="9"))
    ran = run("explain", "resize", old, huge, *ROOM)
    assert ran.code == 1
    assert "cpu: the maximum for container app on this node is 8\n" in ran.out
    ran = run("explain", "resize", old, huge, *ROOM, "--profile", "1.36")
    assert ran.code == 2
    assert "node didn't have enough allocatable resources: cpu, requested: 9000, allocatable: 8000" in ran.out


def init(name: str, cpu: str) -> dict[str, Any]:
    document = pod(name, "1Gi")
    resources = {"requests": {"cpu": cpu}}
    document["spec"]["initContainers"] = [{"name": "first", "image": "i", "resources": resources}]
    return document


def guaranteed(name: str, cpu: str) -> dict[str, Any]:
    document = pod(name, "1Gi", cpu=cpu)
    resources = document["spec"]["containers"][0]["resources"]
    resources["limits"] = dict(resources["requests"])
    return document


SETTINGS = [
    ("no resizes", pod("web", "1Gi"), pod("web", "1Gi", cpu="2"), {"featureGates": {"InPlacePodVerticalScaling": False}},
     2, ["rejected by the API server", "does not change the resources of a running pod"]),
    ("no init containers", init("web", "1"), init("web", "2"),
     {"featureGates": {"InPlacePodVerticalScalingInitContainers": False}},
     2, ["resources for non-sidecar init containers are immutable"]),
    ("swap", pod("web", "1Gi"), pod("web", "2Gi"), {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}},
     1, ["In-place resize of containers with swap is not supported.", "change only the memory limit"]),
    ("parts of CPUs", guaranteed("web", "1"), guaranteed("web", "1500m"),
     {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}, 1, ["request 2 (container app)"]),
    ("CPUs that others own", guaranteed("web", "1"), guaranteed("web", "5"),
     {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "500m"}},
     1, ["Deferred", "not enough cpus available to satisfy request: requested=5, available=4",
         "the maximum for container app on this node is 7; now: 4"]),
    ("the eviction threshold is not Infeasible", pod("web", "1Gi"), pod("web", "15Gi"),
     {"evictionHard": {"memory.available": "2Gi"}}, 1, ["Deferred", "the maximum for container app on this node is 14Gi"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "config", "code", "texts"), [row[1:] for row in SETTINGS], ids=[row[0] for row in SETTINGS]
)
def test_resize_with_a_kubelet_configuration(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], config: dict[str, Any], code: int, texts: list[str]
) -> None:
    """The verdict of an agent with that configuration; without it, all of these are accepted."""
    files = written(tmp_path / "old.json", old), written(tmp_path / "new.json", new)
    others = written(tmp_path / "others.json", guaranteed("other", "3"))
    assert run("explain", "resize", *files, *ROOM).code == 0
    (tmp_path / "config.json").write_text(json.dumps(config))
    beside = ("--others", others) if "cpuManagerPolicy" in config else ()
    ran = run("explain", "resize", *files, *ROOM, *beside, "--config", str(tmp_path / "config.json"))
    assert ran.code == code, ran
    assert all(text in ran.out for text in texts), ran.out


def test_resize_with_a_dump_that_contains_the_pod(tmp_path: Path) -> None:
    """The output of `kubectl get pods` has a uid and a namespace, which the manifest lacks."""
    stored = pod("web", "1Gi", cpu="5")
    stored["metadata"] |= {"uid": "u1", "namespace": "default"}
    manifest, larger = ({**pod("web", "1Gi", cpu=cpu), "metadata": {"name": "web"}} for cpu in ("5", "6"))
    old, new = written(tmp_path / "old", manifest), written(tmp_path / "new", larger)
    alone = run("explain", "resize", old, new, *ROOM)
    beside = run("explain", "resize", old, new, *ROOM, "--others", written(tmp_path / "others", stored))
    assert (alone.code, beside.out) == (0, alone.out)


def test_resize_with_unreadable_other_pods(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", pod("web", "1Gi")), written(tmp_path / "new", pod("web", "2Gi"))
    ran = run("explain", "resize", old, new, *ROOM, "--others", written(tmp_path / "others", pod("other", "1gb")))
    assert (ran.code, "requests[memory]" in ran.err) == (2, True)
    ended = {**pod("other", "15Gi"), "status": {"phase": "Failed"}}
    ran = run("explain", "resize", old, new, *ROOM, "--others", written(tmp_path / "others", ended))
    assert (ran.code, ran.err) == (0, "note: 1 pods have ended and use no resources\n")


def test_resize_to_another_pod(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", pod("web", "1Gi")), written(tmp_path / "new", pod("db", "2Gi"))
    ran = run("explain", "resize", old, new, *ROOM)
    assert (ran.code, "note: NEW has another name, db: only its resources are used" in ran.out) == (0, True)


def test_resize_of_pod_level_resources(tmp_path: Path) -> None:
    def sized(memory: str) -> dict[str, Any]:
        made = pod("web", "64Mi")
        own = {"requests": {"memory": "100Mi"}, "limits": {"memory": memory}}
        return {**made, "spec": {**made["spec"], "resources": own}}

    old, new = written(tmp_path / "old", sized("1Gi")), written(tmp_path / "new", sized("512Mi"))
    ran = run("explain", "resize", old, new, *ROOM, "--profile", "1.36", "--used", "600Mi")
    assert "  the pod  memory  limit  1Gi → 512Mi\n" in ran.out
    assert "unsafe shrink: the pod uses 600Mi now, its new limit is 512Mi" in ran.out


def test_resize_of_an_ended_pod(tmp_path: Path) -> None:
    old, new = ({**pod("web", "1Gi", cpu=cpu), "status": {"phase": "Succeeded"}} for cpu in ("1", "2"))
    ran = run("explain", "resize", written(tmp_path / "old", old), written(tmp_path / "new", new), *ROOM)
    assert (ran.code, "the pod has no active node" in ran.out) == (1, True)


@pytest.mark.parametrize("used", ["900Mi", "app=900Mi"], ids=["one amount", "by name"])
def test_resize_below_the_usage(tmp_path: Path, used: str) -> None:
    def limited(name: str, memory: str) -> str:
        document = pod("web", "100Mi")
        document["spec"]["containers"][0]["resources"]["limits"] = {"memory": memory}
        return written(tmp_path / name, document)

    ran = run("explain", "resize", limited("old.json", "1Gi"), limited("new.json", "512Mi"), *ROOM, "--used", used)
    assert "unsafe shrink: container app uses 900Mi now, its new limit is 512Mi" in ran.out


def test_resize_ignores_other_changes(tmp_path: Path) -> None:
    changed = pod("web", "2Gi")
    changed["spec"]["containers"][0]["image"] = "another"
    ran = run("explain", "resize", written(tmp_path / "a", pod("web", "1Gi")), written(tmp_path / "b", changed), *ROOM)
    assert ran.code == 0
    assert "NEW differs in more than resources" in ran.out


# --- eviction and OOM order ---


def test_eviction_order(tmp_path: Path) -> None:
    """Pods above their request first, then by priority, then by excess; critical pods are exempt."""
    file = written(
        tmp_path / "pods.json",
        pod("within", "1Gi"),
        pod("important", priority=1000),
        pod("over", "100Mi"),
        pod("far-over", "100Mi"),
        pod("system", priority=2_000_000_000),
    )
    used = "within=900Mi,important=3Gi,over=200Mi,far-over=1Gi,system=5Gi"
    ran = run("explain", "eviction-order", file, "--usage", used, *ROOM, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)["decision"]
    shown = [(each["name"], each.get("before", "")) for each in found["order"]]
    assert shown == [
        ("far-over", "larger excess"),
        ("over", "lower priority"),
        ("important", "exceeds its request"),
        ("system", ""),
        ("within", ""),
    ]
    text = run("explain", "eviction-order", file, "--usage", used, *ROOM).out
    assert "first: shop/far-over" in text
    assert "exempt: critical" in text


UNKNOWN = [
    ("a share of process numbers", "pid.available", "pid.available<5%", None),
    ("a share of inodes", "nodefs.inodesFree", "nodefs.inodesFree<5%", None),
    ("an amount", "pid.available", "pid.available<200", True),
    ("a smaller amount", "nodefs.inodesFree", "nodefs.inodesFree<50", False),
]


@pytest.mark.parametrize(("signal", "hard", "met"), [row[1:] for row in UNKNOWN], ids=[row[0] for row in UNKNOWN])
def test_a_percentage_of_an_unknown_capacity_is_not_evaluated(
    tmp_path: Path, signal: str, hard: str, met: bool | None
) -> None:
    """--capacity does not contain process ids and inodes."""
    file = written(tmp_path / "pods.json", pod("a"))
    words = ("--usage", "a=10", "--signal", signal, "--available", "100", "--eviction-hard", hard)
    found = json.loads(run("explain", "eviction-order", file, *words, *ROOM, "-o", "json").out)
    assert found.get("met") is met
    assert any("is unknown" in each for each in found.get("notes", ())) is (met is None)


def test_pods_of_equal_rank(tmp_path: Path) -> None:
    file = written(tmp_path / "pods.json", pod("a"), pod("b"), pod("c", priority=1))
    words = ("explain", "eviction-order", file, *ROOM)
    assert "first: shop/a (or another pod with equal rank)\n" in run(*words).out
    assert "first: shop/b\n" in run(*words, "--usage", "a=1Mi,b=2Mi,c=3Mi").out


AVAILABLE = [
    ("met", "50Mi", ["hard threshold 100Mi: met", "first: shop/over, grace 1 s", "The node was low on resource: memory."]),
    ("not met", "1Gi", ["not met: no pod is evicted"]),
]  # fmt: skip


@pytest.mark.parametrize(("available", "texts"), [row[1:] for row in AVAILABLE], ids=[row[0] for row in AVAILABLE])
def test_eviction_with_an_available_amount(tmp_path: Path, available: str, texts: list[str]) -> None:
    file = written(tmp_path / "pods.json", pod("over", "100Mi"), pod("within", "1Gi"))
    usage = tmp_path / "usage.yaml"
    usage.write_text("over: 200Mi\nshop/within: 900Mi\n")
    ran = run("explain", "eviction-order", file, "--usage-file", str(usage), "--available", available, *ROOM)
    assert ran.code == 0, ran.err
    assert all(text in ran.out for text in texts), ran.out


CONFIGURED = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m}
evictionMaxPodGracePeriod: 30
featureGates: {PodLevelResources: %s}
---
apiVersion: plimsoll.dev/v1
kind: NodeExtras
evictionHardGraceSeconds: 0
"""


@pytest.mark.parametrize(
    ("available", "text"),
    [("500Mi", "soft threshold 1Gi: met"), ("50Mi", "hard threshold 100Mi: met")],
    ids=["soft", "hard"],
)
def test_the_grace_periods_of_the_configuration_are_used(tmp_path: Path, available: str, text: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIGURED % "true")
    slow = pod("slow")
    slow["spec"]["terminationGracePeriodSeconds"] = 60
    file = written(tmp_path / "pods.json", slow)
    words = ("--usage", "slow=1Gi", "--available", available, "--config", str(config), *ROOM)
    ran = run("explain", "eviction-order", file, *words)
    grace_s = 30 if available == "500Mi" else 0
    assert (ran.code, f"first: shop/slow, grace {grace_s} s\n" in ran.out) == (0, True), ran.out + ran.err
    if grace_s:
        assert text in ran.out
    result = json.loads(run("explain", "eviction-order", file, *words, "-o", "json").out)
    assert result["decision"]["graceS"] == grace_s


@pytest.mark.parametrize(("gate", "first"), [("true", "plain"), ("false", "pod-level")])
def test_without_the_gate_pod_level_requests_are_ignored(tmp_path: Path, gate: str, first: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIGURED % gate)
    whole = pod("pod-level")
    whole["spec"]["resources"] = {"requests": {"memory": "1Gi"}}
    file = written(tmp_path / "pods.json", whole, pod("plain", "800Mi"))
    used = "pod-level=950Mi,plain=900Mi"
    words = ("--usage", used, "--config", str(config), "--profile", "1.36", *ROOM)
    ran = run("explain", "eviction-order", file, *words)
    assert f"first: shop/{first}\n" in ran.out, ran.out + ran.err


def test_the_order_is_complete(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(25)]
    file = written(tmp_path / "pods.json", *map(pod, names))
    words = ("--usage", ",".join(f"{name}=1Gi" for name in names), *ROOM)
    found = json.loads(run("explain", "eviction-order", file, *words, "-o", "json").out)["decision"]
    assert (len(found["order"]), found["pods"]) == (25, 25)
    assert all(f"shop/{name} " in run("explain", "eviction-order", file, *words).out for name in names)


@pytest.mark.parametrize(("layout", "code"), [("single", "nodefs"), ("dedicated", "imagefs")])
def test_thresholds_of_the_file_system_that_containers_write_to(tmp_path: Path, layout: str, code: str) -> None:
    """containerfs has no thresholds of its own: those of its file system are used (04 §1)."""
    file = written(tmp_path / "pods.json", pod("a"))
    capacity = ("--capacity", "cpu=8,memory=16Gi,ephemeral-storage=100Gi", "--cgroup", "v2")
    hard = ("--eviction-hard", f"{code}.available<7Gi", "--signal", "containerfs.available", "--available", "5Gi")
    words = ("--usage", "a=1Gi", "--layout", layout, *hard, *capacity)
    ran = run("explain", "eviction-order", file, *words)
    assert "hard threshold 7Gi: met" in ran.out, ran.out + ran.err
    other = "single" if layout == "dedicated" else "dedicated"
    ran = run("explain", "eviction-order", file, *words, "--layout", other)
    assert "no threshold is set for containerfs.available" in ran.out
    assert "hard threshold" not in ran.out


OTHER_SIGNALS = [
    ("processes", "pid.available", "a=10,b=300", "b"),
    ("disk", "nodefs.available", "a=10Gi,b=1Gi", "a"),
    ("inodes", "nodefs.inodesFree", "a=10,b=300", "b"),
    ("disk beside images", "nodefs.available --layout dedicated", "a=10Gi,b=1Gi", "a"),
]


@pytest.mark.parametrize(
    ("signal", "usage", "first"), [row[1:] for row in OTHER_SIGNALS], ids=[row[0] for row in OTHER_SIGNALS]
)
def test_eviction_for_other_signals(tmp_path: Path, signal: str, usage: str, first: str) -> None:
    file = written(tmp_path / "pods.json", pod("a", "1Gi"), pod("b", "1Gi"))
    ran = run("explain", "eviction-order", file, "--signal", *signal.split(), "--usage", usage, *ROOM)
    assert f"first: shop/{first}\n" in ran.out


def test_a_pod_without_statistics_ranks_first(tmp_path: Path) -> None:
    file = written(tmp_path / "pods.json", pod("a"), pod("b"))
    summary = tmp_path / "summary.json"
    report = {"podRef": {"name": "a", "namespace": "shop"}, "memory": {"workingSetBytes": 1 << 30}}
    summary.write_text(json.dumps({"pods": [report]}))
    ran = run("explain", "eviction-order", file, "--usage-file", str(summary), *ROOM)
    assert "first: shop/b" in ran.out
    assert "no statistics" in ran.out
    assert "1 of 2 pods have no known usage" in ran.out


def test_oom_order(tmp_path: Path) -> None:
    """BestEffort before Burstable; of two equal ones the larger; Guaranteed last."""
    guaranteed = pod("gold", "4Gi")
    guaranteed["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1", "memory": "4Gi"}
    file = written(tmp_path / "pods.json", guaranteed, pod("silver", "1Gi"), pod("silver-2", "1Gi"), pod("bronze"))
    used = "gold=4Gi,silver=1Gi,silver-2/app=2Gi,bronze=100Mi"
    ran = run("explain", "oom-order", file, "--usage", used, "--capacity", "cpu=8,memory=8Gi", "-o", "json")
    found = json.loads(ran.out)
    assert [(each["candidate"]["pod"], each["points"]) for each in found] == [
        ("silver-2", 250 + 875),
        ("bronze", 12 + 1000),
        ("silver", 125 + 875),
        ("gold", 500 - 997),
    ]
    text = run("explain", "oom-order", file, "--usage", used, "--capacity", "cpu=8,memory=8Gi").out
    assert text.splitlines()[3].split() == ["1", "app", "shop/silver-2", "2.0", "GiB", "250", "875", "1125"]


def test_oom_order_of_this_machine() -> None:
    ran = run("explain", "oom-order", "--all", "-o", "json")
    found = json.loads(ran.out)
    assert ran.code == 0
    assert any(each["candidate"]["pid"] == __import__("os").getpid() for each in found)
    lines = run("explain", "oom-order").out.splitlines()
    assert lines[0].startswith("processes of this machine")
    assert "PID" in lines[1]


WRONG = [
    ("no such pod", ["eviction-order", "FILE", "--usage", "x=1"], "no pod 'x'; the pods are: a"),
    ("no amount", ["eviction-order", "FILE", "--usage", "a"], "is not name=amount"),
    ("no quantity", ["eviction-order", "FILE", "--usage", "a=much"], "'much'"),
    ("below nothing", ["eviction-order", "FILE", "--usage", "a=-1"], "greater than or equal to 0"),
    ("no file", ["eviction-order", "FILE", "--usage-file", "/nowhere"], "No such file"),
    ("no signal", ["eviction-order", "FILE", "--signal", "luck.available"], "luck.available"),
    ("usage of a live node", ["eviction-order", "--usage", "a=1"], "a live node reports"),
    (
        "oom: no such container",
        ["oom-order", "FILE", "--usage", "a/x=1"],
        "no container a/x; the containers are: a/app",
    ),
    ("resize: one file", ["resize", "FILE"], "Missing argument 'NEW'"),
    ("resize: no pod", ["resize", "FILE", "/nowhere"], "/nowhere: No such file"),
    (
        "resize: no such container",
        ["resize", "FILE", "FILE", "--used", "x=1"],
        "no container x; the containers are: app",
    ),
]


@pytest.mark.parametrize(("words", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_mistakes(tmp_path: Path, words: list[str], text: str) -> None:
    file = written(tmp_path / "pods.json", pod("a", "1Gi"))
    ran = run("explain", *(file if word == "FILE" else word for word in words), *ROOM)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


@pytest.mark.parametrize("word", ["resize", "eviction-order", "oom-order"])
def test_help_has_examples(word: str) -> None:
    ran = run("explain", word, "--help")
    assert ran.code == 0
    assert f"plimsoll explain {word} " in ran.out


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = pod("a", "1Gi")
    evil["spec"]["containers"][0]["name"] = "\x1b[2J"
    file = written(tmp_path / "pods.json", evil)
    for words in (["resize", file, file], ["eviction-order", file, "--usage", "a=1"], ["oom-order", file]):
        ran = run("explain", *words, *ROOM)
        assert "\x1b" not in ran.out + ran.err
