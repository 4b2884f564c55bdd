"""Two API servers with schedulers on one real etcd: pods are bound again whenever the leader has lost its lease."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from plimsoll.api.server import leader
from plimsoll.api.server.services import controllers, running
from plimsoll.cli.server.assembly import _schedule
from plimsoll.store.etcd.location import location
from tests.e2e.etcd_process import NoEtcdError, running_etcd
from tests.unit.api.api_client import PODS, ApiClient, api, pod

NODE = {
    "metadata": {"name": "n1"},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


async def _bound(ask: ApiClient, name: str) -> None:
    async with asyncio.timeout(60):
        while not (await ask.ok("GET", f"{PODS}/{name}"))["spec"].get("nodeName"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _taken(ask: ApiClient, lease: str) -> None:
    """End the leader's term. A server that begins one in the same moment may be first."""
    store = ask.app.cluster.store
    async with asyncio.timeout(60):
        while await store.begin_term(lease, await store.last_term(lease)) is None:
            pass


async def test_pods_are_bound_after_each_loss_of_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LEASE_S", 1.0), ("RENEW_S", 0.2), ("DEADLINE_S", 0.8)):
        monkeypatch.setattr(leader, name, value)
    try:
        where = location(f"{running_etcd()}?prefix=/{uuid.uuid4().hex}&compact=off")
    except NoEtcdError as error:
        pytest.skip(str(error))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    services = [controllers, running("scheduler", _schedule)]
    async with (
        api(tmp_path / "a", etcd=where, services=services) as one,
        api(tmp_path / "b", etcd=where, services=services) as other,
    ):
        await one.ok("POST", "/api/v1/nodes", NODE)
        for number in range(4):
            for each in ("kube-scheduler", "kube-controller-manager"):
                await _taken(other, each)
            await other.ok("POST", PODS, pod(f"p{number}", tolerations=[{"operator": "Exists"}]))
            await _bound(one, f"p{number}")
