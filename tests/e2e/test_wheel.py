"""Plimsoll from a wheel, as `pip install` puts it: in a virtual environment of its own, far from the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.e2e.up_process import Up
from tests.project_files import ROOT, dev_module

RUN_S = 300.0
pytestmark = pytest.mark.xdist_group("wheel")  # it is built and installed once


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def install_into(python: Path, *wanted: str | Path) -> None:
    """As ./dev installs: with uv and its downloads, else with pip. Skips where no package index can be reached."""
    dev = dev_module()
    uv, problem = dev.find_uv()
    ways = [[uv, "pip", "install", "--quiet", "--python", str(python)]] if uv else []
    if pip := dev.find_pip():
        ways.append([*pip, "--python", str(python), "install", "--quiet"])
    for way in ways:
        problem = dev.install_problem_of([*way, *map(str, wanted)])
        if not problem:
            return
    if advice := dev.unreachable(problem):
        pytest.skip(advice.splitlines()[0])
    pytest.fail(problem)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the locked packages and a wheel, which is built from an sdist."""
    place = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", place, cwd=ROOT)
    (source,) = place.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(place, filter="data")
    unpacked = place / source.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place, cwd=unpacked)
    (wheel,) = place.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place)
    python = place / "venv/bin/python"
    install_into(python, "--require-hashes", "-r", ROOT / "requirements/runtime.txt")
    install_into(python, "--no-deps", wheel)
    return python.parent


def test_the_version(installed: Path, tmp_path: Path) -> None:
    version = run(installed / "plimsoll", "--version", cwd=tmp_path)
    assert version.startswith("plimsoll, version ")
    assert run(installed / "python", "-m", "plimsoll", "--version", cwd=tmp_path) == version


def test_the_examples_are_in_the_package(installed: Path, tmp_path: Path) -> None:
    (package,) = installed.parent.glob("lib/python*/site-packages/plimsoll/examples")
    names = {file.relative_to(package) for file in package.rglob("*.yaml")}
    assert names == {file.relative_to(ROOT / "examples") for file in (ROOT / "examples").rglob("*.yaml")}
    out = run(
        installed / "plimsoll", "explain", package / "burstable.yaml", "--capacity", "cpu=4,memory=8Gi", cwd=tmp_path
    )
    assert "Burstable because" in out


def test_the_audit_completion_and_man_pages(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "plimsoll", "audit", "explain", "A02", cwd=tmp_path).startswith("A02")
    pod = '{"kind": "Pod", "metadata": {"name": "web", "uid": "u"}, "spec": {"nodeName": "n1", "containers": []}}'
    (tmp_path / "pods.json").write_text(pod)
    words = ["audit", "--from-dump", tmp_path, "--rule", "A21"]
    assert "1 clean" in run(installed / "kubectl-plimsoll", *words, cwd=tmp_path)
    assert "plimsoll" in run(installed / "plimsoll", "completion", "bash", cwd=tmp_path)
    assert run(installed / "plimsoll", "man", "audit", cwd=tmp_path).startswith(".TH PLIMSOLL-AUDIT 1")


def test_the_tour(installed: Path, tmp_path: Path) -> None:
    assert "2040107008" in run(installed / "plimsoll", "up", "--tour", cwd=tmp_path)


def test_up(installed: Path, tmp_path: Path) -> None:
    """On a simulated kernel, as everywhere: that cgroups are written is the subject of test_up."""
    up = Up(tmp_path, "--simulate", plimsoll=installed / "plimsoll")
    try:
        up.ready()
        assert all(f" {name} " in up.output for name in ("gold", "silver", "bronze"))
        up.interrupt()
        assert up.ended() == 0, up.output
        assert up.left() == {}
    finally:
        up.close()
