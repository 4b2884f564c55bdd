"""The service on a simulated kernel: values at create and after, modes, restores, overwrites, hostile input."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest

from plimsoll.attach.detach import restored
from plimsoll.attach.journal import AttachJournal, JournalError
from plimsoll.attach.service import Scope
from plimsoll.linux.block_devices import disk_number
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.rules.attach.policy import AttachPolicy, Switches, attach_policy
from plimsoll.rules.blockio.policy import IO_MAX
from plimsoll.runtime.nri import messages as m
from plimsoll.runtime.nri.plugin import NriSession
from tests.unit.attach.attach_node import HIGH, LOW, MIB, AttachNode
from tests.unit.runtime.nri.fake_runtime import fake_runtime

BEFORE = {"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.oom.group": "0"}
ADJUSTED = {"memory.low": LOW, "memory.high": HIGH}


async def test_a_container_gets_its_values_at_create_and_the_levels_above_follow(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    assert await node.created(*await node.pod("a")) == ADJUSTED
    await node.service.round()
    low = BEFORE | {"memory.low": LOW}
    assert node.tree() == {
        "/kubepods": low,
        "/kubepods/burstable": low,
        "/kubepods/burstable/poduid-a": low,
        node.container_path("a"): low | {"memory.high": HIGH},
    }
    assert node.service.status().pending == ()


async def test_every_update_is_answered(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    await node.created(pod, container)
    update = await node.service.plugin.updated(pod, container, m.LinuxResources(unified={"memory.high": "max"}))
    assert update is not None and update.linux is not None and update.linux.resources is not None
    assert update.linux.resources.unified == ADJUSTED
    assert node.journal.entries[f"{node.container_path('a')}\tmemory.high"].before == "max"


async def test_observe_changes_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s", "observe")
    assert await node.created(*await node.pod("a")) == {}
    await node.service.round()
    assert set(map(str, node.tree().values())) == {str(BEFORE)}
    pending = {(each.level, each.file, each.found, each.wanted) for each in node.service.status().pending}
    assert pending == {
        ("pods", "memory.low", "0", LOW),
        ("class", "memory.low", "0", LOW),
        ("pod", "memory.low", "0", LOW),
        ("container", "memory.low", "0", LOW),
        ("container", "memory.high", "max", HIGH),
    }
    assert not node.journal.entries


async def test_observe_measures_the_time_above_the_planned_high(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s", "observe")
    await node.created(*await node.pod("a"))
    await node.service.round()
    node.kernel.spawn(node.container_path("a"))
    node.kernel.use(node.container_path("a"), anon_bytes=127 << 20)
    for now_s in (100.0, 110.0, 140.0):
        await node.service.watchdog.sample(node.service.decision, now_s, reclaim=True)
    (above,) = node.service.status().above_high
    assert (above.subject, above.seconds, above.high) == ("default/a / main", 40.0, HIGH)


async def test_canary_changes_the_chosen_namespaces_only(tmp_path: Path) -> None:
    scope = Scope("canary", frozenset({"shop"}), ("team", "web"))
    node = AttachNode(tmp_path / "s", scope=scope)
    node.book.namespaces["blog"] = {"team": "web"}
    assert await node.created(*await node.pod("a")) == {}
    assert await node.created(*await node.pod("b", namespace="shop")) == ADJUSTED
    assert await node.created(*await node.pod("c", namespace="blog")) == ADJUSTED
    await node.service.round()
    assert node.files("/kubepods")["memory.low"] == str(2 * int(LOW))
    assert node.files(node.container_path("a")) == BEFORE


@pytest.fixture
def disk() -> tuple[str, str]:
    """A path and its number."""
    found = next((path for path in sorted(Path("/dev").glob("loop[0-9]*")) if path.is_block_device()), None)
    if found is None:
        pytest.skip("this machine has no block device to look at")
    return str(found), disk_number(str(found))


async def test_block_io_is_limited_changed_and_restored(tmp_path: Path, disk: tuple[str, str]) -> None:
    path, number = disk
    limited = attach_policy({"ioControl": {"devices": [path], "ceilings": {"*": {"max": "wbps=8Mi"}}}})
    node = AttachNode(tmp_path / "s", policy=limited)
    pod, container = await node.pod("a", annotations={IO_MAX: "wbps=1Mi"})
    await node.created(pod, container)
    group = "/kubepods/burstable/poduid-a"

    def found(name: str, at: str = group) -> str:
        group = node.kernel.read(at, (name,))
        assert group is not None
        return group.files[name]

    await node.service.round()
    assert found("io.max") == f"{number} wbps={MIB}"
    assert [found("io.weight", at) for at in ("/kubepods", "/kubepods/burstable")] == ["default 500", "default 100"]
    node.policy = attach_policy({"ioControl": {"devices": [path], "ceilings": {"*": {"max": "wbps=512Ki"}}}})
    await node.service.round()
    assert found("io.max") == f"{number} wbps={MIB // 2}"
    assert "plimsoll.dev/io-max]: Forbidden" in node.service.status().notes[0]
    node.policy = attach_policy({})
    await node.service.round()
    assert (found("io.max"), found("io.weight", "/kubepods")) == ("", "default 100")
    assert not node.journal.entries


async def test_block_io_that_this_machine_cannot_control_is_said_and_the_rest_works(tmp_path: Path) -> None:
    switches = {"memoryQoS": "tiered", "ioControl": {"devices": ["/dev/no-such-disk"]}}
    node = AttachNode(tmp_path / "s", policy=attach_policy(switches))
    assert await node.created(*await node.pod("a")) == ADJUSTED
    await node.service.round()
    (problem,) = (each for each in node.service.status().problems if "ioControl" in each)
    assert problem.startswith("ioControl is ignored: ioControl.devices[0]: /dev/no-such-disk: No such file")
    assert node.files("/kubepods")["memory.low"] == LOW


async def test_detach_restores_and_leaves_what_others_have_changed(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    await node.created(*await node.pod("a"))
    await node.service.round()
    await node.kernel.write("/kubepods", "memory.low", "4096")
    done = await node.writer.restore(list(node.journal.entries.values()))
    assert {(each.path, each.outcome) for each in done if each.outcome != "restored"} == {
        ("/kubepods", "changed by another")
    }
    assert not node.journal.entries
    assert node.files("/kubepods") == BEFORE | {"memory.low": "4096"}
    assert node.files(node.container_path("a")) == BEFORE


async def test_detach_waits_for_a_busy_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be about to carry out an update of an attach that was killed, which must not come after the restore."""
    monkeypatch.setattr("plimsoll.runtime.nri.plugin.CALL_S", 0.01)
    node = AttachNode(tmp_path / "s")
    await node.created(*await node.pod("a"))
    await node.service.round()
    async with fake_runtime(tmp_path / "nri.sock") as runtime:
        runtime.free.clear()
        detaching = asyncio.create_task(restored(node.journal, node.kernel, 4096, runtime.path, dry_run=False))
        await runtime.asked.wait()
        assert not (await asyncio.wait({detaching}, timeout=0.2))[0]
        runtime.free.set()
        done, note = await detaching
        assert note == "" and {each.outcome for each in done} == {"restored"}
        assert [each.container_id for each in runtime.updates] == ["a"]


async def test_an_end_waits_for_the_update_that_the_runtime_was_asked_for(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    async with fake_runtime(tmp_path / "nri.sock") as runtime:
        session = NriSession(runtime.path, "plimsoll", "90", node.service.plugin)
        node.writer.session = session
        connecting = asyncio.create_task(session.once())
        await session.ready(30.0)
        await node.created(*await node.pod("a"))
        await node.kernel.write(node.container_path("a"), "memory.high", "max")
        runtime.asked.clear()
        runtime.free.clear()
        round_ = asyncio.create_task(node.service.round())
        await runtime.asked.wait()
        round_.cancel()
        assert not (await asyncio.wait({round_}, timeout=0.1))[0]
        runtime.free.set()
        with pytest.raises(asyncio.CancelledError):
            await round_
        assert [each.container_id for each in runtime.updates] == ["a"]
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)


async def test_overwritten_values_are_written_again_until_it_is_a_fight(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    await node.pod("a")
    await node.service.round()
    for _ in range(7):
        await node.kernel.write("/kubepods", "memory.low", "4096")
        await node.service.round()
    status = node.service.status()
    assert status.reasserts == {"a person or another program": 5}
    assert status.abandoned == ("/kubepods/memory.low",)
    assert node.files("/kubepods")["memory.low"] == "4096"
    await node.kernel.write("/kubepods/burstable", "memory.low", "0")
    await node.service.round()
    assert node.service.status().reasserts["the kubelet"] == 1


async def test_a_new_policy_restores_what_it_no_longer_asks_for(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    await node.created(*await node.pod("a"))
    node.service.plugin.is_synchronized = True
    await node.service.round()
    node.policy = AttachPolicy(Switches(oom_group="container"))
    await node.service.round()
    assert node.files("/kubepods") == BEFORE
    assert node.files(node.container_path("a")) == BEFORE | {"memory.oom.group": "1"}


async def test_a_restart_keeps_the_values(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    await node.created(pod, container)
    await node.service.round()
    before = node.tree()
    node.journal.close()
    node.restart()
    await node.service.round()  # nothing is known yet: nothing is restored
    assert node.tree() == before
    await node.pod("a")
    await node.service.round()  # the runtime is not connected yet
    assert node.tree() == before
    node.service.plugin.synchronized([pod], [msgspec.structs.replace(container, state=m.RUNNING)])
    await node.service.round()
    assert node.tree() == before and len(node.journal.entries) == 5


async def test_kills_between_the_journal_and_the_runtime_leave_a_value_that_detach_takes_back(tmp_path: Path) -> None:
    """Each process has journalled another value, and none of these has reached the kernel."""
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    await node.created(pod, container)
    for factor in (0.5, 0.3):
        node.journal.close()
        node.restart()
        await node.pod("a")
        node.policy = AttachPolicy(Switches("tiered", factor=factor))
        assert await node.service.plugin.updated(pod, container, m.LinuxResources()) is not None
    assert node.files(node.container_path("a"))["memory.high"] == HIGH
    await node.writer.restore(list(node.journal.entries.values()))
    assert node.files(node.container_path("a")) == BEFORE


async def test_an_update_keeps_what_a_person_had_written_before(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    path = node.container_path("a")
    await node.kernel.make(path)
    await node.kernel.write(path, "memory.high", str(100 * MIB))
    node.service.plugin.synchronized([pod], [msgspec.structs.replace(container, state=m.RUNNING)])
    assert await node.service.plugin.updated(pod, container, m.LinuxResources()) is not None
    assert node.journal.entries[f"{path}\tmemory.high"].before == str(100 * MIB)


async def test_an_end_restores_if_the_policy_says_so(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s", policy=AttachPolicy(Switches("tiered"), restore_on_exit=True))
    await node.created(*await node.pod("a"))
    await node.service.round()
    await node.service.end()
    assert set(map(str, node.tree().values())) == {str(BEFORE)}


async def test_a_file_of_another_plugin_is_left_to_it(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    path = node.container_path("a")
    owned = m.LinuxContainer(resources=m.LinuxResources(unified={"memory.high": "100003840"}), cgroups_path=path)
    files = await node.created(pod, msgspec.structs.replace(container, linux=owned))
    assert files == {"memory.low": LOW}
    await node.kernel.write(path, "memory.high", "100003840")
    await node.service.round()
    assert node.files(path)["memory.high"] == "100003840"
    update = await node.service.plugin.updated(pod, container, m.LinuxResources())
    assert update is not None and update.linux is not None and update.linux.resources is not None
    assert update.linux.resources.unified == {"memory.low": LOW}


@pytest.mark.parametrize(
    ("pod_changes", "container_changes"),
    [
        ({}, {"id": "../../../system.slice"}),
        ({}, {"id": "a/b"}),
        ({}, {"id": ""}),
        ({}, {"id": "x" * 500}),
        ({"uid": ""}, {}),
        ({}, {"linux": m.LinuxContainer(cgroups_path="/system.slice/ssh.service")}),
        ({}, {"linux": m.LinuxContainer(cgroups_path="kubepods.slice:other:a")}),
        ({}, {"name": "not-of-this-pod"}),
    ],
)
async def test_a_runtime_that_lies_changes_nothing(
    tmp_path: Path, pod_changes: dict[str, str], container_changes: dict[str, object]
) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    pod = msgspec.structs.replace(pod, **pod_changes)
    container = msgspec.structs.replace(container, **container_changes)
    assert await node.service.plugin.created(pod, container) is None
    assert not node.journal.entries


async def test_ids_that_are_paths_are_not_known(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    bad = [msgspec.structs.replace(container, id=each, state=m.RUNNING) for each in ("../x", "a/b", "", "x" * 500)]
    node.service.plugin.synchronized([pod], bad)
    assert node.service.plugin.containers == {}


async def test_a_container_of_an_unknown_pod_waits_and_the_runtime_gives_up(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    known = node.book.pods.pop("uid-a")
    asked = asyncio.create_task(node.service.plugin.created(pod, container))
    await asyncio.sleep(0)
    assert not asked.done()
    node.book.put([known])
    assert await asked is not None


async def test_without_a_journal_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")

    def full(_changes: object) -> None:
        raise JournalError("the disk is full")

    monkeypatch.setattr(node.journal, "_write", full)
    assert await node.created(pod, container) == {}
    await node.service.round()
    assert set(map(str, node.tree().values())) == {str(BEFORE)}
    assert {each.problem for each in node.service.status().pending} == {"the disk is full"}


async def test_cgroups_that_vanish_are_forgotten(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    await node.created(pod, container)
    await node.service.round()
    await node.kernel.remove(node.container_path("a"))
    node.service.plugin.changed(m.STOP_CONTAINER, pod, container)
    await node.service.round()
    assert not [entry for entry in node.journal.entries.values() if entry.container_id]
    assert node.service.status().pending == ()


async def test_what_is_known_about_a_container_goes_with_it(tmp_path: Path) -> None:
    """Its files were fought over, and one belonged to another plugin; a thousand such containers leave nothing."""
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    path = node.container_path("a")
    owned = m.LinuxContainer(resources=m.LinuxResources(unified={"memory.high": "100003840"}), cgroups_path=path)
    await node.created(pod, msgspec.structs.replace(container, linux=owned))
    for _ in range(8):
        await node.kernel.write(path, "memory.low", "4096")
        await node.service.round()
    assert node.service.status().abandoned == (f"{path}/memory.low",)
    assert node.service.plugin.is_owned("a", "memory.high")
    await node.kernel.remove(path)
    node.service.plugin.changed(m.STOP_CONTAINER, pod, container)
    await node.service.round()
    assert node.service.status().abandoned == ()
    assert not node.service.plugin.is_owned("a", "memory.high")


async def test_a_problem_is_logged_again_after_it_was_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = AttachNode(tmp_path / "s")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for breaks in (True, True, False, True):
        with monkeypatch.context() as patch:
            if breaks:
                patch.setattr("plimsoll.attach.service.replace_private", full)
            await node.service.round()
    assert sum("the status cannot be written" in each.message for each in caplog.records) == 2


async def test_the_journal_has_one_user_and_one_boot(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    await node.pod("a")
    await node.service.round()
    first = node.journal
    with pytest.raises(JournalError, match=r"process \d+ is attached to this node"):
        node.restart()
    first.close()
    node.restart()
    assert len(node.journal.entries) == 3
    node.journal.close()
    node.journal.open("another boot")
    assert not node.journal.entries
    (tmp_path / "s" / "journal").write_bytes(b"[1,{}]\n")
    node.journal.close()
    with pytest.raises(JournalError, match="nothing was changed"):
        node.restart()


def test_a_journal_of_another_version_is_named(tmp_path: Path) -> None:
    entries = AppendLog(tmp_path / "journal")
    entries.write({"boot": b'"boot"', "/a\tmemory.high": b'{"path":"/a","file":"memory.high","previous":"1"}'})
    with pytest.raises(JournalError, match=r"journal: an entry is not of this version: .*; nothing was changed\. Move"):
        AttachJournal(tmp_path).open("boot")


async def test_running_containers_are_changed_through_the_runtime_and_restored_the_same_way(tmp_path: Path) -> None:
    """Whatever the runtime does not write is written to the file."""
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    path = node.container_path("a")
    await node.kernel.make(path)
    with tempfile.TemporaryDirectory(prefix="nri-") as directory:
        async with fake_runtime(Path(directory, "s")) as runtime:
            runtime.pods, runtime.containers = (pod,), (msgspec.structs.replace(container, state=m.RUNNING),)
            session = NriSession(Path(directory, "s"), "plimsoll", "95", node.service.plugin)
            node.writer.session = session
            running = asyncio.create_task(session.once())
            assert await session.ready(30)
            await node.service.round()  # the runtime takes it and does nothing
            assert node.files(path) == BEFORE | ADJUSTED
            await node.writer.restore(list(node.journal.entries.values()))
            asked = [each.linux.resources.unified for each in runtime.updates if each.linux and each.linux.resources]
            assert asked == [ADJUSTED, {"memory.low": "0", "memory.high": "max"}]
            assert node.files(path) == BEFORE
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
