"""memory.high of 1.22 to 1.26 (02 §6.1), with the factor that those releases had by default: 0.8."""

from __future__ import annotations

import pytest

from plimsoll.rules.resources.memory import memory_high_1_22

MI = 1 << 20


@pytest.mark.parametrize(
    ("request_bytes", "limit_bytes", "allocatable_bytes", "expected"),
    [
        pytest.param(300 * MI, 400 * MI, None, 335544320, id="0.8 of the limit"),
        pytest.param(100 * MI, 0, 1000 * MI, 838860800, id="0.8 of node allocatable"),
        pytest.param(350 * MI, 400 * MI, None, None, id="below the request"),
        pytest.param(0, 0, None, None, id="neither"),
    ],
)
def test_by_default(request_bytes: int, limit_bytes: int, allocatable_bytes: int | None, expected: int | None) -> None:
    assert memory_high_1_22(request_bytes, limit_bytes, allocatable_bytes) == expected
