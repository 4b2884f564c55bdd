"""List and watch without a server: whatever order things come in, the changes add up to what the server has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.kube.reflector import ObjectChange, Reflector
from plimsoll.kube.request import PODS, ApiError, ApiResponse


def _pod(name: str, version: int, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"namespace": "d", "name": name, "resourceVersion": str(version), "uid": uid}}


def _list(version: int, *items: dict[str, Any], follow: str = "") -> ApiResponse:
    metadata = {"resourceVersion": str(version), **({"continue": follow} if follow else {})}
    return ApiResponse(200, msgspec.json.encode({"kind": "PodList", "metadata": metadata, "items": items}))


def _line(kind: str, found: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": found})


def _kinds(changes: list[ObjectChange] | None) -> list[tuple[str, str]]:
    return [(each.kind, each.key[1]) for each in changes or []]


def test_pages_then_watch_from_the_lists_version() -> None:
    reflector = Reflector(PODS, fields="spec.nodeName=n1")
    assert reflector.request().path == "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500"
    assert reflector.listed(_list(7, _pod("a", 3), follow="tok")) is None
    assert reflector.request().path.endswith("limit=500&continue=tok")
    assert _kinds(reflector.listed(_list(7, _pod("b", 5)))) == [("ADDED", "a"), ("ADDED", "b")]
    assert "resourceVersion=7" in reflector.request().path and reflector.request().stream


def test_bookmarks_move_the_version_and_nothing_else() -> None:
    reflector = Reflector(PODS)
    reflector.listed(_list(7))
    assert reflector.line(_line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})) == []
    assert "resourceVersion=9" in reflector.request().path


def test_expired_in_the_stream_or_as_status_means_list_again() -> None:
    reflector = Reflector(PODS)
    reflector.listed(_list(7, _pod("a", 3), _pod("b", 4)))
    assert reflector.line(_line("ERROR", {"code": 410, "reason": "Expired"})) == []
    assert not reflector.synced
    changes = reflector.listed(_list(20, _pod("b", 15), _pod("c", 16)))
    assert _kinds(changes) == [("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "c")]
    reflector.refused(ApiResponse(410, b""))
    assert not reflector.synced


def test_other_errors_are_raised() -> None:
    reflector = Reflector(PODS)
    with pytest.raises(ApiError, match="no entry"):
        reflector.listed(ApiResponse(403, b'{"kind":"Status","message":"no entry","reason":"Forbidden"}'))
    reflector.listed(_list(1))
    with pytest.raises(ApiError):
        reflector.line(_line("ERROR", {"code": 500, "message": "x", "metadata": {}}))


def test_an_object_of_the_same_name_is_another_object() -> None:
    reflector = Reflector(PODS)
    reflector.listed(_list(1, _pod("a", 1, "old")))
    changes = reflector.line(_line("MODIFIED", _pod("a", 2, "new")))
    assert _kinds(changes) == [("DELETED", "a"), ("ADDED", "a")]
    assert (changes[0].uid, changes[1].uid) == ("old", "new")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "delete", "expire", "repeat"])), max_size=30))
def test_changes_add_up(script: list[tuple[str, str]]) -> None:
    """A server's history, with expiry and repeated lines anywhere: applying the changes gives the server's state."""
    reflector, server, mine, version = Reflector(PODS), dict[str, dict[str, Any]](), dict[str, str](), 1

    def take(changes: list[ObjectChange] | None) -> None:
        for each in changes or []:
            name = each.key[1]
            assert (each.kind == "ADDED") == (name not in mine)
            if each.kind == "DELETED":
                del mine[name]
            else:
                mine[name] = msgspec.json.decode(each.body)["metadata"]["resourceVersion"]

    take(reflector.listed(_list(version)))
    for name, what in script:
        version += 1
        if what == "put":
            kind = "MODIFIED" if name in server else "ADDED"
            server[name] = _pod(name, version)
            if reflector.synced:
                take(reflector.line(_line(kind, server[name])))
        elif what == "delete" and name in server:
            gone = server.pop(name)
            if reflector.synced:
                gone["metadata"]["resourceVersion"] = str(version)
                take(reflector.line(_line("DELETED", gone)))
        elif what == "repeat" and name in server and reflector.synced:
            take(reflector.line(_line("MODIFIED", server[name])))
        elif what == "expire" and reflector.synced:
            take(reflector.line(_line("ERROR", {"code": 410})))
    if not reflector.synced:
        take(reflector.listed(_list(version, *server.values())))
    assert mine == {name: pod["metadata"]["resourceVersion"] for name, pod in server.items()}
