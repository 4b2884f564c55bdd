"""The state file: which cgroups of this machine the node owns, and the checks before any of them is touched.

For every cgroup that the node creates, the file has its path, its inode and its boot; a cgroup of the same name with
another inode is foreign. It has the original values of existing cgroups that the node changes, for teardown, and the
pods that have cgroups, since the values above are sums over all of them. The state is saved as soon as a plan is
applied, and only then the plan counts as applied (`committed`). As in `journal`, there is no fsync.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.engine.journal import Stamp, StateWriteError, is_from_before_this_boot, stamp
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.errors import PlimsollError, StructuredError
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.rules.model.objects import Pod


class ForeignTreeError(StructuredError):
    """A cgroup that this node did not create exists at a path that it needs."""

    path: str
    template = (
        "{path} exists and was not created by plimsoll: a kubelet that is stopped, or another program, may own it; "
        "choose another path with --cgroup-root /NAME"
    )


class OtherStateError(ForeignTreeError):
    """The cgroup belongs to a node of Plimsoll that keeps its state elsewhere."""

    owner: str
    template = (
        "{path} belongs to the plimsoll node with the state directory {owner}: use that node with --state-dir {owner}, "
        "remove it with `plimsoll reset --state-dir {owner}`, or choose another path with --cgroup-root /NAME"
    )


class OtherNodeError(StructuredError):
    """The state belongs to a node at another path, or with another driver."""

    state_dir: Path
    existing: str
    requested: str
    template = (
        "{state_dir} is the state of the node at {existing}, not of one at {requested}: "
        "give that node's --cgroup-root and --driver, or another --state-dir"
    )


class KubeletRunningError(StructuredError):
    pid: int
    template = (
        "a kubelet is running on this machine (pid {pid}) and owns the cgroups at the top: "
        "choose another path with --cgroup-root /NAME"
    )


class StateCorruptError(StructuredError):
    path: Path
    reason: str
    template = "{path} cannot be read: {reason}; without it plimsoll does not know which cgroups it owns"


class KnownPod(msgspec.Struct, frozen=True):
    """A pod that has cgroups here; `containers`: name → id of the containers that have one.

    `lifted`: container id → memory.high that overrides the rules while that container runs.
    `cpus`, `mems`: container name → its list of CPUs and NUMA nodes under the static CPU and memory manager policies.
    """

    pod: Pod
    containers: dict[str, str]
    lifted: dict[str, str] = {}
    cpus: dict[str, str] = {}
    mems: dict[str, str] = {}

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


class OwnedCgroup(msgspec.Struct, frozen=True, omit_defaults=True):
    inode: int
    level: str = ""  # as in `rules.cgroups.desired_files`


class NodeState(msgspec.Struct, frozen=True):
    boot_id: str = ""
    committed: int = 0  # the last plan in the journal whose result is saved here
    owned: dict[str, OwnedCgroup] = {}  # by path
    original: dict[str, dict[str, str]] = {}  # path → file → its value before the first write
    pods: dict[str, KnownPod] = {}  # by uid


class _StoredPod(msgspec.Struct, omit_defaults=True):
    pod: msgspec.Raw
    containers: dict[str, str]
    lifted: dict[str, str] = {}
    cpus: dict[str, str] = {}
    mems: dict[str, str] = {}


# The keys of the file: these two, then one for each cgroup (by path) and each pod (by uid).
_PLAN, _ORIGINAL, _OWNED, _POD = "plan", "kept", "made ", "pod "


class _Plan(msgspec.Struct):
    boot_id: str
    committed: int


class StateFile:
    def __init__(self, path: Path, boot_id: str) -> None:
        self._file = AppendLog(path)
        self._boot_id = boot_id
        self._cached = NodeState()  # the content of the file
        self._stamp: Stamp | None = None  # … as of this stamp

    def load(self) -> NodeState:
        """After a reboot only the number of the last plan is valid. An unchanged file is not read again."""
        now = stamp(self._file.path)
        if now is not None and now == self._stamp:
            return self._cached
        self._cached, self._stamp = NodeState(), None
        try:
            state = decode_state(self._file.read())
        except FileNotFoundError:
            return NodeState(self._boot_id)
        except (msgspec.DecodeError, PlimsollError) as error:
            self._file.discard()
            if is_from_before_this_boot(self._file.path):  # damaged by a power cut, which also removed the cgroups
                return NodeState(self._boot_id)
            raise StateCorruptError(self._file.path, str(error)) from None
        if state.boot_id != self._boot_id:
            self._file.discard()
            return NodeState(self._boot_id, state.committed)
        self._cached, self._stamp = state, now
        return state

    def save(self, state: NodeState) -> None:
        path = self._file.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._file.write(_changed(self._cached, state))
        except OSError as error:
            raise StateWriteError(path, error) from error
        self._cached, self._stamp = state, stamp(path)


def decode_state(entries: Mapping[str, bytes]) -> NodeState:
    """The state of any boot."""
    plan = msgspec.json.decode(entries.get(_PLAN, b"null"), type=_Plan)
    original = msgspec.json.decode(entries.get(_ORIGINAL, b"{}"), type=dict[str, dict[str, str]])
    owned = {
        key.removeprefix(_OWNED): msgspec.json.decode(text, type=OwnedCgroup)
        for key, text in entries.items()
        if key.startswith(_OWNED)
    }
    pods = [_known_pod(text) for key, text in entries.items() if key.startswith(_POD)]
    return NodeState(plan.boot_id, plan.committed, owned, original, {known.uid: known for known in pods})


def _known_pod(text: bytes) -> KnownPod:
    stored = msgspec.json.decode(text, type=_StoredPod)
    return KnownPod(pod_from_json(bytes(stored.pod)), stored.containers, stored.lifted, stored.cpus, stored.mems)


def _changed(before: NodeState, after: NodeState) -> dict[str, bytes | None]:
    """The entries that differ; None for one that is removed. The same object counts as equal."""
    entries: dict[str, bytes | None] = {_PLAN: msgspec.json.encode(_Plan(after.boot_id, after.committed))}
    if after.original != before.original:
        entries[_ORIGINAL] = msgspec.json.encode(after.original)
    if after.owned is not before.owned:
        entries |= {_OWNED + path: None for path in before.owned.keys() - after.owned.keys()}
        entries |= {
            _OWNED + path: msgspec.json.encode(cgroup)
            for path, cgroup in after.owned.items()
            if before.owned.get(path) != cgroup
        }
    if after.pods is not before.pods:
        entries |= {_POD + uid: None for uid in before.pods.keys() - after.pods.keys()}
        entries |= {
            _POD + uid: _pod_text(known) for uid, known in after.pods.items() if before.pods.get(uid) is not known
        }
    return entries


def _pod_text(known: KnownPod) -> bytes:
    pod = msgspec.Raw(msgspec.json.encode(known.pod, enc_hook=str))
    return msgspec.json.encode(_StoredPod(pod, known.containers, known.lifted, known.cpus, known.mems))


def is_owned(state: NodeState, path: str, inode: int) -> bool:
    """The node created the cgroup with this path and this inode."""
    owned = state.owned.get(path)
    return owned is not None and owned.inode == inode


def running_kubelet(proc: Path = Path("/proc")) -> int | None:
    """The pid of a process named kubelet, if there is one."""
    for directory in proc.iterdir():
        if not directory.name.isdigit():
            continue
        try:
            name = (directory / "comm").read_text().strip()
        except OSError:  # the process has ended
            continue
        if name == "kubelet":
            return int(directory.name)
    return None


def this_boot(proc: Path = Path("/proc")) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()
