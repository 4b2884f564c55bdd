"""DaemonSets: one pod on every node that fits (`rules.controllers.daemonsets`)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.aio import ExponentialBackoff
from plimsoll.api.controllers.controller import Controller, ControllerContext, read
from plimsoll.api.controllers.dependents import Orphans
from plimsoll.api.controllers.pod_owners import PODS_PREFIX, PodOwner
from plimsoll.api.controllers.revisions import PREFIX as REVISIONS_PREFIX
from plimsoll.api.controllers.revisions import History, owner_changed
from plimsoll.codec.lean.lean import from_document, lean_pod
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.daemonsets import DaemonStep, daemon_step, daemon_tolerations, fits
from plimsoll.rules.controllers.revisions import hash_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node
from plimsoll.rules.timestamps import Clock

DAEMON_SETS = ResourcePath("/apis/apps/v1", "daemonsets")
NODES_PREFIX = "/nodes/"
FAILED_FIRST_S, FAILED_MOST_S = 1.0, 900.0  # between pods that fail on one node


class _NodeSpec(msgspec.Struct):
    taints: list[dict[str, str]] | None = None


class _NodeMetadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Node(msgspec.Struct):
    """What decides whether a node gets a pod: its heartbeats change nothing of it."""

    metadata: _NodeMetadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)


_NODE = msgspec.json.Decoder(_Node)


class _Retry(msgspec.Struct):
    backoff: ExponentialBackoff
    due_s: float = 0.0


def controller(context: ControllerContext, pods: Orphans, revisions: Orphans, clock: Clock) -> Controller:
    """`pods`, `revisions`: those without a controller."""
    owner = PodOwner(context, pods, "DaemonSet", "apps/v1", DAEMON_SETS, "daemonset-controller", clock)
    history = History(context, revisions, owner)
    seen: dict[str, _Node] = {}
    retries: dict[tuple[str, str], _Retry] = {}  # by uid and node

    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        if document is None:
            return None
        uid, own = document["metadata"]["uid"], await owner.pods(document)
        known = await history.of(document)
        revision = await history.current(document, known)
        if revision is None:
            return None  # the status has changed, which enqueues this key again
        digest, reference = hash_of(revision), owner.reference(document)
        spec = (document["spec"].get("template") or {}).get("spec") or {}
        model = lean_pod({"metadata": {"name": ""}, "spec": {**spec, "tolerations": daemon_tolerations(spec)}})
        nodes = {}
        for record in context.store.list(NODES_PREFIX)[1]:
            node = from_document(read(record), Node)
            nodes[node.metadata.name] = fits(model, node)
        step = daemon_step(document, own, nodes, digest, clock(), reference)
        error = await owner.create_all(document, list(step.create))
        await owner.delete(document, step.delete)
        wait_s = await replace_failed(document, uid, step)
        await context.set_status(DAEMON_SETS, document, step.status)
        live = {each["metadata"]["name"] for each in known if hash_of(each) in {digest, *map(hash_of, own)}}
        await history.truncate(document, known, live | {revision["metadata"]["name"]})
        if error is not None:
            raise error
        return min((each for each in (step.requeue_s, wait_s) if each is not None), default=None)

    async def replace_failed(document: JsonObject, uid: str, step: DaemonStep) -> float | None:
        """Delete pods that have ended, each node's with its own growing delay."""
        waits = []
        for node, pod in step.failed:
            retry = retries.setdefault((uid, node), _Retry(ExponentialBackoff(FAILED_FIRST_S, FAILED_MOST_S)))
            if clock() < retry.due_s:
                waits.append(retry.due_s - clock())
                continue
            retry.due_s = clock() + retry.backoff.next_s()
            metadata, phase = pod["metadata"], pod["status"]["phase"]
            where = f"{metadata['namespace']}/{metadata['name']} on node {node}"
            if phase == "Failed":
                await owner.events.warning(
                    document, "FailedDaemonPod", f"Found failed daemon pod {where}, will try to kill it"
                )
            else:
                await owner.events.normal(
                    document, "SucceededDaemonPod", f"Found succeeded daemon pod {where}, will try to delete it"
                )
            await owner.delete(document, [pod])
        return min(waits, default=None)

    def of_node(key: str, _: bytes) -> Iterable[str]:
        """A node whose labels or taints change concerns every DaemonSet."""
        record = context.store.get(key)
        before, after = seen.get(key), None if record is None else _NODE.decode(record.body)
        if before == after:
            return ()
        if after is None:
            seen.pop(key, None)
        else:
            seen[key] = after
        return [each.key for each in context.store.list(owner.prefix)[1]]

    sources = {
        owner.prefix: owner_changed(owner, history),
        PODS_PREFIX: owner.dependents.concerns,
        REVISIONS_PREFIX: history.dependents.concerns,
        NODES_PREFIX: of_node,
    }
    return Controller("daemonsets", context.store, sources, reconcile)
