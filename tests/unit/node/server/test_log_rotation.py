"""Logs are moved away when they are too large, by a runtime that opens new ones or does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.server.logs import LogRotation, oldest
from plimsoll.rules.model.observed import ObservedPod
from plimsoll.runtime.interface import ObservedContainer, RuntimeCallError


class Writer:
    """As much of a runtime as writes one log."""

    def __init__(self, file: Path, *, refuses: bool = False) -> None:
        self.file, self.refuses, self.reopened = file, refuses, 0

    def log_file(self, container: ObservedContainer) -> Path:
        return Path(container.log_file)

    async def reopen_log(self, container_id: str) -> None:
        if self.refuses:
            raise RuntimeCallError("ReopenContainerLog", "not now")
        self.reopened += 1
        self.file.write_bytes(b"")


class View:
    def __init__(self, container: ObservedContainer) -> None:
        self.last = {"u": ObservedPod((), (container,))}


def rotation(writer: Writer, phase: Any = "running") -> LogRotation:
    seen = ObservedContainer("id", "c", phase, sandbox_id="s", pod_uid="u", log_file=str(writer.file))
    return LogRotation(writer, View(seen), 100, 3)  # type: ignore[arg-type]


def sizes(file: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in file.parent.iterdir()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "0.log"
    made.write_bytes(b"x" * 101)
    return made


async def test_a_large_log_is_rotated(file: Path) -> None:
    writer = Writer(file)
    await rotation(writer).sync()
    assert sorted(sizes(file).values()) == [0, 101] and sizes(file)["0.log"] == 0
    assert writer.reopened == 1
    await rotation(writer).sync()
    assert writer.reopened == 1, "it is small now"


async def test_only_so_many_stay(file: Path) -> None:
    for second in range(4):
        file.with_name(f"0.log.20200101-00000{second}").write_bytes(b"")
    await rotation(Writer(file)).sync()
    left = sorted(sizes(file))
    assert len(left) == 3 and left[:2] == ["0.log", "0.log.20200101-000003"]


async def test_a_runtime_that_does_not_open_a_new_one_keeps_the_old(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await rotation(Writer(file, refuses=True)).sync()
    assert sizes(file) == {"0.log": 101} and "not now" in caplog.text


async def test_logs_of_ended_containers_are_not_rotated(file: Path) -> None:
    await rotation(Writer(file), "exited").sync()
    assert sizes(file) == {"0.log": 101}


def test_oldest(tmp_path: Path) -> None:
    names = [f"0.log.2020010{day}-000000" for day in range(1, 5)]
    for name in names:
        (tmp_path / name).touch()
    assert [each.name for each in oldest(tmp_path / "0.log", 2)] == names[:2]
    assert oldest(tmp_path / "0.log", 9) == []
