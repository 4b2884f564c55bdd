"""Roles as a table, and tokens."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from plimsoll.api.auth.node_authorizer import node_verdict
from plimsoll.api.auth.roles import denial, is_allowed, may_read_path, verdict
from plimsoll.api.machinery.users import (
    ANONYMOUS,
    InvalidCredentialsError,
    Tokens,
    User,
    authenticate_user,
    merged_tokens,
)
from plimsoll.rules.access.rbac import Attributes
from tests.unit.api.api_client import api

ADMIN = User("admin", frozenset({"system:masters", "system:authenticated"}))
VIEWER = User("eve", frozenset({"plimsoll:viewers", "system:authenticated"}))
NODE = User("system:node:n1", frozenset({"system:nodes", "system:authenticated"}))
NO_ROLE = User("carol", frozenset({"system:authenticated"}))
NAMELESS = User("somebody", frozenset({"system:nodes", "system:authenticated"}))
FAKE_NODE = User("system:node:n1", frozenset({"system:authenticated"}))


class Relations:
    """Of node n1: the pod default/mine, which refers to one ConfigMap."""

    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        related = {("pods", "default", "mine"), ("configmaps", "default", "used")}
        return node == "n1" and (resource, namespace, name) in related


RELATIONS = Relations()

ROWS = [
    (ADMIN, Attributes("delete", "nodes", name="n1"), "allow"),
    (VIEWER, Attributes("list", "pods"), "allow"),
    (VIEWER, Attributes("get", "pods", subresource="log", name="p"), "allow"),
    (VIEWER, Attributes("get", "pods", subresource="exec", name="p"), "deny"),
    (VIEWER, Attributes("get", "nodes", subresource="proxy", name="n1"), "deny"),
    (VIEWER, Attributes("patch", "pods", name="p"), "deny"),
    (VIEWER, Attributes("get", "secrets", namespace="default", name="s"), "deny"),
    (VIEWER, Attributes("list", "deployments", "apps"), "allow"),
    (NO_ROLE, Attributes("get", "pods", name="p"), "deny"),
    (NO_ROLE, Attributes("create", "selfsubjectaccessreviews", "authorization.k8s.io"), "allow"),
    (ANONYMOUS, Attributes("create", "selfsubjectaccessreviews", "authorization.k8s.io"), "deny"),
    (FAKE_NODE, Attributes("patch", "nodes", subresource="status", name="n1"), "deny"),
    (NODE, Attributes("patch", "nodes", subresource="status", name="n1"), "allow"),
    (NODE, Attributes("get", "nodes", name="n2"), "deny"),
    (NODE, Attributes("create", "nodes"), "allow"),
    (NODE, Attributes("delete", "nodes", name="n1"), "deny"),
    (NODE, Attributes("get", "nodes", name="n1"), "allow"),
    (NODE, Attributes("list", "nodes"), "deny"),
    (NODE, Attributes("list", "services"), "allow"),
    (NODE, Attributes("list", "services", "serving.example.com"), "deny"),  # a custom kind
    (NODE, Attributes("create", "events", "events.k8s.io"), "allow"),
    (NODE, Attributes("create", "events", "example.com"), "deny"),
    (NODE, Attributes("get", "leases", "example.com", "", "kube-node-lease", "n1"), "deny"),
    (NODE, Attributes("list", "nodes", name="n1"), "allow"),
    (NODE, Attributes("update", "leases", "coordination.k8s.io", "", "kube-node-lease", "n1"), "allow"),
    (NODE, Attributes("update", "leases", "coordination.k8s.io", "", "kube-node-lease", "n2"), "deny"),
    (NODE, Attributes("update", "leases", "coordination.k8s.io", "", "default", "n1"), "deny"),
    (NODE, Attributes("create", "events", namespace="default"), "allow"),
    (NODE, Attributes("delete", "events", namespace="default", name="e"), "deny"),
    (NODE, Attributes("list", "pods"), "deny"),
    (NODE, Attributes("watch", "pods", field_selector=(("spec.nodeName", "n1"),)), "allow"),
    (NODE, Attributes("watch", "pods", field_selector=(("spec.nodeName", "n2"),)), "deny"),
    (NODE, Attributes("get", "pods", namespace="default", name="mine"), "allow"),
    (NODE, Attributes("get", "pods", namespace="default", name="other"), "deny"),
    (NODE, Attributes("watch", "pods", namespace="default", name="mine"), "allow"),
    (NODE, Attributes("patch", "pods", subresource="status", name="p"), "allow"),  # then NodeRestriction
    (NODE, Attributes("delete", "pods", name="p"), "allow"),
    (NODE, Attributes("create", "pods", subresource="eviction", name="p"), "allow"),
    (NODE, Attributes("deletecollection", "pods", namespace="default"), "deny"),
    (NODE, Attributes("get", "pods", subresource="log", namespace="default", name="mine"), "deny"),
    (NODE, Attributes("patch", "pods", name="p"), "deny"),
    (NODE, Attributes("patch", "pods", subresource="resize", name="p"), "deny"),
    (NODE, Attributes("create", "pods", subresource="exec", name="p"), "deny"),
    (NODE, Attributes("get", "configmaps", namespace="default", name="used"), "allow"),
    (NODE, Attributes("watch", "configmaps", namespace="default", name="used"), "allow"),
    (NODE, Attributes("get", "configmaps", namespace="default", name="secret-plan"), "deny"),
    (NODE, Attributes("get", "configmaps", namespace="kube-system", name="used"), "deny"),
    (NODE, Attributes("list", "configmaps", namespace="default"), "deny"),
    (NODE, Attributes("list", "configmaps", name="used"), "deny"),
    (NODE, Attributes("get", "secrets", namespace="default", name="used"), "deny"),
    (NODE, Attributes("list", "namespaces"), "deny"),
    (NODE, Attributes("list", "resourcequotas", namespace="default"), "deny"),
    (NAMELESS, Attributes("create", "events", namespace="default"), "deny"),
    (NODE, Attributes("update", "resourcequotas", subresource="status", name="q"), "deny"),
]


@pytest.mark.parametrize(
    ("user", "attributes", "expected"),
    [row for row in ROWS if row[0] in (NODE, NAMELESS)],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_a_node_may_do(user: User, attributes: Attributes, expected: str) -> None:
    assert node_verdict(user.node, attributes, RELATIONS).allowed is (expected == "allow")


async def test_what_the_default_roles_allow(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        cluster = ask.app.cluster
        for user, attributes, expected in [row for row in ROWS if row[0] not in (NODE, NAMELESS)]:
            assert is_allowed(user, attributes, cluster) is (expected == "allow"), (user.name, attributes)
            assert verdict(user, attributes, cluster).allowed is (expected == "allow"), (user.name, attributes)
        for user, path, expected in PATHS:
            assert may_read_path(user, path, cluster) is (expected == "allow"), (user.name, path)


PATHS = [
    (ANONYMOUS, "/livez", "allow"),
    (ANONYMOUS, "/readyz/ping", "allow"),
    (ANONYMOUS, "/version", "allow"),
    (ANONYMOUS, "/api", "deny"),
    (ANONYMOUS, "/metrics", "deny"),
    (NO_ROLE, "/apis", "allow"),
    (NO_ROLE, "/metrics", "deny"),
    (NODE, "/openapi/v3", "allow"),
    (VIEWER, "/metrics", "allow"),
]


def test_denial_has_the_message_of_kubernetes() -> None:
    assert denial(VIEWER, Attributes("delete", "pods", namespace="default", name="p")) == (
        'User "eve" cannot delete resource "pods" in API group "" in the namespace "default"'
    )


def test_tokens_that_were_changed_at_two_places(tmp_path: Path) -> None:
    file, tokens = tmp_path / "tokens.json", Tokens(tmp_path)
    for name in ("kept", "revoked-here", "revoked-there"):
        tokens.create(name, ())
    before = file.read_bytes()
    tokens.revoke("revoked-there")
    tokens.create("created-there", ())
    there = file.read_bytes()
    file.write_bytes(before)
    tokens.revoke("revoked-here")
    tokens.create("created-here", ())
    merged = merged_tokens(before, file.read_bytes(), there)
    file.write_bytes(merged)
    assert sorted(tokens.names()) == ["created-here", "created-there", "kept"]
    assert merged_tokens(before, before, there) == there
    assert merged_tokens(merged, merged, b"") == b""


def test_tokens_are_kept_as_digests_and_can_be_revoked(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    token = tokens.create("eve", ("plimsoll:viewers",))
    file = tmp_path / "tokens.json"
    assert token not in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert authenticate_user(f"Bearer {token}", None, tokens) == VIEWER
    assert Tokens(tmp_path).user(token) == VIEWER
    assert tokens.revoke("eve") == 1
    with pytest.raises(InvalidCredentialsError):
        tokens.user(token)


@pytest.mark.parametrize("header", ["Bearer nope", "Bearer ", "Basic dXNlcjpwdw==", "nonsense"])
def test_a_wrong_credential_is_refused_rather_than_anonymous(header: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidCredentialsError):
        authenticate_user(header, None, Tokens(tmp_path))


def test_a_token_made_elsewhere_works_at_once(tmp_path: Path) -> None:
    server, command = Tokens(tmp_path), Tokens(tmp_path)
    assert authenticate_user("", None, server) == ANONYMOUS
    assert server.user(command.create("admin", ("system:masters",))) == ADMIN


async def test_rules_review(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        found = (await ask.ok("POST", path, {"spec": {"namespace": "default"}}))["status"]
        assert found == {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
        assert (await ask("POST", path, {})).message == "no namespace on request"
        ask.user = NODE
        found = (await ask.ok("POST", path, {"spec": {"namespace": "default"}}))["status"]
        assert found["incomplete"]
        assert "bound to this node" in found["evaluationError"]
