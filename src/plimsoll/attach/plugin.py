"""attach's answers to the container runtime: containers get their values before their first instruction.

The runtime's own paths and annotations are not used: a container's cgroup follows from the pod's uid and the
container's id, and the policy from the pod as its source (the API, the kubelet) knows it. A container that is not of a
known pod, or whose cgroup is elsewhere, is left as it is.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from plimsoll.attach.journal import AttachJournal, JournalError
from plimsoll.attach.pods import PodBook
from plimsoll.attach.report import AttachMeters
from plimsoll.rules.attach.values import Target
from plimsoll.rules.attach.writes import Entry
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.resources.cri import KERNEL_DEFAULT
from plimsoll.runtime.nri import messages as m

# The files that are given to runtimes as `unified`, with the kernel's default for each. No burst: a runtime that writes
# what it remembers would be refused a lower quota as soon as attach is dead.
DEFAULTS = KERNEL_DEFAULT
UPDATES_UNIFIED_SINCE = (1, 7)  # containerd, the first release with this NRI; measured with 1.7.24 and 2.1.9
MOST_CONTAINERS = 100_000
SETTLED_S = 60.0  # after an answer; the runtime has carried it out long before
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
_VERSION = re.compile(r"v?(\d+)\.(\d+)")

log = logging.getLogger(__name__)


class KnownContainer(msgspec.Struct, frozen=True):
    id: str
    name: str
    uid: str
    cgroups_path: str = ""


class AttachPlugin:
    """`decide`: the target of one container, by uid, name and id. `acts`: whether a namespace's pods are changed.
    `read`: the files of a cgroup and its inode, None if there is none. `lower_bursts`: of a pod, by uid, to what
    `quotas_us` allows."""

    def __init__(
        self,
        book: PodBook,
        journal: AttachJournal,
        meters: AttachMeters,
        decide: Callable[[str, str, str], Target | None],
        acts: Callable[[str], bool],
        has: Callable[[str], bool],
        read: Callable[[str, Sequence[str]], tuple[Mapping[str, str], int] | None],
        lower_bursts: Callable[[str], Awaitable[None]],
        changed: Callable[[], None],
        page_size: int,
    ) -> None:
        self._book, self._journal, self._meters = book, journal, meters
        self._decide, self._acts, self._has, self._read, self._changed = decide, acts, has, read, changed
        self._lower_bursts, self._page_size = lower_bursts, page_size
        self.containers: dict[str, KnownContainer] = {}
        self.quotas_us: dict[str, int] = {}  # container id → the CPU quota that the runtime was asked for last
        self.runtime = ""
        self.is_synchronized = False
        self.updates_unified = True  # until the runtime is known
        self.late = 0
        self._answered_s: dict[str, float] = {}  # container id → when the runtime was last given values
        self._owned: dict[str, set[str]] = {}  # container id → files that the kubelet or another plugin sets

    def configured(self, runtime: str, version: str) -> None:
        self.runtime = f"{runtime} {version}"[:80]
        self.updates_unified = updates_unified(runtime, release_of(version))
        log.info("connected to %s", self.runtime)

    def synchronized(self, pods: Sequence[m.PodSandbox], containers: Sequence[m.Container]) -> None:
        uids = {pod.id: pod.uid for pod in pods}
        self.containers, self.quotas_us, self.is_synchronized = {}, {}, True
        self._owned = {each.id: self._owned[each.id] for each in containers if each.id in self._owned}
        self._answered_s = {each.id: self._answered_s[each.id] for each in containers if each.id in self._answered_s}
        for each in containers:
            if each.state in (m.CREATED, m.RUNNING, m.PAUSED):
                self._know(each, uids.get(each.pod_sandbox_id, ""))
        log.info("the runtime has %d pods and %d running containers", len(pods), len(self.containers))
        self._changed()

    def _know(self, container: m.Container, uid: str) -> KnownContainer | None:
        """None for what cannot be a container of a pod: its id becomes a part of a path."""
        if not _ID.fullmatch(container.id) or not uid or len(self.containers) >= MOST_CONTAINERS:
            return None
        path = container.linux.cgroups_path if container.linux is not None else ""
        known = KnownContainer(container.id, container.name, uid, path)
        self.containers[container.id] = known
        self._see_quota(container.id, container.linux.resources if container.linux is not None else None)
        return known

    def _see_quota(self, container_id: str, resources: m.LinuxResources | None) -> None:
        """0: it stays as it is; negative: no limit."""
        quota = resources.cpu.quota if resources is not None and resources.cpu is not None else None
        if quota is not None and quota.value > 0:
            self.quotas_us[container_id] = quota.value
        elif quota is not None and quota.value < 0:
            self.quotas_us.pop(container_id, None)

    async def created(self, pod: m.PodSandbox, container: m.Container) -> m.ContainerAdjustment | None:
        known = self._know(container, pod.uid)
        if known is None:
            return None
        await self._book.find(pod.uid)
        target = self._decide(pod.uid, container.name, container.id)
        if target is None or not placed_at(known.cgroups_path, target.path):
            return None
        given = container.linux or m.LinuxContainer()
        files = self._free(target, given.resources)
        score = self._raised_score(target, given)
        if not files and score is None:
            return None
        if not self._acts(self._book.pods[pod.uid].pod.metadata.namespace):
            return None
        if not self._journalled(target, files, given.resources):
            return None
        for file in files:
            self._meters.writes.add("container", file)
        resources = m.LinuxResources(unified=files) if files else None
        return m.ContainerAdjustment(m.LinuxContainerAdjustment(resources, score))

    def _free(self, target: Target, resources: m.LinuxResources | None) -> dict[str, str]:
        """The values without those of files that another plugin owns, which would fail the container, and that the
        kernel does not have, which would fail it too."""
        given = resources.unified if resources is not None else {}
        files = {}
        for file, wanted in target.files.items():
            if file not in DEFAULTS or not self._has(file):
                continue
            text = given.get(file)
            if text is not None and not self._is_usual(file, text, wanted):
                self._owned.setdefault(target.container_id, set()).add(file)
                log.warning(
                    "%s: %s is left at %s: the kubelet or another NRI plugin sets it", target.subject, file, text
                )
                continue
            if text is None or not same_value(file, wanted, text, self._page_size):
                files[file] = wanted
        return files

    def _is_usual(self, file: str, text: str, wanted: str) -> bool:
        return any(same_value(file, each, text, self._page_size) for each in (DEFAULTS[file], wanted))

    def _raised_score(self, target: Target, given: m.LinuxContainer) -> m.OptionalInt | None:
        """Only upwards: a lower score needs a capability that the runtime may not have, and would fail the start."""
        has = given.oom_score_adj.value if given.oom_score_adj is not None else 0
        return m.OptionalInt(target.score) if target.score is not None and target.score > has else None

    def _journalled(self, target: Target, files: Mapping[str, str], resources: m.LinuxResources | None) -> bool:
        """With what the files have now: an attach before may have journalled values that it did not live to send."""
        given = resources.unified if resources is not None else {}
        texts, inode = self._read(target.path, tuple(files)) or ({}, 0)
        entries = []
        for file, wanted in files.items():
            asked, text = given.get(file), texts.get(file)
            entry = self._journal.entries.get(f"{target.path}\t{file}")
            if entry is None or not entry.is_of(inode):
                entry = Entry(target.path, file, text or DEFAULTS[file], wanted, inode, target.container_id)
            if asked is not None and not entry.is_ours(asked, self._page_size):
                entry = msgspec.structs.replace(entry, before=asked)  # what the kubelet would have written
            entries.append(entry.wants(wanted, text, self._page_size))
        try:
            self._journal.record(entries)
        except JournalError as error:
            log.error("%s is left as it is: %s", target.subject, error)
            return False
        self._answered_s[target.container_id] = time.monotonic()
        return True

    async def updated(
        self, pod: m.PodSandbox, container: m.Container, resources: m.LinuxResources
    ) -> m.ContainerUpdate | None:
        """Every update is answered, so that a resize by the kubelet does not undo ours. The runtime writes the quota
        after the answer: a burst above it is lowered before."""
        known = self.containers.get(container.id) or self._know(container, pod.uid)
        if known is None:
            return None
        self._see_quota(container.id, resources)
        await self._book.find(pod.uid)
        await self._lower_bursts(pod.uid)
        target = self._decide(pod.uid, container.name, container.id)
        if target is None or not self._acts(self._book.pods[pod.uid].pod.metadata.namespace):
            return None
        files = {
            file: wanted
            for file, wanted in target.files.items()
            if file in DEFAULTS and not self.is_owned(container.id, file) and self._has(file)
        }
        if not files or not self._journalled(target, files, resources):
            return None
        return m.unified_update(container.id, files)

    def changed(self, event: int, pod: m.PodSandbox | None, container: m.Container | None) -> None:
        if container is not None:
            if event in (m.STOP_CONTAINER, m.REMOVE_CONTAINER):
                self.containers.pop(container.id, None)
                self._owned.pop(container.id, None)
                self._answered_s.pop(container.id, None)
                self.quotas_us.pop(container.id, None)
            elif pod is not None and container.id not in self.containers:
                self._know(container, pod.uid)
        self._changed()

    def answered(self, method: str, seconds: float, late: bool) -> None:
        self._meters.answers.observe(seconds, method)
        if late:
            self.late += 1
            self._meters.late.add()
            log.warning("%s is answered with no change: its pod or the disk took more than the time allowed", method)

    def unsettled(self) -> frozenset[str]:
        """Containers whose last answer the runtime may still have to carry out, after what attach asks it for now."""
        now_s = time.monotonic()
        return frozenset(each for each, time_s in self._answered_s.items() if now_s - time_s < SETTLED_S)

    def is_owned(self, container_id: str, file: str) -> bool:
        """Whether the kubelet or another plugin sets this file."""
        return file in self._owned.get(container_id, ())

    def ids(self, uid: str) -> dict[str, str]:
        """The running containers of a pod, name → id."""
        return {each.name: each.id for each in self.containers.values() if each.uid == uid}


def release_of(version: str) -> tuple[int, int]:
    """`v2.1.9` → (2, 1); (0, 0) if it is not a version."""
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def updates_unified(runtime: str, release: tuple[int, int]) -> bool:
    """Whether the runtime applies the `unified` files of a plugin's update."""
    return runtime == "containerd" and release >= UPDATES_UNIFIED_SINCE


def placed_at(cgroups_path: str, path: str) -> bool:
    """Whether the runtime puts the container where the kubelet's rules say: `/…/pod1/<id>`, or `slice:prefix:id`."""
    if cgroups_path.count(":") == 2:
        parent, prefix, container_id = cgroups_path.split(":")
        return path.endswith(f"/{parent}/{prefix}-{container_id}.scope")
    return cgroups_path == path
