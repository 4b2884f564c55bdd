"""The lock of the node agent on its state directory, and whether that agent enforces limits."""

from __future__ import annotations

from pathlib import Path

from plimsoll.errors import PlimsollError
from plimsoll.linux.files import file_lock
from plimsoll.linux.files.state_dir import private_directory, write_private

AGENT_LOCK = "node/agent.lock"  # in the state directory
_UNENFORCED = "node/unenforced"


def take_agent_lock(home: Path, unenforced: str) -> int:
    """The fd keeps the lock. `unenforced`: why limits have no effect, for other commands; empty if they have."""
    private_directory(private_directory(home) / "node")
    try:
        lock = file_lock.take(home / AGENT_LOCK)
    except file_lock.LockedError as error:
        raise PlimsollError(
            f"a node agent already runs with the state directory {home} (process {error.pid or 'unknown'}): "
            "stop it first, or give another --state-dir"
        ) from None
    if unenforced:
        write_private(home / _UNENFORCED, unenforced.encode())
    else:
        (home / _UNENFORCED).unlink(missing_ok=True)
    return lock


def why_unenforced(home: Path) -> str:
    """Why the agent that runs with this state directory enforces no limits; empty where it does, or where none runs."""
    try:
        return (home / _UNENFORCED).read_text() if file_lock.holder(home / AGENT_LOCK) is not None else ""
    except OSError:
        return ""
