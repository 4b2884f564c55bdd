"""What people install: manifests, chart, units, man pages and the zipapp, each shown to the real tool."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.main import VERBS
from plimsoll.cli.objects.man import manual_pages
from plimsoll.codec.yaml.reader import YamlError, read
from tests.e2e.kubectl import NoKubectlError, any_binary, helm
from tests.project_files import ROOT

DEPLOY = ROOT / "deploy"
RUN_S = 300.0


def ran(*command: str | Path, cwd: Path = ROOT, home: Path | None = None) -> str:
    environment = {**os.environ, "NO_COLOR": "1", **({"HOME": str(home)} if home else {})}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
        cwd=cwd,
        env=environment,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    found = []
    for document in read(text.encode()):
        assert not isinstance(document, YamlError), document
        if document.value is not None:
            found.append(document.value)
    return found


@cache
def rendered(way: str, *options: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return _rendered(way, Path(folder), *options)


def _rendered(way: str, tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    try:
        if way == "helm":
            words = ["template", "plimsoll-audit", DEPLOY / "helm/plimsoll-audit", "-n", "plimsoll", *options]
            return documents(ran(helm(), *words, home=tmp_path))
        return documents(ran(any_binary().path, "kustomize", DEPLOY / "audit" / way, home=tmp_path))
    except NoKubectlError as problem:
        pytest.skip(str(problem))


def daemon_set(found: list[dict[str, Any]]) -> dict[str, Any]:
    (only,) = [each for each in found if each["kind"] == "DaemonSet"]
    spec: dict[str, Any] = only["spec"]["template"]["spec"]
    return spec


WAYS = ["base", "overlays/processes", "overlays/no-configuration", "helm"]


@pytest.mark.parametrize("way", WAYS)
def test_the_audit_has_the_least_privileges(way: str) -> None:
    found = rendered(way)
    spec = daemon_set(found)
    (container,) = spec["containers"]
    assert spec.get("hostPID", False) is (way == "overlays/processes")
    assert not spec.get("hostNetwork") and not spec.get("hostIPC")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    paths = {volume["hostPath"]["path"] for volume in spec["volumes"]}
    assert paths <= {"/sys/fs/cgroup", "/var/lib/kubelet/config.yaml"}
    assert ("/var/lib/kubelet/config.yaml" in paths) is (way != "overlays/no-configuration")
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    (role,) = [each for each in found if each["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}]


@pytest.mark.parametrize("way", WAYS)
def test_the_arguments_are_those_of_the_command(way: str) -> None:
    """Every option of the DaemonSet exists, and the form is one that the command accepts."""
    from plimsoll.cli.audit.command import audit_group

    (container,) = daemon_set(rendered(way))["containers"]
    main = audit_group.get_command("node")
    assert main is not None
    known = {name for option in main.options() for name in option.opts}
    used = [word for word in container["args"] if word.startswith("--")]
    assert container["args"][:2] == ["audit", "$(NODE_NAME)"]
    assert {"--watch", "--serve"} <= set(used) <= known
    assert ("--no-processes" in used) is (way != "overlays/processes")


def test_the_chart_lints_and_follows_its_values(tmp_path: Path) -> None:
    try:
        assert "1 chart(s) linted, 0 chart(s) failed" in ran(
            helm(), "lint", "--strict", DEPLOY / "helm/plimsoll-audit", home=tmp_path
        )
    except NoKubectlError as problem:
        pytest.skip(str(problem))
    changed = rendered(
        "helm",
        "--set",
        "processes=true,kubeletConfig=,ociRuntime=runc 1.3.2,metrics.port=1234,ignore={A10,A13}",
    )
    spec = daemon_set(changed)
    (container,) = spec["containers"]
    assert spec["hostPID"] is True
    assert [volume["name"] for volume in spec["volumes"]] == ["cgroup"]
    assert container["args"][-6:] == ["--ignore", "A10", "--ignore", "A13", "--oci-runtime", "runc 1.3.2"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 1234}]


@pytest.mark.parametrize(
    ("unit", "most"), [("plimsoll-api.service", 2.0), ("plimsoll-node.service", 9.0), ("plimsoll-attach.service", 3.5)]
)
def test_units(unit: str, most: float, tmp_path: Path) -> None:
    """As systemd reads them; the exposure level of systemd-analyze is 0 (best) to 10."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "plimsoll"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (DEPLOY / "systemd" / unit).read_text().replace("/usr/local/bin/plimsoll", str(program))
    file = tmp_path / unit
    file.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False, timeout=RUN_S
    )
    assert unit not in done.stderr, done.stderr
    shown = ran("systemd-analyze", "security", "--offline=true", "--no-pager", file)
    level = float(shown.strip().splitlines()[-1].split("exposure level for")[1].split(":")[1].split()[0])
    assert level <= most, shown


def test_the_options_of_the_units_exist() -> None:
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (start,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
        assert start.split()[1] in VERBS


def test_man_pages() -> None:
    pages = manual_pages()
    assert pages.keys() == {"plimsoll", *(f"plimsoll-{verb}" for verb in VERBS)}
    assert ".B \\-\\-from\\-dump DIR" in pages["plimsoll-audit"]
    assert ".B \\-\\-app NAME[=VERSION]" in pages["plimsoll-explain"]
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-k"],
        input="".join(pages.values()),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Plimsoll") >= len(pages)


@pytest.mark.long
def test_the_zipapp(tmp_path: Path) -> None:
    """One file that runs without pip; the second start unpacks nothing."""
    ran(sys.executable, DEPLOY / "build.py", tmp_path / "dist")
    (file,) = (tmp_path / "dist").glob("*.pyz")
    assert ran(sys.executable, file, "audit", "explain", "A02", cwd=tmp_path, home=tmp_path).startswith("A02")
    assert "kubelet" in ran(sys.executable, file, "explain", "--help", cwd=tmp_path, home=tmp_path)
    (manifest,) = documents((tmp_path / "dist" / "plimsoll-krew.yaml").read_text())
    assert manifest["spec"]["platforms"][0]["bin"] == "kubectl-plimsoll"
    assert len(manifest["spec"]["platforms"][0]["sha256"]) == 64
