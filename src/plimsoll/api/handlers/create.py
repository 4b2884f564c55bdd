"""POST: from a body to a stored object.

decode → metadata → defaults → managedFields → admission → prepare → validate → write
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plimsoll.api.admission.certificate_requests import with_requester
from plimsoll.api.admission.chain import (
    admitted_claim,
    admitted_ingress,
    admitted_pod,
    check_limit_ranges,
    check_namespace,
)
from plimsoll.api.admission.escalation import check_grant
from plimsoll.api.admission.hooks import Change, check_hooks, has_hooks, mutated
from plimsoll.api.admission.node_restriction import check_create
from plimsoll.api.admission.pod_security import check_pod_security
from plimsoll.api.admission.quota import charge, charge_object, counting_keys, quota_keys
from plimsoll.api.auth.authorizer import check_creation
from plimsoll.api.machinery.bodies import AT_ONCE_BYTES, off_loop, read_object
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, decoded, key, kind_of
from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.api.machinery.metadata import (
    body_of,
    check_place,
    check_unversioned,
    created_metadata,
    dry_run_body,
    object_errors,
)
from plimsoll.api.machinery.namespace_contents import namespace_contents
from plimsoll.api.machinery.request_info import WriteOptions, write_options
from plimsoll.api.machinery.service_addresses import UnclaimedError, names_of
from plimsoll.api.machinery.status import StatusError, already_exists, invalid_object, too_many_requests
from plimsoll.api.machinery.versions import to_store
from plimsoll.api.strategies.base import WriteContext
from plimsoll.api.strategies.table import strategy
from plimsoll.codec.defaults.objects import with_kind_defaults
from plimsoll.codec.patch.managed_fields import track_update
from plimsoll.errors import FieldError, InvalidObjectError
from plimsoll.rules.admission.disabled_fields import without_disabled
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems
from plimsoll.store.records import Decision, Record

_NAMESPACES = stored_resource("namespaces")
_NAME_TRIES = 8  # a generated name may be in use


async def create(cluster: Cluster, call: ApiCall) -> Response:
    options = write_options(call.info, call.user_agent)
    document = await read_object(cluster, call, kind_of(call.info.resource), options)
    return await create_object(cluster, call, options, document)


async def create_object(
    cluster: Cluster, call: ApiCall, options: WriteOptions, document: JsonObject, *, tracked: bool = False
) -> Response:
    """`tracked`: managedFields are set already (server-side apply)."""
    info, resource = call.info, call.info.resource
    check_creation(call.user, info, may_create=call.may_create)
    document = with_requester(call, document)
    sent = dict(document.get("metadata") or {})
    check_place(sent, info.namespace, info.name, namespaced=resource.namespaced)
    if not sent.get("name") and not sent.get("generateName"):
        reason = FieldError("FieldValueRequired", "metadata.name", "name or generateName is required")
        raise invalid_object(resource, "", [reason])
    for left in range(_NAME_TRIES, 0, -1):
        name = sent.get("name") or cluster.generated_name(sent["generateName"])
        if resource.namespaced:
            check_namespace(cluster.store.get(key(_NAMESPACES, "", info.namespace)), resource, info.namespace, name)
        if resource.storage == "pods" and not tracked:
            new = await _prepared_pod(cluster, call, options, document, sent, name)
        else:
            new = await _prepared(cluster, call, options, document, sent, name, tracked=tracked)
        try:
            return Response(201, await _stored(cluster, call, options, new))
        except StatusError as error:
            await give_back(cluster, resource, new, None)
            if error.reason != "AlreadyExists" or sent.get("name") or left == 1:
                raise
        finally:
            cluster.service_addresses.release(new["metadata"]["uid"])
    raise AssertionError("the last attempt raised")


def write_context(cluster: Cluster) -> WriteContext:
    family = cluster.service_addresses.ranges.family
    return WriteContext(cluster.profile, cluster.gates, cluster.in_place, cluster.now(), family)


def with_addresses(
    cluster: Cluster, resource: ApiResource, new: JsonObject, old: JsonObject | None, options: WriteOptions
) -> JsonObject:
    """A Service with its cluster IP and node ports, which stay reserved until `release`; raises 422, UnclaimedError."""
    if resource.storage != "services":
        return new
    service, errors = cluster.service_addresses.allocate(new, old, dry_run=options.dry_run)
    if errors:
        raise invalid_object(resource, new["metadata"]["name"], errors)
    return service


async def give_back(cluster: Cluster, resource: ApiResource, old: JsonObject, new: JsonObject | None) -> None:
    """What a Service has no more, or a refused one would have had."""
    if resource.storage == "services":
        kept = names_of(new) if new is not None else []
        names = [name for name in names_of(old) if name not in kept]
        await cluster.service_addresses.give_back(old["metadata"]["uid"], names)


def defaulted(
    cluster: Cluster, resource: ApiResource, document: JsonObject, name: str, stored: JsonObject | None = None
) -> JsonObject:
    try:
        return with_kind_defaults(
            kind_of(resource),
            document,
            gates=cluster.gates,
            resize_policy=cluster.profile.resize_policy_defaulted and cluster.in_place,
            stored=stored,
        )
    except InvalidObjectError as error:
        raise invalid_object(resource, name, error.errors) from None


async def _prepared_pod(
    cluster: Cluster, call: ApiCall, options: WriteOptions, document: JsonObject, sent: JsonObject, name: str
) -> JsonObject:
    """As `_prepared`, of pods that differ in nothing but their names only once; an unusual name is one by itself."""
    is_usual = not (dns_label_problems(name) or call.user.node or len(call.body) > AT_ONCE_BYTES)
    if not is_usual or has_hooks(cluster, call.info.resource):
        return await _prepared(cluster, call, options, document, sent, name, tracked=False)
    key = cluster.alike_pods.key(document, call.info.namespace, call.user.name, options.field_manager)
    outcome = cluster.alike_pods.find(key)
    if outcome is not None:
        call.warnings += outcome.warnings
        call.annotations.update(outcome.annotations)
        return outcome.named(name, cluster.new_uid(), cluster.now())
    before = len(call.warnings)
    new = await _prepared(cluster, call, options, document, sent, name, tracked=False)
    cluster.alike_pods.keep(key, new, call.warnings[before:], call.annotations)
    return new


async def _prepared(
    cluster: Cluster,
    call: ApiCall,
    options: WriteOptions,
    document: JsonObject,
    sent: JsonObject,
    name: str,
    *,
    tracked: bool,
) -> JsonObject:
    """The object as it would be stored; raises 403, 422. What reads the store runs on the event loop."""
    info, resource = call.info, call.info.resource
    context = write_context(cluster)
    metadata = created_metadata(sent, info.namespace, name, cluster.new_uid(), context.now)
    if resource.has_generation:
        metadata["generation"] = 1

    def completed() -> JsonObject:
        new = defaulted(cluster, resource, {**document, "metadata": metadata}, name)
        if not tracked:
            new = track_update(kind_of(resource), None, new, options.field_manager, "", context.now)
        return to_store(resource, new)

    new = await off_loop(cluster, call, len(call.body), completed)
    if resource.storage == "pods":
        new = admitted_pod(cluster, new)
    elif resource.storage == "persistentvolumeclaims":
        new = admitted_claim(cluster, new)
    elif resource.storage == "ingresses":
        new = admitted_ingress(cluster, new)
    check_create(cluster, call, new)
    check_grant(cluster, call, new)
    rules = strategy(resource)

    def prepared() -> JsonObject:
        return rules.prepared_for_create(without_disabled(resource.storage, new, None, cluster.gates), context)

    new = await off_loop(cluster, call, len(call.body), prepared)
    hooked = has_hooks(cluster, resource)
    if hooked:
        new = await with_mutations(cluster, call, options, new, None, tracked=tracked)
        new = without_disabled(resource.storage, new, None, cluster.gates)

    def findings() -> list[FieldError]:
        errors = rules.create_errors(new, context)
        if resource.storage != "pods":  # whose rules check metadata, too
            errors = object_errors(resource, new["metadata"]) + errors
        return errors

    errors = await off_loop(cluster, call, len(call.body), findings, evaluates=rules.evaluates())
    if errors:
        raise invalid_object(resource, name, errors)
    if resource.storage == "pods":
        check_limit_ranges(cluster, new)
    new = await _with_claimed_addresses(cluster, resource, new, options)
    check_pod_security(cluster, call, None, new)
    if hooked:
        try:
            await check_hooks(cluster, call, hook_change(call, options, new, None))
        except StatusError:
            await give_back(cluster, resource, new, None)
            raise
    call.warnings += await off_loop(cluster, call, len(call.body), partial(rules.warnings, new))
    return new


async def _with_claimed_addresses(
    cluster: Cluster, resource: ApiResource, new: JsonObject, options: WriteOptions
) -> JsonObject:
    claimed: list[str] = []
    while True:
        try:
            done = with_addresses(cluster, resource, new, None, options)
        except UnclaimedError as error:
            await cluster.service_addresses.claim(error)
            claimed += error.names
            continue
        except StatusError:
            await cluster.service_addresses.give_back(new["metadata"]["uid"], claimed)
            raise
        unused = [name for name in claimed if name not in names_of(done)]
        await cluster.service_addresses.give_back(new["metadata"]["uid"], unused)
        return done


def hook_change(call: ApiCall, options: WriteOptions, new: JsonObject, old: JsonObject | None) -> Change:
    """The write as webhooks and policies see it."""
    about = {"kind": call.info.resource.kind, "apiVersion": call.info.resource.group_version}
    before = None if old is None else {**about, **old}
    kind = "PatchOptions" if call.info.verb == "patch" else "UpdateOptions" if old is not None else "CreateOptions"
    sent: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1", "fieldManager": options.field_manager}
    return Change("CREATE" if old is None else "UPDATE", {**about, **new}, before, options.dry_run, sent)


async def with_mutations(
    cluster: Cluster, call: ApiCall, options: WriteOptions, new: JsonObject, old: JsonObject | None, *, tracked: bool
) -> JsonObject:
    """The object after the mutating webhooks, with defaults, and with the owners of what they changed."""
    found = await mutated(cluster, call, hook_change(call, options, new, old))
    if found is None:
        return new
    resource, name = call.info.resource, new["metadata"]["name"]
    plain = {field: value for field, value in found.items() if field not in ("kind", "apiVersion") or field in new}
    changed = defaulted(cluster, resource, plain, name, old)
    if tracked:
        return changed
    metadata = {**changed["metadata"]}
    metadata.pop("managedFields", None)
    if old is not None and old["metadata"].get("managedFields"):
        metadata["managedFields"] = old["metadata"]["managedFields"]
    kind, subresource = kind_of(resource), call.info.subresource
    return track_update(kind, old, {**changed, "metadata": metadata}, options.field_manager, subresource, cluster.now())


def _contents(cluster: Cluster, namespace: str) -> dict[str, JsonObject]:
    """The objects that a new namespace begins with, by key."""
    found = {}
    for storage, document in namespace_contents(cluster.root_ca):
        name = document["metadata"]["name"]
        metadata = created_metadata(document["metadata"], namespace, name, cluster.new_uid(), cluster.now())
        found[key(stored_resource(storage), namespace, name)] = {**document, "metadata": metadata}
    return found


async def _stored(cluster: Cluster, call: ApiCall, options: WriteOptions, new: JsonObject) -> bytes:
    info, resource = call.info, call.info.resource
    if not options.dry_run:
        check_unversioned(new["metadata"])
    name = new["metadata"]["name"]
    keys = [key(resource, info.namespace, name)]
    if resource.namespaced:
        keys.append(key(_NAMESPACES, "", info.namespace))
    contents = _contents(cluster, name) if resource.storage == "namespaces" else {}
    keys += contents
    others = len(keys)
    if resource.storage == "pods":
        keys += quota_keys(cluster, "CREATE", "", info.namespace, None, None)
    elif resource.namespaced:
        keys += counting_keys(cluster, resource, info.namespace)
    if cluster.store.count() >= cluster.limits.objects:
        reason = f"the store has {cluster.limits.objects} objects, which is its limit: delete some first"
        raise too_many_requests(reason)

    def decide(records: list[Record | None], versions: list[int]) -> Sequence[Decision]:
        if records[0] is not None:
            deleting = bool(decoded(records[0])["metadata"].get("deletionTimestamp"))
            raise already_exists(resource, name, is_deleting=deleting)
        if resource.namespaced:
            check_namespace(records[1], resource, info.namespace, name)
        charges: list[Decision] = []
        if keys[others:]:
            quotas, theirs = records[others:], versions[others:]
            if resource.storage == "pods":
                charges = charge(cluster, quotas, theirs, new, None, dry_run=options.dry_run)
            else:
                charges = charge_object(resource, quotas, theirs, new, dry_run=options.dry_run)
        if options.dry_run:
            return [None] * len(keys)
        if contents:
            return [body_of(each, version) for each, version in zip((new, *contents.values()), versions, strict=True)]
        return [body_of(new, versions[0]), *[None] * (others - 1), *charges]

    written = await cluster.store.change_many(keys, decide)
    if options.dry_run:
        return dry_run_body(new)
    assert written[0] is not None
    return written[0].body
