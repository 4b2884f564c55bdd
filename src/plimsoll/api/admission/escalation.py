"""Roles and bindings grant only what their author has, unless the author may `escalate` or `bind` them. Who writes the
trust bundle of a signer must be allowed to `attest` for it."""

from __future__ import annotations

import msgspec

from plimsoll.api.auth.roles import is_allowed, lacking_rules
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.status import forbidden, not_found
from plimsoll.rules.access.rbac import ANY, GROUP, Attributes, PolicyRule, RoleRef, escalation
from plimsoll.rules.model.json_object import JsonObject

_GRANTING = ("rules", "aggregationRule")
_EVERYTHING = (PolicyRule((ANY,), (ANY,), (ANY,)), PolicyRule((ANY,), non_resource_urls=(ANY,)))


def check_grant(cluster: Cluster, call: ApiCall, new: JsonObject, old: JsonObject | None = None) -> None:
    """Raises 403. `old`: the version that is replaced."""
    resource = call.info.resource
    if resource.storage == "clustertrustbundles":
        _check_attest(cluster, call, new, old)
    if resource.group != GROUP:
        return
    name = new["metadata"].get("name") or ""
    if resource.plural in ("roles", "clusterroles"):
        _check_role(cluster, call, name, new, old)
    else:
        _check_binding(cluster, call, name, new, old)


def _check_attest(cluster: Cluster, call: ApiCall, new: JsonObject, old: JsonObject | None) -> None:
    signer = (new.get("spec") or {}).get("signerName") or ""
    if not signer or (old is not None and old.get("spec") == new.get("spec")):
        return
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        if is_allowed(call.user, Attributes("attest", "signers", call.info.resource.group, "", "", name), cluster):
            return
    reason = f'user not permitted to attest for signerName "{signer}"'
    raise forbidden(call.info.resource, new["metadata"].get("name") or "", reason)


def _check_role(cluster: Cluster, call: ApiCall, name: str, new: JsonObject, old: JsonObject | None) -> None:
    info = call.info
    before = old or {}
    if (
        old is not None
        and all((before.get(field) or None) == (new.get(field) or None) for field in _GRANTING)
        and (
            (old["metadata"].get("labels") or {})
            == (new["metadata"].get("labels") or {})  # by which roles are aggregated
        )
    ):
        return
    if _may(cluster, call, "escalate", info.resource.plural, info.namespace, name):
        return
    aggregates = new.get("aggregationRule") or before.get("aggregationRule")
    if aggregates and lacking_rules(call.user, _EVERYTHING, "", cluster):
        raise forbidden(info.resource, name, "must have cluster-admin privileges to use an aggregationRule")
    _check_rules(cluster, call, name, _rules(new))


def _check_binding(cluster: Cluster, call: ApiCall, name: str, new: JsonObject, old: JsonObject | None) -> None:
    info = call.info
    if old is not None and (old.get("subjects") or []) == (new.get("subjects") or []):
        return
    reference = msgspec.convert(new.get("roleRef") or {"kind": "", "name": ""}, RoleRef)
    plural = "clusterroles" if reference.kind == "ClusterRole" else "roles"
    if _may(cluster, call, "bind", plural, info.namespace, reference.name):
        return
    rules = cluster.roles.role_rules(reference, info.namespace)
    if rules is None:
        raise not_found(stored_resource(plural), reference.name)
    _check_rules(cluster, call, name, rules)


def _check_rules(cluster: Cluster, call: ApiCall, name: str, rules: tuple[PolicyRule, ...]) -> None:
    missing = lacking_rules(call.user, rules, call.info.namespace, cluster)
    if missing:
        raise forbidden(call.info.resource, name, escalation(call.user.name, call.user.groups, missing))


def _may(cluster: Cluster, call: ApiCall, verb: str, plural: str, namespace: str, name: str) -> bool:
    return is_allowed(call.user, Attributes(verb, plural, GROUP, "", namespace, name), cluster)


def _rules(role: JsonObject) -> tuple[PolicyRule, ...]:
    return msgspec.convert(role.get("rules") or (), tuple[PolicyRule, ...])
