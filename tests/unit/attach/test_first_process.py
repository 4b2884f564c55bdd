"""The first process of a container passes signals on and waits for all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FIRST = [sys.executable, "-m", "plimsoll.attach.first_process"]
WITHIN_S = 30.0


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
def test_it_ends_with_the_code_of_the_program(script: str, code: int) -> None:
    assert subprocess.run([*FIRST, "sh", "-c", script], timeout=WITHIN_S, check=False).returncode == code


def test_a_program_that_does_not_exist() -> None:
    done = subprocess.run([*FIRST, "/no/such"], capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, done.stderr) == (127, "/no/such: No such file or directory\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_it_passes_signals_on(number: signal.Signals) -> None:
    script = f"trap 'echo got; exit 5' {number.name.removeprefix('SIG')}; echo ready; while :; do sleep 0.01; done"
    with subprocess.Popen([*FIRST, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "got\n"
        assert process.wait(WITHIN_S) == 5


def test_it_waits_for_what_the_program_has_started(tmp_path: Path) -> None:
    """Also in another session, and after the program was killed; signals go nowhere then."""
    fifo, said = tmp_path / "fifo", tmp_path / "said"
    os.mkfifo(fifo)
    script = f"setsid sh -c 'cat {fifo} > {said}' & echo $$; wait"
    with subprocess.Popen([*FIRST, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        writing = os.open(fifo, os.O_WRONLY)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        os.write(writing, b"done")
        os.close(writing)
        assert process.wait(WITHIN_S) == 137
    assert said.read_text() == "done"
