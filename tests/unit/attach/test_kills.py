"""attach is killed again and again, at every point; whatever happens meanwhile, detach restores every file."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from plimsoll.attach.detach import restored
from plimsoll.attach.journal import JournalError
from plimsoll.attach.scores import stale_entries
from plimsoll.attach.service import Mode
from plimsoll.attach.writer import PROC, SCORE
from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.linux.processes import set_oom_score_adj
from plimsoll.rules.attach.policy import AttachPolicy
from plimsoll.rules.attach.values import HIGH, Target
from plimsoll.rules.attach.writes import Entry
from plimsoll.runtime.nri import messages as m
from tests.examples import examples
from tests.unit.attach.attach_node import AttachNode
from tests.unit.attach.mortal_node import POLICIES, SIZES, MortalNode, double_kills
from tests.unit.rules.attach.nodes import MIB
from tests.unit.runtime.nri.fake_runtime import fake_runtime

PODS = ("a", "b")
points = st.none() | st.integers(0, 12)
policies = st.sampled_from(POLICIES)
pods = st.sampled_from(PODS)


@pytest.fixture
async def node(tmp_path: Path) -> MortalNode:
    """Container a1 runs and has the values of the first policy, which the runtime has recorded."""
    found = MortalNode(tmp_path / "s", POLICIES[0])
    await found.prepare(PODS)
    await found.start()
    await found.connect()
    await found.create("a", 1)
    await found.start_container("a1")
    await found.round()
    assert found.high("a1") != "max"
    return found


async def restarted(node: MortalNode, policy: AttachPolicy) -> None:
    if node.node is not None:
        node.die()
    node.set_policy(policy)
    await node.start()


async def detached(node: MortalNode) -> None:
    if node.node is not None:
        node.die()
    assert await node.detach()
    await node.check_restored()


async def test_a_value_that_only_the_runtime_remembers(node: MortalNode) -> None:
    """Two attaches that never met the runtime have written the file; then the kubelet updates the container."""
    recorded = node.high("a1")
    for policy in (POLICIES[1], POLICIES[3]):
        await restarted(node, policy)
        await node.round()
        assert node.high("a1") != recorded
    node.die()
    await node.update("a1")
    assert node.high("a1") == recorded
    await detached(node)


async def test_a_raised_limit_that_the_runtime_does_not_know(node: MortalNode) -> None:
    recorded = node.high("a1")
    for high in (200, 220, 240):
        await node.lift("a1", high * MIB)
    assert node.high("a1") == str(240 * MIB)
    node.die()
    await node.update("a1")
    assert node.high("a1") == recorded
    await detached(node)


async def test_an_answer_that_the_runtime_carries_out_after_the_next_attach_has_read_the_file(node: MortalNode) -> None:
    node.set_policy(POLICIES[1])
    await node.update("a1", at_once=False)
    await restarted(node, POLICIES[3])
    await node.round(2)  # killed after the journal
    assert node.node is None
    await detached(node)


async def test_a_container_that_is_created_and_starts_after_the_next_attach(node: MortalNode) -> None:
    """Until it has started there is no cgroup, and before the runtime is connected attach does not know the container."""
    await node.create("a", 2)
    await restarted(node, POLICIES[0])
    await node.round()
    await node.start_container("a2")
    await node.round()
    await detached(node)


async def test_a_container_that_is_created_and_starts_after_detach(node: MortalNode) -> None:
    await node.create("a", 2)
    await detached(node)  # starts it then


async def test_a_container_that_is_created_and_starts_after_the_policy_is_off(node: MortalNode) -> None:
    await node.create("a", 2)
    node.set_policy(POLICIES[4])
    await node.round()
    node.die()
    await node.check_restored()


async def test_a_value_of_another_program_is_kept_at_the_next_update(node: MortalNode) -> None:
    path = node.runtime.containers["a1"].path
    await node.kernel.write_by_another(path, "memory.high", str(100 * MIB))
    node.die()
    done = await node.restored()
    assert {each.outcome for each in done if each.path == path and each.file == HIGH} == {"changed by another"}
    await node.update("a1")
    assert node.high("a1") == str(100 * MIB)


@pytest.mark.parametrize("killed", [False, True])
async def test_a_policy_that_is_off_while_the_runtime_is_away(node: MortalNode, killed: bool) -> None:
    """The kernel has the values from before at once; the runtime hears of it when it is there."""
    node.runtime.connected = False
    node.set_policy(POLICIES[4])
    await node.round()
    assert node.high("a1") == "max"
    if killed:
        await detached(node)
        return
    await node.connect()
    await node.round()
    await node.update("a1")
    assert node.high("a1") == "max"
    node.die()
    await node.check_restored()


async def test_a_policy_that_comes_back_while_its_values_are_taken_away(node: MortalNode) -> None:
    """The kubelet updates the container while the round waits for the runtime. Killed right after it."""
    node.set_policy(POLICIES[4])
    await node.round(meanwhile=node.update_meanwhile("a1", POLICIES[1]))
    await detached(node)


async def test_an_answer_that_the_runtime_carries_out_after_a_restore(
    node: MortalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.update("a1", at_once=False)
    node.set_policy(POLICIES[4])
    await node.round()
    assert node.high("a1") == "max"
    await node.runtime.carry_out()
    assert node.high("a1") != "max"
    await node.round()
    assert node.high("a1") == "max"
    monkeypatch.setattr("plimsoll.attach.plugin.SETTLED_S", 0.0)
    await node.round()
    assert node.node is not None and not node.node.journal.entries


async def test_an_entry_that_was_changed_during_a_restore_stays(node: MortalNode) -> None:
    assert node.node is not None
    journal = node.node.journal
    (entry,) = (each for each in journal.entries.values() if each.container_id and each.file == HIGH)
    journal.record([entry.wants(str(200 * MIB), None, 4096)])
    journal.forget([entry])
    assert journal.entries[entry.key].wanted == str(200 * MIB)


async def test_an_end_before_the_runtime_is_connected(node: MortalNode) -> None:
    """With restoreOnExit; the runtime keeps its record, so the journal keeps its entries."""
    await restarted(node, POLICIES[2])
    await node.end()
    assert node.high("a1") == "max"
    await node.update("a1")
    await detached(node)


async def test_another_container_with_the_same_cgroup(tmp_path: Path) -> None:
    """Its values before are its own."""
    node = MortalNode(tmp_path / "s", POLICIES[0])
    await node.prepare(PODS)
    await node.create("a", 1)
    await node.start_container("a1")
    await node.kernel.write_by_another(node.runtime.containers["a1"].path, "memory.high", str(100 * MIB))
    await node.start()
    await node.connect()
    await node.round()
    await node.stop("a1")
    await node.create("a", 1)
    await node.start_container("a1")
    assert node.high("a1") != "max"
    await detached(node)


async def test_a_runtime_that_shows_its_record_in_an_update(node: MortalNode) -> None:
    """Values of attach that it was given earlier are no values from before."""
    earlier = dict(node.runtime.containers["a1"].record)
    node.set_policy(POLICIES[1])
    assert node.node is not None
    container = node.runtime.containers["a1"]
    resources = m.LinuxResources(unified=earlier)
    assert await node.node.service.plugin.updated(container.pod, container.message, resources) is not None
    await detached(node)


async def test_a_limit_of_another_program_is_not_raised(node: MortalNode) -> None:
    path = node.runtime.containers["a1"].path
    await node.kernel.write_by_another(path, "memory.high", str(100 * MIB))
    await node.lift("a1", 200 * MIB)
    assert node.high("a1") == str(100 * MIB)
    assert node.node is not None and not node.node.service.watchdog.lifted


async def test_a_full_disk_ends_no_attach(node: MortalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_changes: object) -> None:
        raise JournalError("the disk is full")

    assert node.node is not None
    before = node.high("a1")
    with monkeypatch.context() as patch:
        patch.setattr(node.node.journal, "_write", full)
        await node.lift("a1", 200 * MIB)
        assert node.high("a1") == before
        node.set_policy(POLICIES[4])
        await node.round()  # restores, and cannot forget
    assert node.node.journal.entries
    await detached(node)


async def test_a_repaired_score_whose_repair_is_repaired(tmp_path: Path) -> None:
    """The pod was resized twice; the second attach was killed between its journal and the write."""
    node = AttachNode(tmp_path / "s")
    pod, container = await node.pod("a")
    await node.created(pod, container)
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        assert set_oom_score_adj(process.pid, 900).reason == ""
        node.kernel._pids = process.pid - 1
        node.kernel.spawn(node.container_path("a"))
        path = f"{PROC}{process.pid}"
        found = node.writer.read(path, ())
        assert found is not None
        node.journal.record([Entry(path, SCORE, "500", "900", found[1], "a")])
        target = Target(node.container_path("a"), "container", "default/a / main", {}, "a", 800)
        (write,) = stale_entries([target], node.writer)
        assert (write.entry.before, write.wanted) == ("500", "800")
        assert node.writer.outcome(write.entry) == "restored"
    finally:
        process.kill()
        await process.wait()


async def test_on_v1_detach_asks_the_runtime_for_nothing(tmp_path: Path) -> None:
    """No value was given to it, and one in `unified` would fail the update."""
    kernel = SimulatedKernel(1)
    node = AttachNode(tmp_path / "s", kernel=kernel)
    for path in ("/kubepods", "/kubepods/a"):
        await kernel.make(path)
    node.journal.record([Entry("/kubepods/a", "cpu.shares", "1024", "2048", 0, "a")])
    await kernel.write("/kubepods/a", "cpu.shares", "2048")
    async with fake_runtime(tmp_path / "nri.sock") as runtime:
        done, note = await restored(node.journal, kernel, 4096, runtime.path, dry_run=False)
        assert ([each.outcome for each in done], note, runtime.updates) == (["restored"], "", [])
    assert not node.journal.entries


async def test_a_score_needs_no_runtime(tmp_path: Path) -> None:
    node = AttachNode(tmp_path / "s")
    path = f"{PROC}{os.getpid()}"
    found = node.writer.read(path, ())
    assert found is not None
    node.journal.record([Entry(path, SCORE, "500", "900", found[1], "a")])
    done, note = await restored(node.journal, node.kernel, 4096, tmp_path / "nowhere", dry_run=False)
    assert ([each.outcome for each in done], note) == (["changed by another"], "")
    assert not node.journal.entries


async def test_detach_without_the_runtime_can_be_finished_later(node: MortalNode, tmp_path: Path) -> None:
    assert node.node is not None
    socket = tmp_path / "nri.sock"
    done, note = await restored(node.node.journal, node.kernel, 4096, socket, dry_run=False)
    assert {each.outcome for each in done} == {"restored"} and "run `plimsoll detach` again" in note
    assert node.high("a1") == "max"
    assert {each.container_id for each in node.node.journal.entries.values()} == {"a1"}
    async with fake_runtime(socket) as runtime:
        done, note = await restored(node.node.journal, node.kernel, 4096, socket, dry_run=False)
        assert {each.outcome for each in done} == {"already"} and note == ""
        assert [each.container_id for each in runtime.updates] == ["a1"]
    assert not node.node.journal.entries


@pytest.mark.parametrize("names_failed", [False, True])
async def test_a_container_that_the_runtime_cannot_update_stays_in_the_journal(
    tmp_path: Path, names_failed: bool
) -> None:
    """Its record has a value of attach; those of the others do not."""
    node = AttachNode(tmp_path / "s")
    for name in ("a", "b", "c"):
        await node.created(*await node.pod(name))
    await node.service.round()
    socket = tmp_path / "nri.sock"
    async with fake_runtime(socket) as runtime:
        runtime.names_failed = names_failed
        runtime.apply = lambda update: update.container_id != "b"
        done, note = await restored(node.journal, node.kernel, 4096, socket, dry_run=False)
        assert {each.outcome for each in done} == {"restored"} and "it could not update 1 of them" in note
        assert {each.container_id for each in node.journal.entries.values()} == {"b"}
        runtime.apply = lambda update: True
        done, note = await restored(node.journal, node.kernel, 4096, socket, dry_run=False)
        assert {each.outcome for each in done} == {"already"} and note == ""
    assert not node.journal.entries


async def test_two_kills_in_a_row() -> None:
    """Every seventh pair of points; `./dev prove attach` tries them all."""
    assert await double_kills(POLICIES[0], POLICIES[1], POLICIES[3], every=7) > 100


class Lives(RuleBasedStateMachine):
    """Any order of kills, restarts, modes, policies, resizes, and containers that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.node = MortalNode(Path(self.directory.name), POLICIES[0])
        self.runner.run(self.node.prepare(PODS))
        self.created = 0

    @initialize(is_connected=st.booleans(), first=st.booleans())
    def begin(self, is_connected: bool, first: bool) -> None:
        async def begin() -> None:
            await self.node.start()
            if is_connected:
                await self.node.connect()
            self.created = int(first)
            if first:
                await self.node.create("a", 1)
                await self.node.start_container("a1")
                await self.node.round()

        self.runner.run(begin())

    def container(self, number: int) -> str:
        known = sorted(self.node.runtime.containers)
        return known[number % len(known)]

    @property
    def lives(self) -> bool:
        return self.node.node is not None

    @precondition(lambda self: not self.lives)
    @rule(mode=st.sampled_from(["enforce", "enforce", "canary", "observe"]), others=st.booleans(), policy=policies)
    def start(self, mode: Mode, others: bool, policy: AttachPolicy) -> None:
        self.node.set_policy(policy)
        self.runner.run(self.node.start(mode, frozenset({"others" if others else "default"})))

    @precondition(lambda self: self.lives and not self.node.runtime.connected)
    @rule()
    def connect(self) -> None:
        self.runner.run(self.node.connect())

    @precondition(lambda self: self.node.runtime.connected)
    @rule()
    def disconnect(self) -> None:
        self.node.runtime.connected = False

    @precondition(lambda self: self.lives)
    @rule(points=points)
    def round(self, points: int | None) -> None:
        self.runner.run(self.node.round(points))

    @precondition(lambda self: self.lives and self.node.runtime.containers)
    @rule(points=points, policy=policies, number=st.integers(0, 9))
    def round_in_which_the_policy_changes(self, points: int | None, policy: AttachPolicy, number: int) -> None:
        self.runner.run(self.node.round(points, self.node.update_meanwhile(self.container(number), policy)))

    @precondition(lambda self: self.lives)
    @rule(policy=policies)
    def policy(self, policy: AttachPolicy) -> None:
        self.node.set_policy(policy)

    @precondition(lambda self: self.lives and self.node.runtime.containers)
    @rule(points=points, number=st.integers(0, 9), value=st.integers(20, 30))
    def lift(self, points: int | None, number: int, value: int) -> None:
        self.runner.run(self.node.lift(self.container(number), value * 10 * MIB, points))

    @precondition(lambda self: self.lives)
    @rule(points=points)
    def end(self, points: int | None) -> None:
        self.runner.run(self.node.end(points))

    @rule(name=pods, points=points)
    def create(self, name: str, points: int | None) -> None:
        self.created += 1
        self.runner.run(self.node.create(name, self.created, points))

    @precondition(lambda self: self.node.runtime.containers)
    @rule(number=st.integers(0, 9))
    def start_container(self, number: int) -> None:
        self.runner.run(self.node.start_container(self.container(number)))

    @precondition(lambda self: self.node.runtime.containers)
    @rule(number=st.integers(0, 9))
    def stop(self, number: int) -> None:
        self.runner.run(self.node.stop(self.container(number)))

    @precondition(lambda self: self.node.runtime.containers)
    @rule(number=st.integers(0, 9), points=points, at_once=st.booleans())
    def update(self, number: int, points: int | None, at_once: bool) -> None:
        self.runner.run(self.node.update(self.container(number), points, at_once=at_once))

    @rule()
    def carry_out(self) -> None:
        self.runner.run(self.node.runtime.carry_out())

    @rule(name=pods, size=st.integers(0, len(SIZES) - 1))
    def resize(self, name: str, size: int) -> None:
        self.node.resize(name, size)

    @precondition(lambda self: not self.lives)
    @rule(points=points)
    def detach(self, points: int | None) -> None:
        if self.runner.run(self.node.detach(points)):
            self.runner.run(self.node.check_restored())

    def teardown(self) -> None:
        if self.lives:
            self.node.die()
        self.runner.run(self.node.detach())
        self.runner.run(self.node.check_restored())
        self.runner.close()
        self.directory.cleanup()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
