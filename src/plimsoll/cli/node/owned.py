"""What containers of this machine own exclusively, from the checkpoints of the node: CPUs, memory and devices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from plimsoll.codec.owners import CPU_STATE, DEVICE_STATE, MEMORY_STATE, Key, Owned, owned_in
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.state_dir import UnsafeStateError, state_home
from plimsoll.rules.cgroups.view import Branch, Standing


def owned_here(state_dir: Path | None) -> dict[Key, Owned]:
    """Empty where there is no node, or where its files cannot be read."""
    found: dict[str, bytes] = {}
    try:
        home = state_dir or state_home(dict(os.environ), os.geteuid())
        for name in (CPU_STATE, MEMORY_STATE, DEVICE_STATE):
            with suppress(FileNotFoundError):
                found[name] = (home / "node" / name).read_bytes()
        return owned_in(found)
    except (OSError, UnsafeStateError, PlimsollError):
        return {}


def with_owners(
    standings: Mapping[str, Standing], rows: Iterable[Branch], owned: Mapping[Key, Owned], names: Mapping[str, str]
) -> dict[str, Standing]:
    """`names`: container id → name."""
    changed = dict(standings)
    for row in rows:
        own = owned.get((row.owner.pod_uid, names.get(row.owner.container_id, ""))) if row.what == "container" else None
        if own is not None and row.path in changed:
            changed[row.path] = msgspec.structs.replace(changed[row.path], owns=tuple(own.words()))
    return changed
