"""Language runtimes of processes: only settings about memory and CPUs are read, and only plain values."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.audit.applications import application, go_version, jvm_flags


def test_flags_of_a_jvm() -> None:
    words = [
        "java",
        "-Xmx512m",
        "-XX:MaxRAMPercentage=75.0",
        "-XX:-UseContainerSupport",
        "-Dpassword=hunter2",
        "-XX:ActiveProcessorCount=2",
    ]
    assert jvm_flags(words) == {
        "Xmx": "512m",
        "MaxRAMPercentage": "75.0",
        "UseContainerSupport": "-",
        "ActiveProcessorCount": "2",
    }


def test_a_process_without_such_a_runtime() -> None:
    assert application(os.getpid(), "python") is None
    assert application(0x7FFFFFF0, "gone") is None


def test_a_program_that_is_called_node(tmp_path: Path) -> None:
    """By its executable; the version and the settings come from the environment, secrets do not."""
    program = tmp_path / "node"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    secret = {
        "NODE_VERSION": "20.11.1",
        "NODE_OPTIONS": "--max-old-space-size=700 --token=hunter2",
        "UV_THREADPOOL_SIZE": "$(rm)",
    }
    child = subprocess.Popen([str(program), "60"], env=secret)
    try:
        while b"NODE_VERSION" not in Path(f"/proc/{child.pid}/environ").read_bytes():  # until exec is complete
            assert child.poll() is None
        found = application(child.pid, "node")
    finally:
        child.kill()
        child.wait()
    assert found is not None
    assert (found.app, found.settings) == ("node", {"max-old-space-size": "700"})
    assert found.version  # of the headers below /usr, where they are installed, else 20.11.1


def elf(sections: list[tuple[bytes, bytes]]) -> bytes:
    """A file with these sections and nothing else."""
    names = b"\0" + b"".join(name + b"\0" for name, _ in sections) + b".shstrtab\0"
    bodies = [data for _, data in sections] + [names]
    at, offsets = 64, []
    for body in bodies:
        offsets.append(at)
        at += len(body)
    table = b""
    for index, body in enumerate(bodies):
        label = sections[index][0] if index < len(sections) else b".shstrtab"
        table += struct.pack("<IIQQQQIIQQ", names.index(label + b"\0"), 1, 0, 0, offsets[index], len(body), 0, 0, 1, 0)
    head = b"\x7fELF\x02\x01\x01".ljust(40, b"\0") + struct.pack("<Q", at) + b"\0" * 10
    head += struct.pack("<HHH", 64, len(bodies), len(bodies) - 1)
    return head + b"".join(bodies) + table


def test_the_version_of_a_go_program(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(
        elf([(b".text", b"x"), (b".go.buildinfo", b"\xff Go buildinf:\x08\x02".ljust(32, b"\0") + b"\x08go1.25.1")])
    )
    assert go_version(str(file)) == "go1.25.1"
    assert go_version(sys.executable) == ""
    assert go_version(str(tmp_path / "none")) == ""


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 100])
def test_files_that_are_no_programs(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    assert go_version(str(tmp_path / "f")) == ""
