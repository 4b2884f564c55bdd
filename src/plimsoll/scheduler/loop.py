"""The scheduling loop: watch pods and nodes, decide for one pod at a time, bind in the background.

Each decision counts the pods of all earlier decisions as placed, so it does not wait for their bindings. After a failed
request (a refused binding, a lost connection) the pod is tried again. All requests are those of kube-scheduler, so it
works with any Kubernetes control plane.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from plimsoll.aio import Wakeup
from plimsoll.codec.lean.lean import from_document, pod_from_json
from plimsoll.errors import InvalidObjectError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.reflector import ObjectChange, Reflector
from plimsoll.kube.request import ApiError, ResourcePath, UnreachableError
from plimsoll.rules.model.objects import LabelSelector, Node, Pod
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.cycle import (
    WAIT_CHECK_S,
    SchedulingDecision,
    by_node,
    preempted_message,
    scheduled_message,
)
from plimsoll.rules.scheduling.default_spread import Owner
from plimsoll.rules.scheduling.deferred import is_deferred, preemption_for_resize
from plimsoll.rules.scheduling.fit import is_terminal, resident_load, waiting_load
from plimsoll.rules.scheduling.preemption import Preemption
from plimsoll.rules.scheduling.topology import depends_on_others
from plimsoll.rules.timestamps import rfc3339, rfc3339_micro
from plimsoll.scheduler import messages
from plimsoll.scheduler.cache import SchedulerCache
from plimsoll.scheduler.choice import Choice
from plimsoll.scheduler.objects import (
    BUDGETS,
    CONTROLLERS,
    LIVE_PODS,
    NAMESPACES,
    SERVICES,
    VOLUME_KINDS,
    Labelled,
    SchedulingFields,
    ServiceView,
)
from plimsoll.scheduler.queue import Queue, QueuedPod

MAX_IN_FLIGHT = 64

log = logging.getLogger(__name__)


class _NotServedError(Exception):
    """The API server has no such kind."""


class Scheduler:
    """`run` until cancelled. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        client: Client,
        profile: Profile,
        host: str,
        clock: Callable[[], float],
        *,
        preempts_for_resizes: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        """`preempts_for_resizes`: also for pods whose node has deferred their resize (`rules.scheduling.deferred`)."""
        self._preempts_for_resizes = preempts_for_resizes
        self._client, self._profile, self._host, self._clock = client, profile, host, clock
        self._rng = rng or random.Random()
        self.cache = SchedulerCache(profile)
        self.queue = Queue()
        self._choice = Choice(self.cache, profile)
        self._budgets: dict[tuple[str, str], PodDisruptionBudget] = {}
        self._versions: dict[str, str] = {}  # uid → resourceVersion of a waiting pod, for its events
        self._reported: dict[str, tuple[str, str, int]] = {}  # uid → message, name and count of its FailedScheduling
        self._nominations: dict[str, str] = {}  # uid → nominated node, until the API shows it
        self._nominees: dict[str, Pod] = {}  # waiting pods with a nominated node, by uid
        self._wakeup = Wakeup()
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._synced = 0
        self.decisions = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(Reflector(request.NODES), self._node_changed))
            group.create_task(self._follow(Reflector(request.PODS, fields=LIVE_PODS), self._pod_changed))
            group.create_task(self._follow(Reflector(BUDGETS), self._budget_changed))
            group.create_task(self._follow(Reflector(NAMESPACES), self._namespace_changed))
            group.create_task(self._follow_if_served(SERVICES, self._service_changed))
            for path in VOLUME_KINDS:
                group.create_task(self._follow_if_served(path, partial(self._volumes_changed, path.kind)))
            for path in CONTROLLERS:
                group.create_task(self._follow_if_served(path, partial(self._controller_changed, path)))
            await self._schedule(group)

    # --- watching ---

    async def _follow(self, reflector: Reflector, changed: Callable[[ObjectChange], None]) -> None:
        first = True
        async for changes in self._client.follow(reflector, self._on_error):
            for change in changes:
                try:
                    changed(change)
                except (InvalidObjectError, msgspec.ValidationError) as error:
                    log.warning("%s: ignored: %s", "/".join(change.key), error)
            self._synced += first
            first = False
            self._wakeup.set()

    async def _follow_if_served(self, path: ResourcePath, changed: Callable[[ObjectChange], None]) -> None:
        """Kinds that only improve the spread of pods: the API may not have them."""

        def on_error(error: Exception) -> None:
            if isinstance(error, ApiError) and error.code == 404:
                raise _NotServedError
            self._on_error(error)

        with suppress(_NotServedError):
            async for changes in self._client.follow(Reflector(path), on_error):
                for change in changes:
                    changed(change)

    def _volumes_changed(self, kind: str, change: ObjectChange) -> None:
        document = None if change.kind == "DELETED" else msgspec.json.decode(change.body)
        self.cache.claims.put(kind, *change.key, document)
        self.queue.wake()
        self._wakeup.set()

    def _service_changed(self, change: ObjectChange) -> None:
        namespace, name = change.key
        services = self.cache.services.setdefault(namespace, {})
        selector = None
        if change.kind != "DELETED":
            selector = msgspec.json.decode(change.body, type=ServiceView).spec.selector
        if selector:
            services[name] = selector
        else:
            services.pop(name, None)

    def _controller_changed(self, path: ResourcePath, change: ObjectChange) -> None:
        namespace, name = change.key
        key = (namespace, Owner(path.base.removeprefix("/apis/").removeprefix("/api/"), path.kind, name))
        selector = None
        if change.kind != "DELETED":
            selector = (msgspec.json.decode(change.body).get("spec") or {}).get("selector")
        if not selector:
            self.cache.controllers.pop(key, None)
        elif path.kind == "ReplicationController":  # labels only
            self.cache.controllers[key] = LabelSelector(selector)
        else:
            self.cache.controllers[key] = from_document(selector, LabelSelector)

    def _on_error(self, error: Exception) -> None:
        log.warning("watching the API server failed, trying again: %s", error)

    def _node_changed(self, change: ObjectChange) -> None:
        if change.kind == "DELETED":
            self.cache.drop_node(change.key[1])
        elif self.cache.put_node(from_document(msgspec.json.decode(change.body), Node)):
            self.queue.wake()

    def _budget_changed(self, change: ObjectChange) -> None:
        if change.kind == "DELETED":
            self._budgets.pop(change.key, None)
        else:
            self._budgets[change.key] = from_document(msgspec.json.decode(change.body), PodDisruptionBudget)

    def _namespace_changed(self, change: ObjectChange) -> None:
        """Namespace selectors of pod affinity read the labels."""
        name = change.key[1]
        if change.kind == "DELETED":
            self.cache.namespaces.pop(name, None)
            return
        labels = msgspec.json.decode(change.body, type=Labelled).metadata.labels or {}
        if self.cache.namespaces.get(name) != labels:
            self.cache.namespaces[name] = labels
            self.queue.wake(depends_on_others)

    def _pod_changed(self, change: ObjectChange) -> None:
        uid = change.uid
        if change.kind == "DELETED":
            self._done(uid)
            if self.cache.drop_pod(uid):
                self.queue.wake()
            return
        pod = pod_from_json(change.body)
        extra = msgspec.json.decode(change.body, type=SchedulingFields)
        if pod.spec.node_name:
            self._placed_pod_changed(pod, is_ours=extra.spec.scheduler_name == messages.SCHEDULER)
            return
        is_schedulable = extra.spec.scheduler_name == messages.SCHEDULER and not extra.spec.scheduling_gates
        if not is_schedulable or is_terminal(pod) or pod.metadata.deletion_timestamp is not None:
            self._done(uid)
        elif not self.cache.is_placed(uid):
            self._versions[uid] = extra.metadata.resource_version
            if (owner := extra.metadata.owner()) is not None:
                self.cache.owners[uid] = owner
            self.cache.claims.set_claims(uid, extra.spec.claim_names())
            self._nominations.pop(uid, None)
            if pod.status.nominated_node_name:
                self._nominees[uid] = pod
            else:
                self._nominees.pop(uid, None)
            self.queue.put(pod, self._clock())

    def _placed_pod_changed(self, pod: Pod, *, is_ours: bool) -> None:
        uid, name = pod.metadata.uid, pod.spec.node_name
        before = self.cache.resident(uid)
        is_freed = self.cache.put_pod(pod)
        now = self.cache.resident(uid)
        is_leaving = is_terminal(pod) or pod.metadata.deletion_timestamp is not None
        if self._preempts_for_resizes and is_ours and is_deferred(pod) and not is_leaving:
            self.queue.put(pod, self._clock())
        else:
            self._done(uid)
        if is_freed:
            self.queue.wake()
        elif before is None or now is None or before.requests != now.requests:
            self.queue.wake(lambda waiting: depends_on_others(waiting) or waiting.spec.node_name == name)
        else:
            self.queue.wake(lambda waiting: depends_on_others(waiting) and not waiting.spec.node_name)

    def _done(self, uid: str) -> None:
        self.queue.drop(uid)
        self.cache.claims.forget(uid)
        for by_uid in (self._versions, self._reported, self._nominations, self._nominees, self.cache.owners):
            by_uid.pop(uid, None)

    # --- scheduling ---

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        while True:
            now = self._clock()
            self.queue.wake_leftover(now)
            queued = self.queue.pop(now) if self._synced >= 2 else None  # nodes and pods; the API may have no budgets
            if queued is None:
                await self._pause(now)
                continue
            await self._in_flight.acquire()
            group.create_task(self._execute(queued, self._decide(queued)))
            await asyncio.sleep(0)  # process watch events between two decisions

    async def _pause(self, now: float) -> None:
        due = self.queue.next_due_s()
        pause = WAIT_CHECK_S if due is None else min(max(due - now, 0.0), WAIT_CHECK_S)
        await self._wakeup.wait(pause)

    def _decide(self, queued: QueuedPod) -> SchedulingDecision:
        self.decisions += 1
        nominated = by_node(waiting_load(self._nominated(pod)) for pod in self._nominees.values())
        name, budgets = queued.pod.spec.node_name, tuple(self._budgets.values())
        if name:
            rivals = nominated.get(name, ())
            outcome = preemption_for_resize(queued.pod, self.cache.load(name), self._profile, rivals, budgets)
            return SchedulingDecision(preemption=outcome)
        decision = self._choice.decide(queued.pod, nominated, budgets)
        if decision.nodes:
            chosen = self._rng.choice(decision.nodes)
            bound = msgspec.structs.replace(queued.pod, spec=msgspec.structs.replace(queued.pod.spec, node_name=chosen))
            self.cache.assume(resident_load(bound, self._profile), chosen)
            return msgspec.structs.replace(decision, nodes=(chosen,))
        return decision

    def _nominated(self, pod: Pod) -> Pod:
        name = self._nominations.get(pod.metadata.uid)
        if name is None or name == pod.status.nominated_node_name:
            return pod
        return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=name))

    async def _execute(self, queued: QueuedPod, decision: SchedulingDecision) -> None:
        uid = queued.pod.metadata.uid
        try:
            if decision.nodes:
                await self._bind(queued.pod, decision.nodes[0])
            elif not queued.pod.spec.node_name:
                await self._handle_unschedulable(queued.pod, decision)
                self.queue.failed(uid, self._clock())
            else:
                if decision.preemption is not None and decision.preemption.candidate is not None:
                    await self._preempt(queued.pod, decision.preemption)
                self.queue.failed(uid, self._clock())
        except (ApiError, UnreachableError, TimeoutError) as error:
            self.cache.forget(uid)
            if isinstance(error, ApiError) and error.is_gone:
                self._done(uid)
            else:
                log.warning("%s/%s: %s", queued.pod.metadata.namespace, queued.pod.metadata.name, error)
                self.queue.retry(uid, self._clock())
        finally:
            self._in_flight.release()
            self._wakeup.set()

    async def _bind(self, pod: Pod, node: str) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        version = self._versions.get(pod.metadata.uid, "")
        began_ns = time.time_ns()  # the node may act on the binding before its response is here
        await self._client.ask(request.create(request.PODS, messages.binding(pod, node), namespace, name, "binding"))
        self.queue.drop(pod.metadata.uid)
        await self._emit_event(pod, "Normal", "Scheduled", "Binding", scheduled_message(pod, node), version, began_ns)

    async def _handle_unschedulable(self, pod: Pod, decision: SchedulingDecision) -> None:
        outcome = decision.preemption
        chosen = outcome.candidate if outcome is not None else None
        nominated = chosen.node if chosen is not None else None
        if outcome is not None and chosen is None and not outcome.ineligible and pod.metadata.uid in self._nominees:
            # Its room has gone to others. Pods that are nominated to one node must not wait for each other.
            nominated = ""
            self._nominations.pop(pod.metadata.uid, None)
            self._nominees.pop(pod.metadata.uid, None)
            self.queue.wake()
        if chosen is not None:  # before anything is sent: the next decision counts it
            self._nominations[pod.metadata.uid] = chosen.node
            self._nominees[pod.metadata.uid] = pod
        await self._report_unschedulable(pod, decision.message, nominated)
        if outcome is not None and chosen is not None:
            await self._preempt(pod, outcome)

    async def _report_unschedulable(self, pod: Pod, message: str, nominated: str | None) -> None:
        uid, name, namespace = pod.metadata.uid, pod.metadata.name, pod.metadata.namespace
        reported, event_name, count = self._reported.get(uid, ("", "", 0))
        if reported == message and nominated is None:
            self._reported[uid] = (reported, event_name, count + 1)
            change = messages.repeated(count + 1, _micro_time())
            await self._client.ask(
                request.patch(request.NEW_EVENTS, event_name, change, namespace, content_type=request.MERGE)
            )
            return
        generation = pod.metadata.generation if self._profile.scheduler_observed_generation else None
        change = messages.unschedulable(pod, message, _time(), generation=generation, nominated=nominated)
        answered = await self._client.ask(request.patch(request.PODS, name, change, namespace, "status"))
        version = answered["metadata"].get("resourceVersion", "")
        event_name = await self._emit_event(pod, "Warning", "FailedScheduling", "Scheduling", message, version)
        self._reported[uid] = (message, event_name, 1)

    async def _preempt(self, pod: Pod, outcome: Preemption) -> None:
        assert outcome.candidate is not None
        for victim in outcome.candidate.victims:
            if victim.metadata.deletion_timestamp is not None:  # it is on its way out
                continue
            name, namespace = victim.metadata.name, victim.metadata.namespace
            generation = victim.metadata.generation if self._profile.scheduler_observed_generation else None
            change = messages.disruption(victim, _time(), generation=generation)
            try:
                await self._client.ask(request.patch(request.PODS, name, change, namespace, "status"))
                await self._client.ask(request.delete(request.PODS, name, namespace, uid=victim.metadata.uid))
            except ApiError as error:
                if not error.is_gone and error.code != 409:  # 409: another pod has that name now
                    raise
                continue
            note = preempted_message(pod, outcome.candidate.node)
            await self._emit_event(victim, "Normal", "Preempted", "Preempting", note, "")
        for other in outcome.cleared:
            self._nominations.pop(other.metadata.uid, None)
            self._nominees.pop(other.metadata.uid, None)
            change = messages.no_nomination(other)
            await self._client.ask(
                request.patch(request.PODS, other.metadata.name, change, other.metadata.namespace, "status")
            )

    async def _emit_event(
        self, pod: Pod, kind: str, reason: str, action: str, note: str, version: str, at_ns: int = 0
    ) -> str:
        """The name of the event; a failure to create it is only logged."""
        at_ns = at_ns or time.time_ns()
        now = rfc3339_micro(at_ns / 1e9)
        document = messages.event(pod, at_ns, kind, reason, action, note, now, self._host, version)
        name: str = document["metadata"]["name"]
        try:
            await self._client.ask(request.create(request.NEW_EVENTS, document, pod.metadata.namespace))
        except (ApiError, UnreachableError, TimeoutError) as error:
            log.warning("event %s: %s", name, error)
        return name


def _time() -> str:
    return rfc3339(time.time())


def _micro_time() -> str:
    return rfc3339_micro(time.time())
