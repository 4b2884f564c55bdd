"""CDI: what named devices add to a container, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.devices.cdi import CdiEdits, CdiError, CdiFile, CdiMount, CdiNode, cdi_edits

GPU: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "example.com/gpu",
    "containerEdits": {"env": ["DRIVER=1"], "mounts": [{"hostPath": "/opt/gpu", "containerPath": "/usr/lib/gpu"}]},
    "devices": [
        {
            "name": "g0",
            "containerEdits": {
                "env": ["DRIVER=2", "CARD=a=b"],
                "deviceNodes": [{"path": "/dev/gpu", "hostPath": "/dev/gpu0", "major": 1, "minor": 3, "uid": 0}],
                "additionalGids": [44],
            },
        },
        {
            "name": "g1",
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/gpu1", "permissions": "r", "type": "c", "fileMode": 438}],
                "mounts": [{"hostPath": "/opt/g1", "containerPath": "/g1", "options": ["ro", "nosuid", "rbind"]}],
                "additionalGids": [44, 45],
            },
        },
        {"name": "plain"},
    ],
}


def file(document: Any = GPU, path: str = "/etc/cdi/gpu.json", priority: int = 0) -> CdiFile:
    return CdiFile(path, priority, document)


def with_edits(**edits: Any) -> CdiFile:
    return file({"kind": "example.com/gpu", "devices": [{"name": "g0", "containerEdits": edits}]})


def test_edits_of_two_devices_and_those_of_their_kind_once() -> None:
    assert cdi_edits(["example.com/gpu=g0", "example.com/gpu=g1"], [file()]) == CdiEdits(
        {"DRIVER": "2", "CARD": "a=b"},
        (
            CdiNode("/dev/gpu0", "/dev/gpu", "rwm", "", (1, 3), None, (0, None)),
            CdiNode("/dev/gpu1", "/dev/gpu1", "r", "c", None, 0o666),
        ),
        (CdiMount("/opt/gpu", "/usr/lib/gpu", False), CdiMount("/opt/g1", "/g1", True)),
        (44, 45),
    )
    assert cdi_edits(["example.com/gpu=plain"], [file()]).environment == {"DRIVER": "1"}
    assert cdi_edits([], [file()]) == CdiEdits()


def test_the_directory_that_comes_later_wins() -> None:
    newer = {"kind": "example.com/gpu", "devices": [{"name": "g0", "containerEdits": {"env": ["FROM=run"]}}]}
    found = cdi_edits(["example.com/gpu=g0"], [file(newer, "/var/run/cdi/gpu.json", 1), file()])
    assert found == CdiEdits({"FROM": "run"})


@pytest.mark.parametrize(
    ("name", "files", "words"),
    [
        ("gpu", [file()], "device 'gpu': not a CDI name such as vendor.com/class=device"),
        ("../etc/gpu=g0", [file()], "not a CDI name"),
        ("example.com/gpu=g2", [file()], "device example.com/gpu=g2: no CDI file describes it"),
        ("example.com/fpga=g0", [file()], "no CDI file describes it"),
        ("example.com/gpu=g0", [file(["a list"])], "no CDI file describes it"),
        ("example.com/gpu=g0", [file(), file(path="/etc/cdi/b.json")], "more than once, in /etc/cdi/b.json, /etc/cdi/gpu.json"),
        ("example.com/gpu=g0", [file({"kind": "example.com/gpu", "devices": 1})], "devices must be a list"),
        ("example.com/gpu=g0", [with_edits(hooks=[{"path": "/bin/true"}])], "device g0: hooks needs a CRI runtime"),
        ("example.com/gpu=g0", [with_edits(env=["DRIVER"])], "env must be NAME=VALUE, not 'DRIVER'"),
        ("example.com/gpu=g0", [with_edits(deviceNodes=[{"path": "gpu"}])], "path must be an absolute path"),
        ("example.com/gpu=g0", [with_edits(deviceNodes=[{"path": "/dev/../etc/x"}])], "path must be an absolute path"),
        ("example.com/gpu=g0", [with_edits(deviceNodes=[{"path": "/dev/x", "major": "1"}])], "must be numbers"),
        ("example.com/gpu=g0", [with_edits(deviceNodes=[{"path": "/dev/x", "permissions": "x"}])], "permissions of r, w and m"),
        ("example.com/gpu=g0", [with_edits(mounts=[{"hostPath": "/a", "containerPath": "/b", "options": ["noexec"]}])], "mount at /b: noexec needs a CRI runtime"),
        ("example.com/gpu=g0", [with_edits(mounts=[{"hostPath": "/a", "containerPath": "/b", "type": "tmpfs"}])], "type tmpfs needs a CRI runtime"),
        ("example.com/gpu=g0", [with_edits(additionalGids=["44"])], "additionalGids must be numbers"),
    ],
)  # fmt: skip
def test_what_is_refused(name: str, files: list[CdiFile], words: str) -> None:
    with pytest.raises(CdiError) as error:
        cdi_edits([name], files)
    assert words in str(error.value)
