"""Requests as spelled, and answers as errors."""

from __future__ import annotations

import pytest

from plimsoll.kube import request as r


@pytest.mark.parametrize(
    ("made", "method", "path"),
    [
        (r.get(r.NODES, "n1"), "GET", "/api/v1/nodes/n1"),
        (r.get(r.PODS, "../x?y", "d"), "GET", "/api/v1/namespaces/d/pods/..%2Fx%3Fy"),
        (r.listing(r.PODS, fields="a=b,c!=d"), "GET", "/api/v1/pods?fieldSelector=a%3Db%2Cc%21%3Dd"),
        (r.patch(r.PODS, "p", {}, "d", "status"), "PATCH", "/api/v1/namespaces/d/pods/p/status"),
        (r.create(r.PODS, {}, "d", "p", "binding"), "POST", "/api/v1/namespaces/d/pods/p/binding"),
        (
            r.replace(r.LEASES, {}, "n1", "kube-node-lease"),
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
        ),
        (r.delete(r.PODS, "p", "d", grace_s=0, uid="u"), "DELETE", "/api/v1/namespaces/d/pods/p"),
    ],
)
def test_paths(made: r.Request, method: str, path: str) -> None:
    assert (made.method, made.path) == (method, path)


def test_delete_has_the_uid_as_precondition() -> None:
    made = r.delete(r.PODS, "p", "d", grace_s=0, uid="u")
    assert b'"gracePeriodSeconds":0' in made.body and b'"preconditions":{"uid":"u"}' in made.body


@pytest.mark.parametrize(
    ("answer", "text", "conflict"),
    [
        (
            r.ApiResponse(409, b'{"kind":"Status","reason":"Conflict","message":"modified"}'),
            "modified (409 Conflict)",
            True,
        ),
        (
            r.ApiResponse(409, b'{"kind":"Status","reason":"AlreadyExists","message":"m"}'),
            "m (409 AlreadyExists)",
            False,
        ),
        (r.ApiResponse(502, b"bad gateway\n"), "bad gateway (502)", False),
        (r.ApiResponse(500, b""), "the server gave no reason (500)", False),
    ],
)
def test_errors(answer: r.ApiResponse, text: str, conflict: bool) -> None:
    with pytest.raises(r.ApiError) as raised:
        r.document(answer)
    assert str(raised.value) == text
    assert raised.value.is_conflict == conflict
