"""One-time codes and sessions of browsers."""

from __future__ import annotations

import pytest

from plimsoll.api.auth.sessions import CODE_S, IDLE_S, LONGEST_S, MOST_CODES, SESSION_PREFIX, Sessions
from plimsoll.api.machinery.users import InvalidCredentialsError, User

ANNA = User("anna", frozenset({"system:authenticated", "dev"}))


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


def known(token: str) -> User:
    """The user of the token with which the code was asked for."""
    if token != "plm_anna":
        raise InvalidCredentialsError
    return ANNA


def test_a_code_works_once(sessions: Sessions) -> None:
    code = sessions.code(ANNA)
    token, user = sessions.begin(code)
    assert user == ANNA and token.startswith(SESSION_PREFIX) and len(token) > 40
    assert sessions.user(token, known) == ANNA
    with pytest.raises(InvalidCredentialsError, match="works once"):
        sessions.begin(code)


@pytest.mark.parametrize(("age_s", "works"), [(CODE_S - 1, True), (CODE_S, False)], ids=["within a minute", "later"])
def test_a_code_works_for_a_minute(sessions: Sessions, clock: Clock, age_s: float, works: bool) -> None:
    code = sessions.code(ANNA)
    clock.now_s += age_s
    if works:
        sessions.begin(code)
    else:
        with pytest.raises(InvalidCredentialsError):
            sessions.begin(code)


@pytest.mark.parametrize("code", ["", "x", "\udce4", "A" * 10_000])
def test_a_wrong_code_is_refused(sessions: Sessions, code: str) -> None:
    sessions.code(ANNA)
    with pytest.raises(InvalidCredentialsError):
        sessions.begin(code)


def test_a_session_ends_without_use_and_after_half_a_day(sessions: Sessions, clock: Clock) -> None:
    token, _ = sessions.begin(sessions.code(ANNA))
    begun_s = clock.now_s
    while clock.now_s + IDLE_S - 1 < begun_s + LONGEST_S:
        clock.now_s += IDLE_S - 1
        assert sessions.user(token, known) == ANNA
    clock.now_s = begun_s + LONGEST_S
    with pytest.raises(InvalidCredentialsError, match="ended"):
        sessions.user(token, known)
    idle, _ = sessions.begin(sessions.code(ANNA))
    clock.now_s += IDLE_S
    with pytest.raises(InvalidCredentialsError, match="ended"):
        sessions.user(idle, known)


def test_a_session_ends_with_the_token_it_began_with(sessions: Sessions) -> None:
    kept, _ = sessions.begin(sessions.code(ANNA, "plm_anna"))
    revoked, _ = sessions.begin(sessions.code(ANNA, "plm_revoked"))
    assert sessions.user(kept, known) == ANNA
    with pytest.raises(InvalidCredentialsError):
        sessions.user(revoked, known)


def test_logout_ends_it(sessions: Sessions) -> None:
    token, _ = sessions.begin(sessions.code(ANNA))
    sessions.end(token)
    with pytest.raises(InvalidCredentialsError):
        sessions.user(token, known)


def test_codes_are_bounded(sessions: Sessions) -> None:
    first = sessions.code(ANNA)
    for _ in range(MOST_CODES):
        sessions.code(ANNA)
    assert len(sessions._codes) == MOST_CODES
    with pytest.raises(InvalidCredentialsError):
        sessions.begin(first)
