"""Plimsoll from a wheel, as `pip install` puts it: in a virtual environment of its own, far from the source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.e2e.up_process import Up

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 300.0


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
        cwd=cwd,
        env={**os.environ, "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(ROOT / ".cache/uv")), "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def installers(python: Path) -> list[list[str]]:
    """uv with the downloads of ./dev, else with the index; pip where there is no uv."""
    found = [own] if (own := ROOT / ".cache/uv-bin/bin/uv").exists() else [shutil.which("uv")]
    uv = [[str(each), "pip", "install", "--quiet", "--python", str(python)] for each in found if each]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    return [*([*each, "--offline"] for each in uv), *uv, pip]


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
    python, problems = place / "venv/bin/python", []
    for installer in installers(python):
        try:
            run(*installer, "--require-hashes", "-r", ROOT / "requirements/runtime.txt", cwd=place)
            run(*installer, "--no-deps", wheel, cwd=place)
            return python.parent
        except (AssertionError, FileNotFoundError) as problem:
            problems.append(str(problem))
    raise AssertionError("\n".join(problems))


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
