"""The control files that `plimsoll attach` has set on this machine: its journal, read without its lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from plimsoll.linux.files.append_log import AppendLog, AppendLogCorruptError
from plimsoll.rules.attach.writes import Entry

STATE_DIR = Path("/run/plimsoll/attach")
JOURNAL, BOOT = "journal", "boot"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()


def stored_entry(data: bytes) -> Entry:
    """An entry of the journal; `previous` was one text at first. Raises msgspec.DecodeError."""
    fields = msgspec.json.decode(data, type=dict[str, Any])
    if isinstance(previous := fields.get("previous"), str):
        fields["previous"] = [previous]
    return msgspec.convert(fields, Entry)


def attached_values(directory: Path = STATE_DIR) -> dict[str, dict[str, str]]:
    """Path → file → value; empty if attach has not run since this boot, or if its journal cannot be read."""
    try:
        stored = AppendLog(directory / JOURNAL).read()
        if stored.get(BOOT) != msgspec.json.encode(boot_id()):
            return {}
        entries = [stored_entry(data) for key, data in stored.items() if key != BOOT]
    except (OSError, AppendLogCorruptError, msgspec.DecodeError):
        return {}
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        found.setdefault(entry.path, {})[entry.file] = entry.wanted
    return found
