"""The users of pods with `hostUsers: false`: each has its own range of the host's users and groups.

A range is recorded in the pod's directory, in the kubelet's form, until the pod's files are removed. The first range
begins at `idsPerPod` (65536): the host's own users are never in one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from plimsoll.linux.files.atomic_file import replace_whole
from plimsoll.node.volumes.pod_dirs import make_directory, pod_directory, pods_on_disk
from plimsoll.runtime.interface import RuntimeCallError, UserRange

_LAST = 2**32 - 2  # the largest user of Linux


class _Mapping(msgspec.Struct, rename="camel"):
    host_id: int
    container_id: int
    length: int


class _Recorded(msgspec.Struct, rename={"uids": "uidMappings", "gids": "gidMappings"}):
    uids: list[_Mapping]
    gids: list[_Mapping]


class UserNamespaces:
    def __init__(self, state: Path, ids_per_pod: int) -> None:
        self._state, self._length = state, ids_per_pod

    def of_pod(self, uid: str) -> UserRange:
        """The pod's range, allocated at the first call. Raises RuntimeCallError if there is none left."""
        found = self._recorded(uid)
        if found is not None:
            return found
        taken = {each.first for each in map(self._recorded, pods_on_disk(self._state)) if each is not None}
        first = self._length
        while first in taken:
            first += self._length
        if first + self._length - 1 > _LAST:
            raise RuntimeCallError("user namespace", "could not find an empty slot to allocate a user namespace")
        mapping = [_Mapping(first, 0, self._length)]
        make_directory(pod_directory(self._state, uid))
        replace_whole(self._file(uid), msgspec.json.encode(_Recorded(mapping, mapping)))
        return UserRange(first, self._length)

    def _recorded(self, uid: str) -> UserRange | None:
        try:
            recorded = msgspec.json.decode(self._file(uid).read_bytes(), type=_Recorded)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        (mapping,) = recorded.uids
        return UserRange(mapping.host_id, mapping.length)

    def _file(self, uid: str) -> Path:
        return pod_directory(self._state, uid) / "userns"
