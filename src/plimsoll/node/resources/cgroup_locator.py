"""Where a runtime has put the cgroups of its containers, and whether it wrote the requested values.

A container's cgroup is located once, when the container is first observed running: by its process, not by the name it
should have. That also finds a container outside its pod's cgroup (kubelet and runtime with different cgroup drivers,
02 §2.2): no limit of the pod, its class or the node applies to it, which is reported as an event of the pod and a
condition of the node. At the same time the Memory QoS files are read back: a runtime that ignores `unified` leaves them
as the kernel created them.

A container that an earlier agent has started may have other Memory QoS values, because the node's settings have
changed: it is `outdated` until the runtime has been asked to update it (`updated`).

Cgroups that a runtime created are never written or removed here; only removing a pod removes what is left below its
cgroup. A container that was given another memory.high than the rules compute (`lift`) keeps it until it ends. A file
records that: the next agent must not report such a runtime as one that ignores `unified`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.linux.files.state_dir import replace_private
from plimsoll.linux.processes import cgroups_of
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.model.cgroup_names import Runtime, container_component
from plimsoll.rules.model.observed import ObservedContainer
from plimsoll.rules.resources.cri import KERNEL_DEFAULT

DRIVER_MISMATCH, MEMORY_QOS_UNSUPPORTED = "CgroupDriverMismatch", "MemoryQoSUnsupported"
HIGH = "memory.high"
_MEMORY_QOS_FILES = ("memory.min", "memory.low", HIGH)
log = logging.getLogger(__name__)


class Finding(msgspec.Struct, frozen=True):
    """A fault of a container's cgroup: an event's reason, and a condition's type."""

    reason: str
    container: str
    message: str


class LocatedCgroup(msgspec.Struct, frozen=True):
    """One container's. `path` is empty if it could not be found."""

    name: str
    path: str
    findings: tuple[Finding, ...] = ()
    outdated: Mapping[str, str] = {}  # file → the value it should have now
    is_read_back: bool = False


class CgroupLocator:
    def __init__(self, driver: CgroupDriver, runtime: Runtime, page_size: int, file: Path | None = None) -> None:
        self._driver, self._runtime, self._page_size, self._file = driver, runtime, page_size, file
        self._lifted: dict[str, dict[str, str]] = {} if file is None else _read(file)  # uid → container id → high
        self._located: dict[str, dict[str, LocatedCgroup]] = {}  # pod uid → container id → its cgroup

    def observe(
        self,
        uid: str,
        pod_path: str,
        containers: Iterable[ObservedContainer],
        unified: Mapping[str, Mapping[str, str]],
    ) -> list[Finding]:
        """Faults that are new. `containers`: all of the pod's; `unified`: container → desired content of v2 files."""
        before = self._located.get(uid, {})
        now: dict[str, LocatedCgroup] = {}
        findings: list[Finding] = []
        for container in containers:
            if container.phase not in ("running", "exited"):
                continue
            is_running = container.phase == "running"
            cgroup = before.get(container.id)
            desired = self.with_lift(uid, container.id, unified.get(container.name, {}))
            if cgroup is None and is_running:
                cgroup = self._locate(pod_path, container, desired)
                findings.extend(cgroup.findings)
            if cgroup is not None and is_running and not cgroup.outdated and not cgroup.is_read_back:
                ignored = tuple(self._ignored(cgroup.path, container.name, desired))
                findings.extend(ignored)
                cgroup = msgspec.structs.replace(cgroup, findings=(*cgroup.findings, *ignored), is_read_back=True)
            if cgroup is not None:
                now[container.id] = cgroup if is_running else msgspec.structs.replace(cgroup, outdated={})
        if now:
            self._located[uid] = now
        else:
            self._located.pop(uid, None)
        self._record(uid, {key: high for key, high in self._lifted.get(uid, {}).items() if key in now})
        return findings

    def lift(self, uid: str, container_id: str, high: str) -> None:
        """Record that this container has another memory.high than the rules compute."""
        self._record(uid, {**self._lifted.get(uid, {}), container_id: high})

    def with_lift(self, uid: str, container_id: str, unified: Mapping[str, str]) -> Mapping[str, str]:
        """The content of v2 files as computed by the rules, with the container's own memory.high if it was lifted."""
        high = self._lifted.get(uid, {}).get(container_id)
        return unified if high is None or HIGH not in unified else {**unified, HIGH: high}

    def paths(self, uid: str) -> dict[str, str]:
        """Container name → its cgroup; of several attempts, the first listed, which is the newest."""
        paths: dict[str, str] = {}
        for cgroup in self._located.get(uid, {}).values():
            if cgroup.path:
                paths.setdefault(cgroup.name, cgroup.path)
        return paths

    def outdated(self, uid: str) -> dict[str, Mapping[str, str]]:
        """Container id → what an update must request in `unified`, besides the rest."""
        return {key: cgroup.outdated for key, cgroup in self._located.get(uid, {}).items() if cgroup.outdated}

    def updated(self, uid: str) -> None:
        """The update was requested; the next observation reads back whether it was applied."""
        located = self._located.get(uid, {})
        for key in self.outdated(uid):
            located[key] = msgspec.structs.replace(located[key], outdated={})

    def forget(self, uid: str) -> None:
        self._located.pop(uid, None)
        self._record(uid, {})

    def _record(self, uid: str, lifted: dict[str, str]) -> None:
        if lifted == self._lifted.get(uid, {}):
            return
        self._lifted[uid] = lifted
        self._lifted = {key: each for key, each in self._lifted.items() if each}
        if self._file is not None:
            try:
                replace_private(self._file, msgspec.json.encode(self._lifted))
            except OSError as error:  # a full disk: the next agent may report once that the runtime ignores `unified`
                log.error("raised memory.high values cannot be recorded in %s: %s", self._file, error)

    def conditions(self) -> dict[str, str]:
        """Faults that exist now: condition type → message."""
        conditions: dict[str, str] = {}
        for located in self._located.values():
            for cgroup in located.values():
                for finding in cgroup.findings:
                    conditions.setdefault(finding.reason, finding.message)
        return conditions

    # ---

    def _locate(self, pod_path: str, container: ObservedContainer, unified: Mapping[str, str]) -> LocatedCgroup:
        name = container_component(container.id, self._driver.name, self._runtime)
        expected = f"{pod_path}/{name}"
        actual = self._actual(container.pid)
        path, findings = expected, []
        if actual is not None:
            below = _below(actual, pod_path)
            if below:
                path = f"{pod_path}/{below}"
            else:
                path = actual
                message = _misplaced(container.name, actual, pod_path, self._driver)
                findings.append(Finding(DRIVER_MISMATCH, container.name, message))
        elif not self._has_child(pod_path, name):
            return LocatedCgroup(container.name, "", is_read_back=True)
        outdated = _outdated(container, unified) if self._driver.version == 2 else {}
        return LocatedCgroup(container.name, path, tuple(findings), outdated)

    def _actual(self, pid: int) -> str | None:
        """The cgroup of its first process, in the hierarchy that limits memory; None if it cannot be read."""
        if pid <= 0 or self._driver.simulated:
            return None
        unified = None
        for each in cgroups_of(pid) or ():
            if "memory" in each.controllers:
                return each.path
            if not each.controllers:
                unified = each.path
        return unified

    def _has_child(self, path: str, name: str) -> bool:
        """On v1, in any hierarchy: a runtime may leave one out."""
        try:
            return name in self._driver.children(path)
        except CgroupError:
            return False

    def _texts(self, path: str, files: tuple[str, ...]) -> Mapping[str, str]:
        """Empty where the cgroup does not exist or cannot be read."""
        try:
            return self._driver.texts(path, files) or {}
        except CgroupError:
            return {}

    def _ignored(self, path: str, name: str, unified: Mapping[str, str]) -> Iterable[Finding]:
        desired = {file: unified[file] for file in _MEMORY_QOS_FILES if file in unified}
        if not desired or self._driver.version != 2:
            return
        texts = self._texts(path, tuple(desired))
        wrong = {
            file: text
            for file, text in texts.items()
            if file in desired and not same_value(file, desired[file], text, self._page_size)
        }
        if wrong:
            listed = ", ".join(f"{file} is {has}, not {desired[file]}" for file, has in sorted(wrong.items()))
            yield Finding(
                MEMORY_QOS_UNSUPPORTED,
                name,
                f"the runtime has not written what `unified` asks for container {name}: {listed}; "
                "Memory QoS needs containerd 1.6 or CRI-O 1.22",
            )


def _outdated(container: ObservedContainer, unified: Mapping[str, str]) -> dict[str, str]:
    if container.cri_resources is None:
        return {}
    has = container.cri_resources.unified
    desired = {file: unified.get(file, KERNEL_DEFAULT[file]) for file in _MEMORY_QOS_FILES}
    return {file: text for file, text in desired.items() if has.get(file, KERNEL_DEFAULT[file]) != text}


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, str]])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, OSError) as error:
        log.warning("%s cannot be read, starting without it: %s", file, error)
        return {}


def _below(actual: str, pod_path: str) -> str:
    """The first name below the pod's cgroup on the way to the process; "" if the process is not below it.

    The path of a process may be longer, if its cgroup namespace begins above our mount."""
    _, found, rest = actual.rpartition(f"{pod_path}/")
    return rest.partition("/")[0] if found else ""


def _misplaced(name: str, actual: str, pod_path: str, driver: CgroupDriver) -> str:
    other = "cgroupfs" if driver.name == "systemd" else "systemd"
    return (
        f"container {name} is in {actual}, not below its pod's cgroup {pod_path}: no limit of pod, class or node "
        f"applies to it. The node's cgroup driver is {driver.name}, the runtime's seems to be {other}: use one for "
        "both (SystemdCgroup in containerd, cgroup_manager in CRI-O, --driver here), then create the pod again"
    )
