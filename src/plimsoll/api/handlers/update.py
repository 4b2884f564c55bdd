"""PUT, and what PATCH does after patching: from the stored and the sent version of an object to the new one.

    version → defaults → prepare (by subresource) → managedFields → admission → validate → generation → write

`decide` runs inside the store's write, on the newest state, so two writers never overwrite each other's fields. A
result that equals the stored object is not written: the response has the old version, and there is no event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from plimsoll.api.admission.certificate_requests import check_signer
from plimsoll.api.admission.chain import (
    admitted_pod_update,
    check_capacity,
    check_limit_ranges_on_resize,
    limit_ranged_resize,
)
from plimsoll.api.admission.escalation import check_grant
from plimsoll.api.admission.hooks import check_hooks, has_hooks
from plimsoll.api.admission.node_restriction import check_update
from plimsoll.api.admission.pod_security import check_pod_security
from plimsoll.api.admission.quota import charge, charge_object, counting_keys, quota_keys
from plimsoll.api.handlers.create import (
    create_object,
    defaulted,
    hook_change,
    with_addresses,
    with_mutations,
    write_context,
)
from plimsoll.api.machinery.bodies import AT_ONCE_BYTES, off_loop, read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, decoded, key, kind_of
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.metadata import (
    body_of,
    check_place,
    check_preconditions,
    dry_run_body,
    is_version,
    object_errors,
    unstamped_body,
    update_errors,
    updated_metadata,
)
from plimsoll.api.machinery.request_info import RequestInfo, WriteOptions, write_options
from plimsoll.api.machinery.service_addresses import UnclaimedError, names_of
from plimsoll.api.machinery.status import StatusError, conflict, internal, invalid_object, not_found
from plimsoll.api.machinery.versions import in_its_version, to_store
from plimsoll.api.strategies.base import Strategy, WriteContext, with_old
from plimsoll.api.strategies.certificates import CertificateRequestStrategy
from plimsoll.api.strategies.cluster import NamespaceStrategy
from plimsoll.api.strategies.pods import PodStrategy
from plimsoll.api.strategies.table import strategy
from plimsoll.codec.patch.managed_fields import same_but_times, track_update
from plimsoll.codec.schema.custom import served
from plimsoll.errors import FieldError
from plimsoll.rules.admission.disabled_fields import without_disabled
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.records import Decision, Delete, Record

# From the live object (with kind and apiVersion) to the desired one; `True` if managedFields are set already.
Mutation = Callable[[JsonObject], tuple[JsonObject, bool]]

_TRIES = 5  # of a write to a large object that others write to
_OF_THE_SPEC = ("", "resize", "scale", "ephemeralcontainers")


async def update(cluster: Cluster, call: ApiCall) -> Response:
    """PUT of an object or one of its subresources."""
    info, resource = call.info, call.info.resource
    options = write_options(info, call.user_agent)
    sent = await read_object(cluster, call, kind_of(resource), options)
    metadata = sent.get("metadata") or {}
    check_place(metadata, info.namespace, info.name, namespaced=resource.namespaced)
    if strategy(resource).create_on_update and cluster.store.get(key(resource, info.namespace, info.name)) is None:
        _check_number(metadata.get("resourceVersion"))
        _check_no_uid(resource, info, metadata.get("uid") or "")
        others = {field: value for field, value in metadata.items() if field != "resourceVersion"}
        named = {**sent, "metadata": {**others, "name": info.name}}
        return await create_object(cluster, call, options, named)

    def mutate(live: JsonObject) -> tuple[JsonObject, bool]:
        check_preconditions(resource, info.name, live["metadata"], metadata.get("uid") or "", "")
        _check_version_given(resource, info.name, metadata)
        return sent, False

    return await write(cluster, call, options, mutate)


def _check_version_given(resource: ApiResource, name: str, metadata: JsonObject) -> None:
    if not strategy(resource).unconditional_update and metadata.get("resourceVersion") in (None, "", "0"):
        reason = "must be specified for an update"
        raise invalid_object(resource, name, [FieldError("FieldValueInvalid", "metadata.resourceVersion", reason, 0)])


class _Stepped(msgspec.Struct, frozen=True):
    """From one version of an object to the next."""

    version: int
    old: JsonObject
    new: JsonObject


class _OutdatedError(Exception):
    """The object has changed since the step was computed."""


async def write(
    cluster: Cluster, call: ApiCall, options: WriteOptions, mutate: Mutation, *, growth_bytes: int = 0
) -> Response:
    """Read, mutate, check and write one object as a single step; `growth_bytes`: by so many the object may grow."""
    info, resource = call.info, call.info.resource
    keys = [key(resource, info.namespace, info.name)]
    if resource.storage == "pods" and info.subresource in ("", "resize"):
        keys += quota_keys(cluster, "UPDATE", info.subresource, info.namespace, None, None)
    elif resource.storage in ("services", "persistentvolumeclaims") and not info.subresource:
        keys += counting_keys(cluster, resource, info.namespace)
    bodies: list[bytes] = []
    claimed: list[str] = []  # addresses of a service
    ahead: _Stepped | None = None

    def propose(record: Record) -> tuple[JsonObject, JsonObject, list[FieldError], bool]:
        old = decoded(record)
        return old, *_proposed(cluster, call, options, old, mutate)

    def step(record: Record) -> _Stepped:
        old, new, errors, _ = propose(record)
        new = _admitted(cluster, call, old, new)
        _check(cluster, call, old, new, errors)
        return _Stepped(record.version, old, new)

    def decide(records: list[Record | None], versions: list[int]) -> Sequence[Decision]:
        bodies.clear()  # of a decision that another server has overtaken
        record = records[0]
        if record is None:
            raise not_found(resource, info.name)
        if ahead is not None and ahead.version != record.version:
            raise _OutdatedError
        stepped = ahead or step(record)
        old, new = stepped.old, stepped.new
        if not hooked:
            new = _accepted(cluster, call, options, old, new)
        nothing: list[Decision] = [None] * len(keys)
        if _same(old, new):
            bodies.append(record.body)
            return nothing
        check_pod_security(cluster, call, old, new)
        charges: list[Decision] = nothing[1:]
        if keys[1:] and resource.storage in ("services", "persistentvolumeclaims"):
            charges = charge_object(resource, records[1:], versions[1:], new, old, dry_run=options.dry_run)
        elif keys[1:] and quota_keys(cluster, "UPDATE", info.subresource, info.namespace, new, old):
            charges = charge(cluster, records[1:], versions[1:], new, old, dry_run=options.dry_run)
        if options.dry_run:
            bodies.append(dry_run_body(new))
            return nothing
        if _is_finished(resource, new):
            # The response has the object without its last finalizer; the event has it as it was stored (05 B6).
            bodies.append(unstamped_body(new))
            return [Delete(body_of(old, versions[0])), *charges]
        return [body_of(new, versions[0]), *charges]

    async def step_ahead(record: Record, size: int) -> _Stepped:
        """The same before the write, with what needs time: large documents, webhooks and policies.

        If the object changes meanwhile, they are asked again."""
        old, new, errors, tracked = await off_loop(cluster, call, size, partial(propose, record))
        new = _admitted(cluster, call, old, new)
        if hooked:
            new = await with_mutations(cluster, call, options, new, as_served(resource, old), tracked=tracked)
            new = without_disabled(resource.storage, new, old, cluster.gates)
        checked = partial(_check, cluster, call, old, new, errors)
        await off_loop(cluster, call, size, checked, evaluates=evaluates)
        if hooked:
            new = _accepted(cluster, call, options, old, new)
            # Also of an update that changes nothing: the caller may not be allowed to write the object.
            await check_hooks(cluster, call, hook_change(call, options, new, as_served(resource, old)))
        return _Stepped(record.version, old, new)

    hooked = has_hooks(cluster, resource)
    evaluates = strategy(resource).evaluates()
    for _ in range(_TRIES):
        live = cluster.store.get(keys[0])
        size = 0 if live is None else len(live.body) + max(len(call.body), growth_bytes)
        try:
            if live is not None and (hooked or evaluates or size > AT_ONCE_BYTES):
                ahead = await step_ahead(live, size)
            written = await cluster.store.change_many(keys, decide)
        except _OutdatedError:
            continue
        except UnclaimedError as error:
            await cluster.service_addresses.claim(error)
            claimed += error.names
            continue
        except StatusError:
            if claimed and live is not None:
                await cluster.service_addresses.give_back(decoded(live)["metadata"]["uid"], claimed)
            raise
        finally:
            if resource.storage == "services" and live is not None:
                cluster.service_addresses.release(decoded(live)["metadata"]["uid"])
        assert written[0] is not None
        if resource.storage == "services" and cluster.store.is_shared and live is not None:
            new = decoded(written[0])
            old = decoded(live)
            unused = [name for name in (*claimed, *names_of(old)) if name not in names_of(new)]
            await cluster.service_addresses.give_back(new["metadata"]["uid"], unused)
        return Response(200, bodies[0] if bodies else written[0].body)
    raise conflict(resource, info.name)


def _proposed(
    cluster: Cluster, call: ApiCall, options: WriteOptions, old: JsonObject, mutate: Mutation
) -> tuple[JsonObject, list[FieldError], bool]:
    """The new version before it is validated, what is wrong with its metadata, and whether its owners are set.

    It reads no other object, so a worker may do it, and so may `_check`.
    """
    info, resource = call.info, call.info.resource
    kind, context, rules = kind_of(resource), write_context(cluster), strategy(resource)
    live = as_served(resource, old)
    sent, tracked = mutate(live)
    sent_metadata = sent.get("metadata") or {}
    _check_version(resource, info.name, sent_metadata.get("resourceVersion"), old["metadata"]["resourceVersion"])
    errors = update_errors(old["metadata"], sent_metadata)
    if info.subresource == "status":  # a spec that is sent along is not written
        rest = {name: value for name, value in sent.items() if name != "spec"}
        new = with_old(defaulted(cluster, resource, rest, info.name), sent, "spec")
    else:
        new = defaulted(cluster, resource, sent, info.name, old)
    new = {**new, "metadata": updated_metadata(old["metadata"], sent_metadata)}
    check_update(call, old, new)
    new = _prepared(rules, info.subresource, live, new, context)
    new = without_disabled(resource.storage, new, live, cluster.gates)
    if not tracked:
        new = track_update(kind, live, new, options.field_manager, info.subresource, context.now)
    new = to_store(resource, new)
    if resource.storage == "pods" and not info.subresource:
        new = admitted_pod_update(old, new)
    return new, errors, tracked


def _admitted(cluster: Cluster, call: ApiCall, old: JsonObject, new: JsonObject) -> JsonObject:
    """As roles and limit ranges have it; raises StatusError."""
    check_grant(cluster, call, new, old)
    check_signer(cluster, call, old, new)
    return limit_ranged_resize(cluster, old, new) if call.info.subresource == "resize" else new


def _check(cluster: Cluster, call: ApiCall, old: JsonObject, new: JsonObject, errors: list[FieldError]) -> None:
    """Raises StatusError."""
    info, resource, rules = call.info, call.info.resource, strategy(call.info.resource)
    errors = errors + _errors(rules, info.subresource, old, new, write_context(cluster))
    if resource.storage != "pods":
        errors += object_errors(resource, new["metadata"])
    if errors:
        raise invalid_object(resource, info.name, errors)


def _accepted(cluster: Cluster, call: ApiCall, options: WriteOptions, old: JsonObject, new: JsonObject) -> JsonObject:
    """What other objects leave room for, with addresses and generation; raises StatusError, UnclaimedError."""
    info, resource, rules = call.info, call.info.resource, strategy(call.info.resource)
    if info.subresource == "resize":
        check_limit_ranges_on_resize(cluster, old, new)
        check_capacity(cluster, old, new)
    if not info.subresource:
        new = with_addresses(cluster, resource, new, old, options)
    if resource.has_generation and info.subresource in _OF_THE_SPEC and rules.spec_differs(old, new):
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1
        call.warnings += rules.update_warnings(old, new)
    return new


def as_served(resource: ApiResource, stored: JsonObject) -> JsonObject:
    """A stored object as this resource serves it, with kind and apiVersion."""
    custom = resource.custom
    words = in_its_version(resource, stored) if custom is None else served(custom.kind, stored)
    return {"kind": resource.kind, "apiVersion": resource.group_version, **words}


def _prepared(rules: Strategy, subresource: str, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
    if subresource == "status":
        return rules.prepared_for_status(old, new, context)
    if subresource == "resize" and isinstance(rules, PodStrategy):
        return rules.prepared_for_resize(old, new, context)
    if subresource == "ephemeralcontainers" and isinstance(rules, PodStrategy):
        return rules.prepared_for_ephemeral_containers(old, new)
    if subresource == "approval" and isinstance(rules, CertificateRequestStrategy):
        return rules.prepared_for_approval(old, new, context)
    if subresource == "finalize" and isinstance(rules, NamespaceStrategy):
        return rules.prepared_for_finalize(old, new)
    return rules.prepared_for_update(old, new, context)


def _errors(
    rules: Strategy, subresource: str, old: JsonObject, new: JsonObject, context: WriteContext
) -> list[FieldError]:
    if subresource == "status":
        return rules.status_errors(old, new, context)
    if subresource == "resize" and isinstance(rules, PodStrategy):
        return rules.resize_errors(old, new, context)
    if subresource == "ephemeralcontainers" and isinstance(rules, PodStrategy):
        return rules.ephemeral_container_errors(old, new, context)
    if subresource == "approval" and isinstance(rules, CertificateRequestStrategy):
        return rules.approval_errors(old, new)
    if subresource == "finalize":
        return []
    return rules.update_errors(old, new, context)


def _check_version(resource: ApiResource, name: str, sent: Any, stored: str) -> None:
    """A resourceVersion in the body is a precondition, unless it is empty or 0."""
    if sent in (None, "", "0", stored):
        return
    _check_number(sent)
    raise conflict(resource, name)


def _check_no_uid(resource: ApiResource, info: RequestInfo, sent: str) -> None:
    """The object that a PUT is about no longer exists, in the words of storage."""
    if sent:
        where = "/".join(filter(None, (resource.plural, info.namespace, info.name)))
        raise conflict(
            resource,
            info.name,
            f"StorageError: invalid object, Code: 4, Key: /registry/{where}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {sent}, UID in object meta: ",
        )


def _check_number(version: Any) -> None:
    if version and not is_version(version):
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')


def _same(old: JsonObject, new: JsonObject) -> bool:
    """Whether at most the times of managedFields differ."""
    return same_but_times(old, {name: value for name, value in new.items() if name not in ("kind", "apiVersion")})


def _is_finished(resource: ApiResource, new: JsonObject) -> bool:
    """Whether it is being deleted and the last finalizer is removed."""
    metadata = new["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource.storage == "namespaces":
        return not (new.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")
