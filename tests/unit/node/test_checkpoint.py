"""What a restarted agent reads back, and what it does with an unreadable file."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from plimsoll.node.checkpoint import Checkpoint, CheckpointWriteError
from plimsoll.rules.lifecycle.termination import TerminationVerdict
from plimsoll.rules.model.objects import Resources
from plimsoll.rules.model.observed import Backoff
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.allocation import Allocation

RESOURCES = Resources(requests={"cpu": parse("250m")}, limits={"memory": parse("64Mi")})


async def test_everything_is_read_back(tmp_path: Path) -> None:
    before = Checkpoint(tmp_path / "agent.jsonl")
    before.put("u1", allocation=Allocation({"c": RESOURCES}), actuated={"c": RESOURCES}, start_s=12.5)
    before.put("u1", backoffs={"c": Backoff(20.0, 100.0)}, oom_killed=("id1",))
    before.put("u2", verdict=TerminationVerdict("Evicted", "low on memory", 1, is_disruption=True), refused=True)
    before.save()
    after = Checkpoint(tmp_path / "agent.jsonl")
    after.load()
    assert dict(after.all()) == dict(before.all())
    assert after.get("u1").actuated["c"] == RESOURCES
    assert after.get("unknown").allocation is None


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[1,{}]\n", id="wrong checksum"),
        pytest.param(b"\0" * 200, id="zeros"),
        pytest.param(b'[%d,{"u":{"allocation":7}}]\n' % crc32(b'{"u":{"allocation":7}}'), id="another shape"),
    ],
)
async def test_a_damaged_file_is_renamed_and_the_node_starts_without_it(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "agent.jsonl"
    path.write_bytes(damage)
    checkpoint = Checkpoint(path)
    checkpoint.load()
    assert not checkpoint.all()
    assert str(path) in checkpoint.note
    assert path.with_suffix(".damaged").read_bytes() == damage
    checkpoint.put("u", start_s=1.0)
    checkpoint.save()
    again = Checkpoint(path)
    again.load()
    assert again.get("u").start_s == 1.0


async def test_a_forgotten_pod_is_not_read_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "agent.jsonl")
    checkpoint.put("u", start_s=1.0)
    checkpoint.save()
    checkpoint.forget("u")
    checkpoint.save()
    again = Checkpoint(tmp_path / "agent.jsonl")
    again.load()
    assert not again.all()


async def test_a_failed_write_is_retried_later(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "gone" / "agent.jsonl")
    checkpoint.put("u", start_s=1.0)
    with pytest.raises(CheckpointWriteError, match="free some space"):
        checkpoint.save()
    (tmp_path / "gone").mkdir()
    checkpoint.save()
    again = Checkpoint(tmp_path / "gone" / "agent.jsonl")
    again.load()
    assert again.get("u").start_s == 1.0
