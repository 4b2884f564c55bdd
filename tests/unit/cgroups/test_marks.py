from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.cgroups.marks import (
    ForeignTree,
    KnownPod,
    KubeletRuns,
    Mark,
    NodeState,
    StateDamaged,
    StateFile,
    is_ours,
    running_kubelet,
    this_boot,
)
from tests.node_scenarios import BURSTABLE

STATE = NodeState(
    "this-boot",
    5,
    {"/kubepods": Mark(12, "pods"), "/kubepods/podx": Mark(13, "pod")},
    {"/system": {"cpu.weight": "100"}},
    {BURSTABLE.metadata.uid: KnownPod(BURSTABLE, {"web": "a" * 64})},
)


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state" / "node.json", "this-boot")
    assert file.load() == NodeState("this-boot")
    file.save(STATE)
    assert file.load() == STATE
    assert (tmp_path / "state" / "node.json").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in (tmp_path / "state").iterdir()] == ["node.json"]


def test_of_another_boot_only_the_number_is_left(tmp_path: Path) -> None:
    StateFile(tmp_path / "node.json", "this-boot").save(STATE)
    assert StateFile(tmp_path / "node.json", "next-boot").load() == NodeState("next-boot", 5)


@pytest.mark.parametrize("text", ["", "{", '{"boot_id": 1}', '{"boot_id":"b","committed":1,"made":{},"kept":{}}'])
def test_a_damaged_state_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(StateDamaged, match="nobody knows which cgroups are ours"):
        StateFile(tmp_path / "node.json", "b").load()


def test_the_mark_is_path_and_inode() -> None:
    assert is_ours(STATE, "/kubepods", 12)
    assert not is_ours(STATE, "/kubepods", 99)
    assert not is_ours(STATE, "/other", 12)


def test_a_kubelet_is_found_by_its_name(tmp_path: Path) -> None:
    for pid, name in ((1, "init"), (77, "kubelet-ish"), (78, "bash")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "80").mkdir()  # it has ended while we looked
    (tmp_path / "self").mkdir()
    assert running_kubelet(tmp_path) is None
    (tmp_path / "78" / "comm").write_text("kubelet\n")
    assert running_kubelet(tmp_path) == 78


def test_refusals_name_the_way_out() -> None:
    assert "--cgroup-root" in str(ForeignTree("/kubepods")) and "--cgroup-root" in str(KubeletRuns(78))


def test_this_machine_has_booted() -> None:
    assert len(this_boot()) == 36
