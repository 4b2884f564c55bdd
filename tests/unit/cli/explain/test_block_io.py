"""`plimsoll explain` with block I/O under control: values, formulas, sources, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.console import run
from tests.unit.formulas import steps, value_of

CONFIG = """
apiVersion: plimsoll.dev/v1
kind: NodeExtras
ioControl:
  devices: [/dev/no-such-disk, /dev/no-other-disk]
  weights: {BestEffort: 7}
  ceilings:
    "*": {max: wbps=50Mi}
    payments: {max: rbps=200Mi; /dev/no-other-disk riops=9, latency: target=10ms}
"""
PODS = """
apiVersion: v1
kind: Pod
metadata:
  name: db
  namespace: payments
  annotations:
    plimsoll.dev/io-max: /dev/no-such-disk wbps=1.5Mi
    plimsoll.dev/io-latency: /dev/no-such-disk target=20ms
spec:
  containers: [{name: c, image: x, resources: {limits: {cpu: 1, memory: 1Gi}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {plimsoll.dev/io-max: WEB}}
spec: {containers: [{name: a, image: x}, {name: b, image: x}]}
"""
NODE = ["--capacity", "cpu=8,memory=16Gi"]
ONE, OTHER = "/dev/no-such-disk", "/dev/no-other-disk"


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.yaml").write_text(CONFIG)
    return str(tmp_path / "config.yaml")


def explained(tmp_path: Path, web: str, *options: str) -> tuple[int, str, str]:
    (tmp_path / "pods.yaml").write_text(PODS.replace("WEB", web))
    done = run("explain", str(tmp_path / "pods.yaml"), *NODE, "--config", str(tmp_path / "config.yaml"), *options)
    return done.code, done.out, done.err


def files(cgroup: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in cgroup.get("files", ()):
        if file["name"].startswith(("io.", "blkio.")):
            yield f"{cgroup['name']} {file['name']}", file
    for child in cgroup.get("children", ()):
        yield from files(child)


def test_v2(tmp_path: Path, config: str) -> None:
    code, out, err = explained(tmp_path, "riops=5", "-o", "json")
    assert (code, err) == (0, "")
    found = dict(files(json.loads(out)["tree"]))
    assert {name: file["value"] for name, file in found.items()} == {
        "all pods io.weight": "500",
        "all pods io.latency": f"{ONE} target=20000",
        "payments/db io.weight": "500",
        "payments/db io.max": (
            f"{ONE} rbps=209715200 wbps=1572864 riops=max wiops=max\n{OTHER} rbps=209715200 wbps=max riops=9 wiops=max"
        ),
        "payments/db io.latency": f"{ONE} target=20000",
        "Burstable io.weight": "100",
        "BestEffort io.weight": "7",
        "web io.max": "\n".join(f"{each} rbps=max wbps=52428800 riops=5 wiops=max" for each in (ONE, OTHER)),
    }
    for file in found.values():
        for step in steps(file["reason"].get("formula", "")):
            assert value_of(step.expression) == value_of(step.result), file
    reason = found["payments/db io.max"]["reason"]
    assert reason["formula"] == f"{ONE} wbps: 1.5 · 2^20 = 1572864; rbps: 200 · 2^20 = 209715200"
    assert reason["source"] == "metadata.annotations[plimsoll.dev/io-max], ioControl.ceilings[payments].max"
    assert found["web io.max"]["human"].startswith("write 50.0 MiB/s, read 5 operations/s; ")
    assert found["BestEffort io.weight"]["reason"]["source"] == "ioControl.weights.BestEffort"


def test_v1_divides_the_limits(tmp_path: Path, config: str) -> None:
    code, out, err = explained(tmp_path, "wbps=5", "--cgroup", "v1", "-o", "json")
    assert code == 2
    assert "metadata.annotations[plimsoll.dev/io-latency]: Invalid value:" in err
    assert "cgroup v1 has no io.latency" in err
    found = dict(files(json.loads(out)["tree"]))
    assert found["a blkio.throttle.write_bps_device"]["value"] == f"{ONE} 2\n{OTHER} 2"
    assert f"{ONE}: max(⌊5 / 2⌋, 1) = 2" in found["b blkio.throttle.write_bps_device"]["reason"]["formula"]
    assert "web io.max" not in found
    assert found["Burstable blkio.bfq.weight"]["value"] == "100"


@pytest.mark.parametrize(
    ("web", "reason"),
    [
        (
            "wbps=51Mi",
            "Forbidden: wbps of /dev/no-such-disk is 53477376, more than 52428800 (ioControl.ceilings[*].max",
        ),
        ("fast", "Invalid value: \"fast\": 'fast' is not the path of a device, such as /dev/vda"),
    ],
)
def test_what_the_node_would_refuse(web: str, reason: str, tmp_path: Path, config: str) -> None:
    code, out, err = explained(tmp_path, web)
    assert (code, "web" in out) == (2, False)
    assert f"pods.yaml:15: document 2: metadata.annotations[plimsoll.dev/io-max]: {reason}" in err


def test_a_script_writes_one_device_at_a_time(tmp_path: Path, config: str) -> None:
    _, out, _ = explained(tmp_path, "wbps=5", "-o", "sh")
    lines = [line for line in out.splitlines() if "/io.max" in line]
    assert len(lines) == 4
    assert all(
        line.startswith(("# with MAJOR:MINOR of /dev/no-such-disk: echo '", f"# with MAJOR:MINOR of {OTHER}: "))
        for line in lines
    )


def test_nothing_is_shown_while_io_is_not_controlled(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(PODS.replace("WEB", "nonsense"))
    done = run("explain", str(tmp_path / "pods.yaml"), *NODE, "-o", "json")
    assert (done.code, list(files(json.loads(done.out)["tree"]))) == (0, [])


def test_cgroup_apply_refuses_what_the_node_would_refuse(tmp_path: Path, config: str) -> None:
    for web, code in (("wbps=5", 0), ("wbps=51Mi", 2)):
        (tmp_path / "pods.yaml").write_text(PODS.replace("WEB", web))
        done = run("cgroup", "apply", str(tmp_path / "pods.yaml"), *NODE, "--config", config, "--simulate")
        assert done.code == code, done.err
        assert ("rbps=max wbps=5 riops=max wiops=max" in done.out) == (code == 0)
        assert ("more than 52428800 (ioControl.ceilings[*].max" in done.err) == (code != 0)
