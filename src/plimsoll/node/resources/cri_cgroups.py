"""Where a runtime that makes container cgroups itself has put them, and whether it wrote what it was told.

A container's cgroup is looked up once, when it is first seen to run: by its process, not by what its name should be. So
one that stands outside its pod's cgroup is found (kubelet and runtime with different cgroup drivers, 02 §2.2): none of
the pod's, class's or node's limits hold it, which is told as an event of the pod and as a condition of the node. In
the same look the Memory QoS files are read back: a runtime that ignores `unified` leaves them as the kernel made them.

A container that an earlier agent has started may have been told another Memory QoS, because the node's settings were
others: it is `behind` until somebody has told the runtime anew (`retold`).

Cgroups that a runtime made are never written or removed here; only removing a pod takes what is left below its cgroup.
Where a container was given another memory.high than the rules' (`lift`) that is what it should have until it ends. It
is kept in a file: the next agent must not take it for a runtime that does not listen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.linux.processes import cgroups_of
from plimsoll.linux.state_dir import replace_private
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.model.cgroup_names import Runtime, container_component
from plimsoll.rules.resources.cri import KERNEL_DEFAULT
from plimsoll.runtime.interface import ContainerStateSeen

DRIVER_MISMATCH, MEMORY_QOS_UNSUPPORTED = "CgroupDriverMismatch", "MemoryQoSUnsupported"
HIGH = "memory.high"
_MEMORY_QOS_FILES = ("memory.min", "memory.low", HIGH)
log = logging.getLogger(__name__)


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with a container's cgroup: an event's reason, and a condition's type."""

    reason: str
    container: str
    message: str


class Stand(msgspec.Struct, frozen=True):
    """One container's. `path` is empty where nobody could tell."""

    name: str
    path: str
    findings: tuple[Finding, ...] = ()
    behind: Mapping[str, str] = {}  # file → what it shall hold now
    is_read_back: bool = False


class RuntimeCgroups:
    def __init__(self, driver: CgroupDriver, runtime: Runtime, page_size: int, file: Path | None = None) -> None:
        self._driver, self._runtime, self._page_size, self._file = driver, runtime, page_size, file
        self._lifted: dict[str, dict[str, str]] = {} if file is None else _read(file)  # pod uid → container id → mark
        self._stands: dict[str, dict[str, Stand]] = {}  # pod uid → container id → where it stands

    def see(
        self,
        uid: str,
        pod_path: str,
        containers: Iterable[ContainerStateSeen],
        unified: Mapping[str, Mapping[str, str]],
    ) -> list[Finding]:
        """What is new and wrong. `containers`: all of the pod's; `unified`: container → what v2 files shall hold."""
        before = self._stands.get(uid, {})
        now: dict[str, Stand] = {}
        found: list[Finding] = []
        for each in containers:
            if each.phase not in ("running", "exited"):
                continue
            known, wanted = before.get(each.id), self.with_lift(uid, each.id, unified.get(each.name, {}))
            if known is None and each.phase == "running":
                known = self._looked(pod_path, each, wanted)
                found.extend(known.findings)
            if known is not None and each.phase == "running" and not known.behind and not known.is_read_back:
                unheeded = tuple(self._unheeded(known.path, each.name, wanted))
                found.extend(unheeded)
                known = msgspec.structs.replace(known, findings=(*known.findings, *unheeded), is_read_back=True)
            if known is not None:
                now[each.id] = known if each.phase == "running" else msgspec.structs.replace(known, behind={})
        if now:
            self._stands[uid] = now
        else:
            self._stands.pop(uid, None)
        self._keep(uid, {key: high for key, high in self._lifted.get(uid, {}).items() if key in now})
        return found

    def lift(self, uid: str, container_id: str, high: str) -> None:
        """This container has another memory.high than the rules say, from now on."""
        self._keep(uid, {**self._lifted.get(uid, {}), container_id: high})

    def with_lift(self, uid: str, container_id: str, unified: Mapping[str, str]) -> Mapping[str, str]:
        """What v2 files shall hold, were this what the rules say."""
        high = self._lifted.get(uid, {}).get(container_id)
        return unified if high is None or HIGH not in unified else {**unified, HIGH: high}

    def paths(self, uid: str) -> dict[str, str]:
        """Container name → its cgroup; of several runs of one container, that of the first listed, the newest."""
        found: dict[str, str] = {}
        for each in self._stands.get(uid, {}).values():
            if each.path:
                found.setdefault(each.name, each.path)
        return found

    def behind(self, uid: str) -> dict[str, Mapping[str, str]]:
        """Container id → what the runtime is to be told in `unified`, besides the rest."""
        return {key: each.behind for key, each in self._stands.get(uid, {}).items() if each.behind}

    def retold(self, uid: str) -> None:
        """With the next look it is read back whether that was heeded."""
        stands = self._stands.get(uid, {})
        for key in self.behind(uid):
            stands[key] = msgspec.structs.replace(stands[key], behind={})

    def forget(self, uid: str) -> None:
        self._stands.pop(uid, None)
        self._keep(uid, {})

    def _keep(self, uid: str, lifted: dict[str, str]) -> None:
        if lifted == self._lifted.get(uid, {}):
            return
        self._lifted[uid] = lifted
        self._lifted = {key: each for key, each in self._lifted.items() if each}
        if self._file is not None:
            try:
                replace_private(self._file, msgspec.json.encode(self._lifted))
            except OSError as error:  # a full disk: the next agent may say once that the runtime does not listen
                log.error("lifted marks cannot be kept in %s: %s", self._file, error)

    def conditions(self) -> dict[str, str]:
        """Those that hold, each with a sentence."""
        found: dict[str, str] = {}
        for stands in self._stands.values():
            for stand in stands.values():
                for finding in stand.findings:
                    found.setdefault(finding.reason, finding.message)
        return found

    # ---

    def _looked(self, pod_path: str, seen: ContainerStateSeen, unified: Mapping[str, str]) -> Stand:
        expected = f"{pod_path}/{container_component(seen.id, self._driver.name, self._runtime)}"
        actual = self._actual(seen.pid)
        path, findings = expected, []
        if actual is not None:
            below = _below(actual, pod_path)
            if below:
                path = f"{pod_path}/{below}"
            else:
                path = actual
                findings.append(
                    Finding(DRIVER_MISMATCH, seen.name, _misplaced(seen.name, actual, pod_path, self._driver))
                )
        elif not self._is_there(expected):
            return Stand(seen.name, "", is_read_back=True)
        behind = _told_otherwise(seen, unified) if self._driver.version == 2 else {}
        return Stand(seen.name, path, tuple(findings), behind)

    def _actual(self, pid: int) -> str | None:
        """As its first process has it, in the hierarchy that limits memory; None where it cannot be asked."""
        if pid <= 0 or self._driver.simulated:
            return None
        unified = None
        for each in cgroups_of(pid) or ():
            if "memory" in each.controllers:
                return each.path
            if not each.controllers:
                unified = each.path
        return unified

    def _is_there(self, path: str) -> bool:
        try:
            return self._driver.read(path, ()) is not None
        except CgroupError:
            return False

    def _unheeded(self, path: str, name: str, unified: Mapping[str, str]) -> Iterable[Finding]:
        wanted = {file: unified[file] for file in _MEMORY_QOS_FILES if file in unified}
        if not wanted or self._driver.version != 2:
            return
        try:
            seen = self._driver.read(path, tuple(wanted))
        except CgroupError:
            return
        if seen is None:
            return
        wrong = {
            file: seen.files[file]
            for file, text in wanted.items()
            if file in seen.files and not same_value(file, text, seen.files[file], self._page_size)
        }
        if wrong:
            listed = ", ".join(f"{file} is {has}, not {wanted[file]}" for file, has in sorted(wrong.items()))
            yield Finding(
                MEMORY_QOS_UNSUPPORTED,
                name,
                f"the runtime has not written what `unified` asks for container {name}: {listed}; "
                "Memory QoS needs containerd 1.6 or CRI-O 1.22",
            )


def _told_otherwise(seen: ContainerStateSeen, unified: Mapping[str, str]) -> dict[str, str]:
    if seen.told is None:
        return {}
    wanted = {file: unified.get(file, KERNEL_DEFAULT[file]) for file in _MEMORY_QOS_FILES}
    return {file: text for file, text in wanted.items() if seen.told.unified.get(file, KERNEL_DEFAULT[file]) != text}


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, str]])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, OSError) as error:
        log.warning("%s cannot be read and begins anew: %s", file, error)
        return {}


def _below(actual: str, pod_path: str) -> str:
    """The first name below the pod's cgroup on the way to the process; "" where it is not below it.

    A process's own view may have more in front, where its cgroup namespace begins above our mount."""
    _, found, rest = actual.rpartition(f"{pod_path}/")
    return rest.partition("/")[0] if found else ""


def _misplaced(name: str, actual: str, pod_path: str, driver: CgroupDriver) -> str:
    other = "cgroupfs" if driver.name == "systemd" else "systemd"
    return (
        f"container {name} stands in {actual}, not below its pod's cgroup {pod_path}: no limit of pod, class or node "
        f"applies to it. The node's cgroup driver is {driver.name}, the runtime's seems to be {other}: use one for both"
    )
