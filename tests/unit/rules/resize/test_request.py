"""From "two CPUs" to the patch that asks for them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import CPU, Container, Pod, Resources
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.request import (
    ListName,
    NoSuchContainerError,
    change_of,
    chosen_container,
    patch_between,
    resize_patch,
    resized_document,
)

SMALL = {"cpu": "1", "memory": "1Gi"}


def document(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": list(containers)}
    if init:
        spec["initContainers"] = init
    return {"metadata": {"name": "web"}, "spec": spec}


def container(
    name: str, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None
) -> dict[str, Any]:
    lists = {"requests": requests, "limits": limits}
    return {"name": name, "image": "i", "resources": {kind: each for kind, each in lists.items() if each}}


def lean(each: dict[str, Any]) -> Container:
    return from_document(document(each), Pod).spec.containers[0]


CHANGES: list[tuple[str, dict[str, Any], tuple[ListName, ...], dict[str, Any]]] = [
    ("request and limit", container("c", SMALL, SMALL), (), {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}),
    ("no limit stays none", container("c", SMALL), (), {"requests": {"cpu": "2"}}),
    ("a limit on memory alone", container("c", SMALL, {"memory": "1Gi"}), (), {"requests": {"cpu": "2"}}),
    ("only the limit", container("c", SMALL, SMALL), ("limits",), {"limits": {"cpu": "2"}}),
    ("a new limit, asked for", container("c", SMALL), ("limits",), {"limits": {"cpu": "2"}}),
    ("only the request", container("c", SMALL, SMALL), ("requests",), {"requests": {"cpu": "2"}}),
    ("nothing was there", container("c"), (), {"requests": {"cpu": "2"}}),
]


@pytest.mark.parametrize(("before", "kinds", "change"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_which_lists_change(before: dict[str, Any], kinds: tuple[ListName, ...], change: dict[str, Any]) -> None:
    assert change_of(lean(before), {"cpu": parse("2")}, kinds) == change


SIDECAR = {**container("log", SMALL), "restartPolicy": "Always"}
CHOICES = [
    ("the only one", document(container("c")), "", "c"),
    ("by name", document(container("a"), container("b")), "b", "b"),
    ("a sidecar", document(container("a"), init=[SIDECAR]), "log", "log"),
]


@pytest.mark.parametrize(("pod", "name", "found"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES])
def test_which_container(pod: dict[str, Any], name: str, found: str) -> None:
    assert chosen_container(from_document(pod, Pod), name).name == found


WRONG = [
    ("two, none named", document(container("a"), container("b")), "", "name one with -c: a, b"),
    ("a sidecar counts", document(container("a"), init=[SIDECAR]), "", "2 containers"),
    ("unknown", document(container("a")), "x", "no container 'x'; there are: a"),
]


@pytest.mark.parametrize(("pod", "name", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_missing_or_ambiguous_container(pod: dict[str, Any], name: str, text: str) -> None:
    with pytest.raises(NoSuchContainerError, match=text):
        chosen_container(from_document(pod, Pod), name)


def test_the_patch_names_the_list_that_holds_the_container() -> None:
    pod = from_document(document(container("a", SMALL), init=[SIDECAR]), Pod)
    change: Any = {"requests": {"cpu": "2"}}
    assert resize_patch(pod, "a", change) == {"spec": {"containers": [{"name": "a", "resources": change}]}}
    assert resize_patch(pod, "log", change) == {"spec": {"initContainers": [{"name": "log", "resources": change}]}}


def test_the_document_afterwards() -> None:
    before = document(container("a", SMALL, SMALL), container("b", SMALL))
    after = resized_document(before, "a", {"requests": {"cpu": "2"}})
    assert after["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": SMALL}
    assert after["spec"]["containers"][1] == before["spec"]["containers"][1]
    assert before["spec"]["containers"][0]["resources"]["requests"] == SMALL


def test_a_patch_from_the_difference() -> None:
    old = from_document(document(container("a", SMALL, SMALL), container("b", SMALL)), Pod)
    new = from_document(document(container("a", {"cpu": "2", "memory": "1Gi"}), container("b", SMALL)), Pod)
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": None, "memory": None}}
    assert patch_between(old, new) == {"spec": {"containers": [{"name": "a", "resources": resources}]}}
    assert patch_between(old, old) == {"spec": {}}
    whole = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, resources=Resources({CPU: parse("2")})))
    assert patch_between(old, whole) == {"spec": {"resources": {"requests": {"cpu": "2"}}}}
