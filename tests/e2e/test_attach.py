"""`plimsoll attach` with a real API server: it follows the pods of its node and the labels of namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, this_host
from tests.e2e.fake_cluster import plimsoll_command, running_process

SOON_S = 60.0
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "nodeInfo": {"kubeletVersion": "v1.36.1"}},
}


def pod(name: str, namespace: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "i",
        "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}},
    }
    metadata = {"name": name, "namespace": namespace, "annotations": {"plimsoll.dev/cpu-burst-percent": "-1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "n1", "containers": [container]},
    }


def test_attach_follows_the_api(tmp_path: Path) -> None:
    try:
        this_host()
    except CgroupsUnusableError as problem:
        pytest.skip(f"attach: {problem}")
    if os.geteuid() != 0:
        pytest.skip("attach: not root")
    state = tmp_path / "api"
    server = [*plimsoll_command(), "api", "--state-dir", str(state), "--listen", "127.0.0.1:0", "--profile", "1.36"]
    config = ("--kubeconfig", str(state / "admin.kubeconfig"))
    (tmp_path / "kubelet.json").write_text(json.dumps({"cgroupRoot": "/plimsoll-test-none", "failCgroupV1": False}))
    (tmp_path / "policy.json").write_text(json.dumps({"cpuBurstPercent": 10}))

    def kube(verb: str, *words: str, document: dict[str, Any] | None = None) -> None:
        command = [*plimsoll_command(), verb, *words, *config, *(["-f", "-"] if document else [])]
        text = json.dumps(document) if document else None
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    with running_process(server, tmp_path / "api.log", "https://"):
        kube(
            "create", document={"kind": "List", "apiVersion": "v1", "items": [NODE, *map(namespace, ("shop", "other"))]}
        )
        kube("create", document={"kind": "List", "apiVersion": "v1", "items": [pod("a", "shop"), pod("b", "other")]})
        words = ["--mode", "canary", "--canary-label", "team=web", "--node-name", "n1", *config, "--state-dir", "state"]
        words += ["--config", "kubelet.json", "--policy", "policy.json", "--nri-socket", "none.sock"]
        with (tmp_path / "attach.log").open("wb") as log:
            command = [sys.executable, "-m", "plimsoll", "attach", *words]
            process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        try:

            def until(wanted: Any) -> dict[str, Any]:
                deadline_s = time.monotonic() + SOON_S
                while True:
                    try:
                        found: dict[str, Any] = json.loads((tmp_path / "state/status.json").read_text())
                        if wanted(found):
                            return found
                    except FileNotFoundError:
                        found = {}
                    said = (tmp_path / "attach.log").read_text()
                    assert process.poll() is None and time.monotonic() < deadline_s, f"{found}\n{said}"
                    time.sleep(0.05)

            status = until(lambda found: found["pods"] == 2)
            assert status["podsKnown"] and status["notes"] == []  # no namespace has the label
            assert any("none.sock does not exist" in each for each in status["problems"])
            kube("label", "namespace", "shop", "team=web")
            (note,) = until(lambda found: found["notes"])["notes"]
            assert note.startswith("shop/a: plimsoll.dev/cpu-burst-percent: '-1' is ignored")
            kube("create", document=pod("c", "shop"))
            assert until(lambda found: found["pods"] == 3 and len(found["notes"]) == 2)
        finally:
            process.terminate()
            assert process.wait(SOON_S) == 0


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
