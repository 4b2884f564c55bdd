"""Status codes of gRPC and the errors of a call."""

from __future__ import annotations

from plimsoll.errors import StructuredError

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS = 0, 1, 2, 3, 4, 5, 6
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE = 7, 8, 9, 11
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 12, 13, 14, 16
CODE_NAMES = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
    "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip


class GrpcError(StructuredError):
    """A call that ended with another status than OK."""

    code: int
    message: str

    def __str__(self) -> str:
        """As Go prints it, so that users find it on the web."""
        name = CODE_NAMES[self.code] if 0 <= self.code < len(CODE_NAMES) else f"Code({self.code})"
        return f"rpc error: code = {name} desc = {self.message}"


class GrpcUnavailableError(GrpcError):
    """No server listens, so nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(UNAVAILABLE, message)
