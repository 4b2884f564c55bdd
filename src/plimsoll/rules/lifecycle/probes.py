"""When a container is probed, and what its answers mean.

Every probe of every container has a `ProbeState` that the agent keeps. Before a probe, `due_s` says when it may
run: after its initial delay, once a period, a startup probe until it has succeeded, the others only after that. After
it, `after_probe` counts: a verdict changes only after as many equal answers in a row as its threshold asks. A verdict
of *failed* from a startup or liveness probe means that the container will be ended; it is not asked again. A
readiness probe goes on, and goes on while its pod is being stopped, the others do not.

An answer that could not be had at all (`ProbeResult.error`) counts for nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.rules.gotext import quoted
from plimsoll.rules.lifecycle.events import ContainerEvents
from plimsoll.rules.model.observed import NO_RESULTS, LifecycleEvent, ObservedContainer, ProbeResults
from plimsoll.rules.model.pod_status import RunContainerStatus
from plimsoll.rules.model.runnable import HttpGet, Probe, RunContainer, TcpSocket
from plimsoll.rules.profile import Profile

ProbeKind = Literal["Startup", "Liveness", "Readiness"]
KINDS: tuple[ProbeKind, ...] = ("Startup", "Liveness", "Readiness")
MAX_OUTPUT_BYTES = 10 * 1024


class ProbeResult(msgspec.Struct, frozen=True):
    """One probe. `output` is what the event repeats."""

    is_success: bool
    output: str = ""
    error: str = ""  # the probe could not be made at all
    is_warning: bool = False  # a success that is worth an event: a redirect to another host


class ProbeState(msgspec.Struct, frozen=True):
    container_id: str = ""
    verdict: bool | None = None
    last: bool | None = None
    in_a_row: int = 0
    asked_s: float | None = None  # when it was asked last
    on_hold: bool = False  # failed; waits for the next container


def probe_of(container: RunContainer, kind: ProbeKind) -> Probe | None:
    if kind == "Startup":
        return container.startup_probe
    return container.liveness_probe if kind == "Liveness" else container.readiness_probe


def fresh(container_id: str, kind: ProbeKind) -> ProbeState:
    """Of a new container: alive, not ready, not known to have started."""
    return ProbeState(container_id, {"Startup": None, "Liveness": True, "Readiness": False}[kind])


def due_s(
    probe: Probe,
    kind: ProbeKind,
    state: ProbeState,
    running: ObservedContainer,
    *,
    has_started: bool,
    is_ending: bool = False,
) -> float | None:
    """When to ask next, perhaps in the past; None while there is nothing to ask. `has_started`: `is_started`."""
    if running.phase != "running" or state.on_hold or has_started != (kind != "Startup"):
        return None
    if is_ending and kind != "Readiness":
        return None
    earliest_s = running.started_s + probe.initial_delay_seconds
    if state.asked_s is None or state.container_id != running.id:
        return earliest_s
    return max(earliest_s, state.asked_s + max(probe.period_seconds, 1))


def after_probe(probe: Probe, kind: ProbeKind, state: ProbeState, answer: ProbeResult, asked_s: float) -> ProbeState:
    """The state after one answer."""
    if answer.error:
        return msgspec.structs.replace(state, asked_s=asked_s)
    in_a_row = state.in_a_row + 1 if state.last is answer.is_success else 1
    threshold = probe.success_threshold if answer.is_success else probe.failure_threshold
    if in_a_row < threshold:
        return ProbeState(state.container_id, state.verdict, answer.is_success, in_a_row, asked_s)
    on_hold = kind != "Readiness" and not answer.is_success
    # A container that is to be ended begins to count anew, should it survive.
    counted = 0 if on_hold else in_a_row
    return ProbeState(state.container_id, answer.is_success, answer.is_success, counted, asked_s, on_hold)


def probe_event(about: ContainerEvents, kind: ProbeKind, answer: ProbeResult) -> LifecycleEvent | None:
    """Every failed answer is told, also below the threshold."""
    if answer.error:
        return about.probe_errored(kind, answer.error)
    if not answer.is_success:
        return about.unhealthy(kind, answer.output)
    return about.probe_warning(kind, answer.output) if answer.is_warning else None


def with_verdict(results: ProbeResults, kind: ProbeKind, verdict: bool | None) -> ProbeResults:
    if kind == "Startup":
        return msgspec.structs.replace(results, startup=verdict)
    if kind == "Liveness":
        return msgspec.structs.replace(results, liveness=verdict)
    return msgspec.structs.replace(results, readiness=verdict)


def restored(status: RunContainerStatus) -> ProbeResults:
    """What the last report says of a container that still runs: an agent that begins anew does not unready it."""
    if status.state.running is None:
        return NO_RESULTS
    return ProbeResults(startup=True if status.started else None, readiness=status.ready)


def is_started(container: RunContainer, newest: ObservedContainer | None, results: ProbeResults = NO_RESULTS) -> bool:
    if newest is None or newest.phase != "running":
        return False
    return container.startup_probe is None or results.startup is True


def is_ready(container: RunContainer, newest: ObservedContainer | None, results: ProbeResults = NO_RESULTS) -> bool:
    if not is_started(container, newest, results):
        return False
    return container.readiness_probe is None or results.readiness is True


def http_answer(status_code: int, body: str = "", *, is_foreign_redirect: bool = False) -> ProbeResult:
    """2xx and 3xx are good. A redirect to another host is not followed; it is good, with a warning."""
    if is_foreign_redirect:
        return ProbeResult(True, f"Probe terminated redirects, Response body: {body}", is_warning=True)
    if 200 <= status_code < 400:
        return ProbeResult(True, body)
    return ProbeResult(False, f"HTTP probe failed with statuscode: {status_code}")


def exec_answer(exit_code: int, output: str) -> ProbeResult:
    return ProbeResult(exit_code == 0, output)


def exec_timeout(command: tuple[str, ...], timeout_s: int, profile: Profile) -> ProbeResult:
    words = quoted(" ".join(command))
    if profile.probe_error_says_state:
        return ProbeResult(False, f"command timed out: {words} timed out after {timeout_s}s")
    return ProbeResult(False, f"command {words} timed out")


def port_number(action: HttpGet | TcpSocket, container: RunContainer) -> int | None:
    """A named port is looked up among the container's own; None where there is none such."""
    port = action.port
    if isinstance(port, str):
        named = next((each.container_port for each in container.ports if each.name == port), None)
        if named is None and port.isascii() and port.isdigit():
            named = int(port)
        port = named or 0
    return port if 0 < port < 65536 else None
