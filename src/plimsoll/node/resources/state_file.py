"""The checkpoint of a resource manager: a file in the kubelet's format that survives a restart of the agent.

A file that does not match (another policy, another machine, damaged) is refused while pods are known here, as a kubelet
refuses it. On a drained node the manager starts with a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError
from plimsoll.errors import StructuredError
from plimsoll.linux.files.atomic_file import replace_whole

log = logging.getLogger(__name__)
State = TypeVar("State")


class StateMismatchError(StructuredError):
    manager: str
    path: Path
    reason: str
    template = (
        "could not restore state from checkpoint: {reason}, please drain this node and delete the {manager} "
        'manager checkpoint file "{path}" before restarting'
    )


class StateFile(Generic[State]):
    def __init__(
        self, manager: str, path: Path, from_json: Callable[[bytes], State], to_json: Callable[[State], bytes]
    ) -> None:
        self._manager, self._path, self._from_json, self._to_json = manager, path, from_json, to_json

    def load(self, mismatch: Callable[[State], str], *, drained: bool) -> State | None:
        """None: begin without assignments. `mismatch`: why a state cannot be used here, or nothing. `drained`: no pod
        of an earlier run is known here. Raises StateMismatchError."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            state = self._from_json(data)
            reason = mismatch(state)
        except CorruptCheckpointError as error:
            reason = str(error)
        if not reason:
            return state
        if not drained:
            raise StateMismatchError(self._manager, self._path, reason)
        log.warning("%s: %s; the node is drained, starting with a new file", self._path, reason)
        return None

    def save(self, state: State) -> None:
        try:
            replace_whole(self._path, self._to_json(state))
        except OSError as error:  # continue, as a kubelet does: a full disk must not stop pods
            log.error("%s cannot be written: %s; free some space", self._path, error.strerror or error)
