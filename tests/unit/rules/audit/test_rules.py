"""Each rule has a node on which it is found and one on which it is not: one row per case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.rules.audit.evidence import Application, CpuManagerFacts, NodeEvidence, Overwrite, ProcessFacts
from plimsoll.rules.audit.finding import CLEAN, DRIFT, UNDECIDED, exit_code
from plimsoll.rules.audit.table import RULES, audit
from tests.unit.rules.audit.nodes import (
    GIB,
    NOW_S,
    Bend,
    answer,
    bent,
    container,
    container_id,
    found,
    healthy,
    node_object,
    path_of,
    pod,
    with_cgroup,
    with_counters,
    with_file,
    with_kernel,
    with_process,
    with_record,
    without_cgroup,
)

MIB = 1 << 20
QOS = {"featureGates": {"MemoryQoS": True}, "memoryReservationPolicy": "TieredReservation"}
GUARANTEED = container(requests={"memory": "1Gi", "cpu": "2"}, limits={"memory": "1Gi", "cpu": "2"})
STATIC = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}}
RESIZED = {"metadata": {"generation": 2}}
POD_AT = "/kubepods.slice/kubepods-burstable.slice"


def deferred(age_s: float) -> dict[str, Any]:
    since = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room"}
    from plimsoll.rules.timestamps import rfc3339

    listed = container(requests={"memory": "256Mi"}, limits={"memory": "512Mi"})
    return pod("web", listed, status={"conditions": [{**since, "lastTransitionTime": rfc3339(NOW_S - age_s)}]})


def tmpfs(size: str) -> dict[str, Any]:
    spec = {"volumes": [{"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]}
    listed = container(limits={"memory": "512Mi"})
    return pod("web", {**listed, "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}, spec=spec)


def sidecar() -> dict[str, Any]:
    side = {
        "name": "side",
        "image": "i",
        "restartPolicy": "Always",
        "resources": {"limits": {"ephemeral-storage": "1Gi"}},
    }
    return pod("web", spec={"initContainers": [side]})


def static_node(*, state: CpuManagerFacts | None = None) -> NodeEvidence:
    guaranteed = pod("g", GUARANTEED)
    evidence = healthy(guaranteed, pod("web"), config=STATIC)
    uid = guaranteed["metadata"]["uid"]
    known = state or CpuManagerFacts("static", "0,3", {uid: {"app": "1-2"}})
    return bent(
        evidence,
        with_record(cpu_manager=known),
        with_file("container", "cpuset.cpus", "1-2", "shop/g"),
        with_file("container", "cpuset.cpus", "0,3", "shop/web"),
    )


def throttled(periods: int, times: int, usage_usec: int) -> Bend:
    return with_counters(
        "container",
        {"cpu.stat:nr_periods": periods, "cpu.stat:nr_throttled": times, "cpu.stat:usage_usec": usage_usec},
    )


def _changing() -> NodeEvidence:
    evidence = healthy()
    change = Overwrite(path_of(evidence, "container"), "memory.max", "1073741824", "536870912", NOW_S)
    return bent(evidence, with_record(overwrites=(change,), watched_s=3600.0))


# rule, what is wrong, the node, (field, observed, and a part of expected)
Case = tuple[str, str, Callable[[], NodeEvidence], tuple[str, str, str]]
CASES: list[Case] = [
    ("A01", "a limit of a container", lambda: bent(healthy(), with_file("container", "memory.max", "1073741824")),
     ("memory.max", "1073741824", "536870912")),
    ("A01", "a limit of a pod that was never resized", lambda: bent(healthy(), with_file("pod", "memory.max", "max")),
     ("memory.max", "max", "536870912")),
    ("A01", "a file that is not written", lambda: bent(healthy(), with_file("pod", "memory.high", "1048576")),
     ("memory.high", "1048576", "max")),
    ("A01", "a weight of a class", lambda: bent(healthy(), with_file("class", "cpu.weight", "77", "Burstable")),
     ("cpu.weight", "77", "20")),  # 500m: 512 shares: 1 + 510 · 9999 / 262142
    ("A01", "v1", lambda: bent(healthy(version=1, driver="cgroupfs", release="1.30"),
                               with_file("container", "cpu.shares", "1024")),
     ("cpu.shares", "1024", "512")),
    ("A02", "kubepods without memory.low", lambda: bent(healthy(config=QOS), with_file("pods", "memory.low", "0")),
     ("memory.low", str(256 * MIB), str(256 * MIB))),
    ("A02", "no memory_recursiveprot and nothing of its own",
     lambda: bent(healthy(config=QOS), with_file("container", "memory.low", "0"), with_kernel(recursive_protection=False)),
     ("memory.low", "0", "0")),
    ("A03", "page cache below memory.min", lambda: bent(
        healthy(pod("g", GUARANTEED), config=QOS), with_counters("container", {"memory.stat:file": 40 * MIB})),
     ("memory.min", str(GIB), "less than memory.max")),
    ("A04", "left from another factor", lambda: bent(
        healthy(config={"featureGates": {"MemoryQoS": True}}), with_file("container", "memory.high", "400000000")),
     ("memory.high", "399998976", "510025728")),  # ⌊(256Mi + 0.9 · 256Mi) / 4096⌋ · 4096
    ("A04", "left from when the gate was on", lambda: bent(healthy(), with_file("container", "memory.high", "481296384")),
     ("memory.high", "481296384", "max")),
    ("A05", "a score of an old request", lambda: bent(healthy(), with_process(oom_score_adj=900)),
     ("oom_score_adj", "900", "985")),  # 1000 − 1000 · 256Mi / 16Gi = 984.4, rounded as O-3 does
    ("A06", "the pod's old limit", lambda: bent(healthy(pod(**RESIZED)), with_file("pod", "memory.max", "268435456")),
     ("memory.max", "268435456", "536870912")),
    ("A07", "deferred for an hour", lambda: healthy(deferred(3600)), ("PodResizePending", "Deferred for 60m", "minutes")),
    ("A08", "a quota on exclusive CPUs", lambda: bent(
        static_node(), with_file("container", "cpu.max", "200000 100000", "shop/g")),
     ("cpu.max", "200000 100000", "max")),
    ("A08", "outside its exclusive CPUs", lambda: bent(static_node(), with_file("container", "cpuset.cpus", "0-3", "shop/g")),
     ("cpuset.cpus", "0-3", "1-2")),
    ("A08", "on the CPUs of another", lambda: bent(static_node(), with_file("container", "cpuset.cpus", "0-3", "shop/web")),
     ("cpuset.cpus", "0-3", "0,3")),
    ("A09", "an old container after an upgrade of runc", lambda: bent(
        healthy(pod("a"), pod("b")), with_file("container", "cpu.weight", "20", "shop/a")),
     ("cpu.weight", "20", "59")),  # 500m, 512 shares: linear 20, quadratic 59
    ("A10", "services outweigh the pods of a small node", lambda: bent(
        healthy(node=node_object(cpu="1")), with_cgroup("/system.slice", cpu_weight="100")),
     ("cpu.weight", "kubepods 39, system.slice 100", "at least that of system.slice, 100")),
    ("A11", "another driver than configured", lambda: bent(
        healthy(release="1.30", driver="cgroupfs"), with_record(cgroups={"/kubepods.slice": {}})),
     ("cgroupDriver", "systemd", "cgroupfs")),
    ("A11", "a container at the root", lambda: bent(
        healthy(), with_cgroup("/kubepods-burstable-podaaaa.slice:cri-containerd:" + "c" * 64)),
     ("cgroup", "/kubepods-burstable-podaaaa.slice:cri-containerd:" + "c" * 64, "the same driver")),
    ("A12", "a pod without a cgroup", lambda: bent(healthy(), without_cgroup("pod")), ("cgroup", "none", POD_AT)),
    ("A12", "an orphan", lambda: bent(healthy(), with_cgroup(f"{POD_AT}/kubepods-burstable-poddead.slice")),
     ("cgroup", f"{POD_AT}/kubepods-burstable-poddead.slice", "a pod of the API")),
    ("A13", "memory is never evicted", lambda: healthy(config={"evictionHard": {"nodefs.available": "10%"}}),
     ("evictionHard", "no threshold", "memory.available<100Mi")),
    ("A13", "an enforced cgroup that is missing", lambda: bent(healthy(config={
        "systemReserved": {"cpu": "1"}, "systemReservedCgroup": "/system", "enforceNodeAllocatable": ["pods", "system-reserved"]}),
        without_cgroup("reserved")),
     ("systemReservedCgroup", "none", "an existing cgroup")),
    ("A14", "2 GiB of huge pages", lambda: healthy(node=node_object(hugepages_2Mi="2Gi")),
     ("memory.available", "2.0 GiB too much", "without the memory of huge pages")),
    ("A15", "one process alone", lambda: bent(healthy(), with_file("container", "memory.oom.group", "0")),
     ("memory.oom.group", "0", "1")),
    ("A15", "the whole container, although single kills are set", lambda: bent(
        healthy(config={"singleProcessOOMKill": True}), with_file("container", "memory.oom.group", "1")),
     ("memory.oom.group", "1", "0")),
    ("A16", "swap without limit", lambda: bent(
        healthy(config={"featureGates": {"NodeSwap": True}, "memorySwap": {"swapBehavior": "LimitedSwap"}, "failSwapOn": False}),
        with_file("container", "memory.swap.max", "max")),
     ("memory.swap.max", "max", "0")),
    ("A17", "no limit of processes", lambda: bent(healthy(config={"podPidsLimit": 1000}), with_file("pod", "pids.max", "max")),
     ("pids.max", "max", "1000")),
    ("A17", "a limit beyond the kernel's", lambda: bent(healthy(config={"podPidsLimit": 50000}), with_kernel(pid_max=32768)),
     ("pids.max", "50000", "less than kernel.pid_max, 32768")),
    ("A18", "no memory controller", lambda: bent(healthy(), with_kernel(controllers=("cpu", "cpuset", "pids"))),
     ("cgroup controllers", "cpu, cpuset, pids", "memory")),
    ("A18", "v1 with 1.36", lambda: healthy(version=1), ("cgroup version", "v1 with kubelet 1.36", "v2")),
    ("A19", "a program for empty cgroups", lambda: bent(
        healthy(version=1, release="1.30"), with_kernel(release_agents={"memory": "/tmp/evil"})),
     ("release_agent", "/tmp/evil (memory)", "empty")),
    ("A19", "a container that writes cgroups", lambda: bent(healthy(), with_process(cgroups_writable=True)),
     ("/sys/fs/cgroup", "mounted writable", "mounted read-only")),
    ("A20", "a JVM that does not know cgroup v2", lambda: bent(
        healthy(), with_process(application=Application("jvm", "11.0.15"))),
     ("JVM 11.0.15", "it takes the memory of the machine", "within the limits")),
    ("A21", "a volume larger than the limit", lambda: healthy(tmpfs("1Gi")),
     ("spec.volumes[cache].emptyDir.sizeLimit", "1Gi", "at most 512Mi")),
    ("A22", "a value that changes", _changing,
     ("memory.max", "1073741824 → 536870912", "536870912")),
    ("A23", "a sidecar with a storage limit", lambda: healthy(sidecar()),
     ("limits.ephemeral-storage", "not enforced", "1Gi")),
    ("A24", "bursts of many threads", lambda: bent(healthy(), throttled(1000, 400, 20_000_000), with_process(threads=16)),
     ("cpu.stat", "throttled in 400 of 1000 periods (40%)", "less than 25%")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "_what", "node", "expected"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES])
def test_it_is_found(rule: str, _what: str, node: Callable[[], NodeEvidence], expected: tuple[str, str, str]) -> None:
    field, observed, wanted = expected
    match = [each for each in found(node(), rule) if each.field == field and each.observed.startswith(observed)]
    assert match, found(node(), rule)
    assert wanted in match[0].expected
    assert match[0].advice
    assert match[0].rule == rule


CLEAN_NODES: dict[str, Callable[[], NodeEvidence]] = {
    "A02": lambda: healthy(config=QOS),
    "A03": lambda: bent(
        healthy(pod("g", GUARANTEED)), with_counters("container", {"memory.stat:file": 40 * MIB})
    ),  # the gate is off
    "A04": lambda: healthy(config={"featureGates": {"MemoryQoS": True}}),
    "A06": lambda: healthy(pod(**RESIZED)),
    "A07": lambda: healthy(deferred(60)),
    "A08": static_node,
    "A09": lambda: healthy(pod("a"), pod("b")),
    "A10": lambda: bent(healthy(), with_cgroup("/system.slice", cpu_weight="100")),
    "A14": lambda: healthy(node=node_object("1.37", hugepages_2Mi="2Gi"), release="1.37"),
    "A15": lambda: healthy(config={"singleProcessOOMKill": True}),
    "A16": lambda: healthy(
        config={"featureGates": {"NodeSwap": True}, "memorySwap": {"swapBehavior": "LimitedSwap"}, "failSwapOn": False}
    ),
    "A17": lambda: healthy(config={"podPidsLimit": 1000}),
    "A20": lambda: bent(healthy(), with_process(application=Application("jvm", "21.0.12"))),
    "A21": lambda: healthy(tmpfs("256Mi")),
    "A23": lambda: healthy(sidecar(), release="1.37", node=node_object("1.37")),
    "A24": lambda: bent(healthy(), throttled(1000, 200, 20_000_000)),
}


@pytest.mark.parametrize("rule", RULES)
def test_it_is_not_found(rule: str) -> None:
    given = answer(CLEAN_NODES.get(rule, healthy)(), rule)
    assert (given.verdict, given.findings) == ("clean", ())


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES} == RULES.keys()
    assert list(RULES) == [f"A{number:02}" for number in range(1, 25)]


def test_exit_codes() -> None:
    clean, unknown = audit(healthy()), audit(bent(healthy(), with_record(processes=None)))
    assert exit_code([clean]) == CLEAN, [
        each for each in clean.answers if each.verdict not in ("clean", "does not apply")
    ]
    assert exit_code([unknown]) == UNDECIDED
    assert exit_code([clean, audit(bent(healthy(), with_file("pod", "memory.max", "max")))]) == DRIFT
    assert exit_code([]) == UNDECIDED


def test_a_note_alone_is_no_drift() -> None:
    report = audit(healthy(config={"kubeReserved": {"memory": "1Gi"}}))
    assert [each.severity for each in report.findings] == ["note"]
    assert exit_code([report]) == CLEAN


def test_the_effective_limit_is_that_of_the_ancestor() -> None:
    (finding,) = found(bent(healthy(), with_file("container", "memory.max", "1073741824")), "A01")
    assert finding.effective.startswith(str(512 * MIB))  # of the pod
    assert (finding.owner, finding.declared) == ("container runtime", "spec.containers[0].resources.limits.memory")


def test_a_half_protected_pod_gets_its_share() -> None:
    """Two pods claim 256Mi each, their class has 256Mi: 128Mi each."""
    evidence = bent(
        healthy(pod("a"), pod("b"), config=QOS), with_file("class", "memory.low", str(256 * MIB), "Burstable")
    )
    pods = [each for each in found(evidence, "A02") if each.level == "pod"]
    assert [each.effective for each in pods] == [str(128 * MIB)] * 2


def test_unknown_ids_are_sandboxes_only_once() -> None:
    evidence = healthy()
    at = path_of(evidence, "pod")
    strange = [f"{at}/cri-containerd-{letter * 64}.scope" for letter in "de"]
    both = bent(evidence, *(with_cgroup(path, pids_max="max") for path in strange), with_record(processes=None))
    assert [each.observed for each in found(both, "A12")] == strange[1:]
    assert container_id("web", "app") not in strange[0]


def sandboxed(name: str, *, score: int = 0, weight: str = "1", runtime: str = "containerd") -> NodeEvidence:
    """A pod with two containers that its status does not have; the first is the older one."""
    evidence = healthy()
    at = path_of(evidence, "pod")
    paths = [f"{at}/cri-containerd-{letter * 64}.scope" for letter in "ed"]
    processes = [ProcessFacts(50 + i, path, name, score, True, 1, False) for i, path in enumerate(paths)]
    made = [with_cgroup(path, cpu_weight=weight, pids_max="max") for path in paths]
    known = evidence.record.processes or ()
    return bent(evidence, *made, with_record(processes=(*known, *processes), runtime=f"{runtime}://2"))


def test_a_pause_container_without_its_score_and_name_is_no_stray() -> None:
    """containerd without CAP_SYS_RESOURCE, and a pause image whose program is `sleep`; a second one is a stray."""
    (stray,) = found(sandboxed("sleep"), "A12")
    assert stray.observed.endswith(f"{'d' * 64}.scope")
    assert len(found(sandboxed("sleep", weight="39"), "A12")) == 2  # a sandbox has the least weight
    crio = found(sandboxed("sleep", runtime="cri-o"), "A12")
    assert len([each for each in crio if each.expected == "a container of the pod's status"]) == 2
    assert found(sandboxed("pause"), "A12") == ()


def test_no_huge_pages_and_no_controller_for_them_is_clean() -> None:
    given = healthy(node=node_object(hugepages_2Mi="0"))
    lacks = with_kernel(controllers=("cpu", "cpuset", "io", "memory", "pids"))

    def unlimited(evidence: NodeEvidence) -> NodeEvidence:
        cgroups = {
            path: {name: text for name, text in files.items() if not name.startswith("hugetlb.")}
            for path, files in (evidence.record.cgroups or {}).items()
        }
        return with_record(cgroups=cgroups)(evidence)

    assert answer(bent(given, unlimited, lacks), "A01").verdict == "clean"
    assert answer(bent(given, unlimited), "A01").verdict == "cannot tell"
    some = healthy(node=node_object(hugepages_2Mi="64Mi"))
    assert answer(bent(some, unlimited, lacks), "A01").verdict == "cannot tell"


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_that_was_pinned_to_a_cpu_by_hand(version: int) -> None:
    """On v1 a new cgroup has a copy of its parent's CPUs, on v2 nothing; without a CPU manager the file is not written."""
    driver = "systemd" if version == 2 else "cgroupfs"
    above = "0-3" if version == 1 else ""
    evidence = bent(
        healthy(version=version, driver=driver),
        with_file("pod", "cpuset.cpus", above),
        with_file("container", "cpuset.cpus", above),
    )
    assert found(evidence, "A01") == ()
    (finding,) = found(bent(evidence, with_file("container", "cpuset.cpus", "1")), "A01")
    assert (finding.field, finding.observed, finding.owner) == ("cpuset.cpus", "1", "container runtime")
    assert finding.expected.startswith("0-3 (the CPUs of its pod" if version == 1 else "empty (the CPUs of its pod")


LIMITED_BY_HAND = [
    (version, level, file, text)
    for version, texts in (
        (1, {"memory.limit_in_bytes": "134217728", "cpu.cfs_quota_us": "50000"}),
        (2, {"memory.max": "134217728", "cpu.max": "50000 100000"}),
    )
    for file, text in texts.items()
    for level in ("container", "pod", "class", "pods")
    if (level, file[:6]) != ("pods", "memory")  # which has a limit
]


@pytest.mark.parametrize(("version", "level", "file", "text"), LIMITED_BY_HAND)
def test_a_limit_where_none_is_written(version: int, level: str, file: str, text: str) -> None:
    unlimited = pod("web", container(requests={"memory": "256Mi", "cpu": "500m"}))
    evidence = healthy(unlimited, version=version)
    assert found(evidence, "A01") == ()
    (finding,) = found(bent(evidence, with_file(level, file, text)), "A01")
    assert (finding.field, finding.observed) == (file, text)
    assert finding.expected.startswith("max")


def test_a_class_has_no_limit_of_processes() -> None:
    (finding,) = found(bent(healthy(), with_file("class", "pids.max", "1000")), "A17")
    assert (finding.level, finding.observed) == ("class", "1000")
