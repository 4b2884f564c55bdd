"""Services for a pod's environment, read from an API server that may not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiResponse, Request, UnreachableError
from plimsoll.node.pods import service_links
from tests.unit.rules.run_pods import a_pod


class _Silent:
    """Accepts requests and answers none."""

    async def send(self, request: Request) -> ApiResponse:
        await asyncio.Event().wait()
        raise AssertionError(request)

    async def lines(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]:
        yield await self.send(request)


async def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event of the pod has this text: it must say what happened."""
    monkeypatch.setattr(service_links, "ANSWER_S", 0.01)
    links = service_links.ServiceLinks(Client(_Silent()), clock=lambda: 0.0)
    with pytest.raises(UnreachableError, match=r"^services cannot be read: no answer within 0.01 s$"):
        await links.variables(a_pod(), seen_s=0.0, is_static=False)


class _Counting:
    """Has one more service in each list."""

    def __init__(self) -> None:
        self.lists = 0

    async def send(self, request: Request) -> ApiResponse:
        self.lists += 1
        items = [
            {"metadata": {"name": name}, "spec": {"clusterIP": "10.0.0.9", "ports": [{"port": 80}]}}
            for name in ("kubernetes", *(f"s{number}" for number in range(self.lists)))
        ]
        return ApiResponse(200, msgspec.json.encode({"kind": "ServiceList", "metadata": {}, "items": items}))

    async def lines(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]:
        yield await self.send(request)


async def test_a_service_made_before_the_pod_is_in_its_environment() -> None:
    """However short before: pods share a list only if it was begun when all of them had been seen."""
    now_s, server = 100.0, _Counting()
    links = service_links.ServiceLinks(Client(server), clock=lambda: now_s)
    first = await links.variables(a_pod(), seen_s=99.5, is_static=False)
    assert "S0_SERVICE_HOST" in first and "S1_SERVICE_HOST" not in first
    now_s = 100.4
    assert await links.variables(a_pod(), seen_s=99.9, is_static=False) == first
    assert "S1_SERVICE_HOST" in await links.variables(a_pod(), seen_s=100.3, is_static=False)
    assert server.lists == 2
