"""The lock of the node agent on its state directory, and what other commands must know of the agent that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.linux.files import file_lock
from plimsoll.linux.files.state_dir import private_directory, write_private

AGENT_LOCK = "node/agent.lock"  # in the state directory
_UNENFORCED = "node/unenforced"
_OPTIONS = "node/options.json"


def take_agent_lock(home: Path, unenforced: str, options: Mapping[str, Any]) -> int:
    """The fd keeps the lock. For other commands: `unenforced`, why limits have no effect, empty if they have; and the
    `options` that describe the node, by the names of their parameters."""
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
    write_private(home / _OPTIONS, msgspec.json.encode(options))
    return lock


def options_of_agent(home: Path) -> dict[str, Any] | None:
    """What the agent that runs with this state directory was started with; None where none runs."""
    try:
        if file_lock.holder(home / AGENT_LOCK) is None:
            return None
        return msgspec.json.decode((home / _OPTIONS).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return None


def why_unenforced(home: Path) -> str:
    """Why the agent that runs with this state directory enforces no limits; empty where it does, or where none runs."""
    try:
        return (home / _UNENFORCED).read_text() if file_lock.holder(home / AGENT_LOCK) is not None else ""
    except OSError:
        return ""
