"""The policy in a file, such as a mounted ConfigMap. It is read again when it changes; an invalid one is refused."""

from __future__ import annotations

import logging
from pathlib import Path

from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.errors import InvalidObjectError, PlimsollError
from plimsoll.rules.attach.policy import AttachPolicy, attach_policy

MOST_BYTES = 1 << 20  # as a ConfigMap

log = logging.getLogger(__name__)


class PolicyFile:
    def __init__(self, path: Path | None) -> None:
        """Without a path all switches are off."""
        self._path = path
        self._policy = AttachPolicy()
        self._stamp: tuple[int, int, int] | None = None

    def load(self) -> None:
        """Raises PlimsollError if the file is missing or invalid."""
        if self._path is not None:
            self._stamp = self._now()
            self._policy = read_policy(self._path)

    def current(self) -> AttachPolicy:
        """The last valid policy."""
        stamp = self._now()
        if self._path is not None and stamp is not None and stamp != self._stamp:
            self._stamp = stamp
            try:
                self._policy = read_policy(self._path)
                log.info("the policy was read again")
            except PlimsollError as error:
                log.error("the policy is not valid, the one before stays in force: %s", error)
        return self._policy

    def _now(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)


def read_policy(path: Path) -> AttachPolicy:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise PlimsollError(f"the policy {path} cannot be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise PlimsollError(f"the policy {path} is larger than {MOST_BYTES >> 20} MiB")
    documents = list(read(data))
    if len(documents) != 1 or isinstance(documents[0], YamlError) or not isinstance(documents[0].value, dict):
        unreadable = next((f": {each}" for each in documents if isinstance(each, YamlError)), "")
        raise PlimsollError(f"the policy {path}: expected one map of switches{unreadable}")
    try:
        return attach_policy(documents[0].value)
    except InvalidObjectError as error:
        raise PlimsollError(f"the policy {path}: {error}") from None
