"""The cgroup manager: set-up, pods, ownership and refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import StillRunningError
from plimsoll.cgroups.engine.ownership import ForeignTreeError, KubeletRunningError
from plimsoll.cgroups.engine.transaction import MissingCgroupError
from plimsoll.errors import InvalidNameError, InvalidObjectError, PlimsollError
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.rules.cgroups.desired_files import derived_id
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion
from tests.node_scenarios import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    PODS,
    RESERVED,
    RESIZED,
    node_setting,
    tree_now,
)
from tests.unit.cgroups.engine.managed_node import BURSTABLE_POD, MI, TOP, Node


def test_set_up_and_back(tmp_path: Path) -> None:
    node = Node(tmp_path)
    asyncio.run(node.kernel.write(RESERVED, "cpu.weight", "77"))
    before = tree_now(node.kernel, ("/plimsoll-test", RESERVED))
    node.run(lambda tree: tree.setup())
    assert node.text(TOP, "memory.max") == str(8 * 1024 * MI - 256 * MI)
    assert node.text(RESERVED, "memory.max") == str(256 * MI) and node.text(RESERVED, "cpu.weight") == "10"
    assert node.tree.status().is_set_up and node.tree.status().drift == ()
    node.run(lambda tree: tree.add(PODS), lambda tree: tree.teardown())
    assert tree_now(node.kernel, ("/plimsoll-test", RESERVED)) == before
    assert not node.tree.status().is_set_up
    node.driver.made.clear()
    node.run(lambda tree: tree.teardown())
    assert node.driver.made == []


def test_shares_and_sums_follow_pods_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    rows = []
    for deed in (
        lambda tree: tree.setup(),
        lambda tree: tree.add([BURSTABLE]),
        lambda tree: tree.add([GUARANTEED, BEST_EFFORT]),
        lambda tree: tree.remove(BURSTABLE.metadata.uid),
    ):
        node.run(deed)
        rows.append([
            node.text(f"{TOP}/burstable", "cpu.weight"),
            *(int(node.text(path, file)) // MI for path, file in (
                (f"{TOP}/burstable", "memory.low"), (TOP, "memory.low"), (TOP, "memory.min"),
                ("/plimsoll-test", "memory.min"), ("/plimsoll-test", "memory.low"),
            )),
        ])  # fmt: skip
    assert rows == [
        ["1", 0, 0, 0, 0, 0],
        ["12", 80, 80, 80, 80, 80],
        ["12", 80, 80, 176, 176, 80],
        ["1", 0, 0, 96, 96, 0],
    ]


def test_a_value_that_another_process_changed_is_restored(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add(PODS))
    asyncio.run(node.kernel.write(BURSTABLE_POD, "cpu.weight", "500"))
    drift = node.tree.status().drift
    assert [(step.path, getattr(step, "was", "")) for step in drift] == [(BURSTABLE_POD, "500")]
    node.run(lambda tree: tree.refresh())
    assert node.text(BURSTABLE_POD, "cpu.weight") == "12"


def test_containers_have_the_ids_of_the_runtime(tmp_path: Path) -> None:
    node = Node(tmp_path)
    uid, container_id = BURSTABLE.metadata.uid, "ab" * 32
    node.run(lambda tree: tree.add([BURSTABLE], containers={uid: {"web": container_id}}))
    assert node.kernel.children(BURSTABLE_POD) == [container_id]
    assert node.tree.paths(uid) == {"": BURSTABLE_POD, "web": f"{BURSTABLE_POD}/{container_id}"}
    node.run(lambda tree: tree.add([BURSTABLE]))  # now both, with derived ids; the first cgroup is removed
    assert node.kernel.children(BURSTABLE_POD) == sorted(derived_id(uid, name) for name in ("web", "log"))
    assert node.tree.paths("unknown") == {}


def test_a_pod_is_removed_with_the_cgroups_of_its_processes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add(PODS))
    inner = f"{node.tree.paths(BURSTABLE.metadata.uid)['web']}/inner"
    asyncio.run(node.kernel.make(inner))
    node.kernel.spawn(inner)
    node.run(lambda tree: tree.remove(BURSTABLE.metadata.uid))
    assert node.kernel.children(f"{TOP}/burstable") == []
    assert len(node.kernel.children(f"{TOP}/besteffort")) == 1


def test_owned_orphans_are_removed_and_foreign_cgroups_stay(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add(PODS))
    state = tmp_path / "node.jsonl"
    file = AppendLog(state)
    _, *others = [name for name in file.read() if name.startswith("pod ")]
    file.write(dict.fromkeys(others))
    asyncio.run(node.kernel.make(f"{TOP}/burstable/podstranger"))
    node.run(lambda tree: tree.refresh())
    assert node.kernel.children(f"{TOP}/burstable") == ["podstranger"] and not node.kernel.children(f"{TOP}/besteffort")


FOREIGN = ["/plimsoll-test/kubepods", "/plimsoll-test/kubepods/burstable", BURSTABLE_POD]


@pytest.mark.parametrize("path", FOREIGN, ids=["kubepods", "class", "pod"])
def test_a_foreign_tree_is_not_touched(tmp_path: Path, path: str) -> None:
    node = Node(tmp_path)
    if path != FOREIGN[0]:
        node.run(lambda tree: tree.setup())
    if path == FOREIGN[1]:
        asyncio.run(node.kernel.remove(path))
    for above in ("/plimsoll-test", path):
        if node.kernel.read(above, ()) is None:
            asyncio.run(node.kernel.make(above))
    node.driver.made.clear()
    with pytest.raises(ForeignTreeError, match="--cgroup-root"):
        node.run(lambda tree: tree.add(PODS))
    assert node.driver.made == []
    if path == FOREIGN[2]:
        with pytest.raises(ForeignTreeError, match=path):
            node.run(lambda tree: tree.teardown())
    assert node.driver.made == []
    if path != FOREIGN[2]:
        assert "--cgroup-root" in node.tree.status().refusal


def test_a_machine_with_a_kubelet_is_refused(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("boot\n")
    (proc / "4711").mkdir()
    (proc / "4711" / "comm").write_text("kubelet\n")
    setting = node_setting(2, "cgroupfs", root="/")
    node = Node(tmp_path / "state", setting=setting)
    node.driver.simulated = False
    node.tree = node.another(proc=proc)
    with pytest.raises(KubeletRunningError, match="4711"):
        node.run(lambda tree: tree.setup())
    assert node.driver.made == []
    node.setting = node_setting(2, "cgroupfs")
    node.tree = node.another(proc=proc)
    node.run(lambda tree: tree.setup())


def test_after_a_reboot_nothing_is_known(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add(PODS))
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("another-boot\n")
    rebooted = SimulatedKernel(2, swap=False)
    asyncio.run(rebooted.make(RESERVED))
    node.driver.inner = node.kernel = rebooted
    node.tree = node.another(proc=proc)
    assert node.tree.status().pods == ()
    node.run(lambda tree: tree.setup())
    assert node.kernel.children(TOP) == ["besteffort", "burstable"]


def test_the_hierarchies_that_a_reserved_cgroup_lacks_are_named() -> None:
    error = MissingCgroupError(
        "/system", "system-reserved", ["/sys/fs/cgroup/pids/system", "/sys/fs/cgroup/cpu/system"]
    )
    assert str(error) == (
        "/system exists in some hierarchies only, but system-reserved is enforced on it: create it there too "
        "(mkdir /sys/fs/cgroup/pids/system /sys/fs/cgroup/cpu/system), or change enforceNodeAllocatable"
    )


def test_a_reserved_cgroup_must_exist(tmp_path: Path) -> None:
    node = Node(tmp_path)
    asyncio.run(node.kernel.remove(RESERVED))
    with pytest.raises(MissingCgroupError, match="system-reserved is enforced"):
        node.run(lambda tree: tree.setup())
    assert node.driver.made == []


HOSTILE: dict[str, tuple[str, type[PlimsollError]]] = {
    "upwards": ("../../x", InvalidObjectError),
    "newline": ("a\nb", InvalidObjectError),
    "slash": ("a/b", InvalidObjectError),
    "underscore": ("a_b", InvalidObjectError),
    "unit-trick": ("x.slice\\x2d", InvalidObjectError),
    "long": ("a" * 300, InvalidNameError),
    "none": ("", InvalidObjectError),
}


@pytest.mark.parametrize(("uid", "error"), HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("name", ["cgroupfs", "systemd"])
def test_hostile_names_are_refused_before_anything_is_touched(
    tmp_path: Path, name: DriverName, uid: str, error: type[PlimsollError]
) -> None:
    node = Node(tmp_path, name=name)
    hostile = msgspec.structs.replace(BURSTABLE, metadata=msgspec.structs.replace(BURSTABLE.metadata, uid=uid))
    with pytest.raises(error):
        node.run(lambda tree: tree.add([GUARANTEED, hostile]))
    assert node.driver.made == []


def test_one_uid_for_two_pods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidObjectError, match="Duplicate"):
        Node(tmp_path).run(lambda tree: tree.add([BURSTABLE, RESIZED]))


def test_teardown_refuses_running_pods_without_kill(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add(PODS))
    pid = node.kernel.spawn(node.tree.paths(BURSTABLE.metadata.uid)["web"])
    node.driver.made.clear()
    with pytest.raises(StillRunningError, match="remove these pods first"):
        node.run(lambda tree: tree.teardown())
    assert node.driver.made == [] and node.kernel.members("/", deep=True) == [pid]
    node.run(lambda tree: tree.teardown(kill=True))
    assert node.kernel.members("/", deep=True) == [] and node.kernel.children("/") == [RESERVED[1:]]


@pytest.mark.parametrize("version", [1, 2])
def test_an_unowned_pod_cgroup_is_swept_once_it_is_empty(tmp_path: Path, version: CgroupVersion) -> None:
    """A runtime makes the whole path for a container that it was asked to start before the pod was removed."""
    node = Node(tmp_path, version)
    node.run(lambda tree: tree.add(PODS))
    pod = node.tree.paths(BURSTABLE.metadata.uid)[""]
    node.run(lambda tree: tree.remove(BURSTABLE.metadata.uid))
    foreign = f"{pod.rpartition('/')[0]}/foreign"
    for path in (pod, f"{pod}/{'ab' * 32}", foreign):
        asyncio.run(node.kernel.make(path))
    pid = node.kernel.spawn(f"{pod}/{'ab' * 32}")
    assert asyncio.run(node.tree.sweep()) == []
    node.kernel.exit(pid)
    assert asyncio.run(node.tree.sweep()) == [pod]
    assert node.kernel.read(pod, ()) is None
    assert node.kernel.read(foreign, ()) is not None
    assert node.tree.paths(GUARANTEED.metadata.uid), "owned cgroups stay"
