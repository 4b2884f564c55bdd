"""`plimsoll audit`, `attach` and the commands that show cgroups, on a node that a real kubelet runs.

Runs in a guest, or on the machine in namespaces of its own (`tests/kernel/test_real_kubelet.py`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.linux.capabilities import has_capability
from plimsoll.rules.model.cgroup_names import cgroup_path
from tests.e2e.waiting import until
from tests.kernel.guest import GUEST_VARIABLE
from tests.kernel.real_kubelet import PODS, KubeletNode, kubelet_node

GUEST = os.environ.get(GUEST_VARIABLE, "")
SYSTEMD = "systemd" in GUEST
VERSION = this_host().version
MIB = 1 << 20
LIMIT, SHARES, QUOTA = (
    ("memory.max", "cpu.weight", "cpu.max")
    if VERSION == 2
    else ("memory.limit_in_bytes", "cpu.shares", "cpu.cfs_quota_us")
)
WIDE = "200000 100000" if VERSION == 2 else "200000"  # v1 refuses one that is smaller than those below
BURST = "cpu.max.burst" if VERSION == 2 else "cpu.cfs_burst_us"
FILES = (LIMIT, SHARES, QUOTA, BURST, "memory.min", "memory.low", "memory.high", "memory.oom.group", "pids.max")
RESOURCES = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
POLICY = {"memoryQoS": "tiered", "cpuBurstPercent": 20, "oomGroup": "process", "memoryReserve": "64Mi"}


@pytest.fixture(scope="module")
def node() -> Iterator[KubeletNode]:
    below = "/scratch" if GUEST else None
    root = "/" if GUEST else f"/plimsoll-test-{os.getpid()}"
    directory = Path(tempfile.mkdtemp(prefix="k-", dir=below))
    with kubelet_node(directory, root, systemd=SYSTEMD) as made:
        made.make("guaranteed", {"name": "main", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}})
        second = {"name": "second", "resources": {"requests": {"cpu": "50m"}}}
        made.make("burstable", {"name": "main", "resources": RESOURCES}, second)
        made.make("besteffort", {"name": "main"})
        side = made.container({"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}})
        init = made.container({"name": "init", "command": ["true"], "resources": RESOURCES})
        made.make("sidecar", {"name": "main", "resources": {"limits": {"memory": "32Mi"}}}, initContainers=[init, side])
        made.make("podlevel", {"name": "main"}, resources=RESOURCES)
        made.make("hostpid", {"name": "main"}, hostPID=True, hostNetwork=True)
        made.make("ended", {"name": "main", "command": ["true"]}, restartPolicy="Never")
        for name in ("guaranteed", "burstable", "besteffort", "sidecar", "podlevel", "hostpid"):
            made.running(name)
        until(lambda: made.pod("ended")["status"]["phase"] == "Succeeded")
        gone(made, "ended")
        yield made


def gone(node: KubeletNode, name: str) -> None:
    """Until the kubelet has removed the cgroup of a pod that has ended."""
    path = directory(pod_cgroup(node, name), LIMIT)
    until(lambda: not path.exists(), node.log)


def findings(node: KubeletNode, *words: str) -> list[tuple[str, str, str]]:
    """Rule, subject without the process, field; no notes, and not A24: a busy machine throttles containers."""
    said = json.loads(node.plimsoll("audit", "-o", "json", "--ignore", "A24", *words, codes=(0, 1, 2)))
    (report,) = said["nodes"]
    found = [each for answer in report["answers"] for each in answer.get("findings", ()) if each["severity"] != "note"]
    return sorted((each["rule"], each["subject"].partition(" (pid")[0], each["field"]) for each in found)


def usual(node: KubeletNode) -> list[tuple[str, str, str]]:
    """What is true of this machine, with any kubelet. No PSI is a note."""
    found = []
    if VERSION == 1:
        found.append(("A18", "n1", "cgroup version"))
    elif "cpuset" not in Path("/sys/fs/cgroup/cgroup.controllers").read_text().split():
        found.append(("A18", "n1", "cgroup controllers"))
    if SYSTEMD and os.cpu_count() == 1:  # kubepods has less weight than system.slice
        found.append(("A10", "n1", "cpu.weight"))
    if not has_capability("SYS_RESOURCE"):  # then the runtime cannot set a score below 0
        found.append(("A05", "default/guaranteed / main / sleep", "oom_score_adj"))
    return sorted(found)


def directory(path: str, file: str) -> Path:
    v1 = Path("/sys/fs/cgroup", file.partition(".")[0])
    return (v1 if VERSION == 1 else Path("/sys/fs/cgroup")) / path.lstrip("/")


def level(node: KubeletNode, *names: str) -> str:
    above = [each for each in (node.cgroup_root.strip("/"), "kubepods") if each]
    return cgroup_path((*above, *names), "systemd" if node.systemd else "cgroupfs")


def pod_cgroup(node: KubeletNode, name: str) -> str:
    pod = node.pod(name)
    qos = pod["status"]["qosClass"]
    return level(node, *([] if qos == "Guaranteed" else [qos.lower()]), f"pod{pod['metadata']['uid']}")


def container_cgroup(node: KubeletNode, name: str, container: str = "main") -> str:
    states = node.pod(name)["status"]["containerStatuses"]
    (id,) = [each["containerID"].rpartition("/")[2] for each in states if each["name"] == container]
    return f"{pod_cgroup(node, name)}/" + (f"cri-containerd-{id}.scope" if node.systemd else id)


def read(path: str, file: str) -> str:
    return (directory(path, file) / file).read_text().strip()


def resize(node: KubeletNode, name: str, resources: dict[str, dict[str, str]]) -> None:
    node.api("PATCH", f"{PODS}/{name}/resize", {"spec": {"containers": [{"name": "main", "resources": resources}]}})


def has_condition(node: KubeletNode, name: str, kind: str) -> bool:
    return any(each["type"] == kind for each in node.pod(name)["status"]["conditions"])


def only_machine(node: KubeletNode, *words: str) -> list[tuple[str, str, str]]:
    return [each for each in findings(node, *words) if each not in usual(node)]


def test_the_tree_of_a_kubelet_is_clean(node: KubeletNode) -> None:
    found: list[Any] = []

    def clean() -> bool:  # the kubelet writes the classes a moment after the last pod
        found[:] = findings(node)
        return found == usual(node)

    until(clean, lambda: f"{found}\n{usual(node)}\n" + node.plimsoll("audit", "--all", codes=(0, 1, 2)), 1.0)
    said = json.loads(node.plimsoll("audit", "-o", "json", codes=(0, 1, 2)))
    (report,) = said["nodes"]
    assert (report["profile"], report["pods"]) == ("1.36", 6)
    undecided = {each["rule"]: each["reasons"] for each in report["answers"] if each["verdict"] == "cannot tell"}
    # Huge pages: the hierarchy is mounted where containerd finds it and the kubelet does not.
    assert all("hugetlb" in reason for reasons in undecided.values() for reason in reasons), undecided


def test_each_file_that_a_person_changes_is_found(node: KubeletNode) -> None:
    burstable, guaranteed = container_cgroup(node, "burstable"), pod_cgroup(node, "guaranteed")
    quota = "30000 100000" if VERSION == 2 else "30000"
    rows = [
        ("A01", burstable, LIMIT, str(48 * MIB), "default/burstable / main"),
        ("A01", burstable, SHARES, "500", "default/burstable / main"),
        ("A01", burstable, QUOTA, quota, "default/burstable / main"),
        ("A01", pod_cgroup(node, "burstable"), SHARES, "999", "default/burstable"),
        ("A01", guaranteed, LIMIT, str(128 * MIB), "default/guaranteed"),
        ("A17", guaranteed, "pids.max", "333", "default/guaranteed"),
        ("A01", level(node), SHARES, "777", "all pods"),
    ]
    rows += [  # limits where none is written
        ("A01", container_cgroup(node, "besteffort"), QUOTA, quota, "default/besteffort / main"),
        ("A01", pod_cgroup(node, "besteffort"), LIMIT, str(128 * MIB), "default/besteffort"),
        ("A01", level(node, "besteffort"), QUOTA, quota, "BestEffort"),
        ("A17", level(node, "besteffort"), "pids.max", "999", "BestEffort"),
        ("A01", level(node), QUOTA, WIDE, "all pods"),
    ]
    if VERSION == 1:
        rows.append(("A01", burstable, "cpuset.cpus", "0", "default/burstable / main"))
    else:
        rows.append(("A04", burstable, "memory.high", str(60 * MIB), "default/burstable / main"))
        rows.append(("A15", burstable, "memory.oom.group", "0", "default/burstable / main"))
        rows.append(("A01", burstable, "memory.low", str(8 * MIB), "default/burstable / main"))
    for rule, path, file, value, subject in rows:
        target = directory(path, file) / file
        before = target.read_text().strip()
        if before == value or (file == "cpuset.cpus" and before == "0"):
            continue
        try:
            found = found_while_changed(node, target, value)
            assert (rule, subject, file) in found, (file, value, found)
            assert {each[1] for each in found} == {subject}, found  # and no other
        finally:
            target.write_text(before)
    assert only_machine(node) == []


def found_while_changed(node: KubeletNode, target: Path, value: str) -> list[tuple[str, str, str]]:
    """The kubelet writes the files of its levels every minute: what is found then does not count."""
    while True:
        target.write_text(value)
        changed = target.read_text()
        found = only_machine(node, "--rule", "A01,A04,A08,A15,A17")
        if target.read_text() == changed:
            return found


def first_pid(path: str) -> int:
    """crun with systemd puts the processes one level below."""
    procs = [directory(path, "memory.") / name / "cgroup.procs" for name in ("container", "")]
    return int(next(each for each in procs if each.exists()).read_text().split()[0])


def test_scores_and_strays_are_found(node: KubeletNode) -> None:
    score = Path(f"/proc/{first_pid(container_cgroup(node, 'burstable'))}/oom_score_adj")
    before = score.read_text().strip()
    score.write_text("990")
    assert ("A05", "default/burstable / main / sleep", "oom_score_adj") in findings(node, "--rule", "A05")
    score.write_text(before)
    # A container that the kubelet does not know.
    name = f"cri-containerd-{'a' * 64}.scope" if SYSTEMD else "a" * 64
    at = pod_cgroup(node, "besteffort")
    strays = {directory(at, file) / name for file in ("memory.", "cpu.", "pids.")}
    sleep = subprocess.Popen(["sleep", "1000"])
    try:
        for stray in strays:
            stray.mkdir()
            (stray / "cgroup.procs").write_text(str(sleep.pid))
        found = findings(node, "--rule", "A12")
    finally:
        sleep.kill()
        sleep.wait()
        until(lambda: all(_removed(each) for each in strays))
    assert [each[:2] for each in found] == [("A12", f"default/besteffort / {'a' * 12}")]


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def test_what_the_other_commands_show(node: KubeletNode) -> None:
    root = ("--cgroup-root", node.cgroup_root)
    uid = node.pod("burstable")["metadata"]["uid"]
    tree = node.plimsoll("tree", *root)
    for part in ("kubepods", "burstable", uid, "64.0 MiB"):
        assert part in tree, tree
    assert uid in node.plimsoll("top", *root)
    assert uid in node.plimsoll("whose", str(first_pid(container_cgroup(node, "burstable"))))
    assert "memory.available" in node.plimsoll("pressure", "--here")


def test_an_oom_kill_is_shown(node: KubeletNode) -> None:
    eats = {"name": "main", "command": ["sh", "-c", "tail /dev/zero"], "resources": {"limits": {"memory": "16Mi"}}}
    node.make("eats", eats, restartPolicy="Never")
    until(lambda: node.pod("eats")["status"]["phase"] in ("Failed", "Succeeded"), node.log)
    uid = node.pod("eats")["metadata"]["uid"]
    shown = json.loads(node.plimsoll("oom", "--here", "-o", "json"))
    assert uid in json.dumps(shown), shown
    gone(node, "eats")
    node.delete("eats")


def snapshot(node: KubeletNode) -> dict[str, str]:
    found = {}
    mounts = {directory(level(node), file) for file in FILES}
    for top in mounts:
        for above, _, _ in os.walk(top):
            for file in FILES:
                if (text := Path(above, file)).exists():
                    found[str(text)] = text.read_text().strip()
    return found


def test_attach_observes_enforces_holds_a_resize_and_detaches(node: KubeletNode, tmp_path: Path) -> None:
    policy, state = tmp_path / "policy.json", tmp_path / "state"
    policy.write_text(json.dumps(POLICY))
    before = snapshot(node)
    status = json.loads(node.plimsoll("attach", "--mode", "observe", "--once", "--policy", str(policy), "-o", "json"))
    wanted = {(each["subject"], each["file"]): each["wanted"] for each in status["pending"]}
    assert wanted["default/burstable / main", BURST] == "10000"
    if VERSION == 2:
        assert wanted["default/burstable / main", "memory.low"] == str(32 * MIB)
        assert int(wanted["all pods", "memory.low"]) >= 32 * MIB
    assert snapshot(node) == before

    words = ["attach", "--mode", "enforce", "--policy", str(policy), "--state-dir", str(state)]
    words += ["--nri-socket", str(node.daemon.nri_socket), "--kubeconfig", str(node.kubeconfig)]
    with open(tmp_path / "log", "wb") as log:
        attached = subprocess.Popen([sys.executable, "-m", "plimsoll", *words], stdout=log, stderr=log)

    def said() -> str:
        return (tmp_path / "log").read_text()

    try:
        path = container_cgroup(node, "burstable")
        until(lambda: read(path, BURST) == "10000", said)
        node.make("late", {"name": "main", "resources": RESOURCES})
        node.running("late")
        late = container_cgroup(node, "late")
        until(lambda: read(late, BURST) == "10000", said)
        if VERSION == 2:
            low = str(32 * MIB)
            assert (read(late, "memory.low"), read(late, "memory.oom.group")) == (low, "0")
            until(lambda: read(path, "memory.low") == low and read(pod_cgroup(node, "burstable"), "memory.low") == low)
            until(lambda: int(read(level(node), "memory.low")) >= 64 * MIB, said)

        # The kubelet resizes the container in place.
        grown = {"requests": {"cpu": "150m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "96Mi"}}
        resize(node, "burstable", grown)
        until(lambda: read(path, LIMIT) == str(96 * MIB), node.log)
        until(lambda: read(path, BURST) == "10000", said)
        if VERSION == 2:
            until(lambda: read(path, "memory.low") == str(32 * MIB) and read(path, "memory.oom.group") == "0", said)
        # The kubelet restarts, and writes its own values.
        node.stop_kubelet()
        node.start_kubelet()
        until(lambda: read(path, BURST) == "10000", said)
    finally:
        attached.send_signal(signal.SIGTERM)
        attached.wait(60)
    done = json.loads(
        node.plimsoll("detach", "-o", "json", "--state-dir", str(state), "--nri-socket", str(node.daemon.nri_socket))
    )
    assert {each["outcome"] for each in done} <= {"restored", "already"}, done
    node.delete("late")
    until(lambda: not directory(late.rpartition("/")[0], "memory.").exists())
    resize(node, "burstable", RESOURCES)
    until(lambda: snapshot(node) == before, lambda: str(set(snapshot(node).items()) ^ set(before.items())))


def test_a_resize_under_way_is_clean(node: KubeletNode) -> None:
    """One that waits for room on the node, and one to a limit below what the container uses."""
    files = ["sh", "-c", "dd if=/dev/zero of=/dev/shm/x bs=1M count=40; exec sleep 100000"]
    small = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    node.make("holds", {"name": "main", "command": files, "resources": small})
    node.running("holds")
    path = container_cgroup(node, "holds")
    used = "memory.current" if VERSION == 2 else "memory.usage_in_bytes"
    until(lambda: int(read(path, used)) > 40 * MIB, node.log)
    resize(node, "holds", {**small, "limits": {"memory": "20Mi"}})
    until(lambda: has_condition(node, "holds", "PodResizeInProgress"), node.log)
    milli = 1000 * (os.cpu_count() or 1) - 60  # and 50m: less than there is, more than is free
    resize(node, "burstable", {**RESOURCES, "requests": {"cpu": f"{milli}m", "memory": "32Mi"}, "limits": {"cpu": "8"}})
    until(lambda: has_condition(node, "burstable", "PodResizePending"), node.log)
    assert read(path, LIMIT) == str(64 * MIB)
    assert only_machine(node) == []
    (directory(path, LIMIT) / LIMIT).write_text(str(56 * MIB))
    assert only_machine(node) == [("A01", "default/holds / main", LIMIT)]
    (directory(path, LIMIT) / LIMIT).write_text(str(64 * MIB))
    resize(node, "burstable", RESOURCES)
    until(lambda: not has_condition(node, "burstable", "PodResizePending"), node.log)
    node.delete("holds")
    until(lambda: not directory(path, LIMIT).exists(), node.log)


def test_exclusive_cpus_are_compared_with_the_kubelets_own_state(node: KubeletNode) -> None:
    if len(os.sched_getaffinity(0)) < 2 or not (directory("/", "cpuset.") / "cpuset.cpus").exists():
        pytest.skip("needs two CPUs and cpuset")
    for name in ("guaranteed", "burstable", "sidecar", "podlevel"):  # they request CPUs, of which one is reserved
        node.delete(name)
    node.stop_kubelet()
    (node.root / "cpu_manager_state").unlink()
    node.start_kubelet(cpuManagerPolicy="static", reservedSystemCPUs="0")
    node.make("pinned", {"name": "main", "resources": {"limits": {"cpu": "1", "memory": "32Mi"}}})
    node.running("pinned")
    path = container_cgroup(node, "pinned")
    until(lambda: read(path, "cpuset.cpus") == "1", node.log)
    until(
        lambda: findings(node, "--rule", "A08") == [], lambda: node.plimsoll("audit", "--rule", "A08", codes=(0, 1, 2))
    )
    (answer,) = json.loads(node.plimsoll("audit", "-o", "json", "--rule", "A08", codes=(0,)))["nodes"][0]["answers"]
    assert answer["verdict"] == "clean"
    (directory(path, "cpuset.") / "cpuset.cpus").write_text("0")
    assert findings(node, "--rule", "A08") == [("A08", "default/pinned / main", "cpuset.cpus")]
    node.delete("pinned")


def test_memory_qos_is_clean_and_each_change_is_found(node: KubeletNode) -> None:
    """Last on cgroup v2: containers that were made before have no memory.high, which A04 would report."""
    if VERSION == 1:
        pytest.skip("cgroup v1 has no memory.min, memory.low and memory.high")
    for pod in node.api("GET", PODS)["items"]:
        node.delete(pod["metadata"]["name"])
    until(lambda: node.api("GET", PODS)["items"] == [], node.log)
    node.stop_kubelet()
    node.start_kubelet(
        featureGates={"MemoryQoS": True}, memoryReservationPolicy="TieredReservation", memoryThrottlingFactor=0.9
    )
    node.make("guaranteed", {"name": "main", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}})
    side = node.container({"name": "side", "restartPolicy": "Always", "resources": {"requests": {"memory": "8Mi"}}})
    node.make("burstable", {"name": "main", "resources": RESOURCES}, initContainers=[side])
    node.make("besteffort", {"name": "main"})
    for name in ("guaranteed", "burstable", "besteffort"):
        node.running(name)
    burstable, guaranteed = container_cgroup(node, "burstable"), container_cgroup(node, "guaranteed")
    # 32Mi + (64Mi - 32Mi) * 0.9 = 60.8Mi, in whole pages
    assert read(burstable, "memory.high") == str(int(60.8 * MIB) // 4096 * 4096)
    assert (read(burstable, "memory.low"), read(guaranteed, "memory.min")) == (str(32 * MIB), str(64 * MIB))

    def others() -> list[tuple[str, str, str]]:
        """Besides what is true of Memory QoS in this release: A02, kubepods has no memory.low; A03, min is max."""
        known = {("A02", "memory.low"), ("A03", "memory.min")}
        return [each for each in only_machine(node) if (each[0], each[2]) not in known]

    until(lambda: others() == [], lambda: node.plimsoll("audit", codes=(0, 1, 2)), 1.0)
    rows = [
        ("A04", burstable, "memory.high", "max", "default/burstable / main"),
        ("A01", burstable, "memory.low", "0", "default/burstable / main"),
        ("A01", guaranteed, "memory.min", "0", "default/guaranteed / main"),
        ("A01", pod_cgroup(node, "guaranteed"), "memory.min", str(16 * MIB), "default/guaranteed"),
        ("A01", container_cgroup(node, "besteffort"), "memory.low", str(8 * MIB), "default/besteffort / main"),
        ("A01", pod_cgroup(node, "besteffort"), "cpu.max", "50000 100000", "default/besteffort"),
        ("A01", level(node, "besteffort"), "memory.max", str(512 * MIB), "BestEffort"),
    ]
    for rule, path, file, value, subject in rows:
        target = directory(path, file) / file
        before = target.read_text().strip()
        target.write_text(value)
        assert (rule, subject, file) in others(), (file, value, others())
        target.write_text(before)
    assert others() == []
