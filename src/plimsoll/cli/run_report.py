"""How a pod ended that was run in the foreground: sentences for people, and an exit code for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from plimsoll.rules.civil_time import epoch_s
from plimsoll.rules.reasons import human_bytes

Document = Mapping[str, Any]
OOM_KILLED = "OOMKilled"
THROTTLED_PART = 0.05  # of the periods; less is nothing to speak of


class Peak(msgspec.Struct, frozen=True):
    """What was seen of one container while it ran."""

    memory_bytes: int = 0
    periods: int = 0
    throttled_periods: int = 0


def exit_code(pod: Document, *, interrupted: bool) -> int:
    """0 where it succeeded, else that of the first container that failed; 130 after Ctrl-C, as in a shell."""
    if interrupted:
        return 130
    status = pod.get("status") or {}
    if status.get("phase") == "Succeeded":
        return 0
    for each in _containers(status):
        ended = _ended(each)
        if ended is not None and ended.get("exitCode"):
            return int(ended["exitCode"])
    return 1


def report(pod: Document, peaks: Mapping[str, Peak]) -> Iterator[str]:
    status = pod.get("status") or {}
    words = f"pod {pod['metadata']['name']}: {status.get('phase', 'Pending')}"
    if status.get("reason"):
        words += f" ({status['reason']}: {status.get('message', '')})"
    yield words
    specs = {each["name"]: each for kind in ("initContainers", "containers") for each in pod["spec"].get(kind) or ()}
    for each in _containers(status):
        yield f"  {each['name']}: {_how(each)}"
        yield from (f"    {line}" for line in _limits_hit(each, specs.get(each["name"], {}), peaks.get(each["name"])))


def _containers(status: Document) -> list[Document]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _ended(container: Document) -> Document | None:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    found: Document | None = state.get("terminated") or last.get("terminated")
    return found


def _how(container: Document) -> str:
    waiting = (container.get("state") or {}).get("waiting")
    ended = _ended(container)
    restarts = container.get("restartCount", 0)
    words = []
    if ended is not None:
        words.append(f"{ended.get('reason', '')}, exit code {ended.get('exitCode', 0)}")
        started, finished = epoch_s(ended.get("startedAt")), epoch_s(ended.get("finishedAt"))
        if started is not None and finished is not None:
            words.append(f"after {finished - started:.0f} s")
    elif waiting is not None:
        words.append(f"never ran ({waiting.get('reason', '')}{_colon(waiting.get('message', ''))})")
    else:
        words.append("runs")
    if restarts:
        words.append(f"restarted {restarts} times" if restarts > 1 else "restarted once")
    message = (ended or {}).get("message", "").strip()
    return ", ".join(words) + (f": {message}" if message else "")


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def _limits_hit(container: Document, spec: Document, peak: Peak | None) -> Iterator[str]:
    limits = (spec.get("resources") or {}).get("limits") or {}
    ended = [(container.get(key) or {}).get("terminated") or {} for key in ("state", "lastState")]
    if any(each.get("reason") == OOM_KILLED for each in ended):
        limit = f"its memory limit of {limits['memory']}" if "memory" in limits else "a memory limit above it"
        yield f"hit {limit}: the kernel killed it"
    if peak is None:
        return
    if peak.periods and peak.throttled_periods / peak.periods >= THROTTLED_PART:
        limit = f"its CPU limit of {limits['cpu']}" if "cpu" in limits else "a CPU limit above it"
        yield f"hit {limit}: held back in {100 * peak.throttled_periods / peak.periods:.0f} % of the periods"
    if peak.memory_bytes:
        yield f"used up to {human_bytes(peak.memory_bytes)} of memory"
