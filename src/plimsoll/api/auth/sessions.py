"""Sessions of browsers: a one-time code becomes a token that is valid for a while, as the user who asked for the code.

A code is valid for a minute and once; `plimsoll dashboard` prints it in the fragment of an address, which browsers do
not send. Codes and tokens are kept in memory only, as digests: they end with the server. A session whose user came with
a bearer token ends when that token is revoked.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

import msgspec

from plimsoll.api.machinery.users import InvalidCredentialsError, User

CODE_S = 60.0
IDLE_S, LONGEST_S = 3600.0, 12 * 3600.0
SESSION_PREFIX = "plmsess_"
MOST_CODES, MOST_SESSIONS = 1000, 10_000
TokenUser = Callable[[str], User]  # raises InvalidCredentialsError


class _Code(msgspec.Struct, frozen=True):
    user: User
    origin: str
    until_s: float


class _Session(msgspec.Struct):
    user: User
    origin: str  # the bearer token of the user; empty for a certificate
    used_s: float
    until_s: float


class Sessions:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._codes: dict[bytes, _Code] = {}
        self._sessions: dict[bytes, _Session] = {}

    def code(self, user: User, origin: str = "") -> str:
        """A code with which a browser gets a session as this user."""
        now_s = self._clock()
        self._codes = {digest: code for digest, code in self._codes.items() if code.until_s > now_s}
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = _Code(user, origin, now_s + CODE_S)
        return code

    def begin(self, code: str) -> tuple[str, User]:
        """The token of a new session. Raises InvalidCredentialsError for a code that is unknown, old or used."""
        found = self._codes.pop(_digest(code), None)
        if found is None or found.until_s <= self._clock():
            raise InvalidCredentialsError(
                "the code is not valid: it works once, within a minute; `plimsoll dashboard` prints another one"
            )
        return self._begun(found.user, found.origin), found.user

    def _begun(self, user: User, origin: str) -> str:
        now_s = self._clock()
        self._sessions = {digest: each for digest, each in self._sessions.items() if self._is_open(each, now_s)}
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        token = SESSION_PREFIX + secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = _Session(user, origin, now_s, now_s + LONGEST_S)
        return token

    def user(self, token: str, user_of: TokenUser) -> User:
        """`user_of` checks the token that the session began with. Raises InvalidCredentialsError."""
        digest, now_s = _digest(token), self._clock()
        session = self._sessions.get(digest)
        if session is None or not self._is_open(session, now_s):
            self._sessions.pop(digest, None)
            raise InvalidCredentialsError("the session has ended")
        if session.origin:
            user_of(session.origin)
        session.used_s = now_s
        return session.user

    def end(self, token: str) -> None:
        self._sessions.pop(_digest(token), None)

    @staticmethod
    def _is_open(session: _Session, now_s: float) -> bool:
        return now_s < session.until_s and now_s - session.used_s < IDLE_S


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
