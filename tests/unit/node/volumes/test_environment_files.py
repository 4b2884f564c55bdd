"""Files of variables are read from volumes whose content is untrusted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.node.volumes.environment_files import MOST_BYTES, environment_files
from plimsoll.node.volumes.volumes import Ready
from plimsoll.rules.lifecycle.environment_files import EnvironmentFile


def _read(volume: Path, path: str) -> EnvironmentFile:
    source = {"volumeName": "v", "path": path, "key": "A"}
    container = {"name": "c", "env": [{"name": "X", "valueFrom": {"fileKeyRef": source}}, {"name": "Y", "value": "y"}]}
    pod = run_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    assert environment_files(pod.spec.containers[0], {}) == {}
    return environment_files(pod.spec.containers[0], {"v": Ready(str(volume))})["v", path]


def test_text(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "env").write_bytes(b"A='\xff'")
    (tmp_path / "link").symlink_to("sub/env")
    for path in ("sub/env", "link"):
        assert _read(tmp_path, path) == EnvironmentFile(f"{tmp_path}/{path}", "A='\udcff'")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("none", "none: No such file or directory"),
        ("out", "out: Invalid cross-device link"),
        ("../secret", "../secret: Invalid cross-device link"),
        ("fifo", "fifo is not a regular file"),
        (".", ". is not a regular file"),
        ("large", f"large has more than {MOST_BYTES} bytes"),
    ],
)
def test_problems(tmp_path: Path, path: str, problem: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "secret").write_text("A='1'")
    (volume / "out").symlink_to(tmp_path / "secret")
    os.mkfifo(volume / "fifo")
    with (volume / "large").open("wb") as large:
        large.truncate(MOST_BYTES + 1)
    assert _read(volume, path) == EnvironmentFile(f"{volume}/{path}", problem=problem)
