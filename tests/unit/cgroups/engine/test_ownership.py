from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.engine.ownership import (
    ForeignTreeError,
    KnownPod,
    KubeletRunningError,
    NodeState,
    OwnedCgroup,
    StateCorruptError,
    StateFile,
    is_owned,
    running_kubelet,
    this_boot,
)
from plimsoll.linux.files.append_log import AppendLog
from tests.node_scenarios import BURSTABLE

STATE = NodeState(
    "this-boot",
    5,
    {"/kubepods": OwnedCgroup(12, "pods"), "/kubepods/podx": OwnedCgroup(13, "pod")},
    {"/system": {"cpu.weight": "100"}},
    {BURSTABLE.metadata.uid: KnownPod(BURSTABLE, {"web": "a" * 64})},
)


def test_the_state_is_read_as_written(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state" / "node.jsonl", "this-boot")
    assert file.load() == NodeState("this-boot")
    file.save(STATE)
    assert file.load() == STATE
    assert (tmp_path / "state" / "node.jsonl").stat().st_mode & 0o777 == 0o600
    assert {each.name for each in (tmp_path / "state").iterdir()} == {"node.jsonl", "node.new"}


def test_after_a_reboot_only_the_plan_number_is_kept(tmp_path: Path) -> None:
    StateFile(tmp_path / "node.jsonl", "this-boot").save(STATE)
    assert StateFile(tmp_path / "node.jsonl", "next-boot").load() == NodeState("next-boot", 5)


@pytest.mark.parametrize(
    "members",
    [{}, {"plan": b'{"boot_id":1}'}, {"plan": b'{"boot_id":"b","committed":1}', "pod u": b"{}"}],
    ids=["none", "another type", "half a pod"],
)
def test_a_damaged_state_is_reported(tmp_path: Path, members: dict[str, bytes]) -> None:
    AppendLog(tmp_path / "node.jsonl").write(members)
    with pytest.raises(StateCorruptError, match="does not know which cgroups it owns"):
        StateFile(tmp_path / "node.jsonl", "b").load()


def test_a_file_of_another_format_is_reported(tmp_path: Path) -> None:
    (tmp_path / "node.jsonl").write_text("{}")
    with pytest.raises(StateCorruptError, match="the line is incomplete"):
        StateFile(tmp_path / "node.jsonl", "b").load()


def test_added_and_removed_entries_are_read_by_the_next_process(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "node.jsonl", "this-boot")
    file.save(STATE)
    fewer = msgspec.structs.replace(
        STATE, committed=6, owned={"/kubepods": OwnedCgroup(14, "pods")}, original={}, pods={}
    )
    for state in (fewer, STATE, fewer):
        file.save(state)
        assert file.load() is state
        assert StateFile(tmp_path / "node.jsonl", "this-boot").load() == state


def test_two_alternating_writers_see_each_other(tmp_path: Path) -> None:
    one, other = (StateFile(tmp_path / "node.jsonl", "this-boot") for _ in range(2))
    one.save(STATE)
    more = msgspec.structs.replace(
        other.load(), committed=6, owned={**STATE.owned, "/kubepods/pody": OwnedCgroup(15, "pod")}
    )
    other.save(more)
    assert one.load() == more
    one.save(msgspec.structs.replace(one.load(), committed=7, pods={}))
    assert other.load() == msgspec.structs.replace(more, committed=7, pods={})


def test_ownership_is_path_and_inode() -> None:
    assert is_owned(STATE, "/kubepods", 12)
    assert not is_owned(STATE, "/kubepods", 99)
    assert not is_owned(STATE, "/other", 12)


def test_a_kubelet_is_found_by_its_name(tmp_path: Path) -> None:
    for pid, name in ((1, "init"), (77, "kubelet-ish"), (78, "bash")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "80").mkdir()  # the process has ended meanwhile
    (tmp_path / "self").mkdir()
    assert running_kubelet(tmp_path) is None
    (tmp_path / "78" / "comm").write_text("kubelet\n")
    assert running_kubelet(tmp_path) == 78


def test_refusals_say_what_to_do() -> None:
    assert "--cgroup-root" in str(ForeignTreeError("/kubepods")) and "--cgroup-root" in str(KubeletRunningError(78))


def test_this_machine_has_booted() -> None:
    assert len(this_boot()) == 36
