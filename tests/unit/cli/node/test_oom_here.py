"""`plimsoll oom --here`: kills from a kernel log, from counters and from a journal, each once."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from plimsoll.cli.node.oom_here import JournalError, append, merged, missing_kills, named, read_journal, shown
from plimsoll.cli.pod_names import PodNames
from plimsoll.rules.oom.report import OomKill
from tests.unit.console import run

UID, ID = "dba294ab-05fe-4314-a6d0-f9e0b3848104", "4a1f" * 16
PATH = f"/kubepods/burstable/pod{UID}/{ID}"
NAMES = PodNames({UID: "shop/web"}, {ID: "app"})
KILL = OomKill(1000.0, "kernel log", "container", UID, process="java", pid=42, container_id=ID)


def test_names_are_filled_in() -> None:
    found = named(KILL, NAMES)
    assert (found.namespace, found.pod, found.container) == ("shop", "web", "app")
    assert "Process java (pid 42) in container app was killed" in shown(found).sentence
    assert f"in container {ID[:12]} was killed" in shown(KILL).sentence


def test_counters_have_what_the_log_has_not() -> None:
    (more,) = missing_kills({PATH: 3}, [KILL], NAMES, 2000.0)
    assert (more.killed, more.source, more.pod, more.container) == (2, "counters", "web", "app")
    assert missing_kills({PATH: 1}, [KILL], NAMES, 2000.0) == []


def test_a_journal_keeps_kills(tmp_path: Path) -> None:
    file = tmp_path / "oom.jsonl"
    assert read_journal(file) == []
    append(file, [named(KILL, NAMES)])
    append(file, [])
    with file.open("ab") as stream:
        stream.write(b'{"timeS": 1')  # cut off by a crash
    assert read_journal(file) == [named(KILL, NAMES)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_kill_of_log_and_journal_is_one() -> None:
    """The log's time is computed from the boot clock, so it may differ a little."""
    again = OomKill(1000.4, "kernel log", "container", UID, process="java", pid=42, container_id=ID)
    later = OomKill(1500.0, "kernel log", "container", UID, process="java", pid=42, container_id=ID)
    assert merged([named(KILL, NAMES)], [again, later]) == [named(KILL, NAMES), later]


def test_a_journal_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError):
        append(tmp_path / "link", [KILL])


@pytest.mark.parametrize("words", [("--watch",), ("--journal", "x"), ("--here", "--watch")], ids=" ".join)
def test_options_that_need_others(words: tuple[str, ...]) -> None:
    ran = run("oom", *words)
    assert (ran.code, "need" in ran.err) == (2, True)
