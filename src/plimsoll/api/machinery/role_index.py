"""The roles and bindings of the cluster, arranged for the question of each request: may this user do this?

The answer for (user, verb, group, resource, subresource, namespace) is remembered as the names that are allowed, so a
request costs one lookup. The first request after a change of any role or binding reads them all again; there are few.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.access.rbac import (
    GROUP,
    Attributes,
    Decision,
    PolicyRule,
    RoleRef,
    Subject,
    allows_path,
    allows_resource,
    concerns,
)
from plimsoll.store.errors import ExpiredError
from plimsoll.store.feed import Watch
from plimsoll.store.store import Store

_RESOURCES = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
_ANSWERS = 16_384  # remembered
_Identity = tuple[str, frozenset[str]]  # a user's name and groups
_Question = tuple[_Identity, str, str, str, str, str]


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Role(msgspec.Struct):
    metadata: _Metadata
    rules: tuple[PolicyRule, ...] | None = None


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    role_ref: RoleRef
    subjects: tuple[Subject, ...] | None = None


class Grant(msgspec.Struct, frozen=True):
    """One binding that concerns a user: its rules, and the words that name it."""

    rules: tuple[PolicyRule, ...]
    words: str
    missing: str = ""  # a role that does not exist


_role = msgspec.json.Decoder(_Role)
_binding = msgspec.json.Decoder(_Binding)
_EVERY = ("",)  # in place of names: all


class RoleIndex:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._watches: list[Watch] = []
        self._seen = -1  # the store's version when changes were last read
        self._roles: dict[tuple[str, str], tuple[PolicyRule, ...]] = {}  # (namespace, name)
        self._bindings: dict[str, list[_Binding]] = {}  # by namespace; "" is the cluster
        self._grants: dict[tuple[_Identity, str], tuple[Grant, ...]] = {}
        self._answers: dict[_Question, tuple[str, ...]] = {}

    def allows(self, user: str, groups: frozenset[str], request: Attributes) -> bool:
        self._catch_up()
        identity = (user, groups)
        question = (identity, request.verb, request.group, request.resource, request.subresource, request.namespace)
        names = self._answers.get(question)
        if names is None:
            names = self._names(identity, request)
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            self._answers[question] = names
        return names is _EVERY or (bool(request.name) and request.name in names)

    def _names(self, identity: _Identity, request: Attributes) -> tuple[str, ...]:
        names: list[str] = []
        for rule in self._rules(identity, request.namespace):
            if allows_resource(rule, request.verb, request.group, request.resource, request.subresource):
                if not rule.resource_names:
                    return _EVERY
                names += rule.resource_names
        return tuple(names)

    def allows_path(self, user: str, groups: frozenset[str], verb: str, path: str) -> bool:
        self._catch_up()
        return any(allows_path(rule, verb, path) for rule in self._rules((user, groups), ""))

    def decision(self, user: str, groups: frozenset[str], request: Attributes) -> Decision:
        """The same with its reason, for reviews and errors."""
        self._catch_up()
        missing = []
        for grant in self._granted((user, groups), request.namespace):
            for rule in grant.rules:
                if allows_resource(rule, request.verb, request.group, request.resource, request.subresource) and (
                    not rule.resource_names or request.name in rule.resource_names
                ):
                    return Decision(True, f"RBAC: allowed by {grant.words}")
            if grant.missing:
                missing.append(grant.missing)
        return Decision(False, f"RBAC: {_joined(missing)}" if missing else "")

    def rules(self, user: str, groups: frozenset[str], namespace: str) -> tuple[PolicyRule, ...]:
        """Everything that the user may do in the namespace, or with "" in the cluster."""
        self._catch_up()
        return tuple(self._rules((user, groups), namespace))

    def role_rules(self, reference: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding refers to; None where it does not exist."""
        self._catch_up()
        return self._roles.get(("" if reference.kind == "ClusterRole" else namespace, reference.name))

    def _rules(self, identity: _Identity, namespace: str) -> Iterator[PolicyRule]:
        for grant in self._granted(identity, namespace):
            yield from grant.rules

    def _granted(self, identity: _Identity, namespace: str) -> Iterator[Grant]:
        yield from self._found(identity, "")
        if namespace:
            yield from self._found(identity, namespace)

    def _found(self, identity: _Identity, namespace: str) -> tuple[Grant, ...]:
        found = self._grants.get((identity, namespace))
        if found is None:
            if len(self._grants) >= _ANSWERS:
                self._grants.clear()
            found = self._grants[identity, namespace] = tuple(self._search(identity, namespace))
        return found

    def _search(self, identity: _Identity, namespace: str) -> Iterator[Grant]:
        user, groups = identity
        for binding in self._bindings.get(namespace, ()):
            subject = next((each for each in binding.subjects or () if concerns(each, user, groups, namespace)), None)
            if subject is None:
                continue
            reference = binding.role_ref
            kind = "RoleBinding" if namespace else "ClusterRoleBinding"
            whole = f"{binding.metadata.name}/{namespace}" if namespace else binding.metadata.name
            whom = subject.name
            if subject.kind == "ServiceAccount":
                whom = f"{subject.name}/{subject.namespace or namespace}"
            words = f'{kind} "{whole}" of {reference.kind} "{reference.name}" to {subject.kind} "{whom}"'
            rules = self._roles.get(("" if reference.kind == "ClusterRole" else namespace, reference.name))
            if rules is None:
                yield Grant((), words, f'{reference.kind.lower()}.{GROUP} "{reference.name}" not found')
            else:
                yield Grant(rules, words)

    def _catch_up(self) -> None:
        version = self._store.version
        if version == self._seen:
            return
        self._seen = version
        try:
            if self._watches and not any(watch.ready() for watch in self._watches):
                return
        except ExpiredError:
            pass
        self._read_all()

    def _read_all(self) -> None:
        for known in (self._roles, self._bindings, self._grants, self._answers):
            known.clear()
        self._watches = []
        for resource in _RESOURCES:
            prefix = f"{GROUP}/{resource}/"
            version, records = self._store.list(prefix)
            self._watches.append(self._store.watch(prefix, version))
            for record in records:
                if resource.endswith("bindings"):
                    binding = _binding.decode(record.body)
                    self._bindings.setdefault(binding.metadata.namespace, []).append(binding)
                else:
                    role = _role.decode(record.body)
                    self._roles[role.metadata.namespace, role.metadata.name] = role.rules or ()


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
