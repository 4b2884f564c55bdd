"""How a namespace is deleted: its pods first, and its conditions say what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.api.api_client import MERGE
from tests.unit.api.controllers.workloads import workloads
from tests.unit.documents.waiting import until

Json = dict[str, Any]
FINALIZER = "e2e.example.com/finalizer"
PODS, MAPS = "/api/v1/namespaces/team/pods", "/api/v1/namespaces/team/configmaps"


async def test_pods_are_deleted_first(tmp_path: Path) -> None:
    """e2e: OrderedNamespaceDeletion namespace deletion should delete pod first."""
    async with workloads(tmp_path) as made:
        ask = made.ask
        await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})

        async def has_account() -> bool:
            return (await ask("GET", "/api/v1/namespaces/team/serviceaccounts/default")).code == 200

        await until(has_account)
        spec = {"containers": [{"name": "c", "image": "x"}]}
        await ask.ok("POST", PODS, {"metadata": {"name": "first", "finalizers": [FINALIZER]}, "spec": spec})
        await ask.ok("POST", MAPS, {"metadata": {"name": "kept"}})
        await ask.ok("DELETE", "/api/v1/namespaces/team")

        async def conditions() -> Json:
            found = (await ask.ok("GET", "/api/v1/namespaces/team"))["status"]
            return {each["type"]: each for each in found.get("conditions") or []}

        found = await until(conditions)
        assert found["NamespaceDeletionContentFailure"]["status"] == "False"
        assert found["NamespaceContentRemaining"]["status"] == "True"
        assert "pods. has 1 resource instances" in found["NamespaceContentRemaining"]["message"]
        finalizers = f"Some content in the namespace has finalizers remaining: {FINALIZER} in 1 resource instances"
        assert found["NamespaceFinalizersRemaining"]["message"] == finalizers
        assert (await ask("GET", f"{MAPS}/kept")).code == 200
        await ask.ok("PATCH", f"{PODS}/first", {"metadata": {"finalizers": None}}, MERGE)

        async def gone() -> bool:
            return (await ask("GET", "/api/v1/namespaces/team")).code == 404

        await until(gone)
        assert (await ask("GET", f"{MAPS}/kept")).code == 404
