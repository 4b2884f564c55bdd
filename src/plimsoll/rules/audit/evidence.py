"""What is known about one node: pods and Node of the API, and what was read on the node itself.

Everything is optional, because every source can be missing: a dump by kubectl has no cgroups, a container without
hostPID sees no processes. `NodeEvidence.lacks` says why a part is missing, so that a rule answers "cannot tell" with
that reason and never passes in silence.

Texts of control files are as the kernel shows them. Nothing here contains secrets: the collectors leave out
environments (apart from a few variables of language runtimes), arguments and volumes' contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from plimsoll.rules.applications.answer import App
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import Node, Pod, ResourceList, Resources

# The parts that rules need.
Part = Literal[
    "node",
    "pods",
    "configuration",
    "kernel",
    "cgroups",
    "processes",
    "applications",
    "cpu manager state",
]

# `file:key` of the counters that are read: what the rules need, and no more.
COUNTERS = {
    "memory.stat": ("anon", "file", "total_cache", "total_rss"),
    "memory.events": ("high", "max", "oom_kill"),
    "cpu.stat": ("usage_usec", "nr_periods", "nr_throttled", "throttled_usec", "throttled_time"),
}

Files = Mapping[str, str]  # control file → text


class KernelFacts(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """None or empty: not known."""

    release: str
    cgroup_version: CgroupVersion
    cpus: int
    memory_bytes: int
    controllers: tuple[str, ...] = ()
    psi: bool | None = None
    reclaim: bool | None = None  # memory.reclaim exists
    recursive_protection: bool | None = None  # cgroup2 is mounted with memory_recursiveprot
    pid_max: int | None = None
    threads_max: int | None = None
    page_size: int = 4096
    swap_bytes: int = 0
    release_agents: dict[str, str] = {}  # v1: controllers of a hierarchy → the program that its root names
    listed_in_proc: bool | None = None  # /proc/cgroups lists the memory controller
    cpu_stall_percent: float | None = None  # of the whole machine, the last minute


class KubeletFacts(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`flags`: by the name of the setting, the texts of its flag on the command line of the running process."""

    document: JsonObject = {}
    source: str = ""  # /configz, a file
    shown_by_node: bool = False  # by /configz: defaults are written out
    flags: dict[str, list[str]] = {}
    version: str = ""


class Application(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The language runtime of a process. `settings`: its flags and variables that concern memory, CPUs and threads."""

    app: App
    version: str = ""  # empty: not known
    settings: dict[str, str] = {}


class ProcessFacts(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    pid: int
    cgroup: str  # on v1 that of the memory controller
    name: str
    oom_score_adj: int | None = None
    first: bool = False  # the container's first process
    threads: int = 0
    cgroups_writable: bool | None = None  # it sees a cgroup file system that it may write
    application: Application | None = None


class CpuManagerFacts(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The CPU manager's state file; lists of CPUs as the kernel writes them."""

    policy: str
    shared: str = ""
    owned: dict[str, dict[str, str]] = {}  # uid → container → CPUs


class Overwrite(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A control file that changed between two observations of one cgroup."""

    path: str
    file: str
    before: str
    after: str
    time_s: float


class NodeRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What was read on the node itself; a dump contains it."""

    time_s: float = 0.0
    kernel: KernelFacts | None = None
    kubelet: KubeletFacts | None = None
    kubelet_version: str = ""  # if it is known otherwise than from the Node
    runtime: str = ""  # containerd://2.1.0, as the Node shows it
    oci_runtime: str = ""  # runc 1.3.2
    cgroups: dict[str, dict[str, str]] | None = None
    processes: tuple[ProcessFacts, ...] | None = None
    counters: dict[
        str, dict[str, int]
    ] = {}  # path → figures of memory.stat, memory.events and cpu.stat, see `COUNTERS`
    cpu_manager: CpuManagerFacts | None = None
    memory_manager_policy: str = ""  # of its state file
    attached: dict[str, dict[str, str]] = {}  # path → file → value: what `plimsoll attach` has set
    overwrites: tuple[Overwrite, ...] | None = None
    watched_s: float = 0.0
    unread: dict[str, str] = {}  # part → why it could not be read


class ContainerFacts(msgspec.Struct, frozen=True, gc=False):
    """One entry of the container statuses."""

    name: str
    id: str = ""
    state: Literal["running", "waiting", "terminated", ""] = ""
    restarts: int = 0
    last_reason: str = ""  # why it ended the last time: OOMKilled
    allocated: ResourceList | None = None
    actual: Resources | None = None


class ConditionFacts(msgspec.Struct, frozen=True, gc=False):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    since_s: float | None = None


class AuditedPod(msgspec.Struct, frozen=True):
    """A pod with what the lean object leaves out. The uid of a static pod is that of its cgroup."""

    pod: Pod
    containers: Mapping[str, ContainerFacts] = {}
    conditions: tuple[ConditionFacts, ...] = ()
    mounts: Mapping[str, tuple[str, ...]] = {}  # container → its volumes
    privileged: frozenset[str] = frozenset()
    observed_generation: int | None = (
        None  # of the spec that the kubelet has seen; None: it does not say so (up to 1.33)
    )
    resized_s: float | None = None  # when a resize was last requested

    @property
    def is_unseen(self) -> bool:
        """Whether the kubelet has not yet seen the newest spec."""
        return self.observed_generation is not None and self.observed_generation < self.pod.metadata.generation

    @property
    def title(self) -> str:
        return f"{self.pod.metadata.namespace or 'default'}/{self.pod.metadata.name}"


class NodeEvidence(msgspec.Struct, frozen=True):
    name: str
    record: NodeRecord = NodeRecord()
    node: Node | None = None
    pods: tuple[AuditedPod, ...] | None = None

    def lacks(self, part: Part) -> str:
        """Why the part is missing; empty if it is there."""
        record = self.record
        there: bool
        match part:
            case "node":
                there = self.node is not None
            case "pods":
                there = self.pods is not None
            case "configuration":
                there = record.kubelet is not None
            case "kernel":
                there = record.kernel is not None
            case "cgroups":
                there = record.cgroups is not None
            case "processes" | "applications":
                there = record.processes is not None
            case "cpu manager state":
                there = record.cpu_manager is not None
        if there:
            return ""
        return record.unread.get(part) or _MISSING[part]


_ON_THE_NODE = "run `plimsoll audit` on the node, or `plimsoll audit --dump DIR` there"
_MISSING: dict[Part, str] = {
    "node": "the Node object was not read",
    "pods": "the pods of the node were not read",
    "configuration": f"the kubelet's configuration was not read: {_ON_THE_NODE}, or add configz/NODE.json to the dump",
    "kernel": f"nothing was read on the node: {_ON_THE_NODE}",
    "cgroups": f"the cgroups of the node were not read: {_ON_THE_NODE}",
    "processes": f"the processes of the node were not read: {_ON_THE_NODE}, with hostPID if it is in a container",
    "applications": f"the processes of the node were not read: {_ON_THE_NODE}, with hostPID if it is in a container",
    "cpu manager state": "the CPU manager's state file was not read: mount /var/lib/kubelet, or run on the node",
}
