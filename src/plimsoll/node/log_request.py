"""What is asked of `/containerLogs/NAMESPACE/POD/CONTAINER`: the options, and which container's log it is.

A container is looked for in the pod's status, never by a name made into a path; where there is no log the answer is the
kubelet's own sentence, which kubectl shows as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.codec.cri_log import NANOS, unix_nanos
from plimsoll.errors import PlimsollError

Document = Mapping[str, Any]
Query = Mapping[str, Sequence[str]]
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False", "")
_STREAMS: dict[str, tuple[bytes, ...]] = {
    "": (b"stdout", b"stderr"),
    "All": (b"stdout", b"stderr"),
    "Stdout": (b"stdout",),
    "Stderr": (b"stderr",),
}
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class Refused(PlimsollError):
    """A request that cannot be answered: the HTTP status and the sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message

    def __str__(self) -> str:
        return self.message


class LogOptions(msgspec.Struct, frozen=True):
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_ns: int | None = None  # from 1970
    streams: tuple[bytes, ...] = _STREAMS["All"]


def log_options(query: Query, now_s: float) -> LogOptions:
    """Refused(400) for what cannot be read; options that are not known are left alone, as the kubelet does it."""
    since_s, since_time = _number(query, "sinceSeconds", 1), _one(query, "sinceTime")
    if since_s is not None and since_time:
        raise Refused(400, "at most one of `sinceTime` or `sinceSeconds` may be specified")
    since_ns = None if since_s is None else int((now_s - since_s) * NANOS)
    if since_time and (since_ns := unix_nanos(since_time.encode())) is None:
        raise Refused(400, f'sinceTime: "{since_time}" is no RFC 3339 time (2006-01-02T15:04:05Z)')
    stream = _one(query, "stream")
    if stream not in _STREAMS:
        raise Refused(400, f'stream: "{stream}" is none of All, Stdout, Stderr')
    return LogOptions(
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        timestamps=flag(query, "timestamps"),
        tail_lines=_number(query, "tailLines", 0),
        limit_bytes=_number(query, "limitBytes", 1),
        since_ns=since_ns,
        streams=_STREAMS[stream],
    )


def flag(query: Query, name: str) -> bool:
    """As Go's ParseBool reads it."""
    text = _one(query, name)
    if text not in _TRUE + _FALSE:
        raise Refused(400, f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def _one(query: Query, name: str) -> str:
    return (query.get(name) or ("",))[0]


def _number(query: Query, name: str, least: int) -> int | None:
    text = _one(query, name)
    if not text:
        return None
    if not text.isascii() or not text.removeprefix("-").isdecimal() or int(text) < least:
        raise Refused(400, f'{name}: "{text}" must be a whole number of at least {least}')
    return int(text)


# --- which container ---


def container_names(pod: Document) -> Iterator[str]:
    spec = pod.get("spec") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for each in spec.get(kind) or ():
            yield each["name"]


def container_status(pod: Document, name: str) -> Document | None:
    status = pod.get("status") or {}
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(kind) or ():
            if each["name"] == name:
                found: Document = each
                return found
    return None


def running_container_id(pod: Document, name: str) -> str:
    """The full id, with its scheme; empty where it does not run."""
    status = container_status(pod, name) or {}
    return str(status.get("containerID") or "") if (status.get("state") or {}).get("running") is not None else ""


def bare_id(container_id: str) -> str:
    """`containerd://abc` → `abc`."""
    return container_id.rpartition("://")[2]


def logged_container_id(pod: Document, name: str, *, previous: bool) -> str:
    """The full id of the container whose log is meant; Refused with the kubelet's sentence where there is none."""
    own = pod["metadata"]["name"]
    if name not in container_names(pod):
        raise Refused(404, f'container "{name}" not found in pod "{own}"')
    status = container_status(pod, name)
    if status is None:
        raise Refused(400, f'container "{name}" in pod "{own}" is not available')
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    last_id = str((last or {}).get("containerID") or "")
    if previous:
        if not last_id:
            raise Refused(400, f'previous terminated container "{name}" in pod "{own}" not found')
        return last_id
    if state.get("running") is not None:
        return str(status.get("containerID") or "")
    ended = state.get("terminated")
    if ended is not None or last is not None:
        # Where the next one could not be started, what is known is the log of the one before.
        found = str((ended or {}).get("containerID") or "") or last_id
        if not found:
            raise Refused(400, f'container "{name}" in pod "{own}" is terminated')
        return found
    waiting = state.get("waiting")
    if waiting is None:
        raise Refused(400, f'container "{name}" in pod "{own}" is waiting to start - no logs yet')
    reason = str(waiting.get("reason") or "")
    raise Refused(400, f'container "{name}" in pod "{own}" is waiting to start: {_WAITING.get(reason, reason)}')
