"""The custom kind Widget of the tests, and a server on which it is established."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plimsoll.api.server.services import controllers
from tests.unit.api.api_client import ApiClient, api

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
NAME = "widgets.example.com"
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "code": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "when": {"type": "string", "format": "date-time"},
        "maybe": {"type": "string", "nullable": True},
        "replicas": {"type": "integer"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            },
        },
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}


def definition(**version: Any) -> dict[str, Any]:
    properties = {"spec": SPEC, "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}
    return {
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                    **version,
                }
            ],
        },
    }


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    made = {"size": 3, **spec}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": made}


async def until(ask: ApiClient, name: str, holds: Callable[[Any], bool]) -> Any:
    """The first event of this definition whose object holds, or of its deletion."""
    async with ask.watching(f"{DEFINITIONS}?watch=1&fieldSelector=metadata.name={name}") as watched:
        while True:
            event = await watched.event()
            if event["type"] == "DELETED" or holds(event["object"]):
                return event


def is_established(found: Any) -> bool:
    return any(each["type"] == "Established" and each["status"] == "True" for each in found["status"]["conditions"])


@asynccontextmanager
async def served(tmp_path: Path, sent: dict[str, Any] | None = None) -> AsyncIterator[ApiClient]:
    """A server on which the kind is established and in discovery."""
    async with api(tmp_path, services=(controllers,)) as ask:
        sent = sent or definition()
        async with ask.watching(f"{DEFINITIONS}?watch=1") as watched:
            await ask.ok("POST", DEFINITIONS, sent)
            while not is_established((await watched.event())["object"]):
                pass
        yield ask
