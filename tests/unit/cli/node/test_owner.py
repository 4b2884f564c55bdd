"""`plimsoll whose`: this process, helpful errors, names from a dump, and the text of each kind of answer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from plimsoll.cli.node.owner import OwnerAnswer, lines
from plimsoll.cli.pod_names import PodListError, PodNames, read_pod_names
from plimsoll.cli.terminal import Paint
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from tests.unit.console import run

UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"
ID = "4a1f" * 16
DUMP = {
    "kind": "List",
    "apiVersion": "v1",
    "items": [
        {
            "kind": "Pod",
            "metadata": {"name": "web-0", "namespace": "shop", "uid": UID},
            "spec": {"containers": [{"name": "nginx"}]},
            "status": {"containerStatuses": [{"name": "nginx", "containerID": f"containerd://{ID}"}, {"name": "new"}]},
        },
        {
            "kind": "Pod",
            "metadata": {"name": "etcd", "namespace": "kube-system", "uid": "1", "annotations": {"kubernetes.io/config.hash": "d0be"}},
            "spec": {"containers": [{"name": "etcd"}]},
        },
    ],
}  # fmt: skip


def test_this_process() -> None:
    ran = run("whose", str(os.getpid()), "-o", "json")
    found = json.loads(ran.out)
    assert found["pid"] == os.getpid()
    assert found["cgroups"]
    in_pod = bool(found["owner"].get("podUid"))
    assert ran.code == (0 if in_pod else 1)
    text = run("whose", str(os.getpid()))
    assert text.code == ran.code
    assert in_pod or "does not belong to a pod" in text.out


def test_no_such_process() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    ran = run("whose", str(child.pid))
    assert (ran.code, ran.out) == (2, "")
    assert f"process {child.pid} not found" in ran.err


@pytest.mark.parametrize("words", [["0"], ["-1"], ["nginx"], []], ids=["zero", "an option", "a name", "nothing"])
def test_an_invalid_pid_is_rejected(words: list[str]) -> None:
    assert run("whose", *words).code == 2


def test_names_from_a_dump(tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text(json.dumps(DUMP))
    names = read_pod_names((str(tmp_path / "pods.json"),))
    assert names == PodNames({UID: "shop/web-0", "1": "kube-system/etcd", "d0be": "kube-system/etcd"}, {ID: "nginx"})
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(PodListError, match=r"broken\.yaml"):
        read_pod_names((str(tmp_path / "broken.yaml"),))


POD = f"/kubepods/burstable/pod{UID}"
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
ANSWERS = [
    (
        "a container",
        OwnerAnswer(7, "nginx", owner_of(f"{POD}/crio-{ID}"), "shop/web-0", "nginx"),
        f"process    7 (nginx)\npod        shop/web-0 {UID}  Burstable\ncontainer  nginx {ID}\n"
        f"made by    CRI-O, cgroupfs driver\ncgroup     {POD}/crio-{ID}",
    ),
    (
        "a sandbox, nothing known",
        OwnerAnswer(7, "pause", owner_of(f"{POD}/{ID}"), sandbox=True),
        f"process    7 (pause)\npod        {UID}  Burstable\nsandbox    {ID}\n"
        f"made by    containerd or plimsoll (both use the plain id), cgroupfs driver\ncgroup     {POD}/{ID}",
    ),
    (
        "hierarchies disagree",
        OwnerAnswer(7, "x", owner_of(POD), elsewhere={"cpuset": "/"}),
        f"process    7 (x)\npod        {UID}  Burstable\nmade by    cgroupfs driver\ncgroup     {POD}\nbut        cpuset: /",
    ),
    (
        "a driver mismatch",
        OwnerAnswer(7, "x", owner_of(f"/{SLICE}:cri-containerd:{ID}")),
        f"process    7 (x)\npod        {UID}  Burstable\ncontainer  {ID}\nmade by    containerd, systemd driver\n"
        f"cgroup     /{SLICE}:cri-containerd:{ID}\n"
        "misplaced  outside the cgroup of its pod: limits of pod, class and node do not apply\n"
        "           (the kubelet uses the systemd driver, the runtime uses cgroupfs)",
    ),
    (
        "no pod, seen from a container",
        OwnerAnswer(7, "\x1b[2J", owner_of("/../x")),
        "process    7 (\\x1b[2J) does not belong to a pod\ncgroup     /../x\n"
        "           read in another cgroup namespace: run this command outside the container",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "text"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
def test_words(answer: OwnerAnswer, text: str) -> None:
    assert "\n".join(lines(answer, Paint(False))) == text
    assert json.loads(msgspec.json.encode(answer))["pid"] == 7
