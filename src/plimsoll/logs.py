"""Structured logs: one line of JSON per entry on standard error."""

from __future__ import annotations

import logging
import sys

import msgspec

from plimsoll.rules.timestamps import rfc3339_micro


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": rfc3339_micro(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
DEBUG_VERBOSITY = 4  # klog: 4 is debug level verbosity


def level_of(name: str | None, verbosity: int | None) -> int:
    """The level of `--log-level` and `-v`: informations by default, everything from -v 4 on."""
    if verbosity is not None:
        return logging.DEBUG if verbosity >= DEBUG_VERBOSITY else logging.INFO
    return LEVELS[name or "info"]


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Remembers whether the last line could be written."""

    fault = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.fault = ""
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        self.fault = f"the last line was not written: {sys.exception()}"


def fault() -> str:
    """Why the log was not written; empty if it was."""
    return next((each.fault for each in logging.getLogger().handlers if isinstance(each, _Handler)), "")


def log_to_stderr(level: int = logging.INFO) -> None:
    handler = _Handler(sys.stderr)
    handler.setFormatter(_JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
