"""The figures of the OOM killer, of real processes and of a fake /proc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from plimsoll.linux.process_memory import ProcessMemory, every_process, process_memory


def test_this_process() -> None:
    found = process_memory(os.getpid())
    assert found is not None
    assert found.used_bytes > 1 << 20
    assert found.oom_score_adj == int(Path("/proc/self/oom_score_adj").read_text())
    assert os.getpid() in {each.pid for each in every_process()}


def test_an_ended_process() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert process_memory(child.pid) is None


def test_the_memory_that_counts(tmp_path: Path) -> None:
    """Resident memory, swap and page tables; a kernel thread has none of them."""
    for pid, status in ((7, "Name:\tweb\nVmRSS:\t 100 kB\nVmSwap:\t 20 kB\nVmPTE:\t 3 kB\n"), (2, "Name:\tkthreadd\n")):
        (tmp_path / str(pid)).mkdir()
        for file, text in (("status", status), ("oom_score_adj", "-997\n"), ("oom_score", "5\n")):
            (tmp_path / str(pid) / file).write_text(text)
    (tmp_path / "self").mkdir()
    assert list(every_process(str(tmp_path))) == [ProcessMemory(7, "web", 123 * 1024, -997, 5)]
