"""The guests that tests ask for by name, and the one call that runs something in any of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from tests.kernel import qemu, uml
from tests.kernel.guest import JOB_VARIABLE, PYTHON, Guest, Result

KINDS: dict[str, Guest] = {
    "uml-v2": Guest("uml", disk_mib=256),
    "uml-v2-systemd": Guest("uml", systemd=True),
    "uml-v1": Guest("uml", cgroup=1),
    "uml-v1-systemd": Guest("uml", cgroup=1, systemd=True),
    "qemu-v2": Guest("qemu", memory_mib=1024, cpus=2),
    "qemu-v2-systemd": Guest("qemu", systemd=True, memory_mib=1024, cpus=2),
    "qemu-v2-io": Guest("qemu", memory_mib=1024, cpus=2, disk_mib=512, disk_bytes_per_s=10 << 20),
    "qemu-v2-systemd-io": Guest("qemu", systemd=True, memory_mib=1024, cpus=2, disk_mib=512, disk_bytes_per_s=10 << 20),
    "qemu-v2-8": Guest("qemu", memory_mib=1024, cpus=8, threads=2),
    "qemu-v2-numa": Guest("qemu", memory_mib=1536, cpus=8, numa_nodes=2),
    "qemu-v2-systemd-8": Guest("qemu", systemd=True, memory_mib=1024, cpus=8, threads=2),
}


def run_in(
    kind: str,
    argv: Sequence[str],
    timeout_s: float = 120.0,
    *,
    environment: Mapping[str, str] | None = None,
    cpus: int | None = None,
    memory_mib: int | None = None,
) -> Result:
    """Start a guest of that kind, run the command in the project's root, end it. GuestMissingError where it can't be had."""
    guest = KINDS[kind]
    guest = replace(guest, cpus=cpus or guest.cpus, memory_mib=memory_mib or guest.memory_mib)
    run = uml.run if guest.machine == "uml" else qemu.run
    return run(guest, argv, timeout_s, environment)


@dataclass(frozen=True)
class InnerTest:
    """One test that pytest has run inside a guest."""

    name: str
    outcome: str  # passed, failed or skipped
    text: str = ""


def pytest_argv(*paths: str) -> list[str]:
    """pytest inside a guest: without what it does not need there (each plugin costs half a second of start-up)."""
    report = f'--junitxml="${JOB_VARIABLE}/junit.xml"'
    options = "-q -p no:cacheprovider -p no:xdist -p no:hypothesispytest -p no:anyio"
    return ["/bin/sh", "-c", f'exec "$0" -m pytest {options} {report} "$@"', PYTHON, *paths]


def inner_tests(done: Result) -> list[InnerTest]:
    """What became of each test inside; empty where pytest did not come as far as its report."""
    document = done.files.get("junit.xml")
    if not document:
        return []
    found = []
    for case in ElementTree.fromstring(document).iter("testcase"):
        name = re.sub(r"^.*in_guest\.", "", case.get("classname", "")) + "::" + case.get("name", "")
        outcome, text = "passed", ""
        for tag, said in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            if (element := case.find(tag)) is not None:
                outcome = said
                text = (element.text or "") if said == "failed" else element.get("message", "")
                break
        found.append(InnerTest(name, outcome, text))
    return found
