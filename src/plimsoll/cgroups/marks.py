"""What on this machine is ours: the state file, and the two questions that are asked before anything is touched.

Every cgroup that we make is marked with its path, its inode and the boot it was made in; a cgroup of the same name with
another inode is somebody else's. Values that we change in cgroups that were there before are kept, for teardown. The
pods we have made cgroups for are kept too, since the sums above them are sums over all of them. The file is replaced as
a whole; a plan counts as made when it has been (`committed`). As in `journal`, nothing is synced to the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.journal import StateUnwritable, is_from_before_this_boot, stamp
from plimsoll.codec.lean import pod_from_json
from plimsoll.errors import PlimsollError
from plimsoll.linux.whole_file import read_whole, replace_whole
from plimsoll.rules.objects import Pod


class ForeignTree(PlimsollError):
    """Cgroups that we did not make stand where ours would."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} exists and was not made by plimsoll: choose another place with --cgroup-root"


class OtherNode(PlimsollError):
    """The state is that of a node which stands elsewhere, or which another driver has made."""

    def __init__(self, state: Path, there: str, asked: str) -> None:
        super().__init__(state, there, asked)
        self.state, self.there, self.asked = state, there, asked

    def __str__(self) -> str:
        return (
            f"{self.state} is the state of the node at {self.there}, not of one at {self.asked}: give that node's "
            "--cgroup-root and --driver, or another --state-dir"
        )


class KubeletRuns(PlimsollError):
    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid

    def __str__(self) -> str:
        return f"a kubelet runs on this machine (pid {self.pid}): choose another place with --cgroup-root"


class StateDamaged(PlimsollError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.reason}; without it nobody knows which cgroups are ours to touch"


class KnownPod(msgspec.Struct, frozen=True):
    """A pod that has cgroups here; `containers`: name → id of those containers that have one.

    `lifted`: container id → memory.high that stands in place of the rules', for as long as that container runs.
    `cpus`: container name → the list of CPUs it runs on, under the static CPU policy.
    """

    pod: Pod
    containers: dict[str, str]
    lifted: dict[str, str] = {}
    cpus: dict[str, str] = {}

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    inode: int
    level: str = ""  # as in `rules.wanted`; below a pod or container whatever its processes made goes with it


class NodeState(msgspec.Struct, frozen=True):
    boot_id: str = ""
    committed: int = 0  # the last plan in the journal whose result is in here
    made: dict[str, Mark] = {}  # by path
    kept: dict[str, dict[str, str]] = {}  # path → file → what stood there before us
    pods: dict[str, KnownPod] = {}  # by uid


class _StoredPod(msgspec.Struct, omit_defaults=True):
    pod: msgspec.Raw
    containers: dict[str, str]
    lifted: dict[str, str] = {}
    cpus: dict[str, str] = {}


class _Stored(msgspec.Struct):
    boot_id: str
    committed: int
    made: msgspec.Raw
    kept: dict[str, dict[str, str]]
    pods: list[msgspec.Raw]


class StateFile:
    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._known: tuple[tuple[int, int, int], NodeState] | None = None
        # Turned into JSON once, not each time that something else changes; most plans make no cgroup.
        self._made: tuple[dict[str, Mark], msgspec.Raw] = ({}, msgspec.Raw(b"{}"))
        self._encoded: dict[str, tuple[KnownPod, msgspec.Raw]] = {}

    def load(self) -> NodeState:
        """Of an earlier boot nothing is left but the number of the last plan. A file we wrote is not read again."""
        if self._known is not None and self._known[0] == stamp(self._path):
            return self._known[1]
        try:
            data = read_whole(self._path)
        except FileNotFoundError:
            return NodeState(self._boot_id)
        try:
            stored = msgspec.json.decode(data, type=_Stored)
            made = msgspec.json.decode(bytes(stored.made), type=dict[str, Mark])
            found = [msgspec.json.decode(bytes(each), type=_StoredPod) for each in stored.pods]
            pods = [KnownPod(pod_from_json(bytes(each.pod)), each.containers, each.lifted, each.cpus) for each in found]
        except (msgspec.DecodeError, PlimsollError) as error:
            if is_from_before_this_boot(self._path):  # a power cut has damaged it: nothing of it is there any more
                return NodeState(self._boot_id)
            raise StateDamaged(self._path, str(error)) from None
        if stored.boot_id != self._boot_id:
            return NodeState(self._boot_id, stored.committed)
        return NodeState(self._boot_id, stored.committed, made, stored.kept, {each.uid: each for each in pods})

    def save(self, state: NodeState) -> None:
        if self._made[0] is not state.made:
            self._made = (state.made, msgspec.Raw(msgspec.json.encode(state.made)))
        stored = _Stored(state.boot_id, state.committed, self._made[1], state.kept, self._stored(state.pods))
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            replace_whole(self._path, msgspec.json.encode(stored))
        except OSError as error:
            raise StateUnwritable(self._path, error) from error
        written = stamp(self._path)
        self._known = (written, state) if written is not None else None

    def _stored(self, pods: Mapping[str, KnownPod]) -> list[msgspec.Raw]:
        before, self._encoded = self._encoded, {}
        for uid, known in pods.items():
            kept = before.get(uid)
            self._encoded[uid] = kept if kept is not None and kept[0] is known else (known, _pod_text(known))
        return [text for _, text in self._encoded.values()]


def _pod_text(known: KnownPod) -> msgspec.Raw:
    pod = msgspec.Raw(msgspec.json.encode(known.pod, enc_hook=str))
    return msgspec.Raw(msgspec.json.encode(_StoredPod(pod, known.containers, known.lifted, known.cpus)))


def is_ours(state: NodeState, path: str, inode: int) -> bool:
    """It bears our mark: the same path and the same inode."""
    mark = state.made.get(path)
    return mark is not None and mark.inode == inode


def running_kubelet(proc: Path = Path("/proc")) -> int | None:
    """The pid of a process named kubelet, if there is one."""
    for directory in proc.iterdir():
        if not directory.name.isdigit():
            continue
        try:
            name = (directory / "comm").read_text().strip()
        except OSError:  # it has ended
            continue
        if name == "kubelet":
            return int(directory.name)
    return None


def this_boot(proc: Path = Path("/proc")) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()
