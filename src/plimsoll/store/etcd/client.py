"""Calls to an etcd cluster: one endpoint at a time, the next one when it fails; tokens are renewed.

A read is tried on other endpoints until its deadline. A write is sent once per call of `write_once`: if no answer comes
it may have been applied (`AmbiguousError`), and only the caller can find out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.net.grpc import status
from plimsoll.net.grpc.client import GrpcClient, GrpcStream, Headers, authority_of
from plimsoll.net.grpc.status import GrpcError, GrpcUnavailableError
from plimsoll.store.errors import LogRefusedError, LogUnreachableError, StoreError, TooLargeError, WriteFailedError
from plimsoll.store.etcd import messages
from plimsoll.store.etcd.location import Location

R = TypeVar("R", bound=msgspec.Struct)

ATTEMPT_S = 1.5  # a member that has lost the others does not answer
CONNECT_S = 1.0  # the watch waits for it, and every answer waits for the watch
READ_S = 6.0
_PAUSE_S = 0.05
_AUTH_TRIES = 3
UNSUPPORTED = "unsupported transaction"
_FULL = "database space exceeded"
_OLD_TOKENS = ("invalid auth token", "revision of auth store is old")

log = logging.getLogger("plimsoll.api")


class AmbiguousError(Exception):
    """No answer to a write: it may have been applied, or may still be."""


class NotSentError(Exception):
    """No endpoint could be reached: nothing was sent."""


class ForbiddenError(LogRefusedError):
    """The user lacks a right."""


class CompactedError(StoreError):
    """A revision that etcd no longer has."""

    where: str
    template = "the revision has been compacted in etcd at {where}"


class EtcdClient:
    def __init__(self, location: Location) -> None:
        self.location = location
        self.where = ",".join(authority_of(*each) for each in location.endpoints)
        context = location.context()
        self._members = [GrpcClient(address=each, tls=context, connect_s=CONNECT_S) for each in location.endpoints]
        self._active = 0
        self.switches = 0  # how often another endpoint was chosen
        self._answered = 0.0  # when the endpoint has answered last, by the loop's clock
        self._cluster_id = 0
        self._token = ""
        self._authenticating = asyncio.Lock()

    @property
    def endpoint(self) -> str:
        return self._members[self._active].name

    def close(self) -> None:
        for member in self._members:
            member.close()

    async def read(self, method: str, request: msgspec.Struct, kind: type[R], deadline_s: float = READ_S) -> R:
        """Raises LogUnreachableError, or LogRefusedError."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        data, reasons = encode(request), dict[str, str]()
        while True:
            switches, endpoint, began = self.switches, self.endpoint, loop.time()
            try:
                return self._decoded(kind, await self._called(method, data, min(ATTEMPT_S, deadline_s)))
            except GrpcError as error:
                self._check_refusal(error)
                reasons[endpoint] = error.message
                self._leave(error, switches, began)
            if loop.time() >= end:
                raise self._unreachable(reasons.values())
            await asyncio.sleep(_PAUSE_S)

    async def write_once(self, method: str, request: msgspec.Struct, kind: type[R], deadline_s: float = ATTEMPT_S) -> R:
        """Raises NotSentError, AmbiguousError, WriteFailedError (etcd is full), LogRefusedError."""
        switches, data, began = self.switches, encode(request), asyncio.get_running_loop().time()
        try:
            return self._decoded(kind, await self._called(method, data, deadline_s))
        except GrpcUnavailableError as error:
            self.switch(switches)
            raise NotSentError(error.message) from error
        except GrpcError as error:
            self._check_refusal(error, len(data))
            self._leave(error, switches, began)
            raise AmbiguousError(error.message) from error

    async def open_watch(self) -> GrpcStream:
        """Raises GrpcError."""
        return await self._members[self._active].open(messages.WATCH, await self._headers())

    def switch(self, seen: int) -> None:
        """Leave the endpoint, unless another caller did since `seen` switches. One that is going away may still answer
        writes, which are not ambiguous then."""
        if seen != self.switches:
            return
        left = self._members[self._active]
        self.switches += 1
        self._answered = 0.0
        self._active = (self._active + 1) % len(self._members)
        left.leave("another endpoint is used")

    def _leave(self, error: GrpcError, seen: int, began: float) -> None:
        """After a failed call. An endpoint that has answered others since it began is slow, not gone: leaving it would
        break their calls and the watch, which costs a loaded machine more."""
        if error.code != status.DEADLINE_EXCEEDED or self._answered <= began:
            self.switch(seen)

    def _unreachable(self, reasons: Iterable[str]) -> LogUnreachableError:
        advice = [self.location.tls_advice(reason) for reason in reasons]
        return LogUnreachableError(self.where, "; ".join(filter(None, dict.fromkeys([*reasons, *advice]))))

    def renew_token(self) -> None:
        self._token = ""

    async def _called(self, method: str, data: bytes, deadline_s: float) -> bytes:
        for _ in range(_AUTH_TRIES):
            headers = await self._headers()
            member = self._members[self._active]
            try:
                answer = await member.unary(method, data, deadline_s, headers)
                if member is self._members[self._active]:
                    self._answered = asyncio.get_running_loop().time()
                return answer
            except GrpcError as error:
                if not headers or not any(text in error.message for text in _OLD_TOKENS):
                    raise
                if headers[0][1] == self._token:
                    self._token = ""
        raise GrpcError(status.UNAUTHENTICATED, "the token was refused again after it was renewed")

    async def _headers(self) -> Headers:
        if not self.location.user:
            return ()
        async with self._authenticating:
            if not self._token:
                request = messages.AuthenticateRequest(self.location.user, self.location.password())
                member = self._members[self._active]
                answer = await member.unary(messages.AUTHENTICATE, encode(request), ATTEMPT_S)
                self._token = decode(messages.AuthenticateResponse, answer).token
        return (("token", self._token),)

    def _decoded(self, kind: type[R], data: bytes) -> R:
        try:
            answer = decode(kind, data)
        except ProtobufError as error:
            raise GrpcError(status.INTERNAL, f"not an answer of etcd: {error}") from error
        header: messages.Header | None = getattr(answer, "header", None)
        if header is not None:
            self.check_cluster(header)
        return answer

    def check_cluster(self, header: messages.Header) -> None:
        """All endpoints have to belong to one cluster."""
        if not self._cluster_id:
            self._cluster_id = header.cluster_id
        elif header.cluster_id and header.cluster_id != self._cluster_id:
            raise LogRefusedError(
                self.endpoint,
                f"this member belongs to the cluster {header.cluster_id:x}, the store is in {self._cluster_id:x}",
                "Correct the endpoints in --store. If the cluster was replaced or restored, restart every API server",
            )

    def _check_refusal(self, error: GrpcError, size: int = 0) -> None:
        refusal = refusal_of(error, self.endpoint, self.location, size)
        if refusal is not None:
            raise refusal from None


def refusal_of(error: GrpcError, endpoint: str, location: Location, size: int = 0) -> StoreError | None:
    """What an answer of etcd means to the operator; None if another attempt may succeed."""
    text = error.message.removeprefix("etcdserver: ")
    if _FULL in text:
        reason = (
            "etcd is full (NOSPACE). Compact and defragment it (`etcdctl compact`, `etcdctl defrag`), or raise "
            "--quota-backend-bytes, then `etcdctl alarm disarm`; deletions are accepted meanwhile"
        )
        return WriteFailedError(endpoint, reason, lasting=False)
    if "request is too large" in text:
        limit = "etcd accepts (1.5 MiB by default): make it smaller, or start etcd with a larger --max-request-bytes"
        return TooLargeError(size, limit)
    if "user name is empty" in text:
        return LogRefusedError(
            endpoint, "it requires a user", "Add user=NAME and password-file=FILE to --store, or cert=FILE and key=FILE"
        )
    if "authentication failed" in text or "invalid user ID or password" in text:
        return LogRefusedError(
            endpoint,
            f"it does not accept the password of {location.user!r}",
            "Check user and password-file in --store, and `etcdctl user list`",
        )
    if "authentication is not enabled" in text:
        return LogRefusedError(
            endpoint, "it has no users", "Remove user and password-file from --store, or `etcdctl auth enable`"
        )
    if error.code == status.PERMISSION_DENIED or "permission denied" in text:
        return ForbiddenError(
            endpoint,
            f"the user {location.user or 'of the client certificate'} may not read and write {location.prefix}/",
            f"`etcdctl role grant-permission ROLE readwrite --prefix {location.prefix}/`",
        )
    if "unsupported transaction" in text:  # kine, with the code Unknown and all of the transaction
        return LogRefusedError(endpoint, UNSUPPORTED, "Use etcd, or a newer kine")
    if error.code == status.UNIMPLEMENTED:
        return LogRefusedError(endpoint, f"it does not serve etcd's API: {text}", "Check the endpoints in --store")
    if "required revision has been compacted" in text:
        return CompactedError(endpoint)
    if error.code in (status.INVALID_ARGUMENT, status.OUT_OF_RANGE, status.UNAUTHENTICATED):
        return LogRefusedError(endpoint, text, "Check the options of --store")
    return None
