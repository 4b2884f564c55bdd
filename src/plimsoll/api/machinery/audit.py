"""The audit log: one line of JSON for each request, as audit.k8s.io/v1 Events of level Metadata (05 B1).

Reads are left out, because they are most of the traffic, except where they fail and where they act: exec and proxy. The
request URI is complete, so the command of an exec is in it. Bodies are never logged. The files are bounded: a full one
is renamed, the oldest is removed.
"""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path
from typing import IO

import msgspec

from plimsoll.api.machinery.exchange import Exchange
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import rfc3339_micro

MAX_BYTES, MAX_BACKUPS = 100 * 1024 * 1024, 10  # kube-apiserver's --audit-log-maxsize and --audit-log-maxbackup
_READS = frozenset({"get", "list", "watch"})
_ACTING = frozenset({"exec", "proxy"})

log = logging.getLogger("plimsoll.api")


class AuditFile:
    """A file (0600) that is renamed to `FILE.1` when it is full; at most `backups` older ones are kept."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, backups: int = MAX_BACKUPS) -> None:
        self._path, self._max_bytes, self._backups = path, max_bytes, backups
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file: IO[bytes] = os.fdopen(os.open(self._path, flags, 0o600), "ab", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def write(self, line: bytes) -> None:
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        self._file.write(line)
        self._size += len(line)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._backups, 0, -1):
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if newer.exists():
                os.replace(newer, self._path.with_name(f"{self._path.name}.{number}"))
        self._open()

    def close(self) -> None:
        self._file.close()


class Audit:
    """Who requested what, with which result. With `reads` all of them."""

    def __init__(self, file: AuditFile, *, reads: bool = False) -> None:
        self._file, self._reads = file, reads
        self._encode = msgspec.json.Encoder().encode
        self._is_failing = False

    def note(self, request: Exchange, received_s: float, now_s: float) -> None:
        """A log that cannot be written, on a full disk, stops no request; the first failure is reported."""
        info = request.info
        verb = info.verb if info is not None else request.scope["method"].lower()
        acts = verb not in _READS or (info is not None and info.subresource in _ACTING)
        if not (acts or self._reads or request.code >= 400):
            return
        try:
            self._file.write(self._encode(_event(request, verb, received_s, now_s)) + b"\n")
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                log.error("the audit log cannot be written: %s", error)
            self._is_failing = True


def _event(request: Exchange, verb: str, received_s: float, now_s: float) -> JsonObject:
    scope, info = request.scope, request.info
    uri = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    event: JsonObject = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": str(uuid.uuid4()),
        "stage": "ResponseComplete",
        "requestURI": uri.decode("latin-1"),
        "verb": verb,
        "user": {"username": request.user.name, "groups": sorted(request.user.groups)},
        "sourceIPs": [(scope.get("client") or ("",))[0]],
        "userAgent": request.header(b"user-agent"),
    }
    if info is not None:
        parts = {
            "resource": info.resource.plural,
            "namespace": info.namespace,
            "name": info.name,
            "apiGroup": info.resource.group,
            "apiVersion": info.resource.version,
            "subresource": info.subresource,
        }
        event["objectRef"] = {name: value for name, value in parts.items() if value}
    if request.annotations:
        event["annotations"] = request.annotations
    return event | {
        "responseStatus": {"metadata": {}, "code": request.code},
        "requestReceivedTimestamp": rfc3339_micro(received_s),
        "stageTimestamp": rfc3339_micro(now_s),
    }
