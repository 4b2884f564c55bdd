"""The node's presence in the API: registered once, its status and its lease kept fresh for ever (spec 05 B9).

Three duties. `register` makes the Node, or takes the one that is there and mends what it lacks. `report` looks at what
the API has, computes what it should have, and sends the difference where that is worth sending. `renew` says that the
node lives. `run` does them in turn: an API that cannot be reached, refuses or has lost our Node is asked again with
growing pauses, since a node outlives its control plane. Only requests that a kubelet makes are made.

How the node is (pressure, trouble, images) is asked of `health` each time; whoever knows that it has changed calls
`report_soon`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from plimsoll.codec.lean.lean import from_document
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, UnreachableError
from plimsoll.node.reporting.event_recorder import GATHER_S
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.node.node_object import (
    LEASE_NAMESPACE,
    LEASE_RENEWALS,
    READY,
    NodeFacts,
    NodeHealth,
    event_message,
    lease_document,
    metadata_patch,
    node_document,
    node_status,
    says_more_than_alive,
    status_patch,
    transitions,
)
from plimsoll.rules.timestamps import rfc3339, rfc3339_micro

RETRY_FIRST_S, RETRY_MOST_S = 0.2, 7.0
LEASE_JITTER = 0.04  # of the renewal's period, so that a thousand nodes do not come at once
TROUBLES = (ApiError, UnreachableError, TimeoutError)

_log = logging.getLogger(__name__)


class NodeEventSink(Protocol):
    """Records an event about the node; never waits."""

    def __call__(self, kind: str, reason: str, message: str) -> None: ...


class Registration:
    def __init__(
        self,
        client: Client,
        facts: NodeFacts,
        setting: NodeConfig,
        health: Callable[[], NodeHealth],
        tell: NodeEventSink,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.facts, self.setting = facts, setting
        self._client, self._health, self._tell, self._clock = client, health, tell, clock
        self._node: JsonObject = {}  # as the API had it last
        self._lease: JsonObject | None = None
        self._reported_s = 0.0
        self._soon = asyncio.Event()
        self.registered = asyncio.Event()

    @property
    def uid(self) -> str:
        return str((self._node.get("metadata") or {}).get("uid", ""))

    def node(self) -> Node:
        """As the API had it last, for whoever asks for its labels and taints; before that, as it will be registered."""
        found = self._node or node_document(self.facts, self.setting, NodeHealth(), "")
        return from_document(found, Node)

    def report_soon(self) -> None:
        """Something about the node has changed: look at once, not in 10 s."""
        self._soon.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        self._tell("Normal", "Starting", "Starting kubelet.")
        if self.facts.declared_capacity:
            self._tell("Normal", "DeclaredCapacity", self._declared())
        await self._until_done(self.register, "register")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reporting(), name="node status")
            group.create_task(self._renewing(), name="node lease")

    # --- one turn each ---

    async def register(self) -> None:
        """POST; where the Node is there already: GET, mend its labels, report."""
        facts, health = self.facts, self._health()
        wanted = node_document(facts, self.setting, health, rfc3339(self._clock()))
        conditions = wanted["status"]["conditions"]
        try:
            self._node = await self._client.ask(request.create(request.NODES, wanted))
            before: list[JsonObject] = []
            self._reported_s = self._clock()
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._node = await self._client.ask(request.get(request.NODES, facts.name))
            change = metadata_patch(facts, self._node)
            if change is not None:
                self._node = await self._client.ask(request.patch(request.NODES, facts.name, change))
            before = [each for each in _conditions(self._node) if each["type"] == READY]
            await self._send(self._status())
        # An agent that starts tells its pressures anew, whatever the API had; readiness only where it was lost.
        self._tell_transitions(before, conditions)
        self.registered.set()

    async def report(self) -> bool:
        """Whether a status was sent. A Node that somebody has deleted is registered anew."""
        try:
            self._node = await self._client.ask(request.get(request.NODES, self.facts.name))
        except ApiError as error:
            if not error.is_gone:
                raise
            self._lease = None  # it goes with its owner
            await self.register()
            return True
        status = self._status()
        overdue = self._clock() - self._reported_s >= self.setting.config.node_status_report_s
        if not overdue and not says_more_than_alive(self._node, status):
            return False
        before = _conditions(self._node)
        await self._send(status)
        self._tell_transitions(before, status["conditions"])
        return True

    async def renew(self) -> None:
        """PUT with the version we know; made anew where it is missing, looked at again where somebody was faster."""
        name = self.facts.name
        if self._lease is None:
            try:
                self._lease = await self._client.ask(request.get(request.LEASES, name, LEASE_NAMESPACE))
            except ApiError as error:
                if not error.is_gone:
                    raise
                self._lease = await self._client.ask(
                    request.create(request.LEASES, self._renewed(None), LEASE_NAMESPACE)
                )
                return
        lease, self._lease = self._lease, None  # refused or lost: the next turn looks first
        changed = request.replace(request.LEASES, self._renewed(lease), name, LEASE_NAMESPACE)
        self._lease = await self._client.ask(changed)

    # --- loops ---

    async def _reporting(self) -> None:
        while True:
            self._soon.clear()
            await self._until_done(self.report, "report the node's status")
            try:
                async with asyncio.timeout(self.setting.config.node_status_update_s):
                    await self._soon.wait()
                await asyncio.sleep(GATHER_S)
            except TimeoutError:
                pass

    async def _renewing(self) -> None:
        while True:
            await self._until_done(self.renew, "renew the node's lease")
            pause_s = self.setting.config.node_lease_s / LEASE_RENEWALS
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.0 + LEASE_JITTER))

    async def _until_done(self, turn: Callable[[], Awaitable[Any]], what: str) -> None:
        pause, told = RETRY_FIRST_S, ""
        while True:
            try:
                await turn()
            except TROUBLES as error:
                if (trouble := str(error) or type(error).__name__) != told:
                    told = trouble
                    _log.warning("cannot %s: %s; trying again", what, trouble)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, RETRY_MOST_S)
            else:
                if told:
                    _log.info("the API answers again: %s", what)
                return

    # ---

    def _status(self) -> JsonObject:
        now = rfc3339(self._clock())
        return node_status(self.facts, self.setting, self._health(), _conditions(self._node), now)

    async def _send(self, status: Mapping[str, Any]) -> None:
        change = status_patch(self._node, status)
        if change is not None:
            asked = request.patch(request.NODES, self.facts.name, change, subresource="status")
            self._node = await self._client.ask(asked)
        self._reported_s = self._clock()

    def _renewed(self, before: JsonObject | None) -> JsonObject:
        duration_s = self.setting.config.node_lease_s
        return lease_document(self.facts.name, self.uid, duration_s, rfc3339_micro(self._clock()), before)

    def _tell_transitions(self, before: list[JsonObject], after: list[JsonObject]) -> None:
        for kind, reason in transitions(before, after):
            self._tell(kind, reason, event_message(self.facts.name, reason))

    def _declared(self) -> str:
        return (
            f"Node {self.facts.name} counts as {self.facts.declared_capacity}, as declared, whatever the machine has: "
            "allocatable, admission and OOM scores follow that"
        )


def _conditions(node: Mapping[str, Any]) -> list[JsonObject]:
    return list((node.get("status") or {}).get("conditions") or ())
