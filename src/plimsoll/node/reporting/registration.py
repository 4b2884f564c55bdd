"""The Node object: registered once, its status and its lease updated until the agent stops (05 B9).

`register` creates the Node, or adds what an existing one lacks. `report` reads the Node, computes its status and
patches the difference where it matters. `renew` renews the lease. `run` does all three: after an error, or when the
Node was deleted, it retries with growing delays, since a node outlives its control plane. Only requests that a kubelet
makes are made.

`health` returns the state of the node (pressure, errors, images) for each report; call `report_soon` when it has
changed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from plimsoll.aio import ExponentialBackoff
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import InvalidObjectError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, Request, UnreachableError, UnusableAnswerError
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
LEASE_JITTER = 0.04  # of the renewal interval, so that many nodes do not renew at once
RETRIED = (ApiError, UnreachableError, TimeoutError)

_log = logging.getLogger(__name__)


class NodeEventSink(Protocol):
    """Records an event about the node; never waits."""

    def __call__(self, kind: str, reason: str, message: str) -> None: ...


class _Status(msgspec.Struct):
    conditions: list[dict[str, str]] | None = None
    addresses: list[dict[str, str]] | None = None
    images: list[dict[str, Any]] | None = None
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class Registration:
    def __init__(
        self,
        client: Client,
        facts: NodeFacts,
        setting: NodeConfig,
        health: Callable[[], NodeHealth],
        record: NodeEventSink,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.facts, self.setting = facts, setting
        self._client, self._health, self._record, self._clock = client, health, record, clock
        self._node: JsonObject = {}  # as the API had it last
        self._lease: JsonObject | None = None
        self._reported_s = 0.0
        self._soon = asyncio.Event()
        self.registered = asyncio.Event()

    @property
    def uid(self) -> str:
        return str((self._node.get("metadata") or {}).get("uid", ""))

    def node(self) -> Node:
        """As last read from the API; before that, as it will be registered."""
        document = self._node or node_document(self.facts, self.setting, NodeHealth(), "")
        return from_document(document, Node)

    def report_soon(self) -> None:
        """The node has changed: report now, not at the next interval."""
        self._soon.set()

    async def run(self) -> None:
        """Until cancelled."""
        self._record("Normal", "Starting", "Starting kubelet.")
        warning = self.setting.profile.cgroup_v1_warning if self.setting.policy.cgroup_version == 1 else ""
        if warning:
            _log.warning("%s", warning)
            self._record("Warning", "CgroupV1", warning)
        if self.facts.declared_capacity:
            self._record("Normal", "DeclaredCapacity", self._declared())
        await self._retry(self.register, "register")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_loop(), name="node status")
            group.create_task(self._renew_loop(), name="node lease")

    # --- one pass each ---

    async def register(self) -> None:
        """POST; where the Node exists: GET, add missing labels, report."""
        facts, health = self.facts, self._health()
        desired = node_document(facts, self.setting, health, rfc3339(self._clock()))
        conditions = desired["status"]["conditions"]
        try:
            self._node = await self._ask(request.create(request.NODES, desired))
            before: list[JsonObject] = []
            self._reported_s = self._clock()
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._node = await self._ask(request.get(request.NODES, facts.name))
            change = metadata_patch(facts, self._node)
            if change is not None:
                self._node = await self._ask(request.patch(request.NODES, facts.name, change))
            before = [condition for condition in _conditions(self._node) if condition["type"] == READY]
            await self._send(self._status())
        # A starting agent always emits events for its pressure conditions, for readiness only where it has changed.
        self._record_transitions(before, conditions)
        self.registered.set()

    async def read(self) -> None:
        """Read the Node now: another client may have changed its labels, taints or resources."""
        self._node = await self._ask(request.get(request.NODES, self.facts.name))

    async def report(self) -> bool:
        """Whether a status was sent. A deleted Node is registered again."""
        try:
            self._node = await self._ask(request.get(request.NODES, self.facts.name))
        except ApiError as error:
            if not error.is_gone:
                raise
            self._lease = None  # it is deleted with its owner
            await self.register()
            return True
        status = self._status()
        overdue = self._clock() - self._reported_s >= self.setting.config.node_status_report_s
        if not overdue and not says_more_than_alive(self._node, status):
            return False
        before = _conditions(self._node)
        await self._send(status)
        self._record_transitions(before, status["conditions"])
        return True

    async def renew(self) -> None:
        """PUT with the known version; a missing lease is created, and after a conflict the next pass reads it again."""
        name = self.facts.name
        if self._lease is None:
            try:
                self._lease = await self._client.ask(request.get(request.LEASES, name, LEASE_NAMESPACE))
            except ApiError as error:
                if not error.is_gone:
                    raise
                self._lease = await self._client.ask(
                    request.create(request.LEASES, self._renewed_lease(None), LEASE_NAMESPACE)
                )
                return
        lease, self._lease = self._lease, None  # after an error the next pass reads it first
        changed = request.replace(request.LEASES, self._renewed_lease(lease), name, LEASE_NAMESPACE)
        self._lease = await self._client.ask(changed)

    # --- loops ---

    async def _report_loop(self) -> None:
        while True:
            self._soon.clear()
            await self._retry(self.report, "report the node's status")
            try:
                async with asyncio.timeout(self.setting.config.node_status_update_s):
                    await self._soon.wait()
                await asyncio.sleep(GATHER_S)
            except TimeoutError:
                pass

    async def _renew_loop(self) -> None:
        while True:
            await self._retry(self.renew, "renew the node's lease")
            pause_s = self.setting.config.node_lease_s / LEASE_RENEWALS
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.0 + LEASE_JITTER))

    async def _retry(self, action: Callable[[], Awaitable[Any]], title: str) -> None:
        backoff, logged = ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S), ""
        while True:
            try:
                await action()
            except RETRIED as error:
                if (message := str(error) or type(error).__name__) != logged:
                    logged = message
                    _log.warning("cannot %s: %s; retrying", title, message)
                await asyncio.sleep(backoff.next_s() * random.uniform(0.5, 1.0))
            else:
                if logged:
                    _log.info("the API server answers again: %s", title)
                return

    # ---

    async def _ask(self, call: Request) -> JsonObject:
        """The Node in the response, with all that is read of it later."""
        node = await self._client.ask(call)
        try:
            from_document(node, Node)
            msgspec.convert(node.get("status") or {}, _Status)
        except (InvalidObjectError, msgspec.ValidationError) as error:
            raise UnusableAnswerError(f"the Node in the response is invalid: {error}") from None
        return node

    def _status(self) -> JsonObject:
        now = rfc3339(self._clock())
        return node_status(self.facts, self.setting, self._health(), _conditions(self._node), now)

    async def _send(self, status: Mapping[str, Any]) -> None:
        change = status_patch(self._node, status)
        if change is not None:
            patch = request.patch(request.NODES, self.facts.name, change, subresource="status")
            self._node = await self._ask(patch)
        self._reported_s = self._clock()

    def _renewed_lease(self, before: JsonObject | None) -> JsonObject:
        duration_s = self.setting.config.node_lease_s
        return lease_document(self.facts.name, self.uid, duration_s, rfc3339_micro(self._clock()), before)

    def _record_transitions(self, before: list[JsonObject], after: list[JsonObject]) -> None:
        for kind, reason in transitions(before, after):
            self._record(kind, reason, event_message(self.facts.name, reason))

    def _declared(self) -> str:
        return (
            f"Node {self.facts.name} has the declared capacity {self.facts.declared_capacity}, not the machine's: "
            "allocatable, admission and OOM scores are computed from it"
        )


def _conditions(node: Mapping[str, Any]) -> list[JsonObject]:
    return list((node.get("status") or {}).get("conditions") or ())
