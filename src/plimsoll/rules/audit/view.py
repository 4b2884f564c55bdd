"""One node as the rules see it: the expected tree, from the functions of `explain`, and the observed tree, joined.

    evidence ─▶ profile, configuration ─▶ NodeConfig ─▶ workloads ─▶ expected tree ─┐
    evidence ─▶ observed cgroups ─▶ owners, effective values ──────────────────────┴▶ `places`: one per cgroup

What cannot be computed is a sentence in `problem` or in `unreadable`, never an empty result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.rules.audit.evidence import AuditedPod, ContainerFacts, Files, NodeEvidence, ProcessFacts
from plimsoll.rules.audit.finding import Level
from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, owner_of
from plimsoll.rules.cgroups.desired import (
    Cgroup,
    DesiredFile,
    Effective,
    Shown,
    Workload,
    defaulted_on,
    defaulted_workload,
    desired_tree,
)
from plimsoll.rules.cgroups.desired import Level as TreeLevel
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.cgroups.reasons import Reason
from plimsoll.rules.cgroups.rounding import kept
from plimsoll.rules.config.parse import ParsedConfig
from plimsoll.rules.explain.contention import with_effective
from plimsoll.rules.explain.upgrade_node import readable
from plimsoll.rules.model.cgroup_names import Driver, Runtime, uid_errors
from plimsoll.rules.model.kernel import CgroupVersion, Weight
from plimsoll.rules.node.node_config import Machine, NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import OWN_BUILD, ChosenProfile, profile_of
from plimsoll.rules.resources.allocated_status import (
    actuated_pod,
    as_created,
    is_resize_under_way,
    is_resize_waiting,
)
from plimsoll.rules.resources.oom_score import SANDBOX_SCORE

# The first releases that write the quadratic cpu.weight (02 §4.2).
QUADRATIC_SINCE = {"runc": (1, 3, 2), "crun": (1, 23, 0)}
_OCI_RUNTIME = re.compile(r"(runc|crun)(?: version)? v?(\d+)\.(\d+)(?:\.(\d+))?")
_RUNTIMES: dict[str, Runtime] = {"containerd": "containerd", "cri-o": "crio", "plimsoll": "process"}
_LEVELS: dict[str, TreeLevel] = {"pods": "pods", "class": "class", "pod": "pod", "container": "container"}
_ENDED = ("Succeeded", "Failed")


class Place(msgspec.Struct, frozen=True):
    """One cgroup that the node should have. `observed` is None if there is none."""

    level: Level
    subject: str
    cgroup: Cgroup
    observed: Files | None
    effective: Effective | None = None
    pod: AuditedPod | None = None
    work: Workload | None = None
    container: str = ""

    @property
    def path(self) -> str:
        return self.cgroup.path

    @property
    def facts(self) -> ContainerFacts | None:
        return self.pod.containers.get(self.container) if self.pod is not None else None


class NodeView:
    def __init__(self, evidence: NodeEvidence) -> None:
        self.evidence = evidence
        self.record = evidence.record
        self.unreadable: dict[str, str] = {}  # pods that cannot be computed, and why
        self.problem = ""  # why the node's values cannot be computed

    # --- the node ---

    @cached_property
    def chosen(self) -> ChosenProfile:
        return profile_of(self._version(), f"kubelet of node {self.evidence.name}")

    def _version(self) -> str:
        kubelet, node = self.record.kubelet, self.evidence.node
        if self.record.kubelet_version:
            return self.record.kubelet_version
        if kubelet is not None and kubelet.version:
            return kubelet.version
        return node.status.node_info.kubelet_version if node is not None else ""

    def _pods_are_unlimited(self) -> bool:
        tops = (path for path, owner in self.owners.items() if owner.kind == "pods")
        return all(self.observed[path].get("pids.max") == "max" for path in tops)

    @property
    def version(self) -> CgroupVersion:
        return 2 if self.record.kernel is None else self.record.kernel.cgroup_version

    @cached_property
    def parsed(self) -> ParsedConfig:
        """The configuration without what this release refuses; Plimsoll's default where none is known."""
        kubelet = self.record.kubelet
        document, flags = ({}, {}) if kubelet is None else (kubelet.document, kubelet.flags)
        parsed, _ = readable(document, self.chosen.profile, flags)
        return parsed

    @cached_property
    def setting(self) -> NodeConfig | None:
        """None if the values of this node cannot be computed; `problem` has the reason."""
        try:
            config = msgspec.structs.replace(self.parsed.config, fail_cgroup_v1=False)
            return resolved(
                self._machine(),
                config,
                self.chosen.profile,
                cgroup_version=self.version,
                driver=self.observed_driver or config.cgroup_driver,
                runtime=self.runtime,
                weight=self.weight,
                profile_reason=self.chosen.reason,
            )
        except PlimsollError as error:
            self.problem = str(error)
            return None

    def _machine(self) -> Machine:
        node, kernel = self.evidence.node, self.record.kernel
        if node is not None and node.status.capacity:
            swap = node.status.node_info.swap.capacity or (kernel.swap_bytes if kernel is not None else 0)
            machine = machine_from_capacity(node.status.capacity, name=self.evidence.name, swap_bytes=swap)
        elif kernel is not None:
            machine = Machine(kernel.cpus, kernel.memory_bytes, {}, kernel.swap_bytes, name=self.evidence.name)
        else:
            raise PlimsollError("neither the Node object nor the machine is known")
        if kernel is None:
            return machine
        pids = [number for number in (kernel.pid_max, kernel.threads_max) if number is not None]
        if OWN_BUILD in self._version() and self._pods_are_unlimited():
            pids = []  # the capacity of a Plimsoll node may be declared, and then has no number of processes
        return msgspec.structs.replace(
            machine,
            pid_capacity=min(pids, default=None),
            page_size=kernel.page_size,
            swap_controller=self.has_file("memory.swap.max") or self.has_file("memory.memsw.limit_in_bytes"),
        )

    @cached_property
    def runtime(self) -> Runtime:
        node = self.evidence.node
        named = self.record.runtime or (node.status.node_info.container_runtime_version if node is not None else "")
        known = _RUNTIMES.get(named.partition(":")[0])
        if known is not None:
            return known
        seen = (owner.runtime for owner in self.owners.values() if owner.runtime is not None)
        return next(seen, "containerd")

    @cached_property
    def weight(self) -> Weight | None:
        """How the OCI runtime converts shares; None if its version is not known."""
        found = _OCI_RUNTIME.match(self.record.oci_runtime)
        if found is None:
            return None
        version = int(found[2]), int(found[3]), int(found[4] or 0)
        return "quadratic" if version >= QUADRATIC_SINCE[found[1]] else "linear"

    # --- pods ---

    @cached_property
    def pods(self) -> tuple[AuditedPod, ...]:
        """The pods that count: not ended, and with a uid that can be the name of a cgroup."""
        found = []
        for each in self.evidence.pods or ():
            if each.pod.status.phase in _ENDED:
                continue
            errors = uid_errors(each.pod.metadata.uid)
            if errors or not each.pod.metadata.uid:
                self.unreadable[each.title] = str(errors[0]) if errors else "it has no uid"
                continue
            found.append(each)
        return tuple(found)

    @cached_property
    def by_uid(self) -> dict[str, AuditedPod]:
        return {each.pod.metadata.uid: each for each in self.pods}

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """uid → the pod with every value."""
        setting = self.setting
        found: dict[str, Workload] = {}
        for each in self.pods if setting is not None else ():
            assert setting is not None
            try:
                found[each.pod.metadata.uid] = defaulted_workload(
                    defaulted_on(each.pod, setting), setting, title=each.title
                )
            except PlimsollError as error:
                self.unreadable[each.title] = str(error)
        return found

    # --- trees ---

    @property
    def observed(self) -> Mapping[str, Files]:
        return self.record.cgroups or {}

    @cached_property
    def owners(self) -> dict[str, CgroupOwner]:
        return {path: owner_of(path) for path in self.observed}

    @cached_property
    def observed_driver(self) -> Driver | None:
        """By the names of the tree of pods; None if there is none, or one of each."""
        drivers = {owner.driver for owner in self.owners.values() if owner.kind == "pods"}
        return drivers.pop() if len(drivers) == 1 else None

    @cached_property
    def files_seen(self) -> frozenset[str]:
        return frozenset(file for files in self.observed.values() for file in files)

    def has_file(self, file: str) -> bool:
        return file in self.files_seen

    def _tree(self, *, reasons: bool, workloads: Mapping[str, Workload] | None = None) -> Cgroup | None:
        setting = self.setting
        if setting is None:
            return None
        try:
            members = list((workloads or self.workloads).values())
            return desired_tree(members, setting, Shown(container_id=self._id, reasons=reasons))
        except PlimsollError as error:
            self.problem = str(error)
            return None

    def _id(self, uid: str, container: str) -> str | None:
        facts = self.by_uid[uid].containers.get(container)
        return facts.id if facts is not None and facts.state == "running" and _is_id(facts.id) else None

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Every cgroup that the node should have now; empty if they cannot be computed."""
        tree = self._tree(reasons=False)
        return () if tree is None else tuple(self._places(tree, None))

    def _places(self, cgroup: Cgroup, pod: AuditedPod | None) -> Iterator[Place]:
        if cgroup.level == "pod":
            pod = self._pod_of(cgroup.path)
        if cgroup.level != "node" and cgroup.path.startswith("/"):
            is_class = cgroup.level in ("class", "pods", "reserved")
            level: Level = "class" if is_class else "pod" if cgroup.level == "pod" else "container"
            subject = cgroup.name if pod is None else pod.title
            if cgroup.level == "container":
                subject = f"{subject} / {cgroup.name}"
            yield Place(
                "node" if cgroup.level in ("pods", "reserved") else level,
                subject,
                cgroup,
                self.observed.get(cgroup.path),
                self.effective.get(cgroup.path),
                pod,
                self.workloads.get(pod.pod.metadata.uid) if pod is not None else None,
                cgroup.name if cgroup.level == "container" else "",
            )
        for child in cgroup.children:
            yield from self._places(child, pod)

    def _pod_of(self, path: str) -> AuditedPod | None:
        return self.by_uid.get(owner_of(path).pod_uid)

    @cached_property
    def place_at(self) -> dict[str, Place]:
        return {place.path: place for place in self.places}

    @cached_property
    def resizes(self) -> tuple[dict[str, Cgroup], ...]:
        """Path → the cgroup before and after all resizes that are under way; empty if none is.

        Until a resize has ended, a file may have the value of either: the kubelet writes pod, containers and class one
        after the other, reports it later, and keeps a memory limit while more is used than the new one. It counts a
        resize that waits in the class, within a minute. A07 reports a resize that does not end.
        """
        setting = self.setting
        moving = {uid: each for uid, each in self.workloads.items() if is_resize_under_way(each.desired)}
        if not moving or setting is None:
            return ()
        before = {uid: actuated_pod(each.pod) for uid, each in moving.items()}
        after = {uid: as_created(each.desired) for uid, each in moving.items() if not is_resize_waiting(each.desired)}
        return tuple(
            _flat(
                self._tree(
                    reasons=False,
                    workloads={
                        uid: defaulted_workload(pods[uid], setting) if uid in pods else each
                        for uid, each in self.workloads.items()
                    },
                )
            )
            for pods in (before, after)
        )

    @cached_property
    def _reasons(self) -> dict[str, dict[str, Reason]]:
        tree = _flat(self._tree(reasons=True))
        return {path: {file.name: file.reason for file in cgroup.files} for path, cgroup in tree.items()}

    def reason(self, path: str, file: str) -> Reason:
        """The formula and the source of an expected value, as `explain` prints them."""
        return self._reasons.get(path, {}).get(file, Reason())

    @cached_property
    def effective(self) -> dict[str, Effective]:
        """What each observed cgroup really gets, by the limits and protections of its ancestors and siblings."""
        children: dict[str, list[str]] = {}
        for path in self.observed:
            if path != "/":
                children.setdefault(parent_path(path), []).append(path)

        def built(path: str) -> Cgroup:
            below = tuple(built(child) for child in children.get(path, ()))
            return msgspec.structs.replace(self.observed_cgroup(path), children=below)

        tops = [path for path in self.observed if path != "/" and parent_path(path) not in self.observed]
        tops += children.get("/", []) if "/" in self.observed else []
        cpus = self.record.kernel.cpus if self.record.kernel is not None else 1
        tree = with_effective(Cgroup("node", "/", "/", children=tuple(map(built, tops))), cpus * 1000)
        return {path: each.effective for path, each in _flat(tree).items() if each.effective is not None}

    def observed_cgroup(self, path: str) -> Cgroup:
        """An observed cgroup in the form of an expected one, without children."""
        kind = self.owners[path].kind
        files = tuple(DesiredFile(name, self._amount(name, text)) for name, text in self.observed[path].items())
        return Cgroup(_LEVELS.get(kind, "reserved"), path, path, files)

    def _amount(self, name: str, text: str) -> int | str:
        if name == "cpu.max":
            return text
        shown = kept(name, text, self.page_size)
        return int(shown) if shown.isdecimal() else shown

    @property
    def page_size(self) -> int:
        return self.record.kernel.page_size if self.record.kernel is not None else 4096

    # --- processes ---

    @cached_property
    def processes_in(self) -> dict[str, list[ProcessFacts]]:
        """Cgroup → processes; those below a container's cgroup belong to the container."""
        found: dict[str, list[ProcessFacts]] = {}
        for process in self.record.processes or ():
            owner = owner_of(process.cgroup)
            path = process.cgroup
            if owner.kind == "inside":
                path = path.removesuffix(owner.inside)
            found.setdefault(path, []).append(process)
        return found

    @cached_property
    def sandboxes(self) -> frozenset[str]:
        """Cgroups of pause containers: a container's cgroup whose only process has their score or name.

        A runtime without CAP_SYS_RESOURCE cannot set that score, and a pause image may have a program of another name.
        Then one unknown container of a pod, the oldest one with the least weight, is its sandbox. CRI-O has no pause
        container for most pods, so there nothing is guessed.
        """
        single = {path: processes[0] for path, processes in self.processes_in.items() if len(processes) == 1}
        named = {path for path, each in single.items() if each.oom_score_adj == SANDBOX_SCORE or each.name == "pause"}
        if self.runtime != "containerd":
            return frozenset(named)
        done = {owner_of(path).pod_uid for path in named}
        known = {facts.id for each in self.evidence.pods or () for facts in each.containers.values()}
        for path in sorted(single, key=lambda path: single[path].pid):
            owner = owner_of(path)
            if owner.pod_uid in done or owner.container_id in known or owner.kind != "container":
                continue
            files = self.observed.get(path, {})
            if files.get("cpu.weight") == "1" or files.get("cpu.shares") == "2":
                named.add(path)
                done.add(owner.pod_uid)
        return frozenset(named)


def _flat(tree: Cgroup | None) -> dict[str, Cgroup]:
    """Path → cgroup."""
    found: dict[str, Cgroup] = {}

    def add(cgroup: Cgroup) -> None:
        found[cgroup.path] = cgroup
        for child in cgroup.children:
            add(child)

    if tree is not None:
        add(tree)
    return found


def _is_id(text: str) -> bool:
    """An id becomes a part of a path: plain characters only."""
    return bool(_ID.fullmatch(text))


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
