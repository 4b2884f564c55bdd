"""The cgroup manager on the simulated kernel: values, pods, refusals, and what remains after each verb."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.journal import Journal, StateWriteError
from plimsoll.cgroups.engine.manager import CgroupManager, StillRunningError, UnfinishedError
from plimsoll.cgroups.engine.ownership import ForeignTreeError, KubeletRunningError, OtherNodeError
from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.cgroups.engine.transaction import MissingCgroupError
from plimsoll.errors import InvalidNameError, InvalidObjectError, PlimsollError
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.rules.cgroups.desired_files import derived_id
from plimsoll.rules.cgroups.steps import Make, Remove, Step, Write
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.node.node_config import NodeConfig, resolved
from plimsoll.rules.quantity import parse
from tests.faulty_driver import FaultyDriver, Killed
from tests.node_scenarios import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    PODS,
    RESERVED,
    RESIZED,
    node_setting,
    pod,
    sized,
    tree_now,
)

MI = 1 << 20
TOP = "/plimsoll-test/kubepods"
BURSTABLE_POD = f"{TOP}/burstable/pod{BURSTABLE.metadata.uid}"


class Node:
    def __init__(
        self,
        state_dir: Path,
        version: CgroupVersion = 2,
        name: DriverName = "cgroupfs",
        setting: NodeConfig | None = None,
    ) -> None:
        self.setting = setting or node_setting(version, name)
        self.kernel = SimulatedKernel(version, name, swap=False)
        self.driver = FaultyDriver(self.kernel)
        self.state_dir = state_dir
        asyncio.run(self.kernel.make(RESERVED))
        self.tree = self.another()

    def another(self, **options: object) -> CgroupManager:
        return CgroupManager(self.driver, self.setting, self.state_dir, **options)  # type: ignore[arg-type]

    def run(self, *deeds: Callable[[CgroupManager], Awaitable[object]]) -> None:
        async def all_of_them() -> None:
            for deed in deeds:
                await deed(self.tree)

        asyncio.run(all_of_them())

    def text(self, path: str, file: str) -> str:
        seen = self.kernel.read(path, (file,))
        assert seen is not None, path
        return seen.files[file]


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


def test_a_missing_file_is_reported_even_if_only_the_write_shows_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.kernel = SimulatedKernel(2, swap=False, lacking={"memory.oom.group": "too old"})
    node.driver.inner = node.kernel
    asyncio.run(node.kernel.make(RESERVED))
    node.driver.has = lambda file: None  # type: ignore[method-assign]  # as before the first cgroup exists
    applied = asyncio.run(node.tree.add([BURSTABLE]))
    assert {each.file for each in applied.unmet} == {"memory.oom.group"} and "too old" in str(applied.unmet[0])
    node.driver.made.clear()
    node.run(lambda tree: tree.refresh())
    assert node.driver.made == []


@pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])
def test_the_limit_of_a_class_is_not_below_its_usage(tmp_path: Path, version: CgroupVersion) -> None:
    """qosReserved would take memory from BestEffort pods that they have in use (02 §8.5)."""
    node = Node(tmp_path, version)
    file = "memory.max" if version == 2 else "memory.limit_in_bytes"
    node.run(lambda tree: tree.add([BEST_EFFORT]))
    used = 7000 * MI
    container = node.tree.paths(BEST_EFFORT.metadata.uid)["web"]
    pid = node.kernel.spawn(container)
    node.kernel.use(container, anon_bytes=used)
    applied = asyncio.run(node.tree.add([pod(7, big=sized("1", "4Gi"))]))
    wanted_bytes = (8192 - 256 - 2048) * MI
    assert node.text(f"{TOP}/besteffort", file) == str(used) and node.kernel.members(container) == [pid]
    assert [(each.path, each.want, each.have) for each in applied.unmet] == [
        (f"{TOP}/{name}", str(wanted_bytes), str(used)) for name in ("besteffort",)
    ]
    node.kernel.use(container, anon_bytes=MI)
    node.run(lambda tree: tree.refresh())
    assert node.text(f"{TOP}/besteffort", file) == str(wanted_bytes) and node.tree.status().unmet == ()


def test_protection_that_an_ancestor_caps_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    asyncio.run(node.kernel.make("/plimsoll-test"))  # foreign, so it is not changed
    applied = asyncio.run(node.tree.add([GUARANTEED]))
    assert [str(each) for each in applied.unmet] == [
        f"/plimsoll-test memory.min: want {96 * MI}, have 0 "
        "(this cgroup is not owned by Plimsoll, and it caps the protection of all pods)"
    ]
    node.run(lambda tree: tree.teardown())
    assert node.kernel.children("/") == ["plimsoll-reserved", "plimsoll-test"]


def test_a_resize_that_does_not_fit_is_refused_without_killing(tmp_path: Path) -> None:
    async def no_time(_: float) -> None:
        node.seconds += 5

    node = Node(tmp_path)
    node.seconds = 0.0  # type: ignore[attr-defined]
    node.run(lambda tree: tree.add([BURSTABLE]))
    log = node.tree.paths(BURSTABLE.metadata.uid)["log"]
    pid = node.kernel.spawn(log)
    node.kernel.use(log, anon_bytes=50 * MI)
    before = tree_now(node.kernel, (log,))
    node.tree = node.another(clock=lambda: node.seconds, sleep=no_time)  # type: ignore[attr-defined]
    with pytest.raises(PlimsollError, match=r"50\.0 MiB are still in use after"):
        node.run(lambda tree: tree.resize(RESIZED))
    lowered = {**before[log], "memory.max": str(54 * MI)}
    assert node.kernel.members(log) == [pid] and tree_now(node.kernel, (log,)) == {**before, log: lowered}
    node.kernel.use(log, anon_bytes=5 * MI)
    node.run(lambda tree: tree.refresh())
    assert node.text(log, "memory.max") == str(32 * MI) and node.tree.status().drift == ()


def test_as_kubernetes_a_resize_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([BURSTABLE]))
    log = node.tree.paths(BURSTABLE.metadata.uid)["log"]
    node.kernel.spawn(log)
    node.kernel.use(log, anon_bytes=50 * MI)
    node.tree = node.another(shrink="kubernetes")
    node.driver.made.clear()
    with pytest.raises(ShrinkError, match='cannot decrease memory limits: attempting to set container "log"'):
        node.run(lambda tree: tree.resize(RESIZED))
    assert node.driver.made == [] and node.tree.status().drift == ()


@pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])
@pytest.mark.parametrize("shrink", ["safe", "kubernetes"])
def test_recovery_does_not_lower_a_limit_that_is_in_use(tmp_path: Path, version: CgroupVersion, shrink: str) -> None:
    async def no_time(_: float) -> None:
        seconds[0] += 5

    seconds = [0.0]
    file = "memory.max" if version == 2 else "memory.limit_in_bytes"
    node = Node(tmp_path, version)
    node.run(lambda tree: tree.add([BURSTABLE]))
    web = node.tree.paths(BURSTABLE.metadata.uid)["web"]
    pid = node.kernel.spawn(web)
    raised = (Write(web, file, str(192 * MI)), Write(web, file, str(192 * MI), str(128 * MI)))

    def die_when_raised(step: Step) -> None:
        if step in raised:
            raise Killed

    node.driver.after_each = die_when_raised
    with pytest.raises(Killed):
        node.run(lambda tree: tree.resize(RESIZED))
    node.driver.after_each = None
    node.kernel.use(web, anon_bytes=150 * MI)
    node.tree = node.another(clock=lambda: seconds[0], sleep=no_time, shrink=shrink)
    unfinished = node.tree.status().unfinished
    assert unfinished is not None and unfinished.subject == "pod shop/p2"
    node.run(lambda tree: tree.refresh())
    assert node.kernel.members(web) == [pid] and node.text(web, file) == str(192 * MI)
    assert node.tree.status().unfinished is None and node.tree.status().drift == ()


def test_only_a_known_pod_can_be_resized(tmp_path: Path) -> None:
    with pytest.raises(InvalidNameError, match="add it first"):
        Node(tmp_path).run(lambda tree: tree.resize(RESIZED))


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    steps = node.tree.plan(PODS).steps
    assert node.driver.made == [] and not (tmp_path / "node.jsonl").exists()
    assert asyncio.run(node.tree.add(PODS)).steps == steps


@pytest.mark.parametrize("name", ["another container", "another class"])
def test_a_plan_names_what_would_be_removed(tmp_path: Path, name: str) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([BURSTABLE]))
    if name == "another class":
        changed = msgspec.structs.replace(BEST_EFFORT, metadata=BURSTABLE.metadata)
    else:
        kept = msgspec.structs.replace(BURSTABLE.spec, containers=BURSTABLE.spec.containers[:1])
        changed = msgspec.structs.replace(BURSTABLE, spec=kept)
    steps = node.tree.plan([changed]).steps
    assert any(isinstance(step, Remove) for step in steps)
    assert asyncio.run(node.tree.add([changed])).steps == steps


def _elsewhere(node: Node) -> CgroupManager:
    setting = node.setting
    config = msgspec.structs.replace(setting.config, cgroup_root="/plimsoll-test/elsewhere")
    return CgroupManager(node.driver, resolved(setting.machine, config, setting.profile), node.state_dir)


@pytest.mark.parametrize(
    "deed",
    [
        lambda tree: tree.setup(),
        lambda tree: tree.add([GUARANTEED]),
        lambda tree: tree.remove(BURSTABLE.metadata.uid),
        lambda tree: tree.refresh(),
        lambda tree: tree.teardown(),
    ],
    ids=["setup", "add", "remove", "refresh", "teardown"],
)
def test_a_state_directory_belongs_to_one_node(
    tmp_path: Path, deed: Callable[[CgroupManager], Awaitable[object]]
) -> None:
    """The pods of one node say nothing about cgroups at another path: nothing is made, forgotten or removed."""
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([BURSTABLE]))
    before, made = tree_now(node.kernel, ("/plimsoll-test",)), len(node.driver.made)
    other = _elsewhere(node)
    with pytest.raises(OtherNodeError, match=f"the node at {TOP}, not of one at /plimsoll-test/elsewhere/kubepods"):
        node.tree = other
        node.run(deed)
    assert "--state-dir" in other.status().refusal and len(node.driver.made) == made
    assert tree_now(node.kernel, ("/plimsoll-test",)) == before and list(other.known()) == [BURSTABLE.metadata.uid]


def test_a_node_may_move_once_the_first_is_removed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.setup(), lambda tree: tree.teardown())
    other = _elsewhere(node)
    asyncio.run(other.setup())
    assert other.status().is_set_up


def test_an_interrupted_first_set_up_is_not_foreign(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.driver.die_after = 4
    with pytest.raises(Killed):
        node.run(lambda tree: tree.setup())
    node.driver.die_after = None
    node.tree = node.another()
    found = node.tree.status()
    assert found.unfinished is not None and not found.refusal and not found.in_progress
    with pytest.raises(UnfinishedError, match="an earlier run of node set-up was interrupted"):
        node.tree.plan()
    node.run(lambda tree: tree.setup())
    assert node.tree.status().is_set_up and node.tree.status().drift == ()


def test_an_unfinished_plan_of_an_earlier_boot_is_void(tmp_path: Path) -> None:
    node = Node(tmp_path)
    Journal(tmp_path / "journal.jsonl").begin("pod shop/old", "an earlier boot", [Make(TOP)], {})
    assert node.tree.status().unfinished is None
    node.tree.plan()


def test_status_reports_an_open_transaction(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.setup())
    with Journal(tmp_path / "journal.jsonl").locked():
        assert node.another().status().in_progress
    assert not node.another().status().in_progress


@pytest.mark.parametrize(
    ("deed", "after"), [("add", 1), ("add", 5), ("add", 12), ("teardown", 1), ("teardown", 3), ("teardown", 5)]
)
def test_a_cancelled_transaction_is_rolled_back(tmp_path: Path, deed: str, after: int) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([GUARANTEED]))
    before = tree_now(node.kernel, ("/plimsoll-test",))
    made = len(node.driver.made)

    async def cancelled() -> None:
        task = asyncio.ensure_future(node.tree.add([BURSTABLE, BEST_EFFORT]) if deed == "add" else node.tree.teardown())

        def cancel(_: Step) -> None:
            if len(node.driver.made) == made + after:
                task.cancel()

        node.driver.after_each = cancel
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    node.driver.after_each = None
    assert tree_now(node.kernel, ("/plimsoll-test",)) == before
    status = node.another().status()
    assert status.unfinished is None and status.drift == () and status.is_set_up


def test_a_full_disk_rolls_the_plan_back(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "node.new").mkdir()  # where the state is written before it replaces the old one
    with pytest.raises(StateWriteError, match=r"node\.jsonl cannot be written"):
        node.run(lambda tree: tree.setup())
    assert node.kernel.read(TOP, ()) is None and node.tree.status().unfinished is None
    (tmp_path / "node.new").rmdir()
    node.run(lambda tree: tree.setup())
    assert node.tree.status().is_set_up


def test_several_pods_are_removed_in_one_transaction(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add(PODS))
    gone = asyncio.run(node.tree.remove(*(each.metadata.uid for each in PODS)))
    assert gone.subject.count("pod ") == len(PODS) and node.tree.known() == {}
    assert node.kernel.read(BURSTABLE_POD, ()) is None


def test_without_cgroups_per_qos_there_is_nothing_to_set_up(tmp_path: Path) -> None:
    setting = node_setting(2, "cgroupfs")
    config = msgspec.structs.replace(
        setting.config, cgroups_per_qos=False, enforce_node_allocatable=(), system_reserved={"cpu": parse("1")}
    )
    node = Node(tmp_path, setting=resolved(setting.machine, config, setting.profile))
    assert asyncio.run(node.tree.add(PODS)).steps == ()
