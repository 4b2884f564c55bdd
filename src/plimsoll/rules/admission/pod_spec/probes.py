"""Validation of probes and of lifecycle hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.field_errors import (
    MOST_PORT,
    forbidden,
    invalid,
    misnamed,
    not_negative,
    one_of,
    required,
)
from plimsoll.rules.admission.pod_spec.rules import SpecRules
from plimsoll.rules.model.json_object import JsonObject

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HEADER = "[-A-Za-z0-9]+"
_HEADER_RULE = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
    f"validation is '{_HEADER}')"
)
_INIT_ONLY = "may not be set for init containers without restartPolicy=Always"
_WINDOWS_SIGNALS = ("SIGKILL", "SIGTERM")
_NAMES = """
ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN SEGV STKFLT STOP SYS TERM
TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ
"""
_REAL_TIME = (*(f"RTMAX-{number}" for number in range(1, 15)), *(f"RTMIN+{number}" for number in range(1, 16)))
_SIGNALS = tuple(sorted(f"SIG{name}" for name in (*_NAMES.split(), *_REAL_TIME)))


def probe_and_hook_errors(
    container: JsonObject, at: str, grace_s: int | None, system: str | None, rules: SpecRules, *, runs_once: bool
) -> Iterator[FieldError]:
    """`system`: the pod's operating system, if it is set; `runs_once`: an init container that ends."""
    if runs_once:
        for field in ("lifecycle", *PROBES):
            if container.get(field) is not None:
                yield forbidden(f"{at}.{field}", _INIT_ONLY)
        return
    if (lifecycle := container.get("lifecycle")) is not None:
        yield from _lifecycle_errors(lifecycle, f"{at}.lifecycle", grace_s, system, rules)
    for field in PROBES:
        if (probe := container.get(field)) is not None:
            yield from _probe_errors(probe, field, f"{at}.{field}", grace_s, rules)


def _probe_errors(
    probe: JsonObject, field: str, at: str, grace_s: int | None, rules: SpecRules
) -> Iterator[FieldError]:
    yield from _handler_errors(probe, at, grace_s, rules)
    for name in _NUMBERS:
        yield from not_negative(f"{at}.{name}", probe.get(name))
    own_s = probe.get("terminationGracePeriodSeconds")
    if own_s is not None and own_s <= 0:
        yield invalid(f"{at}.terminationGracePeriodSeconds", own_s, "must be greater than 0")
    if field == "readinessProbe":
        if own_s is not None:
            yield invalid(f"{at}.terminationGracePeriodSeconds", own_s, "must not be set for readinessProbes")
    elif (threshold := probe.get("successThreshold", 1)) != 1:
        yield invalid(f"{at}.successThreshold", threshold, "must be 1")


def _lifecycle_errors(
    lifecycle: JsonObject, at: str, grace_s: int | None, system: str | None, rules: SpecRules
) -> Iterator[FieldError]:
    for hook in ("postStart", "preStop"):
        if (handler := lifecycle.get(hook)) is not None:
            yield from _handler_errors(handler, f"{at}.{hook}", grace_s, rules)
    if (signal := lifecycle.get("stopSignal")) is not None:
        if system is None:
            yield forbidden(f"{at}.stopSignal", "may not be set for containers with empty `spec.os.name`")
        else:
            yield from one_of(f"{at}.stopSignal", signal, _WINDOWS_SIGNALS if system == "windows" else _SIGNALS)


def _handler_errors(handler: JsonObject, at: str, grace_s: int | None, rules: SpecRules) -> Iterator[FieldError]:
    known = [name for name in _HANDLERS if handler.get(name) is not None]
    if not known:
        yield required(at, "must specify a handler type")
        return
    yield from _action_errors(known[0], handler[known[0]], f"{at}.{known[0]}", grace_s, rules)
    for name in known[1:]:
        yield forbidden(f"{at}.{name}", "may not specify more than 1 handler type")


def _action_errors(
    name: str, action: JsonObject, at: str, grace_s: int | None, rules: SpecRules
) -> Iterator[FieldError]:
    if name == "exec":
        if not action.get("command"):
            yield required(f"{at}.command")
    elif name == "sleep":
        yield from _sleep_errors(action.get("seconds") or 0, at, grace_s, rules)
    else:
        yield from port_errors(action.get("port"), f"{at}.port")
        if name == "httpGet":
            yield from one_of(f"{at}.scheme", action.get("scheme") or "HTTP", ("HTTP", "HTTPS"))
            for header in action.get("httpHeaders") or ():
                if not re.fullmatch(_HEADER, text := header.get("name") or ""):
                    yield invalid(f"{at}.httpHeaders", text, _HEADER_RULE)


def _sleep_errors(seconds: int, at: str, grace_s: int | None, rules: SpecRules) -> Iterator[FieldError]:
    if grace_s is None or (0 if rules.zero_sleep else 1) <= seconds <= grace_s:
        return
    if rules.zero_sleep:
        yield invalid(at, seconds, f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})")
    else:
        yield invalid(at, seconds, f"must be greater than 0 and less than terminationGracePeriodSeconds ({grace_s})")


def port_errors(port: int | str | None, at: str) -> Iterator[FieldError]:
    """A number, or the name of a port of the container."""
    if isinstance(port, str):
        yield from misnamed(at, port, port_name_problems(port))
    elif not 1 <= (port or 0) <= MOST_PORT:
        yield invalid(at, port or 0, f"must be between 1 and {MOST_PORT}, inclusive")


def port_name_problems(name: str) -> Iterator[str]:
    if len(name) > 15:
        yield "must be no more than 15 characters"
    if not re.fullmatch("[-a-z0-9]+", name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name and "-" in (name[0], name[-1]):
        yield "must not begin or end with a hyphen"
