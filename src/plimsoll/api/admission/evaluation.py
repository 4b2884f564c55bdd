"""Expressions of policies and match conditions on one request: short ones at once, long ones in a thread.

What they cost is known only afterwards. So they begin in the event loop with a small allowance; if that is used up,
they begin again in a thread of their own, with Kubernetes' limits and an end after ten seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from plimsoll.api.auth.roles import may_read_path, verdict
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.users import User
from plimsoll.codec.cel.authorizer import Answer, Attributes
from plimsoll.codec.cel.evaluator import Allowance
from plimsoll.codec.cel.values import LongError, StoppedError
from plimsoll.rules.access.rbac import Attributes as AccessAttributes

AT_ONCE = 1_000  # units, each of 2 to 10 microseconds
TIME_S = 10.0  # of all long expressions of one request, as webhooks have by default
_POLL_S = 0.5  # how often a thread that waits for the event loop checks whether it is to stop
_Result = TypeVar("_Result")
Judge = Callable[[Attributes], Answer]


class Evaluator:
    def __init__(self, cluster: Cluster, call: ApiCall) -> None:
        self._cluster, self._call = cluster, call
        self._at_once = Allowance(AT_ONCE)
        self._left_s = TIME_S

    async def run(self, work: Callable[[Allowance, Judge], _Result]) -> _Result:
        """`work` reads nothing but its inputs and changes nothing, since it may begin twice."""
        try:
            return work(self._at_once, self._judge)
        except LongError:
            loop = asyncio.get_running_loop()
            return await self._cluster.expressions.run(self._call.user.name, lambda: self._long(work, loop))

    def _long(self, work: Callable[[Allowance, Judge], _Result], loop: asyncio.AbstractEventLoop) -> _Result:
        began, worker = time.monotonic(), self._cluster.expressions
        end = began + self._left_s

        def is_stopped() -> bool:
            return worker.is_closed or time.monotonic() > end

        def judge(asked: Attributes) -> Answer:
            """Roles are read in the event loop, where they change."""
            answer = asyncio.run_coroutine_threadsafe(self._judged(asked), loop)
            while not is_stopped():
                try:
                    return answer.result(_POLL_S)
                except TimeoutError:
                    continue
            raise StoppedError

        try:
            return work(Allowance(is_stopped=is_stopped), judge)
        finally:
            self._left_s -= time.monotonic() - began

    async def _judged(self, asked: Attributes) -> Answer:
        return self._judge(asked)

    def _judge(self, asked: Attributes) -> Answer:
        """For `authorizer` in expressions."""
        who = self._call.user
        if asked.user:
            _, _, namespace, _name = asked.user.split(":", 3)
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
            who = User(asked.user, frozenset(groups))
        if asked.path:
            return Answer(may_read_path(who, asked.path, self._cluster, asked.verb))
        wanted = AccessAttributes(
            asked.verb, asked.resource, asked.group, asked.subresource, asked.namespace, asked.name
        )
        found = verdict(who, wanted, self._cluster)
        return Answer(found.allowed, found.reason)
