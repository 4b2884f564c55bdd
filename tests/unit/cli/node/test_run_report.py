"""`plimsoll run`: the report at the end, and the exit code."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.cli.node.run import Peak, exit_code, report

Document = dict[str, Any]


def pod(phase: str, *containers: Document, **more: Any) -> Document:
    spec = {
        "containers": [
            {"name": each["name"], "resources": {"limits": {"memory": "30Mi", "cpu": "100m"}}} for each in containers
        ]
    }
    return {
        "metadata": {"name": "demo"},
        "spec": spec,
        "status": {"phase": phase, "containerStatuses": list(containers), **more},
    }


def ended(name: str, code: int, reason: str = "Error", **more: Any) -> Document:
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:04Z"}
    return {
        "name": name,
        "state": {"terminated": {"exitCode": code, "reason": reason, **times, **more}},
        "restartCount": 0,
    }


@pytest.mark.parametrize(
    ("document", "interrupted", "code"),
    [
        pytest.param(pod("Succeeded", ended("a", 0, "Completed")), False, 0, id="success"),
        pytest.param(pod("Failed", ended("a", 0, "Completed"), ended("b", 7)), False, 7, id="the first that failed"),
        pytest.param(pod("Failed", ended("a", 137, "OOMKilled")), False, 137, id="out of memory"),
        pytest.param(pod("Failed", reason="OutOfcpu", message="too little"), False, 1, id="refused"),
        pytest.param(pod("Failed", ended("a", 143)), True, 130, id="Ctrl-C"),
    ],
)
def test_exit_code(document: Document, interrupted: bool, code: int) -> None:
    assert exit_code(document, interrupted=interrupted) == code


def test_which_limit_was_hit() -> None:
    document = pod("Failed", ended("hog", 137, "OOMKilled"), ended("busy", 0, "Completed"))
    peaks = {"busy": Peak(2 << 20, 100, 60), "hog": Peak(30 << 20, 100, 4)}
    assert list(report(document, peaks)) == [
        "pod demo: Failed",
        "  hog: OOMKilled, exit code 137, after 4 s",
        "    hit its memory limit of 30Mi: the kernel killed it",
        "    used up to 30.0 MiB of memory",
        "  busy: Completed, exit code 0, after 4 s",
        "    hit its CPU limit of 100m: throttled in 60 % of the CPU periods",
        "    used up to 2.0 MiB of memory",
    ]


def test_a_container_that_did_not_run_has_a_reason() -> None:
    waiting = {
        "name": "a",
        "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
        "restartCount": 0,
    }
    document = pod("Pending", waiting)
    assert list(report(document, {}))[1] == "  a: did not run (ErrImagePull: no such image)"


def test_restarts_and_the_last_message() -> None:
    crashed = {**ended("a", 3, message="disk full\n"), "restartCount": 2}
    assert (
        list(report(pod("Failed", crashed), {}))[1]
        == "  a: Error, exit code 3, after 4 s, restarted 2 times: disk full"
    )
