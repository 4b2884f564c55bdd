"""The control files that `plimsoll attach` has set on this machine: its journal, read without its lock."""

from __future__ import annotations

from pathlib import Path

import msgspec

from plimsoll.linux.files.append_log import AppendLog, AppendLogCorruptError
from plimsoll.rules.attach.writes import Entry

STATE_DIR = Path("/run/plimsoll/attach")
JOURNAL, BOOT = "journal", "boot"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def attached_values(directory: Path = STATE_DIR) -> dict[str, dict[str, str]]:
    """Path → file → value; empty if attach has not run since this boot, or if its journal cannot be read."""
    try:
        stored = AppendLog(directory / JOURNAL).read()
        boot_id = msgspec.json.encode(BOOT_ID.read_text(encoding="ascii").strip())
        if stored.get(BOOT) != boot_id:
            return {}
        entries = [msgspec.json.decode(data, type=Entry) for key, data in stored.items() if key != BOOT]
    except (OSError, AppendLogCorruptError, msgspec.DecodeError):
        return {}
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        found.setdefault(entry.path, {})[entry.file] = entry.wanted
    return found
