"""The configuration of the private containerd: nothing of it is the machine's."""

from __future__ import annotations

import tomllib
from pathlib import Path

from plimsoll.runtime.cri.private_containerd.daemon import OwnContainerd


def test_nri_is_off(tmp_path: Path) -> None:
    """containerd 2 would take the machine's socket (/var/run/nri) and start the machine's plugins (/opt/nri)."""
    OwnContainerd(tmp_path).prepare()
    configuration = tomllib.loads((tmp_path / "config.toml").read_text())
    assert configuration["plugins"]["io.containerd.nri.v1.nri"] == {"disable": True}
