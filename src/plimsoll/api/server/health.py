"""The health checks by Kubernetes' names, each with what is wrong; an empty text means that it passed."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.controllers.aggregation.api_services import missing
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.logs import fault as log_fault


class Health:
    def __init__(self) -> None:
        self._is_registered = False  # each group has had its APIService once; one that is deleted is made again

    def faults(self, cluster: Cluster | None, start_hooks: Mapping[str, str]) -> dict[str, str]:
        """`cluster`: None where the server is not serving. `start_hooks`: what starts with the server."""
        if cluster is None:
            return {"ping": "", "log": log_fault(), "etcd": "not open", "shutdown": "the server is not serving"}
        unregistered = "" if self._is_registered else missing(cluster)
        self._is_registered = not unregistered
        return {
            "ping": "",
            "log": log_fault(),
            "etcd": cluster.store.fault,
            "informer-sync": "",  # the index is read before the server is open
            **{f"poststarthook/{name}": found for name, found in start_hooks.items()},
            "autoregister-completion": unregistered,
        }
