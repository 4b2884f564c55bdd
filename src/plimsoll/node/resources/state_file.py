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
    """A file that cannot be read, or is of another policy (CM-28, MM-16)."""

    manager: str
    path: Path
    reason: str
    template = (
        "could not restore state from checkpoint: {reason}, please drain this node and delete the {manager} "
        'manager checkpoint file "{path}" before restarting Kubelet'
    )


class InvalidStateError(StateMismatchError):
    """A file that does not fit this machine or configuration. A kubelet logs the first part, and returns the reason."""

    template = 'invalid state, please drain node and remove policy state file "{path}": {reason}'


class StateFile(Generic[State]):
    def __init__(
        self, manager: str, path: Path, from_json: Callable[[bytes], State], to_json: Callable[[State], bytes]
    ) -> None:
        self._manager, self._path, self._from_json, self._to_json = manager, path, from_json, to_json

    def load(
        self, other_policy: Callable[[State], str], unfit: Callable[[State], str], *, drained: bool
    ) -> State | None:
        """None: begin without assignments. `other_policy`, `unfit`: why a state cannot be used here, or nothing.
        `drained`: no pod of an earlier run is known here. Raises StateMismatchError."""
        try:
            return self._checked(other_policy, unfit)
        except FileNotFoundError:
            return None
        except StateMismatchError as error:
            if not drained:
                raise
            log.warning("%s: %s; the node is drained, starting with a new file", self._path, error.reason)
            return None

    def _checked(self, other_policy: Callable[[State], str], unfit: Callable[[State], str]) -> State:
        try:
            state = self._from_json(self._path.read_bytes())
            reason = other_policy(state)
        except CorruptCheckpointError as error:
            raise StateMismatchError(self._manager, self._path, str(error)) from None
        if reason:
            raise StateMismatchError(self._manager, self._path, reason)
        if reason := unfit(state):
            raise InvalidStateError(self._manager, self._path, reason)
        return state

    def save(self, state: State) -> None:
        try:
            replace_whole(self._path, self._to_json(state))
        except OSError as error:  # continue, as a kubelet does: a full disk must not stop pods
            log.error("%s cannot be written: %s; free some space", self._path, error.strerror or error)
