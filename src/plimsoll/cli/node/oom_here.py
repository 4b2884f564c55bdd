"""`plimsoll oom --here`: OOM kills of this machine, from the kernel's log, the counters of cgroups and a journal.

It needs no agent and no API, so it works beside any kubelet. The kernel's log keeps kills until it is overwritten or
the machine starts again; the counters of a container are gone with its cgroup. With --watch, kills are added to a
journal as they happen, with the names that were known then, and stay there after containers and pods have gone.
"""

from __future__ import annotations

import os
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, memory_root, open_cgroupfs, this_host
from plimsoll.cgroups.stats.live_tree import live_tree
from plimsoll.cli.pod_names import PodNames
from plimsoll.codec.kernel.kmsg import OomReports, kernel_record
from plimsoll.codec.node_pages import KillShown
from plimsoll.errors import PlimsollError
from plimsoll.linux.kernel_log import DEVICE, KernelLog
from plimsoll.node.pressure.oom_ledger import OomLedger
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.oom.report import OomKill, oom_sentence

DEEPEST = 2  # levels in which a tree of pods is searched
SAME_S = 2.0  # a kill in the log and in the journal


class JournalError(PlimsollError):
    """The journal cannot be read or written."""


class KillReader:
    """Reads the kernel's log from its beginning, and later what is new."""

    def __init__(self, names: PodNames, device: str = DEVICE) -> None:
        self._log = KernelLog(device)
        self._reports, self._names = OomReports(), names
        try:
            self._prefix = memory_root(this_host())
        except CgroupsUnusableError:
            self._prefix = ""
        self._ledger = OomLedger(prefix=self._prefix)

    def read(self) -> list[OomKill]:
        """Kills since the last call. Several processes of one container that is killed as a whole are one."""
        before = len(self._ledger.kills)
        for data in self._log.read():
            record = kernel_record(data)
            kill = self._reports.take(record) if record is not None else None
            if kill is not None:
                ago_s = max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - kill.time_us / 1e6)
                self._ledger.logged(kill, time.time() - ago_s)
        return [named(each, self._names) for each in self._ledger.kills[before:]]

    def wait(self, timeout_s: float | None) -> bool:
        """Whether there is more to read."""
        poll = select.poll()
        poll.register(self._log.fileno(), select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def close(self) -> None:
        self._log.close()


def named(kill: OomKill, names: PodNames) -> OomKill:
    namespace, _, pod = names.pods.get(kill.pod_uid, "").rpartition("/")
    return msgspec.structs.replace(
        kill,
        namespace=namespace or kill.namespace,
        pod=pod or kill.pod,
        container=names.containers.get(kill.container_id, "") or kill.container,
    )


def shown(kill: OomKill) -> KillShown:
    known = {**msgspec.structs.asdict(kill), "container": kill.container or kill.container_id[:12]}
    return KillShown(**known, sentence=oom_sentence(OomKill(**known)))


def counted_kills(logged: Iterable[OomKill], names: PodNames, now_s: float) -> list[OomKill]:
    """Kills that only the counters of running containers have: the log was overwritten, or cannot be read."""
    try:
        driver = open_cgroupfs(this_host())
    except (CgroupsUnusableError, PlimsollError, OSError):
        return []
    try:
        roots = [path for path in _below(driver.children, "", DEEPEST) if owner_of(path).kind == "pods"]
        counters = {
            path: standing.oom_kills
            for root in roots
            for path, standing in live_tree(driver, root).items()
            if owner_of(path).kind == "container" and standing.oom_kills
        }
    finally:
        driver.close()
    return missing_kills(counters, logged, names, now_s)


def missing_kills(
    counters: Mapping[str, int | None], logged: Iterable[OomKill], names: PodNames, now_s: float
) -> list[OomKill]:
    """`counters`: path of a container → processes killed in it."""
    known: Counter[str] = Counter()
    for kill in logged:
        known[kill.container_id] += kill.killed
    found = []
    for path, count in counters.items():
        owner = owner_of(path)
        more = (count or 0) - known[owner.container_id]
        if more > 0:
            kill = OomKill(now_s, "counters", "unknown", owner.pod_uid, container_id=owner.container_id, killed=more)
            found.append(named(kill, names))
    return found


def _below(children: Callable[[str], list[str]], path: str, depth: int) -> Iterable[str]:
    for name in children(path or "/"):
        inner = f"{path}/{name}"
        yield inner
        if depth > 1 and owner_of(inner).kind == "other":
            yield from _below(children, inner, depth - 1)


# --- the journal ---


def read_journal(path: Path) -> list[OomKill]:
    """The kills in it; a line that was cut off by a crash is left out. Raises JournalError."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=OomKill))
        except msgspec.MsgspecError:
            continue
    return found


def append(path: Path, kills: Iterable[OomKill]) -> None:
    """One line per kill, on the disk before this returns; readable only by its owner."""
    data = b"".join(msgspec.json.encode(kill) + b"\n" for kill in kills)
    if not data:
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None


def merged(journal: Iterable[OomKill], now: Iterable[OomKill]) -> list[OomKill]:
    """All kills once, oldest first; an entry of the journal has the names that were known then."""
    found = list(journal)
    for kill in now:
        if not any(_same(kill, known) for known in found):
            found.append(kill)
    return sorted(found, key=lambda each: each.time_s)


def _same(first: OomKill, second: OomKill) -> bool:
    return first.pid == second.pid and first.source == second.source and abs(first.time_s - second.time_s) < SAME_S
