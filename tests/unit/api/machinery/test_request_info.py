"""Paths and query options (05 B1, B6)."""

from __future__ import annotations

import pytest

from plimsoll.api.machinery.request_info import (
    DeleteOptions,
    RequestInfo,
    delete_options,
    list_options,
    parsed_query,
    request_info,
    write_options,
)
from plimsoll.api.machinery.status import StatusError


def info(path: str, method: str = "GET") -> RequestInfo:
    plain, _, query = path.partition("?")
    found = request_info(method, plain, parsed_query(query.encode()))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("method", "path", "verb", "where"),
    [
        ("GET", "/api/v1/pods", "list", ("pods", "", "", "")),
        ("GET", "/api/v1/pods/", "list", ("pods", "", "", "")),
        ("GET", "/api/v1/namespaces/a/pods", "list", ("pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=true", "watch", ("pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=", "watch", ("pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=foo", "watch", ("pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=0", "list", ("pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=False", "list", ("pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/b", "get", ("pods", "a", "b", "")),
        ("GET", "/api/v1/namespaces/a/pods/b?watch=true", "get", ("pods", "a", "b", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods", "watch", ("pods", "a", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods/b", "watch", ("pods", "a", "", "")),
        ("PUT", "/api/v1/namespaces/a/pods/b/resize", "update", ("pods", "a", "b", "resize")),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", "patch", ("pods", "a", "b", "status")),
        ("POST", "/api/v1/namespaces/a/pods", "create", ("pods", "a", "", "")),
        ("POST", "/api/v1/namespaces/a/pods/b/binding", "create", ("pods", "a", "b", "binding")),
        ("POST", "/api/v1/namespaces", "create", ("namespaces", "", "", "")),
        ("GET", "/api/v1/namespaces/a", "get", ("namespaces", "", "a", "")),
        ("PUT", "/api/v1/namespaces/a/finalize", "update", ("namespaces", "", "a", "finalize")),
        ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection", ("pods", "a", "", "")),
        ("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/p", "delete", ("priorityclasses", "", "p", "")),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n%311", "get", ("leases", "kube-node-lease", "n11", "")),
    ],
)  # fmt: skip
def test_paths(method: str, path: str, verb: str, where: tuple[str, ...]) -> None:
    found = info(path, method)
    assert (found.verb, (found.resource.plural, found.namespace, found.name, found.subresource)) == (verb, where)


def test_the_rest_of_a_proxy_path_is_kept() -> None:
    assert info("/api/v1/nodes/n1/proxy/stats/summary").rest == "stats/summary"


@pytest.mark.parametrize(
    "path", ["/", "/foo", "/api", "/api/v1", "/api/v2/pods", "/apis/foo/v1/bars", "/api/v1//pods", "/api/v1/pods//"]
)
def test_paths_outside_the_served_groups(path: str) -> None:
    assert request_info("GET", path, {}) is None


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/foos", 404),
        ("GET", "/api/v1/pods/x", 404),
        ("GET", "/api/v1/namespaces/a/nodes", 404),
        ("GET", "/api/v1/namespaces/a/pods/b/foo", 404),
        ("GET", "/api/v1/namespaces/a/pods/b/status/more", 404),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("POST", "/api/v1/namespaces/a/pods/b", 405),
        ("PUT", "/api/v1/namespaces/a/pods", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("HEAD", "/api/v1/pods", 405),
        ("OPTIONS", "/api/v1/pods", 405),
        ("OPTIONS", "/api/v1/namespaces/a/pods/b/log", 405),
        ("OPTIONS", "/api/v1/nodes/n/proxy", 405),
        ("GET", "/api/v1/namespaces/a/pods/b/binding", 405),
        ("DELETE", "/api/v1/namespaces/a/pods/b/status", 405),
        ("POST", "/apis/metrics.k8s.io/v1beta1/nodes", 405),
    ],
)
def test_what_a_served_group_does_not_have(method: str, path: str, code: int) -> None:
    with pytest.raises(StatusError) as refusal:
        info(path, method)
    assert (refusal.value.code, refusal.value.details) == (code, {})


@pytest.mark.parametrize(("method", "verb"), [("OPTIONS", ""), ("HEAD", "get"), ("PATCH", "patch")])
def test_a_proxy_passes_every_method_on(method: str, verb: str) -> None:
    """Proxy version v1: A set of valid responses are returned for both pod and service Proxy. RBAC allows a method
    without a verb to those who have all verbs."""
    for path in ("/api/v1/namespaces/a/pods/b/proxy", "/api/v1/namespaces/a/services/b/proxy/x"):
        assert info(path, method).verb == verb


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("limit=abc", 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("limit=99999999999999999999", 400, 'strconv.ParseInt: parsing "99999999999999999999": value out of range'),
        ("timeout=abc", 400, 'invalid timeout specified in the request URL - time: invalid duration "abc"'),
        ("resourceVersionMatch=Exact", 422, 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided'),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422, 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
        ("sendInitialEvents=true", 422, 'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list'),
        ("watch=1&sendInitialEvents=true", 422, 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan'),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422, 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided'),
    ],
)  # fmt: skip
def test_list_options_refused(query: str, code: int, message: str) -> None:
    with pytest.raises(StatusError) as refusal:
        list_options(info(f"/api/v1/pods?{query}"))
    assert (refusal.value.code, refusal.value.message) == (code, message)


def test_list_options_read() -> None:
    options = list_options(
        info("/api/v1/pods?limit=5&labelSelector=a%3Db&timeout=32s&foo=bar&resourceVersion=7&limit=9")
    )
    assert (options.limit, options.label_selector, options.resource_version, options.send_initial) == (
        5,
        "a=b",
        "7",
        None,
    )
    watch = list_options(
        info(
            "/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=9"
        )
    )
    assert (watch.send_initial, watch.bookmarks, watch.timeout_s) == (False, True, 9)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("fieldValidation=Bad", 'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Bad": supported values: "", "Ignore", "Strict", "Warn"'),
        ("dryRun=true", 'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["true"]: supported values: "All"'),
        ("fieldManager=" + "x" * 129, 'CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes'),
    ],
)  # fmt: skip
def test_write_options_refused(query: str, message: str) -> None:
    with pytest.raises(StatusError) as refusal:
        write_options(info(f"/api/v1/namespaces/a/pods?{query}", "POST"), "x")
    assert (refusal.value.code, refusal.value.message) == (422, message)


@pytest.mark.parametrize(
    ("agent", "manager"),
    [("kubectl/v1.32 (linux)", "kubectl"), ("curl", "curl"), ("", "unknown"), ("\x01/1", "unknown")],
)
def test_the_default_manager_is_the_program_name(agent: str, manager: str) -> None:
    assert write_options(info("/api/v1/namespaces/a/pods", "POST"), agent).field_manager == manager


def test_delete_options_come_from_the_body_or_else_the_query() -> None:
    asked = info("/api/v1/namespaces/a/pods/b?gracePeriodSeconds=5&propagationPolicy=Orphan", "DELETE")
    assert delete_options(None, asked) == DeleteOptions(5, propagation="Orphan")
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": "u", "resourceVersion": "1"}, "dryRun": ["All"]}
    assert delete_options(body, asked) == DeleteOptions(0, "u", "1", "", True)
    assert delete_options({}, asked) == DeleteOptions()
    with pytest.raises(StatusError) as refusal:
        delete_options({"propagationPolicy": "Foo"}, asked)
    assert refusal.value.message == (
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Foo": supported values: '
        '"Foreground", "Background", "Orphan", "nil"'
    )


def test_a_query_of_too_many_parameters_is_refused() -> None:
    with pytest.raises(StatusError) as refusal:
        parsed_query(b"&".join(b"a=%d" % number for number in range(1001)))
    assert (refusal.value.code, refusal.value.message) == (400, "the query has more than 1000 parameters")
