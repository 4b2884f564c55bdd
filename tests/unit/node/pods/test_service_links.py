"""Services for a pod's environment, read from an API server that may not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

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
        await links.variables(a_pod(), is_static=False)
