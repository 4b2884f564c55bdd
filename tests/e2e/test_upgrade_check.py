"""`plimsoll upgrade-check` of a live cluster: the node's own /configz, its pods, its LimitRanges and quotas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.cli.explain import upgrade_inputs
from tests.e2e.real_node import NODE, ROOT, Document, real_node
from tests.unit.console import run

AMOUNTS = {"cpu": "100m", "memory": "32Mi"}


def plimsoll(kubeconfig: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "plimsoll"), *words, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, input=stdin, timeout=120, check=False)


def pod(name: str, **spec: object) -> Document:
    resources = {"requests": AMOUNTS, "limits": AMOUNTS}
    container = {"name": "c", "image": "busybox", "command": ["sleep", "1000"], "resources": resources}
    fields = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": fields}


@pytest.mark.xdist_group("upgrade check")
def test_a_live_cluster(tmp_path: Path, exercised: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--feature-gates", "SidecarContainers=true", "--eviction-hard", "memory.available<150Mi")
    with real_node(tmp_path / "cluster", "1.34", options=options) as node:
        exercised("upgrade-check", "a live node on cgroup v1")
        for document in (pod("planted", resources={}), pod("plain")):
            made = plimsoll(node.kubeconfig, "create", "-f", "-", stdin=json.dumps(document))
            assert made.returncode == 0, made.stderr
        ran = plimsoll(node.kubeconfig, "upgrade-check", "--to", "1.37", "--cgroup", "v1", "-o", "json")
        assert ran.returncode == 2, ran.stderr
        found = json.loads(ran.stdout)
        assert (found["from"], found["summary"]["pods"], found["summary"]["nodes"]) == ("1.34", 2, 1)
        changes = {(each["kind"], each["subject"], each["old"], each["new"]) for each in found["changes"]}
        assert ("class", "default/planted", "BestEffort", "Guaranteed") in changes
        assert not [each for each in changes if each[0] == "class" and each[1] != "default/planted"]
        assert "cgroup v1" in {each["what"] for each in found["changes"] if each.get("breaks")}
        assert "/configz cannot be read" not in ran.stderr, "the node shows its configuration"
        monkeypatch.setattr(upgrade_inputs, "PAGE", 1)
        paged = run(
            "upgrade-check", "--to", "1.37", "--cgroup", "v1", "-o", "json", "--kubeconfig", str(node.kubeconfig)
        )
        assert json.loads(paged.out) == found, "the same from lists in pages of one"
        only = plimsoll(node.kubeconfig, "upgrade-check", "--to", "1.37", "-n", "kube-system", "-o", "json")
        assert json.loads(only.stdout)["summary"]["pods"] == 0
