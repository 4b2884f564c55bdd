"""CDI files of a machine, and the device files that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.devices.cdi_files import host_edits
from plimsoll.rules.devices.cdi import CdiError, CdiNode


def written(directory: Path, name: str, device: str, **node: Any) -> None:
    edits = {"env": [f"FROM={directory.name}"], "deviceNodes": [{"path": "/dev/zero", **node}]}
    document = {
        "cdiVersion": "0.6.0",
        "kind": "example.com/zero",
        "devices": [{"name": device, "containerEdits": edits}],
    }
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(json.dumps(document))


def test_files_of_both_directories(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = tmp_path / "etc", tmp_path / "run"
    written(first, "a.json", "z0", major=1, minor=5, type="c")
    written(second, "a.yaml", "z0")  # JSON is YAML
    written(second, "b.json", "z1", hostPath="/dev/null", path="/dev/void")
    (second / "notes.txt").write_text("no CDI file")
    (second / "broken.json").write_text("{")
    (second / "away.json").symlink_to("/nowhere")
    places = (str(first), str(second), str(tmp_path / "missing"))
    found = host_edits(["example.com/zero=z0", "example.com/zero=z1"], places)
    assert found.environment == {"FROM": "run"}
    assert found.nodes == (CdiNode("/dev/zero", "/dev/zero", "rwm"), CdiNode("/dev/null", "/dev/void", "rwm"))
    assert "broken.json" in caplog.text and "away.json: No such file" in caplog.text and "notes.txt" not in caplog.text


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"path": "/dev/nothing"}, "device file /dev/nothing: No such file or directory"),
        ({"path": "/etc/passwd"}, "/etc/passwd is not a device file"),
        ({"type": "b"}, "device file /dev/zero: type b differs from that of the host, which needs a CRI runtime"),
        ({"major": 1, "minor": 3}, "major and minor (1, 3) differs"),
        ({"fileMode": 0o600}, "fileMode 384 differs"),
        ({"uid": 1000}, "uid 1000 differs"),
        ({"gid": 1000}, "gid 1000 differs"),
    ],
)
def test_a_device_file_that_is_not_so_on_the_host(tmp_path: Path, node: dict[str, Any], words: str) -> None:
    written(tmp_path, "a.json", "z0", **node)
    with pytest.raises(CdiError) as error:
        host_edits(["example.com/zero=z0"], (str(tmp_path),))
    assert words in str(error.value)
