"""Probes: when a container is probed, and what the results mean.

The agent keeps a `ProbeState` for every probe of every container. `due_s` computes when it may run next: after its
initial delay, once per period; a startup probe until it has succeeded, the others only after that. `after_probe` counts
results: a verdict changes after as many equal results in a row as its threshold. If a startup or liveness probe has
failed, the container is killed and the probe stops. A readiness probe continues, even while its pod terminates.

A probe that could not run (`ProbeResult.error`) does not count.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.errors import quoted
from plimsoll.rules.lifecycle.events import ContainerEvents, duration_text
from plimsoll.rules.model.observed import NO_RESULTS, LifecycleEvent, ObservedContainer, ProbeResults
from plimsoll.rules.model.pod_status import RunContainerStatus
from plimsoll.rules.model.runnable import GrpcAction, HttpGet, Probe, RunContainer, TcpSocket
from plimsoll.rules.profile import Profile

ProbeKind = Literal["Startup", "Liveness", "Readiness"]
KINDS: tuple[ProbeKind, ...] = ("Startup", "Liveness", "Readiness")
MAX_OUTPUT_BYTES = 10 * 1024
# Of the gRPC health protocol, by number (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
HEALTH_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_GRPC_DEADLINE_EXCEEDED, _GRPC_UNIMPLEMENTED = 4, 12


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of one probe. The event contains `output`."""

    is_success: bool
    output: str = ""
    error: str = ""  # the probe could not run
    is_warning: bool = False  # a success with an event: a redirect to another host


class ProbeState(msgspec.Struct, frozen=True):
    container_id: str = ""
    verdict: bool | None = None
    last: bool | None = None
    in_a_row: int = 0
    probed_s: float | None = None  # the last probe
    on_hold: bool = False  # failed; pauses until the next container


def probe_of(container: RunContainer, kind: ProbeKind) -> Probe | None:
    if kind == "Startup":
        return container.startup_probe
    return container.liveness_probe if kind == "Liveness" else container.readiness_probe


def fresh(container_id: str, kind: ProbeKind) -> ProbeState:
    """Of a new container: alive, not ready, start unknown."""
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
    """When to probe next, possibly in the past; None while there is nothing to probe."""
    if running.phase != "running" or state.on_hold or has_started != (kind != "Startup"):
        return None
    if is_ending and kind != "Readiness":
        return None
    earliest_s = running.started_s + probe.initial_delay_seconds
    if state.probed_s is None or state.container_id != running.id:
        return earliest_s
    return max(earliest_s, state.probed_s + max(probe.period_seconds, 1))


def after_probe(probe: Probe, kind: ProbeKind, state: ProbeState, answer: ProbeResult, probed_s: float) -> ProbeState:
    """The state after one result."""
    if answer.error:
        return msgspec.structs.replace(state, probed_s=probed_s)
    in_a_row = state.in_a_row + 1 if state.last is answer.is_success else 1
    threshold = probe.success_threshold if answer.is_success else probe.failure_threshold
    if in_a_row < threshold:
        return ProbeState(state.container_id, state.verdict, answer.is_success, in_a_row, probed_s)
    on_hold = kind != "Readiness" and not answer.is_success
    # The count starts again if the container survives.
    counted = 0 if on_hold else in_a_row
    return ProbeState(state.container_id, answer.is_success, answer.is_success, counted, probed_s, on_hold)


def probe_event(events: ContainerEvents, kind: ProbeKind, answer: ProbeResult) -> LifecycleEvent | None:
    """Every failure has an event, also below the threshold."""
    if answer.error:
        return events.probe_errored(kind, answer.error)
    if not answer.is_success:
        return events.unhealthy(kind, answer.output)
    return events.probe_warning(kind, answer.output) if answer.is_warning else None


def with_verdict(results: ProbeResults, kind: ProbeKind, verdict: bool | None) -> ProbeResults:
    return msgspec.structs.replace(results, **{kind.lower(): verdict})


def restored(status: RunContainerStatus) -> ProbeResults:
    """Results from the last status of a running container: a restart of the agent does not make it unready."""
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
    """2xx and 3xx succeed. A redirect to another host is not followed; it succeeds with a warning."""
    if is_foreign_redirect:
        return ProbeResult(True, f"Probe terminated redirects, Response body: {body}", is_warning=True)
    if 200 <= status_code < 400:
        return ProbeResult(True, body)
    return ProbeResult(False, f"HTTP probe failed with statuscode: {status_code}")


def exec_answer(exit_code: int, output: str) -> ProbeResult:
    return ProbeResult(exit_code == 0, output)


def exec_timeout(command: tuple[str, ...], timeout_s: int, profile: Profile) -> ProbeResult:
    command_text = quoted(" ".join(command))
    if profile.probe_error_says_state:
        return ProbeResult(False, f"command timed out: {command_text} timed out after {timeout_s}s")
    return ProbeResult(False, f"command {command_text} timed out")


def grpc_health(status: int) -> ProbeResult:
    """Of a health check that was answered."""
    if status == HEALTH_STATUSES.index("SERVING"):
        return ProbeResult(True, "service healthy")
    name = HEALTH_STATUSES[status] if 0 <= status < len(HEALTH_STATUSES) else str(status)
    return ProbeResult(False, f"service unhealthy (responded with {quoted(name)})")


def grpc_timeout(address: str, timeout_s: float, *, is_connected: bool) -> ProbeResult:
    within = duration_text(timeout_s)
    if is_connected:
        return ProbeResult(False, f"timeout: health rpc did not complete within {within}")
    why = "context deadline exceeded"
    return ProbeResult(False, f"timeout: failed to connect service {quoted(address)} within {within}: {why}")


def grpc_failure(code: int, message: str, text: str, timeout_s: float) -> ProbeResult:
    """Of a health check that ended with another status than OK; `text` is the whole error."""
    if code == _GRPC_UNIMPLEMENTED:
        protocol = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
        return ProbeResult(False, f"error: {protocol}: {message}")
    if code == _GRPC_DEADLINE_EXCEEDED:
        return grpc_timeout("", timeout_s, is_connected=True)
    return ProbeResult(False, f"error: health rpc probe failed: {text}")


def port_number(action: HttpGet | TcpSocket | GrpcAction, container: RunContainer) -> int | None:
    """A named port is one of the container's ports; None if there is no such port."""
    port = action.port
    if isinstance(port, str):
        named = next((each.container_port for each in container.ports if each.name == port), None)
        if named is None and port.isascii() and port.isdigit():
            named = int(port)
        port = named or 0
    return port if 0 < port < 65536 else None
