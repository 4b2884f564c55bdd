"""The locks of a state directory: one `up`, one API server and one node agent may use it at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from plimsoll.errors import PlimsollError
from plimsoll.linux.files import file_lock
from plimsoll.node.agent_lock import AGENT_LOCK

UP = "up.lock"
STORE = "store/lock"


class Holder(NamedTuple):
    """A process that uses the state directory."""

    name: str
    state: Path
    lock: str
    pid: int


def holders(state: Path) -> Iterator[Holder]:
    """The processes that use it now; `up` first, because it ends the others."""
    for name, file in (("plimsoll up", UP), ("plimsoll node", AGENT_LOCK), ("plimsoll api", STORE)):
        if (pid := file_lock.holder(state / file)) is not None:
            yield Holder(name, state, file, pid)


def taken(state: Path) -> int:
    """Take the lock of `up`; the fd keeps it. Raises PlimsollError where a cluster, or a part of one, runs already."""
    for holder in holders(state):
        raise PlimsollError(_message(state, holder))
    try:
        return file_lock.take(state / UP)
    except file_lock.LockedError as error:
        raise PlimsollError(_message(state, Holder("plimsoll up", state, UP, error.pid or 0))) from None


def _message(state: Path, holder: Holder) -> str:
    what = "a cluster" if holder.lock == UP else f"`{holder.name}`"
    how = f"kill {holder.pid}" if holder.pid else "Ctrl-C in its terminal"
    return "\n".join(
        [
            f"{what} already runs here (process {holder.pid or 'unknown'}, state directory {state}).",
            f"  To use it:   export KUBECONFIG={state / 'admin.kubeconfig'}",
            f"  To stop it:  {how}",
            "  To start another one:  plimsoll up --state-dir DIR --cgroup-root /NAME",
        ]
    )
