"""No user can block the others: what a user may have in hand, by the cost of the requests.

As in API Priority and Fairness each user is a flow. Administrators, nodes and the control plane are exempt: they have
only a rate, which is high. Everyone else, and all without credentials together, are limited:

- in rate: a token bucket, from which a request that reads many objects takes more. A request above the rate gets its
  429 after a pause, so a client that does not wait cannot keep the server busy with refusals;
- in seats: a few long requests (lists, watches that begin with a list, large bodies, writes of large objects) at a
  time; more wait, in the order of arrival, up to a number and a time. A body is read when its request has a seat, so
  few are in memory; those of all limited users together have a limit;
- in watches, of which one with a long selector counts as several, and connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import msgspec

from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.metrics import RequestMetrics
from plimsoll.api.machinery.rounds import Rounds
from plimsoll.api.machinery.status import too_many_requests
from plimsoll.api.machinery.users import MASTERS, User

PAUSE_S = 1.0  # before a refusal of a limited user
SEAT_WAIT_S = 15.0
LONG_OBJECTS = 250  # a request that reads more is long
URL_BYTES = 4096  # a request costs 1 more for each of so many; parsing and checking 60 KB takes about a millisecond
COST = {"list": 10, "watch": 10, "deletecollection": 10, "create": 5}  # of the rate; others cost 1
_USERS = 10_000  # above it the oldest idle ones are dropped, which only gives them a full bucket again


def is_exempt(user: User) -> bool:
    return MASTERS in user.groups or bool(user.node)


class Flow(msgspec.Struct, eq=False):
    """What one user has in hand."""

    tokens: float
    since_s: float
    seats: int = 0
    waiting: deque[asyncio.Future[None]] = msgspec.field(default_factory=deque)
    watches: int = 0

    @property
    def is_idle(self) -> bool:
        return not (self.seats or self.waiting or self.watches)


class Fairness:
    def __init__(self, limits: Limits, meter: RequestMetrics, rounds: Rounds, clock: Callable[[], float]) -> None:
        self._limits, self._meter, self._rounds, self._clock = limits, meter, rounds, clock
        self._flows: dict[str, Flow] = {}
        self._large_body_bytes = 0  # in memory

    async def admit(self, user: User, verb: str) -> None:
        """Count a request against the user's rate. Raises 429."""
        limits, meter, exempt = self._limits, self._meter, is_exempt(user)
        flow = self._flow(user.name, exempt)
        cost = 1 if exempt else min(COST.get(verb, 1), limits.user_burst)
        is_over = flow.tokens < cost
        if not is_over:
            flow.tokens -= cost
            if exempt:
                return
            if verb == "watch" or meter.in_flight < limits.in_flight:
                await self._rounds.next(user.name)  # hundreds that arrive together are answered one by one
                return
        what = "too many requests" if is_over else "too many concurrent requests"
        await self._refuse(user, f"{what}, please try again later", 1)

    async def slow_down(self, user: User, cost: int = 1) -> None:
        """Count what is answered in any case, above the rate later: a page, an error before any request, a long URL."""
        if is_exempt(user):
            return
        flow = self._flow(user.name, exempt=False)
        cost = min(cost, self._limits.user_burst)
        if flow.tokens >= cost:
            flow.tokens -= cost
        else:
            await asyncio.sleep(PAUSE_S)
        await self._rounds.next(user.name)

    async def _refuse(self, user: User, message: str, retry_after_s: int) -> NoReturn:
        self._meter.refused += 1
        if not is_exempt(user):
            await asyncio.sleep(PAUSE_S)
            await self._rounds.next(user.name)
        raise too_many_requests(message, retry_after_s=retry_after_s)

    def _flow(self, name: str, exempt: bool) -> Flow:
        limits, now_s = self._limits, self._clock()
        burst = float(limits.burst if exempt else min(limits.burst, limits.user_burst))
        per_s = limits.requests_per_s if exempt else min(limits.requests_per_s, limits.user_per_s)
        flow = self._flows.pop(name, None)
        if flow is None:
            flow = Flow(burst, now_s)
            if len(self._flows) >= _USERS:
                oldest = next(iter(self._flows))
                if self._flows[oldest].is_idle:
                    del self._flows[oldest]
        flow.tokens = min(burst, flow.tokens + (now_s - flow.since_s) * per_s)
        flow.since_s = now_s
        self._flows[name] = flow  # now the newest
        return flow

    # --- seats ---

    async def take_seat(self, user: User, objects: int, body_bytes: int = 0) -> Seat:
        """For a request that reads this many objects and has such a body; a long one may have to wait. Raises 429."""
        if objects <= LONG_OBJECTS or is_exempt(user):
            return NO_SEAT
        flow, limits = self._flow(user.name, exempt=False), self._limits
        if flow.seats < limits.user_seats:
            flow.seats += 1
        elif len(flow.waiting) < limits.user_waiting:
            await self._wait(flow)
        else:
            await self._refuse(user, self._no_seat(), 5)
        if self._large_body_bytes + body_bytes > limits.large_body_bytes:
            Seat(flow).leave()
            await self._refuse(user, "too many large request bodies, please try again later", 5)
        self._large_body_bytes += body_bytes
        return Seat(flow, lambda: self._let_go(body_bytes))

    def _let_go(self, body_bytes: int) -> None:
        self._large_body_bytes -= body_bytes

    async def _wait(self, flow: Flow) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow.waiting.append(place)
        is_seated = False
        try:
            async with asyncio.timeout(SEAT_WAIT_S):
                await place  # a seat is handed over
            is_seated = True
        except TimeoutError:
            self._meter.refused += 1
            raise too_many_requests(self._no_seat(), retry_after_s=5) from None
        finally:
            if place in flow.waiting:
                flow.waiting.remove(place)
            elif not is_seated:  # handed over too late
                Seat(flow).leave()

    def _no_seat(self) -> str:
        return (
            f"{self._limits.user_seats} long requests of this user are being answered and others wait: read their "
            "answers, use limit=500, or try again later"
        )

    # --- watches ---

    @asynccontextmanager
    async def watch(self, user: User, cost: int = 1) -> AsyncIterator[None]:
        """Around a watch, or a WebSocket. Raises 429."""
        limits, exempt = self._limits, is_exempt(user)
        flow = self._flow(user.name, exempt)
        cost = min(cost, limits.user_watches)
        if not exempt and flow.watches + cost > limits.user_watches:
            what = "watches and WebSockets of this user are open, which is the limit (long selectors count as several)"
            await self._refuse(user, f"{limits.user_watches} {what}", 5)
        if self._meter.all_watchers >= limits.watchers:
            await self._refuse(user, f"{limits.watchers} watches are open, which is the limit", 5)
        flow.watches += cost
        try:
            yield
        finally:
            flow.watches -= cost


class Seat:
    """A place of a user's long requests, until `leave`, which may be called twice."""

    def __init__(self, flow: Flow | None, let_go: Callable[[], None] = lambda: None) -> None:
        self._flow, self._let_go = flow, let_go

    def leave(self) -> None:
        flow, self._flow = self._flow, None
        if flow is None:
            return
        self._let_go()
        while flow.waiting:
            place = flow.waiting.popleft()
            if not place.done():
                place.set_result(None)  # it has the seat now
                return
        flow.seats -= 1


NO_SEAT = Seat(None)  # of a request that needs none
