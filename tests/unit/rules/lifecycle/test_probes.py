"""When a container is probed, and what the results mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.lifecycle.events import ContainerEvents
from plimsoll.rules.lifecycle.probes import (
    KINDS,
    ProbeKind,
    ProbeResult,
    ProbeState,
    after_probe,
    due_s,
    exec_answer,
    exec_timeout,
    fresh,
    http_answer,
    port_number,
    probe_event,
    probe_of,
    restored,
    with_verdict,
)
from plimsoll.rules.model.observed import NO_RESULTS, ProbeResults
from plimsoll.rules.model.pod_status import RunContainerStatus, Running, RunState
from plimsoll.rules.model.runnable import HttpGet, Probe, RunContainer, RunPort
from plimsoll.rules.profile import profile_named
from tests.unit.rules.run_pods import START_S, run

YES, NO = ProbeResult(True), ProbeResult(False, "refused")
PROBE = Probe(initial_delay_seconds=5, period_seconds=3, success_threshold=2, failure_threshold=3)

# letters are answers: y, n, ! (error) → verdict, on hold
ANSWERS = [
    pytest.param("Readiness", "", False, False, id="not ready at first"),
    pytest.param("Readiness", "y", False, False, id="one success is not enough"),
    pytest.param("Readiness", "yy", True, False, id="two are"),
    pytest.param("Readiness", "yny", False, False, id="in a row"),
    pytest.param("Readiness", "y!y", True, False, id="errors count for nothing"),
    pytest.param("Readiness", "yynn", True, False, id="stays ready below the threshold"),
    pytest.param("Readiness", "yynnn", False, False, id="not ready again"),
    pytest.param("Readiness", "yynnnyy", True, False, id="continues after a failure"),
    pytest.param("Liveness", "", True, False, id="alive at first"),
    pytest.param("Liveness", "nn", True, False, id="alive below the threshold"),
    pytest.param("Liveness", "nnn", False, True, id="dead"),
    pytest.param("Liveness", "nnynn", True, False, id="a success in between"),
    pytest.param("Startup", "", None, False, id="not known at first"),
    pytest.param("Startup", "nnyy", True, False, id="started"),
    pytest.param("Startup", "nnn", False, True, id="did not start"),
]


@pytest.mark.parametrize(("kind", "answers", "verdict", "on_hold"), ANSWERS)
def test_thresholds(kind: ProbeKind, answers: str, verdict: bool | None, on_hold: bool) -> None:
    state = fresh("c1", kind)
    for index, letter in enumerate(answers):
        state = after_probe(PROBE, kind, state, {"y": YES, "n": NO, "!": ProbeResult(False, error="x")}[letter], index)
    assert (state.verdict, state.on_hold, state.container_id) == (verdict, on_hold, "c1")


RUNNING = run("a")
ASKED = ProbeState("a-0", probed_s=START_S + 20)
DUE = [
    pytest.param("Liveness", ProbeState(), True, False, START_S + 5, id="after its initial delay"),
    pytest.param("Liveness", ASKED, True, False, START_S + 23, id="once a period"),
    pytest.param("Liveness", ProbeState("old", probed_s=START_S + 20), True, False, START_S + 5, id="a new container"),
    pytest.param("Liveness", ASKED, False, False, None, id="not before it has started"),
    pytest.param("Readiness", ASKED, False, False, None, id="readiness neither"),
    pytest.param("Startup", ASKED, False, False, START_S + 23, id="startup until it has started"),
    pytest.param("Startup", ASKED, True, False, None, id="startup is over"),
    pytest.param("Liveness", ASKED, True, True, None, id="not while its pod ends"),
    pytest.param("Startup", ASKED, False, True, None, id="startup neither while its pod ends"),
    pytest.param("Readiness", ASKED, True, True, START_S + 23, id="readiness also while its pod ends"),
    pytest.param("Liveness", ProbeState("a-0", False, on_hold=True), True, False, None, id="on hold"),
]


@pytest.mark.parametrize(("kind", "state", "has_started", "is_ending", "wanted"), DUE)
def test_due(kind: ProbeKind, state: ProbeState, has_started: bool, is_ending: bool, wanted: float | None) -> None:
    assert due_s(PROBE, kind, state, RUNNING, has_started=has_started, is_ending=is_ending) == wanted


def test_only_running_containers_are_probed() -> None:
    assert due_s(PROBE, "Liveness", ProbeState(), run("a", "exited"), has_started=True) is None


@given(st.lists(st.booleans()), st.integers(1, 5), st.integers(1, 5))
def test_a_verdict_needs_enough_equal_results(answers: list[bool], successes: int, failures: int) -> None:
    """A readiness verdict is the last run of equal answers that was long enough, else as at first."""
    probe = Probe(success_threshold=successes, failure_threshold=failures)
    state = fresh("c", "Readiness")
    for index, answer in enumerate(answers):
        state = after_probe(probe, "Readiness", state, ProbeResult(answer), index)
    wanted, length = False, 0
    for index, answer in enumerate(answers):
        length = length + 1 if index and answers[index - 1] is answer else 1
        if length >= (successes if answer else failures):
            wanted = answer
    assert state.verdict is wanted


EVENTS = [
    pytest.param("documents", NO, "Unhealthy", "Liveness probe failed: refused", id="failed"),
    pytest.param("documents", ProbeResult(False, error="no"), "Unhealthy", "Liveness probe errored: no", id="documents errored"),
    pytest.param(
        "1.36", ProbeResult(False, error="no"), "Unhealthy", "Liveness probe errored and resulted in unknown state: no",
        id="1.36 errored",
    ),
    pytest.param(
        "1.36", http_answer(302, "moved", is_foreign_redirect=True), "ProbeWarning",
        "Liveness probe warning: Probe terminated redirects, Response body: moved", id="warning",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "answer", "reason", "message"), EVENTS)
def test_events(profile: str, answer: ProbeResult, reason: str, message: str) -> None:
    event = probe_event(ContainerEvents("a", profile_named(profile)), "Liveness", answer)
    assert event is not None
    assert (event.reason, event.type, event.message) == (reason, "Warning", message)


def test_a_success_has_no_event() -> None:
    assert probe_event(ContainerEvents("a", profile_named("1.36")), "Liveness", YES) is None


@pytest.mark.parametrize(("code", "good"), [(199, False), (200, True), (399, True), (400, False), (500, False)])
def test_http(code: int, good: bool) -> None:
    answer = http_answer(code, "body")
    assert answer == ProbeResult(good, "body" if good else f"HTTP probe failed with statuscode: {code}")


def test_exec() -> None:
    assert exec_answer(0, "fine") == ProbeResult(True, "fine")
    assert exec_answer(2, "cat: x: No such file") == ProbeResult(False, "cat: x: No such file")
    slow = ("sleep", "9")
    assert exec_timeout(slow, 1, profile_named("documents")).output == 'command "sleep 9" timed out'
    assert exec_timeout(slow, 1, profile_named("1.36")).output == 'command timed out: "sleep 9" timed out after 1s'


PORTS: list[Any] = [(8080, 8080), ("web", 80), ("8081", 8081), ("nope", None), (0, None), (70000, None)]


@pytest.mark.parametrize(("port", "wanted"), PORTS)
def test_ports(port: int | str, wanted: int | None) -> None:
    container = RunContainer(ports=(RunPort(9, name="other"), RunPort(80, name="web")))
    assert port_number(HttpGet(port=port), container) == wanted


def test_results() -> None:
    container = RunContainer(startup_probe=Probe(), liveness_probe=Probe(period_seconds=1), readiness_probe=None)
    assert [probe_of(container, kind) for kind in KINDS] == [Probe(), Probe(period_seconds=1), None]
    results = NO_RESULTS
    for kind, verdict in zip(KINDS, (True, False, True), strict=True):
        results = with_verdict(results, kind, verdict)
    assert results == ProbeResults(True, False, True)


RESTORED = [
    pytest.param(RunState(running=Running("x")), True, True, ProbeResults(True, None, True), id="ready"),
    pytest.param(RunState(running=Running("x")), True, False, ProbeResults(True, None, False), id="not ready"),
    pytest.param(RunState(running=Running("x")), False, False, ProbeResults(None, None, False), id="not started"),
    pytest.param(RunState(), False, False, NO_RESULTS, id="not running"),
]


@pytest.mark.parametrize(("state", "started", "ready", "wanted"), RESTORED)
def test_restored(state: RunState, started: bool, ready: bool, wanted: ProbeResults) -> None:
    assert restored(RunContainerStatus(name="a", state=state, started=started, ready=ready)) == wanted
