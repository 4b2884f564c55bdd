"""`plimsoll tree` and `plimsoll whose` on the machine itself, cgroup v1: a small node with processes, and a large one.

All cgroups stand below `/plimsoll-test-<random>` in every hierarchy and are removed at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.stats.live_tree import live_tree
from tests.unit.console import run

MIB = 1 << 20
UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"
APP, PAUSE = "4a1f" * 16, "b2c3" * 16
HOG = "import mmap, time\nm = mmap.mmap(-1, 40 << 20)\nfor at in range(0, len(m), 4096): m[at] = 1\nprint(1, flush=True)\ntime.sleep(60)"
PODS, CONTAINERS = 500, 2


@contextmanager
def own_root() -> Iterator[str]:
    """A new cgroup in every v1 hierarchy and in the unified one, and whatever is made below it."""
    if os.geteuid() != 0 or this_host().version != 1:
        pytest.skip("needs root on a cgroup v1 host")
    name = f"/plimsoll-test-{secrets.token_hex(6)}"
    make(name)
    try:
        yield name
    finally:
        for mount in mounts():
            for directory, _, _ in os.walk(mount + name, topdown=False):
                removed(directory)


def mounts() -> list[str]:
    found = this_host()
    points = {each.mount_point for each in found.v1.values()}
    return sorted(points | ({found.unified.mount_point} if found.unified else set()))


def make(path: str) -> None:
    for mount in mounts():
        os.makedirs(mount + path, exist_ok=True)


def removed(directory: str, deadline_s: float = 60.0) -> None:
    """A process that has just ended still counts for a moment."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def put(controller: str, path: str, file: str, value: object) -> None:
    Path(this_host().v1[controller].mount_point + path, file).write_text(str(value))


@contextmanager
def process(path: str, *command: str, wait: bool = False) -> Iterator[int]:
    """In the memory, cpu, pids and name=systemd hierarchies, before it does anything."""
    child = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        for controller in ("memory", "cpu", "pids"):
            put(controller, path, "cgroup.procs", child.pid)
        child.stdin.write(b"go\n")
        child.stdin.flush()
        if wait:
            assert child.stdout.readline() == b"1\n"
        name, end = command[0].rpartition("/")[2][:15], time.monotonic() + 60
        while (f"({name})", "S") != tuple(Path(f"/proc/{child.pid}/stat").read_text().split()[1:3]):
            assert time.monotonic() < end
            time.sleep(0.005)
        yield child.pid
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, int], str]]:
    """The cgroup root, the pids, and a dump with the names."""
    folder = tmp_path_factory.mktemp("node")
    pause = shutil.copy("/bin/sleep", folder / "pause")
    dump = folder / "pods.json"
    dump.write_text(
        json.dumps(
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": "web-0", "namespace": "shop", "uid": UID},
                "spec": {"containers": [{"name": "nginx"}]},
                "status": {"containerStatuses": [{"name": "nginx", "containerID": f"containerd://{APP}"}]},
            }
        )
    )
    with own_root() as root, ExitStack() as stack:
        pod = f"{root}/kubepods/burstable/pod{UID}"
        for path in (f"{pod}/{APP}", f"{pod}/{PAUSE}", f"{root}/kubepods/besteffort"):
            make(path)
        put("memory", pod, "memory.limit_in_bytes", 128 * MIB)
        put("memory", f"{pod}/{APP}", "memory.limit_in_bytes", 64 * MIB)
        put("cpu", f"{pod}/{APP}", "cpu.cfs_quota_us", 50000)
        put("pids", pod, "pids.max", 100)
        pids = {
            "app": stack.enter_context(process(f"{pod}/{APP}", sys.executable, "-S", "-c", HOG, wait=True)),
            "pause": stack.enter_context(process(f"{pod}/{PAUSE}", str(pause), "60")),
        }
        yield root, pids, str(dump)


def found_in(tree: dict[str, Any], path: str) -> dict[str, Any]:
    if tree["path"] == path:
        return tree
    return next(found_in(child, path) for child in tree["children"] if path.startswith(child["path"]))


def test_the_tree_as_json(node: tuple[str, dict[str, int], str]) -> None:
    root, _, dump = node
    ran = run("tree", "--cgroup-root", root, "--pods", dump, "--tasks", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    tree = json.loads(ran.out)["tree"]
    pod = found_in(tree, f"{root}/kubepods/burstable/pod{UID}")
    assert (pod["kind"], pod["name"], pod["qosClass"], pod["podUid"]) == ("pod", "shop/web-0", "Burstable", UID)
    assert (pod["memory"]["maxBytes"], pod["pids"], pod["pidsMax"]) == (128 * MIB, 2, 100)
    app, sandbox = pod["children"]
    assert (app["kind"], app["name"], app["containerId"]) == ("container", "nginx", APP)
    assert 40 * MIB <= app["memory"]["workingSetBytes"] <= app["memory"]["usageBytes"] <= 64 * MIB
    assert app["cpu"]["limitMilli"] == 500
    assert app["tasks"]["sleeping"] == 1
    assert (sandbox["kind"], sandbox["containerId"]) == ("sandbox", PAUSE)


def test_the_tree_as_text(node: tuple[str, dict[str, int], str], exercised: Callable[[str, str], None]) -> None:
    root, _, dump = node
    ran = run("tree", "--cgroup-root", root, "--pods", dump)
    assert (ran.code, ran.err) == (0, "")
    shown = ran.out.splitlines()
    assert shown[0].startswith(f"{root}/kubepods  cgroup v1 · cgroupfs · 1 pod · 1 container")
    assert [line.split("  ")[0].strip() for line in shown[2:7]] == ["kubepods", "├─ burstable", "│", "│", "│"]
    assert "shop/web-0" in shown[4]
    assert "nginx" in shown[5]
    assert "64.0 MiB" in shown[5]
    assert "sandbox" in shown[6]
    assert "besteffort" in shown[7]
    same = run("tree", f"{this_host().v1['memory'].mount_point}{root}/kubepods/", "--pods", dump)
    assert same.out.splitlines()[0] == shown[0]
    exercised("kernel", f"Linux {os.uname().release}, cgroup v1: plimsoll tree")


def test_whose_processes_they_are(node: tuple[str, dict[str, int], str]) -> None:
    root, pids, dump = node
    ran = run("whose", str(pids["app"]), str(pids["pause"]), "--pods", dump, "-o", "json")
    assert ran.code == 0
    app, pause = json.loads(ran.out)
    assert (app["pod"], app["container"], app["owner"]["podUid"]) == ("shop/web-0", "nginx", UID)
    assert app["owner"]["path"] == f"{root}/kubepods/burstable/pod{UID}/{APP}"
    assert (pause["sandbox"], pause["owner"]["containerId"]) == (True, PAUSE)
    # It was moved in three hierarchies only; the others are named.
    assert app["elsewhere"]["cpuset"] == "/"


def test_what_is_wanted_and_not_so(node: tuple[str, dict[str, int], str], tmp_path: Path) -> None:
    root, _, dump = node
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        f"kind: Pod\napiVersion: v1\nmetadata: {{name: web-0, namespace: shop, uid: {UID}}}\n"
        "spec: {containers: [{name: nginx, image: x, resources: {requests: {cpu: 100m}, limits: {cpu: 500m, memory: 256Mi}}}]}\n"
    )
    explained = run(
        "explain", str(manifest), "--cgroup", "v1", "--driver", "cgroupfs", "--cgroup-root", root, "-o", "json"
    )
    want = tmp_path / "want.json"
    want.write_text(explained.out)
    ran = run("tree", "--cgroup-root", root, "--pods", dump, "--against", str(want))
    assert (ran.code, ran.err) == (0, "")
    assert f"want memory.limit_in_bytes {256 * MIB}, have {128 * MIB}" in ran.out
    assert f"want memory.limit_in_bytes {256 * MIB}, have {64 * MIB}" in ran.out
    assert "want cpu.cfs_quota_us 50000, have max" in ran.out  # the pod's; its container has it
    refused = run("tree", "--cgroup-root", root, "--against", str(manifest))
    assert (refused.code, refused.out) == (2, "")
    assert "explain … -o json" in refused.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["tree", "/plimsoll-test-nothing-of-that-name"], "cgroup /plimsoll-test-nothing-of-that-name not found"),
        (["tree", "--cgroup-root", "/plimsoll-test-nothing"], "use --cgroup-root"),
        (["tree", "/../../etc"], "'..' is not a valid cgroup name"),
        (["tree", "/a\nb"], "control character"),
    ],
    ids=["no such cgroup", "no pods", "outside", "a newline"],
)
def test_what_cannot_be_shown(words: list[str], text: str) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


def test_500_pods_are_all_in_the_tree() -> None:
    with own_root() as root:
        for index in range(PODS):
            uid = hashlib.md5(str(index).encode(), usedforsecurity=False).hexdigest()
            for container in range(CONTAINERS):
                name = hashlib.sha256(f"{index} {container}".encode()).hexdigest()
                make(f"{root}/kubepods/{('burstable', 'besteffort')[index % 2]}/pod{uid}/{name}")
        ran = run("tree", "--cgroup-root", root)
        assert f"{PODS} pods · {PODS * CONTAINERS} containers" in ran.out
        driver = open_cgroupfs(this_host())
        assert isinstance(driver, CgroupsV1)
        assert len(live_tree(driver, f"{root}/kubepods")) == 3 + PODS * (1 + CONTAINERS)
        driver.close()


def test_the_tree_as_svg(node: tuple[str, dict[str, int], str]) -> None:
    """The lines are the kernel's limits, the fills what memory.stat says (the hog touches 40 MiB and then sleeps)."""
    root, _, dump = node
    ran = run("tree", "--cgroup-root", root, "--pods", dump, "-o", "svg")
    assert (ran.code, ran.err) == (0, "")
    svg = ElementTree.fromstring(ran.out)
    titles = [element.text or "" for element in svg.iter("{http://www.w3.org/2000/svg}title")]
    (app,) = (title for title in titles if title.startswith("container nginx"))
    assert f"memory.limit_in_bytes 64.0 MiB ({64 * MIB} bytes)" in app
    assert "cpu.cfs_quota_us 50000" in app
    used = re.search(r"shared memory ([\d.]+) MiB", app)  # mmap(-1) is shared
    assert used is not None and 40 <= float(used[1]) <= 64
    assert any(title.startswith("pod shop/web-0 (Burstable)") for title in titles)


def test_top_prints_one_table_in_a_pipe(node: tuple[str, dict[str, int], str]) -> None:
    root, _, dump = node
    ran = run("top", "--cgroup-root", root, "--pods", dump, "--by", "containers")
    assert (ran.code, ran.err) == (0, "")
    head, row = ran.out.splitlines()
    assert head.split()[:2] == ["NAME", "MEMORY"] and "CPU LIMIT" in head
    assert row.startswith("shop/web-0/nginx ") and "64.0 MiB" in row and "\x1b" not in row
    classes = run("top", "--cgroup-root", root, "--by", "classes").out.splitlines()[1:]
    assert {line.split()[0] for line in classes} == {"guaranteed", "burstable", "besteffort"}
    assert run("top", "--cgroup-root", root, "--filter", "nobody").out.strip() == "no pods with 'nobody'"
    assert "needs a kind" in run("top", "--cgroup-root", root, "--sum").err
