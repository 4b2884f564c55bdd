"""What on this machine is ours: the state file, and the two questions that are asked before anything is touched.

Every cgroup that we make is marked with its path, its inode and the boot it was made in; a cgroup of the same name with
another inode is somebody else's. Values that we change in cgroups that were there before are kept, for teardown. The
pods we have made cgroups for are kept too, since the sums above them are sums over all of them. What a plan changes is
written at once, and the plan counts as made when it has been (`committed`). As in `journal`, nothing is synced.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.engine.journal import Stamp, StateWriteError, is_from_before_this_boot, stamp
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.errors import PlimsollError
from plimsoll.linux.append_log import MembersFile
from plimsoll.rules.model.objects import Pod


class ForeignTreeError(PlimsollError):
    """Cgroups that we did not make stand where ours would."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} exists and was not made by plimsoll: choose another place with --cgroup-root"


class OtherNodeError(PlimsollError):
    """The state is that of a node which stands elsewhere, or which another driver has made."""

    def __init__(self, state: Path, there: str, asked: str) -> None:
        super().__init__(state, there, asked)
        self.state, self.there, self.asked = state, there, asked

    def __str__(self) -> str:
        return (
            f"{self.state} is the state of the node at {self.there}, not of one at {self.asked}: give that node's "
            "--cgroup-root and --driver, or another --state-dir"
        )


class KubeletRunningError(PlimsollError):
    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid

    def __str__(self) -> str:
        return f"a kubelet runs on this machine (pid {self.pid}): choose another place with --cgroup-root"


class StateCorruptError(PlimsollError):
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


class OwnedCgroup(msgspec.Struct, frozen=True, omit_defaults=True):
    inode: int
    level: str = (
        ""  # as in `rules.cgroups.desired_files`; below a pod or container whatever its processes made goes with it
    )


class NodeState(msgspec.Struct, frozen=True):
    boot_id: str = ""
    committed: int = 0  # the last plan in the journal whose result is in here
    made: dict[str, OwnedCgroup] = {}  # by path
    kept: dict[str, dict[str, str]] = {}  # path → file → what stood there before us
    pods: dict[str, KnownPod] = {}  # by uid


class _StoredPod(msgspec.Struct, omit_defaults=True):
    pod: msgspec.Raw
    containers: dict[str, str]
    lifted: dict[str, str] = {}
    cpus: dict[str, str] = {}


# The members of the file: these two, then each cgroup by its path and each pod by its uid.
_PLAN, _KEPT, _MADE, _POD = "plan", "kept", "made ", "pod "


class _Plan(msgspec.Struct):
    boot_id: str
    committed: int


class StateFile:
    def __init__(self, path: Path, boot_id: str) -> None:
        self._file = MembersFile(path)
        self._boot_id = boot_id
        self._kept = NodeState()  # what the file says
        self._stamp: Stamp | None = None  # … and when it was seen to

    def load(self) -> NodeState:
        """Of an earlier boot nothing is left but the number of the last plan. A file that we know is not read again."""
        now = stamp(self._file.path)
        if now is not None and now == self._stamp:
            return self._kept
        self._kept, self._stamp = NodeState(), None
        try:
            found = state_in(self._file.read())
        except FileNotFoundError:
            return NodeState(self._boot_id)
        except (msgspec.DecodeError, PlimsollError) as error:
            self._file.begin_anew()
            if is_from_before_this_boot(self._file.path):  # a power cut has damaged it: nothing of it is there any more
                return NodeState(self._boot_id)
            raise StateCorruptError(self._file.path, str(error)) from None
        if found.boot_id != self._boot_id:
            self._file.begin_anew()
            return NodeState(self._boot_id, found.committed)
        self._kept, self._stamp = found, now
        return found

    def save(self, state: NodeState) -> None:
        path = self._file.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._file.write(_changed(self._kept, state))
        except OSError as error:
            raise StateWriteError(path, error) from error
        self._kept, self._stamp = state, stamp(path)


def state_in(members: Mapping[str, bytes]) -> NodeState:
    """Of whatever boot."""
    plan = msgspec.json.decode(members.get(_PLAN, b"null"), type=_Plan)
    kept = msgspec.json.decode(members.get(_KEPT, b"{}"), type=dict[str, dict[str, str]])
    made = {
        name.removeprefix(_MADE): msgspec.json.decode(text, type=OwnedCgroup)
        for name, text in members.items()
        if name.startswith(_MADE)
    }
    pods = [_known_pod(text) for name, text in members.items() if name.startswith(_POD)]
    return NodeState(plan.boot_id, plan.committed, made, kept, {each.uid: each for each in pods})


def _known_pod(text: bytes) -> KnownPod:
    found = msgspec.json.decode(text, type=_StoredPod)
    return KnownPod(pod_from_json(bytes(found.pod)), found.containers, found.lifted, found.cpus)


def _changed(before: NodeState, after: NodeState) -> dict[str, bytes | None]:
    """The members that are others; whatever is the same object is the same."""
    found: dict[str, bytes | None] = {
        _PLAN: msgspec.json.encode(_Plan(after.boot_id, after.committed)),
    }
    if after.kept != before.kept:
        found[_KEPT] = msgspec.json.encode(after.kept)
    if after.made is not before.made:
        found |= {_MADE + path: None for path in before.made.keys() - after.made.keys()}
        found |= {
            _MADE + path: msgspec.json.encode(mark)
            for path, mark in after.made.items()
            if before.made.get(path) != mark
        }
    if after.pods is not before.pods:
        found |= {_POD + uid: None for uid in before.pods.keys() - after.pods.keys()}
        found |= {
            _POD + uid: _pod_text(known) for uid, known in after.pods.items() if before.pods.get(uid) is not known
        }
    return found


def _pod_text(known: KnownPod) -> bytes:
    pod = msgspec.Raw(msgspec.json.encode(known.pod, enc_hook=str))
    return msgspec.json.encode(_StoredPod(pod, known.containers, known.lifted, known.cpus))


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
