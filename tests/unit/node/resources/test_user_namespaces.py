"""Ranges of users for pods with `hostUsers: false`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.node.resources.user_namespaces import UserNamespaces
from plimsoll.node.volumes.pod_dirs import pod_directory, remove_pod_files
from plimsoll.runtime.interface import RuntimeCallError, UserRange

LENGTH = 65536


def test_each_pod_has_a_range_and_keeps_it(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, LENGTH)
    assert users.of_pod("a") == UserRange(LENGTH, LENGTH)
    assert users.of_pod("b") == UserRange(2 * LENGTH, LENGTH)
    assert UserNamespaces(tmp_path, LENGTH).of_pod("a") == UserRange(LENGTH, LENGTH), "after a restart, too"
    remove_pod_files(tmp_path, "a")
    assert users.of_pod("c") == UserRange(LENGTH, LENGTH), "the range of a pod that is gone is free"


def test_the_record_has_the_kubelets_form(tmp_path: Path) -> None:
    UserNamespaces(tmp_path, LENGTH).of_pod("a")
    mapping = [{"hostId": LENGTH, "containerId": 0, "length": LENGTH}]
    recorded = json.loads((pod_directory(tmp_path, "a") / "userns").read_text())
    assert recorded == {"uidMappings": mapping, "gidMappings": mapping}


def test_no_range_is_left(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, 2**31)
    with pytest.raises(RuntimeCallError, match="could not find an empty slot to allocate a user namespace"):
        users.of_pod("a")
