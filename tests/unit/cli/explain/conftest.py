"""Fixtures of the tests of `plimsoll explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.strategies import Json


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes | Json, name: str = "m.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, dict):
            text = json.dumps(text)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write
