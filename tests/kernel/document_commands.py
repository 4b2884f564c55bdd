"""What a person who reads the documents would type on a node, and what the kernel's files then say.

    python -m tests.kernel.document_commands --driver systemd        (in a guest, or on a host below a root of its own)

The node is document 004's. `node setup` and `cgroup apply` make the cgroups of the documents' pods, each file is then read
where a `cat` would read it, and `cgroup run` starts a command in two of the containers. One JSON object has all of it;
test_documents_cgroups.py compares it with the documents.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.rules.resources.files import controller_of
from tests.unit.console import run

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ROOT / "examples" / "documents"
# File → the uid that the document's own listing has, or one of ours where it has none.
PODS = {
    "000-example": "00000000-0000-4000-8000-000000000001",
    "002-qos-demo": "dba294ab-05fe-4314-a6d0-f9e0b3848104",
    "002-besteffort": "00000000-0000-4000-8000-000000000002",
    "003-demo-resized-cpu-2": "ab959cd5-f9e3-4b34-8051-861f7caca04c",
    "004-busybox": "00000000-0000-4000-8000-000000000004",
}
RUN = {"002-qos-demo": "nginx", "002-besteffort": "foo"}
V1_FILES = ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "pids.max")
V2_FILES = ("cpu.weight", "cpu.max", "memory.max", "pids.max")


class Kernel:
    """Its files as `cat` and `ls` show them, not through our driver."""

    def __init__(self) -> None:
        self.found = this_host()
        self.files = V1_FILES if self.found.version == 1 else V2_FILES

    def directory(self, path: str, file: str = "cpu.shares") -> Path:
        if self.found.version == 2:
            assert self.found.unified is not None
            return Path(self.found.unified.mount_point + path)
        return Path(self.found.v1[controller_of(file)].mount_point + path)

    def cat(self, path: str) -> dict[str, str]:
        named = {file: self.directory(path, file) / file for file in self.files}
        return {file: place.read_text().strip() for file, place in named.items() if place.exists()}

    def below(self, path: str) -> set[str]:
        return {each.name for each in self.directory(path).iterdir() if each.is_dir()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--driver", choices=["cgroupfs", "systemd"], default="cgroupfs")
    parser.add_argument("--profile", default="documents")
    parser.add_argument("--root", default="/")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plimsoll-documents-") as scratch:
        print(json.dumps(report(asked.driver, asked.profile, asked.root, Path(scratch))))
    return 0


def report(driver: str, profile: str, root: str, scratch: Path) -> dict[str, Any]:
    kernel = Kernel()
    options = [
        "--capacity",
        "cpu=48,memory=263192560Ki,pods=256",
        "--config",
        str(DOCUMENTS / "004-kubelet-config.yaml"),
    ]
    options += [
        "--driver",
        driver,
        "--profile",
        profile,
        "--pod-max-pids",
        "100",
        "--state-dir",
        str(scratch / "state"),
    ]
    options += [] if root == "/" else ["--cgroup-root", root]
    before = kernel.below("/")
    typed("node", "setup", *options)
    try:
        made = kernel.below("/") - before if root == "/" else kernel.below(root)
        (top,) = made
        path = f"/{top}" if root == "/" else f"{root}/{top}"
        said: dict[str, Any] = {"version": kernel.found.version, "top": sorted(made), "pods": kernel.cat(path)}
        said["classes"] = sorted(kernel.below(path))
        files = [str(with_uid(name, uid, scratch)) for name, uid in PODS.items()]
        applied = json.loads(
            "[" + typed("cgroup", "apply", *files, *options, "-o", "json").replace("}\n{", "},{") + "]"
        )
        steps = [step for each in applied for step in each["steps"]]
        said["written"] = sorted({step["file"] for step in steps if step["do"] == "write"})
        paths = {step["path"] for step in steps if step["do"] == "make"}
        for name, uid in PODS.items():
            said[name] = of_pod(kernel, uid, paths)
            if name in RUN:
                said[name]["run"] = ran(scratch, name, options, kernel)
        return said
    finally:
        typed("node", "teardown", "--kill", *options)


def of_pod(kernel: Kernel, uid: str, paths: set[str]) -> dict[str, Any]:
    ours = {each for each in paths if uid in each or uid.replace("-", "_") in each}
    pod = min(ours, key=len)
    return {
        "path": pod,
        "pod": kernel.cat(pod),
        "containers": [kernel.cat(each) for each in sorted(ours - {pod})],
        "listing": sorted(each.name for each in kernel.directory(pod).iterdir() if each.is_file()),
    }


def ran(scratch: Path, name: str, options: list[str], kernel: Kernel) -> dict[str, Any]:
    """A shell inside the container says where it is and what it has; --keep leaves the pod for what follows."""
    output = scratch / "said"
    controller = "memory" if kernel.found.version == 1 else ""
    script = f"""
        exec >{output}
        path=$(sed -n 's/^[0-9]*:{controller}://p' /proc/$$/cgroup)
        echo "$path"; cat /proc/$$/oom_score_adj /proc/$$/oom_score
        grep -cx $$ {kernel.directory("", "memory.limit_in_bytes")}"$path"/cgroup.procs
    """
    file = str(scratch / f"{name}.yaml")
    typed("cgroup", "run", file, "-c", RUN[name], "--keep", *options, "--", "/bin/sh", "-c", script)
    path, adj, score, listed = output.read_text().splitlines()
    return {"path": path, "oom_score_adj": int(adj), "oom_score": int(score), "listed": int(listed)}


def with_uid(name: str, uid: str, scratch: Path) -> Path:
    """The example with this uid; examples have `metadata:` on a line of its own."""
    text = (DOCUMENTS / f"{name}.yaml").read_text(encoding="utf-8")
    file = scratch / f"{name}.yaml"
    before, found, after = text.partition("\nmetadata:\n")
    assert found, name
    lines = [
        f"  uid: {uid}",
        f"  name: {name}",
        *(each for each in after.split("\n") if not each.startswith("  name: ")),
    ]
    file.write_text(before + found + "\n".join(lines), encoding="utf-8")
    return file


def typed(*words: str) -> str:
    done = run(*words)
    if done.code:
        raise SystemExit(f"plimsoll {' '.join(words)}: {done.code}\n{done.err}")
    return done.out


if __name__ == "__main__":
    sys.exit(main())
