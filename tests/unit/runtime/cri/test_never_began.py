"""Which exits were none: a start that was cut off has not run, whatever the runtime calls it."""

from __future__ import annotations

import pytest

from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.answers import never_began

TASK = "failed to create containerd task"
CASES = [
    pytest.param(m.EXITED, 0, f"{TASK}: failed to start shim: start failed: : context canceled", True, id="agent-gone"),
    pytest.param(m.EXITED, 0, f"{TASK}: failed to create shim task: context canceled: unknown", True, id="in-the-shim"),
    pytest.param(m.EXITED, 0, f"{TASK}: task 3a34: already exists", True, id="runtime-gone"),
    pytest.param(m.EXITED, 0, f"{TASK}: failed to start shim: mkdir /s/99: file exists: unknown", True, id="leftovers"),
    pytest.param(
        m.EXITED,
        0,
        f"{TASK}: failed to create shim task: OCI runtime create failed: no such file",
        False,
        id="no-command",
    ),
    pytest.param(m.EXITED, 1, "", False, id="it-has-run"),
    pytest.param(m.RUNNING, 1, "", False, id="it-runs"),
    pytest.param(m.CREATED, 0, "", False, id="not-started-yet"),
]


def test_an_exit_without_a_reported_start_is_an_exit() -> None:
    assert not never_began(m.ContainerStatus(state=m.EXITED, reason="Error", exit_code=1))


@pytest.mark.parametrize(("state", "started_at", "message", "expected"), CASES)
def test_never_began(state: int, started_at: int, message: str, expected: bool) -> None:
    status = m.ContainerStatus(state=state, started_at=started_at, message=message, reason="StartError", exit_code=128)
    assert never_began(status) is expected
