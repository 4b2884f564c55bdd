"""What a pod of a real agent sees of the host: never the agent's own keys, wherever they are."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import PODS, RealNode, kubectl_for, pod_of, real_node, running
from tests.e2e.waiting import until


@pytest.fixture
def keys() -> Iterator[Path]:
    """A directory where containers see programs."""
    if not os.access("/usr/local", os.W_OK):
        pytest.skip("needs a writable /usr/local")
    with tempfile.TemporaryDirectory(prefix="plimsoll-test-", dir="/usr/local") as path:
        os.chmod(path, 0o755)
        yield Path(path)


def _moved(node: RealNode, place: Path) -> None:
    """The node's kubeconfig as a relative path, with its key in a file beside it."""
    config = msgspec.yaml.decode(node.node_kubeconfig.read_bytes())
    user = config["users"][0]["user"]
    (place / "node.key").write_bytes(base64.b64decode(user.pop("client-key-data")))
    user["client-key"] = "node.key"
    (place / "n1.kubeconfig").write_text(json.dumps(config))
    (place / "program").write_text("no secret")
    for file in place.iterdir():
        file.chmod(0o644)
    node.node_kubeconfig = Path("n1.kubeconfig")
    node.before_node = ("env", "-C", str(place))


def _said(kube: Kubectl, name: str, script: str) -> str:
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    kube.api("POST", PODS, {"metadata": {"name": name}, "spec": {"containers": [container], "restartPolicy": "Never"}})
    until(lambda: pod_of(kube, name).get("status", {}).get("phase") in ("Succeeded", "Failed"))
    return kube("logs", name).out


def test_a_relative_kubeconfig_below_usr_is_not_seen(tmp_path: Path, keys: Path) -> None:
    with real_node(tmp_path / "n") as node, kubectl_for(node, tmp_path) as kube:
        node.kill_node()
        _moved(node, keys)
        node.start_node()
        said = _said(kube, "look", f"ls {keys}; cat {keys}/program; cat {keys}/n1.kubeconfig {keys}/node.key")
        assert "no secret" in said and "PRIVATE KEY" not in said and "certificate-authority" not in said, said
        assert said.split("\n")[0] == "program", said


def _sleeper(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "3600"]}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


def test_a_supervisor_with_other_settings_is_replaced_or_reported(tmp_path: Path, keys: Path) -> None:
    with real_node(tmp_path / "n") as node, kubectl_for(node, tmp_path) as kube:
        first = node.supervisor_pid()
        node.kill_node()
        _moved(node, keys)
        node.start_node()
        second = node.supervisor_pid()
        assert second != first, "it had no containers, and hid other paths"
        kube.api("POST", PODS, _sleeper("stays"))
        container = running(kube, "stays")["containerStatuses"][0]["containerID"]
        node.kill_node()
        node.start_node("--container-log-max-files", "7")
        assert node.supervisor_pid() == second
        assert running(kube, "stays")["containerStatuses"][0]["containerID"] == container
        path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DNode"
        found = until(lambda: [each for each in kube.api("GET", path)["items"] if each["reason"] == "EmbeddedRuntime"])
        assert "started with other settings (log limits)" in found[-1]["message"]
        assert "started with other settings (log limits)" in (node.directory / "node.log").read_text()
