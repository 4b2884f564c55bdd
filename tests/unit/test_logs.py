"""Structured logs on standard error."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from plimsoll.logs import level_of, log_to_stderr


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_entry_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    record = logging.LogRecord("plimsoll.node", logging.WARNING, "f", 1, "pod %s:\nfailed", ("web",), None)
    record.created = 1_700_000_000.25
    logging.getLogger().handle(record)
    assert json.loads(capsys.readouterr().err.removesuffix("\n")) == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "warning",
        "logger": "plimsoll.node",
        "message": "pod web:\nfailed",
    }


def test_an_exception_is_part_of_its_entry(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["error"].endswith("ValueError: no")


def test_entries_below_the_level_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(logging.WARNING)
    logging.getLogger("x").info("hidden")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "verbosity", "level"),
    [
        (None, None, logging.INFO),
        ("error", None, logging.ERROR),
        ("debug", None, logging.DEBUG),
        (None, 0, logging.INFO),
        (None, 3, logging.INFO),
        (None, 4, logging.DEBUG),
        (None, 10, logging.DEBUG),
    ],
)
def test_the_level_of_the_options(name: str | None, verbosity: int | None, level: int) -> None:
    assert level_of(name, verbosity) == level
