"""pods/binding and pods/eviction: requests that are not objects but change a pod (05 A4, B6)."""

from __future__ import annotations

import msgspec

from plimsoll.api.admission.node_restriction import check_delete
from plimsoll.api.handlers.delete import delete_object
from plimsoll.api.machinery.bodies import read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, decoded, key, prefix
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.metadata import body_of, check_preconditions
from plimsoll.api.machinery.request_info import DeleteOptions, delete_options, write_options
from plimsoll.api.machinery.status import (
    StatusError,
    bad_request,
    conflict,
    internal,
    not_found,
    success,
    too_many_requests,
)
from plimsoll.codec.lean.lean import from_document
from plimsoll.codec.schema.schema import schema
from plimsoll.rules.controllers.disruption_budgets import Refusal, is_protected, refusal
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.selectors import selects
from plimsoll.store.records import Decision, Record

_PODS = stored_resource("pods")
_BUDGETS = stored_resource("poddisruptionbudgets")
_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


# --- binding ---


async def bind(cluster: Cluster, call: ApiCall) -> Response:
    """POST pods/x/binding, or bindings with the pod's name in the body."""
    info = call.info
    options = write_options(info, call.user_agent)
    binding = await read_object(cluster, call, schema("v1", "Binding"), options)
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    name = info.name or metadata.get("name") or ""
    if info.name and metadata.get("name") and metadata["name"] != info.name:
        raise bad_request("name in URL does not match name in Binding object")
    if not target.get("name"):
        raise internal("target.name: Required value")

    def decide(record: Record | None, version: int) -> Decision:
        if record is None:
            raise not_found(_PODS, name)
        pod = decoded(record)
        check_preconditions(
            _PODS, name, pod["metadata"], metadata.get("uid") or "", metadata.get("resourceVersion") or ""
        )
        _check_bindable(pod, name)
        if options.dry_run:
            return None
        return body_of(bound(pod, target["name"], metadata, cluster.now(), cluster.profile), version)

    await cluster.store.change(key(_PODS, info.namespace, name), decide)
    return Response(201, success(201), is_ready=True)


def _check_bindable(pod: JsonObject, name: str) -> None:
    spec = pod.get("spec") or {}
    if pod["metadata"].get("deletionTimestamp"):
        raise _not_bindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _not_bindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _not_bindable(name, f"pod {name} has non-empty .spec.schedulingGates")


def _not_bindable(name: str, why: str) -> StatusError:
    return conflict(_PODS, name, why, "binding")


def bound(pod: JsonObject, node: str, binding: JsonObject, now: str, profile: Profile) -> JsonObject:
    """The bound pod: one write, generation unchanged."""
    metadata, status = dict(pod["metadata"]), dict(pod.get("status") or {})
    for field in ("annotations", "labels"):
        if binding.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **binding[field]}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    others = [condition for condition in status.get("conditions") or [] if condition.get("type") != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
    if profile.nominated_node_cleared:
        status.pop("nominatedNodeName", None)
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}


# --- eviction ---


async def evict(cluster: Cluster, call: ApiCall) -> Response:
    info = call.info
    options = write_options(info, call.user_agent)
    version = "policy/v1beta1" if b"policy/v1beta1" in call.body else "policy/v1"
    eviction = await read_object(cluster, call, schema(version, "Eviction"), options)
    metadata = eviction.get("metadata") or {}
    if metadata.get("name") and metadata["name"] != info.name:
        raise bad_request("name in URL does not match name in Eviction object")
    deletion = delete_options(eviction.get("deleteOptions") or {}, info)
    if options.dry_run:
        deletion = msgspec.structs.replace(deletion, dry_run=True)
    record = cluster.store.get(key(_PODS, info.namespace, info.name))
    if record is None:
        raise not_found(_PODS, info.name)
    pod = decoded(record)
    check_delete(call, pod)  # before it uses up a disruption budget
    runs = (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed", "Pending")
    if runs and not pod["metadata"].get("deletionTimestamp"):
        is_unready = await _disrupt(cluster, call, pod, dry_run=deletion.dry_run)
        if is_unready and not deletion.resource_version:  # it must not have become ready meanwhile
            deletion = msgspec.structs.replace(deletion, resource_version=pod["metadata"]["resourceVersion"])
    if not deletion.dry_run:
        deletion = await _announced(cluster, call, deletion)
    await delete_object(cluster, call, info.name, deletion)
    return Response(201, success(201), is_ready=True)


async def _announced(cluster: Cluster, call: ApiCall, deletion: DeleteOptions) -> DeleteOptions:
    """The pod says why it ends before it does: a Job may ignore such a failure (podFailurePolicy)."""
    info = call.info

    def decide(record: Record | None, version: int) -> Decision:
        if record is None:
            raise not_found(_PODS, info.name)
        pod = decoded(record)
        check_preconditions(_PODS, info.name, pod["metadata"], deletion.uid, deletion.resource_version)
        status = dict(pod.get("status") or {})
        conditions = status.get("conditions") or []
        before: JsonObject = next((each for each in conditions if each.get("type") == _EVICTED["type"]), {})
        since = before.get("lastTransitionTime") if before.get("status") == "True" else cluster.now()
        condition = {**_EVICTED, "lastProbeTime": None, "lastTransitionTime": since}
        status["conditions"] = [each for each in conditions if each is not before] + [condition]
        return body_of({**pod, "status": status}, version)

    changed = await cluster.store.change(key(_PODS, info.namespace, info.name), decide)
    if changed is None or not deletion.resource_version:
        return deletion
    return msgspec.structs.replace(deletion, resource_version=str(changed.version))


async def _disrupt(cluster: Cluster, call: ApiCall, pod: JsonObject, *, dry_run: bool) -> bool:
    """Take one disruption from the budget that covers this pod; 429 where there is none left.

    True: the budget does not protect the pod as long as it is not ready.
    """
    labels, namespace, names = pod["metadata"].get("labels"), call.info.namespace, []
    for record in cluster.store.list(prefix(_BUDGETS, namespace))[1]:
        if call.pace.is_due():
            await call.pace.pause()
        budget = decoded(record)
        if selects(from_document(budget, PodDisruptionBudget).spec.selector, labels):
            names.append(budget["metadata"]["name"])
    if not names:
        return False
    if len(names) > 1:
        # As in kube-apiserver this is a 500: the state of the cluster is wrong, and a retry (429) would not help.
        # `kubectl drain` prints the message and stops.
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(409, "Conflict", why, {"name": pod["metadata"]["name"], "kind": "pods"})

    unprotected: list[str] = []

    def decide(record: Record | None, version: int) -> Decision:
        unprotected.clear()
        if record is None:
            return None
        budget = decoded(record)
        status = dict(budget.get("status") or {})
        name = budget["metadata"]["name"]
        if not is_protected(budget, pod):
            unprotected.append(name)
            return None
        why = refusal(budget)
        if why is not None:
            raise _refused(cluster.profile, name, why)
        if dry_run:
            return None
        status["disruptionsAllowed"] -= 1
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: cluster.now()}
        return body_of({**budget, "status": status}, version)

    await cluster.store.change(key(_BUDGETS, namespace, names[0]), decide)
    return bool(unprotected)


def _refused(profile: Profile, name: str, why: Refusal) -> StatusError:
    causes = [{"reason": "DisruptionBudget", "message": why.cause}]
    if not why.forbidden:
        text = "Cannot evict pod as it would violate the pod's disruption budget."
        return too_many_requests(text, causes, why.retry_after_s)
    details: JsonObject = {"name": name, "group": "policy", "kind": "poddisruptionbudget"}
    if profile.eviction_says_budget:
        details["causes"] = causes
    return StatusError(403, "Forbidden", f'poddisruptionbudget.policy "{name}" is forbidden: {why.forbidden}', details)
