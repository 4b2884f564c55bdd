"""The failure of a command that asked a cluster, as kubectl reports it."""

from __future__ import annotations

from plimsoll.errors import PlimsollError


class FailedError(PlimsollError):
    """The text is printed as it is, and the exit code is 1: the request was understood, and failed."""
