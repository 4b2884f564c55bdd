"""The parts of a control plane that live in the API server's process: its loops and, by default, the scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from plimsoll.api.controllers import (
    deployments,
    disruption_budgets,
    event_ttl,
    garbage_collector,
    jobs,
    namespaces,
    nodes,
    pod_gc,
    quotas,
    replicasets,
)
from plimsoll.api.controllers.controller import ControllerContext
from plimsoll.api.server.app import App, Service
from plimsoll.api.server.in_process import InProcess, part_of_us
from plimsoll.kube.client import Client

CONTROLLERS = "system:kube-controller-manager"

log = logging.getLogger(__name__)


def client_of(app: App, name: str) -> Client:
    return Client(InProcess(app, part_of_us(name)))


@asynccontextmanager
async def loops(app: App) -> AsyncIterator[None]:
    cluster = app.cluster
    shelf, clock = ControllerContext(cluster.store, client_of(app, CONTROLLERS)), cluster.clock
    every = (
        namespaces.loop(shelf),
        nodes.lifecycle_loop(shelf, cluster.profile, clock),
        nodes.eviction_loop(shelf, clock),
        pod_gc.loop(shelf),
        event_ttl.loop(shelf, clock),
        quotas.loop(shelf, cluster.profile, clock),
        garbage_collector.loop(shelf),
        replicasets.loop(shelf),
        deployments.loop(shelf, clock),
        jobs.loop(shelf, clock),
        disruption_budgets.loop(shelf),
    )
    async with _running({f"loop {each.name}": each.run for each in every}):
        yield


def running(name: str, run: Callable[[App], Coroutine[Any, Any, None]]) -> Service:
    """A service out of one endless coroutine."""

    @asynccontextmanager
    async def service(app: App) -> AsyncIterator[None]:
        async with _running({name: lambda: run(app)}):
            yield

    return service


@asynccontextmanager
async def _running(parts: dict[str, Callable[[], Coroutine[Any, Any, None]]]) -> AsyncIterator[None]:
    """A part that fails is logged and started again after a pause; the others go on."""
    tasks = [asyncio.create_task(_kept_alive(name, run)) for name, run in parts.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _kept_alive(name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            await run()
            return
        except Exception:  # a fault of ours in one part must not end the API for everybody
            log.exception("%s failed; it is started again in 5 s", name)
            await asyncio.sleep(5)
