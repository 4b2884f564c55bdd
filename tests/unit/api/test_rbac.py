"""RBAC: rules, bindings, names, paths, aggregation, escalation, reviews and impersonation, through the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.auth.roles import is_allowed
from plimsoll.api.machinery.role_index import RoleIndex
from plimsoll.api.machinery.users import AUTHENTICATED, User
from plimsoll.api.server.services import controllers
from plimsoll.rules.access.default_roles import default_roles
from plimsoll.rules.access.rbac import Attributes, PolicyRule, uncovered
from tests.unit.api.api_client import ADMIN, APPLY, MERGE, TABLE, ApiClient, api, pod

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
PODS, MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
JANE = User("jane", frozenset({AUTHENTICATED, "developers"}))


def rule(verbs: str, resources: str, groups: str = "", **more: Any) -> dict[str, Any]:
    return {"verbs": verbs.split(","), "apiGroups": groups.split(","), "resources": resources.split(","), **more}


def role(name: str, *rules: Any, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(name: str, to: str, *subjects: Any, kind: str = "Role") -> dict[str, Any]:
    return {"metadata": {"name": name}, "roleRef": {"kind": kind, "name": to}, "subjects": list(subjects)}


def user(name: str, kind: str = "User", **more: str) -> dict[str, str]:
    return {"kind": kind, "name": name, **more}


async def grant(ask: ApiClient, *rules: Any, to: str = "jane", name: str = "r") -> None:
    await ask.ok("POST", ROLES, role(name, *rules))
    await ask.ok("POST", BINDINGS, binding(name, name, user(to)))


async def code(ask: ApiClient, who: User, method: str, path: str, body: Any = None) -> int:
    ask.user = who
    try:
        return (await ask(method, path, body)).code
    finally:
        ask.user = ADMIN


async def test_a_binding_allows_what_its_role_says_and_nothing_else(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        assert await code(ask, JANE, "GET", PODS) == 403
        await grant(ask, rule("get,list,watch", "pods,pods/log"))
        assert await code(ask, JANE, "GET", PODS) == 200
        for method, path in (
            ("POST", PODS),
            ("GET", MAPS),
            ("GET", "/api/v1/namespaces/kube-system/pods"),
            ("GET", "/api/v1/pods"),
            ("DELETE", f"{PODS}/p"),
            ("GET", f"{PODS}/p/status"),
        ):
            assert await code(ask, JANE, method, path, {}) == 403, (method, path)
        ask.user = JANE
        refused = await ask("GET", f"{MAPS}/c")
        assert refused.message == (
            'configmaps "c" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the '
            'namespace "default"'
        )
        ask.user = ADMIN
        await ask.ok("PATCH", f"{ROLES}/r", {"rules": [rule("list", "configmaps")]}, MERGE)
        assert (await code(ask, JANE, "GET", PODS), await code(ask, JANE, "GET", MAPS)) == (403, 200)
        await ask.ok("DELETE", f"{ROLES}/r")
        ask.user = JANE
        refused = await ask("GET", MAPS)
        assert refused.message.endswith('RBAC: role.rbac.authorization.k8s.io "r" not found')


async def test_names_subresources_and_wildcards(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for name in ("a", "b"):
            await ask.ok("POST", MAPS, {"metadata": {"name": name}})
        await grant(
            ask,
            rule("get,list,watch", "configmaps", resourceNames=["a"]),
            rule("patch", "*/status"),
            rule("*", "*", "apps"),
        )
        assert (await code(ask, JANE, "GET", f"{MAPS}/a"), await code(ask, JANE, "GET", f"{MAPS}/b")) == (200, 403)
        assert await code(ask, JANE, "GET", MAPS) == 403
        assert await code(ask, JANE, "GET", f"{MAPS}?fieldSelector=metadata.name%3Da") == 200
        cluster = ask.app.cluster
        for attributes, expected in (
            (Attributes("patch", "pods", "", "status", "default", "p"), True),
            (Attributes("patch", "pods", "", "", "default", "p"), False),
            (Attributes("delete", "deployments", "apps", "scale", "default", "d"), True),
            (Attributes("delete", "deployments", "apps", "scale", "other", "d"), False),
        ):
            assert is_allowed(JANE, attributes, cluster) is expected, attributes


async def test_groups_accounts_and_cluster_bindings(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        body = binding("devs", "view", user("developers", "Group"), kind="ClusterRole")
        made = await ask.ok("POST", f"{RBAC}/clusterrolebindings", body)
        assert made["roleRef"]["apiGroup"] == made["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
        await ask.ok("PATCH", f"{RBAC}/clusterroles/view", {"rules": [rule("list", "pods")]}, MERGE)
        assert await code(ask, JANE, "GET", "/api/v1/pods") == 200
        account = user("default", "ServiceAccount", namespace="default")
        await ask.ok("POST", BINDINGS, binding("robots", "view", account, kind="ClusterRole"))
        robot = User("system:serviceaccount:default:default", frozenset({AUTHENTICATED}))
        assert (await code(ask, robot, "GET", PODS), await code(ask, robot, "GET", "/api/v1/pods")) == (200, 403)
        table = await ask.ok("GET", BINDINGS, accept=TABLE)
        names = [column["name"] for column in table["columnDefinitions"]]
        assert names == ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]
        assert table["rows"][0]["cells"][1] == "ClusterRole/view"
        assert table["rows"][0]["cells"][3:] == ["", "", "default/default"]


async def test_a_service_account_without_a_namespace_is_of_the_namespace_of_the_binding(tmp_path: Path) -> None:
    here, there = (User(f"system:serviceaccount:{name}:robot", frozenset({AUTHENTICATED})) for name in ("default", "b"))
    async with api(tmp_path) as ask:
        await ask.ok("POST", ROLES, role("r", rule("list", "pods")))
        await ask.ok("POST", BINDINGS, binding("r", "r", user("robot", "ServiceAccount")))
        assert await code(ask, here, "GET", PODS) == 200
        assert await code(ask, there, "GET", PODS) == 403


async def test_paths_are_allowed_by_cluster_roles(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        refused = await code(ask, JANE, "GET", "/openid/v1/jwks")
        assert refused == 403
        paths = {"verbs": ["get"], "nonResourceURLs": ["/openid/*"]}
        await ask.ok("POST", f"{RBAC}/clusterroles", role("keys", paths))
        await ask.ok("POST", f"{RBAC}/clusterrolebindings", binding("keys", "keys", user("jane"), kind="ClusterRole"))
        assert await code(ask, JANE, "GET", "/openid/v1/jwks") == 200
        assert await code(ask, JANE, "GET", "/.well-known/openid-configuration") == 403


async def test_aggregated_roles_follow_their_labels(tmp_path: Path) -> None:
    async with api(tmp_path, services=[controllers]) as ask:
        async with ask.watching(f"{RBAC}/clusterroles?watch=1&fieldSelector=metadata.name%3Dadmin") as watched:
            labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
            body = role("widgets-view", rule("get,list,watch", "widgets", "example.com"))
            body["metadata"]["labels"] = labels
            await ask.ok("POST", f"{RBAC}/clusterroles", body)
            rules: list[Any] = []
            while not any("widgets" in each["resources"] for each in rules):  # view → edit → admin
                rules = (await watched.event())["object"]["rules"] or []
        expected = {each.name: each for each in default_roles()}
        written = expected["system:aggregate-to-edit"].rules
        for each in written:
            assert any(set(each.resources) == set(one.get("resources", ())) for one in rules), each


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (ROLES, role("x", {"verbs": ["get"], "resources": ["pods"]}), "rules[0].apiGroups: Required value: resource rules"),
        (ROLES, role("x", rule("get", "pods") | {"verbs": []}), "rules[0].verbs: Required value: verbs must contain"),
        (
            ROLES,
            role("x", {"verbs": ["get"], "nonResourceURLs": ["/x"]}),
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
        ),
        (BINDINGS, binding("x", "y", user("a", "Robot")), 'subjects[0].kind: Unsupported value: "Robot"'),
        (
            f"{RBAC}/clusterrolebindings",
            binding("x", "y", user("a", "ServiceAccount"), kind="ClusterRole"),
            "subjects[0].namespace: Required value",
        ),
        (f"{RBAC}/clusterrolebindings", binding("x", "y"), 'roleRef.kind: Unsupported value: "Role"'),
        (ROLES, role("a%b"), "metadata.name: Invalid value: \"a%b\": may not contain '%'"),
    ],
)  # fmt: skip
async def test_what_is_not_a_role_or_binding_is_refused(tmp_path: Path, path: str, body: Any, message: str) -> None:
    async with api(tmp_path) as ask:
        refused = await ask("POST", path, body)
        assert refused.code == 422 and message in refused.message, refused.message


async def test_a_binding_keeps_its_role(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await grant(ask, rule("get", "pods"))
        refused = await ask("PATCH", f"{BINDINGS}/r", {"roleRef": {"name": "other"}}, MERGE)
        assert refused.message.endswith(
            'roleRef: Invalid value: rbac.RoleRef{APIGroup:"rbac.authorization.k8s.io", Kind:"Role", Name:"other"}: '
            "cannot change roleRef"
        )


async def test_no_author_grants_more_than_they_have(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        every = "create,get,list,patch,update"
        await grant(ask, rule(every, "roles,rolebindings", "rbac.authorization.k8s.io"), rule("get,list", "pods"))
        ask.user = JANE
        assert (await ask("POST", ROLES, role("mine", rule("get", "pods")))).code == 201
        refused = await ask("POST", ROLES, role("more", rule("get,delete,create", "pods")))
        assert refused.code == 403
        assert refused.message == (
            'roles.rbac.authorization.k8s.io "more" is forbidden: user "jane" (groups=["developers" '
            '"system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
            '{APIGroups:[""], Resources:["pods"], Verbs:["delete" "create"]}'
        )
        refused = await ask("PATCH", f"{ROLES}/mine", {"rules": [rule("*", "*", "*")]}, MERGE)
        assert refused.code == 403 and "attempting to grant" in refused.message
        assert (await ask("PATCH", f"{ROLES}/mine", {"metadata": {"labels": {"a": "b"}}}, MERGE)).code == 200
        body = binding("up", "cluster-admin", user("jane"), kind="ClusterRole")
        refused = await ask("POST", BINDINGS, body)
        assert refused.code == 403 and '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}' in refused.message
        assert (await ask("POST", BINDINGS, binding("ok", "mine", user("bob")))).code == 201
        ask.user = ADMIN
        await grant(ask, rule("bind", "clusterroles", "rbac.authorization.k8s.io", resourceNames=["edit"]), name="b")
        await grant(ask, rule("escalate", "roles", "rbac.authorization.k8s.io"), name="e")
        ask.user = JANE
        assert (await ask("POST", BINDINGS, binding("edit", "edit", user("bob"), kind="ClusterRole"))).code == 201
        assert (await ask("POST", BINDINGS, body)).code == 403
        assert (await ask("POST", ROLES, role("more", rule("*", "pods")))).code == 201


async def test_a_label_that_aggregates_a_role_grants_its_rules(tmp_path: Path) -> None:
    """`view` would get the rules of a role that its author does not have (as kube-apiserver: every update is checked)."""
    roles, label = f"{RBAC}/clusterroles", "rbac.authorization.k8s.io/aggregate-to-view"
    async with api(tmp_path) as ask:
        may = rule("create,get,patch", "clusterroles", "rbac.authorization.k8s.io")
        await ask.ok("POST", roles, role("author", may, rule("get", "pods")))
        await ask.ok("POST", f"{RBAC}/clusterrolebindings", binding("a", "author", user("jane"), kind="ClusterRole"))
        await ask.ok("POST", roles, role("strong", rule("*", "secrets")))
        await ask.ok("POST", roles, role("weak", rule("get", "pods")))
        ask.user = JANE
        refused = await ask("PATCH", f"{roles}/strong", {"metadata": {"labels": {label: "true"}}}, MERGE)
        assert refused.code == 403 and '{APIGroups:[""], Resources:["secrets"], Verbs:["*"]}' in refused.message
        assert (await ask("PATCH", f"{roles}/strong", {"metadata": {"annotations": {"a": "b"}}}, MERGE)).code == 200
        assert (await ask("PATCH", f"{roles}/weak", {"metadata": {"labels": {label: "true"}}}, MERGE)).code == 200
        refused = await ask("PATCH", f"{roles}/view", {"aggregationRule": None}, MERGE)
        assert refused.code == 403 and "must have cluster-admin privileges" in refused.message


@pytest.mark.parametrize(
    ("owned", "wanted", "is_covered"),
    [
        ("/metrics", "/metrics", True),
        ("/metrics", "/metrics*", False),
        ("/", "/*", False),
        ("/api", "/api/*", False),
        ("/api/*", "/api/*", True),
        ("/api/*", "/api/v1/*", True),
        ("/api/v1/*", "/api/*", False),
        ("*", "/x*", True),
        ("/x*", "*", False),
    ],
)
def test_one_path_does_not_cover_those_that_begin_with_it(owned: str, wanted: str, is_covered: bool) -> None:
    rules = (PolicyRule(("get",), non_resource_urls=(path,)) for path in (wanted, owned))
    asked, had = rules
    assert (uncovered((asked,), (had,)) == []) is is_covered


async def test_who_may_only_change_objects_creates_none(tmp_path: Path) -> None:
    """A server-side apply, or a PUT, of an object that does not exist creates it."""
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/new"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "b"}}
    given = {"metadata": {"name": "new"}}
    async with api(tmp_path) as ask:
        await grant(ask, rule("patch,update", "configmaps"), rule("patch,update", "leases", "coordination.k8s.io"))
        ask.user = JANE
        refused = await ask("PATCH", f"{MAPS}/new?fieldManager=x", applied, APPLY)
        assert refused.code == 403
        assert refused.message == (
            'configmaps "new" is forbidden: User "jane" cannot create resource "configmaps" in API group "" in the '
            'namespace "default"'
        )
        refused = await ask("PUT", lease, given)
        assert refused.code == 403 and 'User "jane" cannot create resource "leases"' in refused.message
        ask.user = ADMIN
        await grant(ask, rule("create", "configmaps"), rule("create", "leases", "coordination.k8s.io"), name="c")
        ask.user = JANE
        assert (await ask("PATCH", f"{MAPS}/new?fieldManager=x", applied, APPLY)).code == 201
        assert (await ask("PUT", lease, given)).code == 201
        large = {**applied, "metadata": {"name": "large"}, "data": {"a": "b" * 40_000}}  # in the write process
        assert (await ask("PATCH", f"{MAPS}/large?fieldManager=x", large, APPLY)).code == 201
        ask.user = ADMIN
        await ask.ok("DELETE", f"{ROLES}/c")
        await ask.ok("DELETE", f"{MAPS}/large")
        ask.user = JANE
        assert (await ask("PATCH", f"{MAPS}/large?fieldManager=x", large, APPLY)).code == 403


async def test_reviews_answer_for_oneself_and_for_others(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await grant(ask, rule("get", "pods", resourceNames=["a"]), {"verbs": ["get"], **rule("get", "pods/log")})
        about = {"namespace": "default", "verb": "get", "resource": "pods", "name": "a"}
        base = "/apis/authorization.k8s.io/v1"
        said = await ask.ok(
            "POST", f"{base}/subjectaccessreviews", {"spec": {"user": "jane", "resourceAttributes": about}}
        )
        reason = 'RBAC: allowed by RoleBinding "r/default" of Role "r" to User "jane"'
        assert said["status"] == {"allowed": True, "reason": reason}
        local = f"{base}/namespaces/default/localsubjectaccessreviews"
        other = {"spec": {"user": "jane", "resourceAttributes": {**about, "name": "b"}}}
        assert (await ask.ok("POST", local, other))["status"] == {"allowed": False}
        wrong = {"spec": {"user": "jane", "resourceAttributes": {**about, "namespace": "x"}}}
        assert (await ask("POST", local, wrong)).code == 422
        assert (await ask("POST", f"{base}/subjectaccessreviews", {"spec": {"resourceAttributes": about}})).code == 422
        path = {"spec": {"user": "jane", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}}
        assert (await ask.ok("POST", f"{base}/subjectaccessreviews", path))["status"] == {"allowed": False}
        ask.user = JANE
        mine = await ask.ok("POST", f"{base}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": about}})
        assert mine["status"]["allowed"] is True
        listed = (await ask.ok("POST", f"{base}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}))["status"]
        assert {
            "verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"],
        } in listed["resourceRules"]  # fmt: skip
        assert not listed["incomplete"]
        assert (await ask("POST", f"{base}/subjectaccessreviews", other)).code == 403


async def test_impersonation_needs_its_verb(tmp_path: Path) -> None:
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with api(tmp_path) as ask:
        ask.headers = {"impersonate-user": "bob", "impersonate-group": "ops", "impersonate-extra-scope": "x"}
        info = (await ask.ok("POST", who, {}))["status"]["userInfo"]
        assert info == {"username": "bob", "groups": ["ops", "system:authenticated"], "extra": {"scope": ["x"]}}
        assert (await ask("GET", PODS)).code == 403  # with bob's rights, not the administrator's
        ask.headers = {"impersonate-user": "system:serviceaccount:default:default"}
        info = (await ask.ok("POST", who, {}))["status"]["userInfo"]
        assert "system:serviceaccounts:default" in info["groups"]
        ask.user = JANE
        ask.headers = {"impersonate-user": "bob"}
        refused = await ask("POST", who, {})
        assert refused.code == 403 and refused.message == (
            'users "bob" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the '
            "cluster scope"
        )
        ask.headers = {"impersonate-group": "system:masters"}
        assert (await ask("POST", who, {})).code == 500


async def test_default_roles_are_completed_and_additions_stay(tmp_path: Path) -> None:
    path = f"{RBAC}/clusterroles/system:basic-user"
    more = rule("get", "pods")
    async with api(tmp_path) as ask:
        await ask.ok("PATCH", path, {"rules": [more]}, MERGE)
        await ask.ok("POST", PODS, pod())
    async with api(tmp_path) as ask:
        rules = (await ask.ok("GET", path))["rules"]
        assert rules[0] == more and len(rules) == 3
        await ask.ok(
            "PATCH",
            path,
            {"rules": [more], "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}},
            MERGE,
        )
    async with api(tmp_path) as ask:
        assert (await ask.ok("GET", path))["rules"] == [more]


async def test_a_question_is_computed_once_until_a_role_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    names = RoleIndex._names

    def counted(index: RoleIndex, identity: Any, request: Attributes) -> tuple[str, ...]:
        computed.append(request.resource)
        return names(index, identity, request)

    monkeypatch.setattr(RoleIndex, "_names", counted)
    async with api(tmp_path) as ask:
        for index in range(3):
            await grant(ask, rule("get,list", f"things{index}", "example.com"), name=f"r{index}")
        cluster, request = ask.app.cluster, Attributes("get", "things2", "example.com", "", "default", "x")
        computed.clear()
        assert all(is_allowed(JANE, request, cluster) for _ in range(100))
        assert computed == ["things2"]
        await grant(ask, rule("get", "others", "example.com"), name="another")
        computed.clear()
        assert all(is_allowed(JANE, request, cluster) for _ in range(100))
        assert computed == ["things2"]


ONE = PolicyRule(("get", "list"), ("", "apps"), ("pods", "deployments/scale"), ("a", "b"))


@pytest.mark.parametrize(
    ("owned", "missing"),
    [
        ([], 16),
        ([ONE], 0),
        ([PolicyRule(("*",), ("*",), ("*",))], 0),
        ([PolicyRule(("get",), ("*",), ("*",))], 8),
        ([PolicyRule(("*",), ("*",), ("*/scale",))], 8),
        ([PolicyRule(("*",), ("*",), ("*",), ("a",))], 8),
        ([PolicyRule(("get",), ("",), ("pods",), ("a",)), PolicyRule(("get",), ("",), ("pods",), ("b",))], 14),
    ],
)
def test_rules_are_covered_part_by_part(owned: list[PolicyRule], missing: int) -> None:
    assert len(uncovered([ONE], owned)) == missing


@pytest.mark.parametrize(
    ("owned", "wanted", "covered"),
    [("/a/*", "/a/b", True), ("/a/*", "/a/*", True), ("/a/*", "/*", False), ("*", "/x/*", True), ("/a", "/a/*", False)],
)
def test_a_path_is_covered_by_a_wider_one(owned: str, wanted: str, covered: bool) -> None:
    found = uncovered(
        [PolicyRule(("get",), non_resource_urls=(wanted,))], [PolicyRule(("get",), non_resource_urls=(owned,))]
    )
    assert (not found) is covered
