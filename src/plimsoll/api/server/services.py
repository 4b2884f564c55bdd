"""The parts of the control plane that run in the API server's process: controllers and, by default, the scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from plimsoll.aio import ExponentialBackoff, supervise
from plimsoll.api.auth.account_tokens import CONFIGURATION_PATH, JWKS_PATH
from plimsoll.api.auth.authenticator import Credentials
from plimsoll.api.controllers import (
    cronjobs,
    custom_resources,
    daemonsets,
    deployments,
    disruption_budgets,
    endpoints,
    event_ttl,
    garbage_collector,
    jobs,
    kubernetes_service,
    namespaces,
    nodes,
    pod_gc,
    quotas,
    replicasets,
    role_aggregation,
    service_accounts,
    statefulsets,
)
from plimsoll.api.controllers.admission import policy_types
from plimsoll.api.controllers.aggregation import api_services
from plimsoll.api.controllers.certificates import cleaner
from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.api.controllers.dependents import Orphans
from plimsoll.api.controllers.storage import binder, protection
from plimsoll.api.discovery.pages import StaticPage
from plimsoll.api.server.app import App, Service
from plimsoll.api.server.bootstrap import finish_deletions
from plimsoll.api.server.in_process import InProcess, control_plane_user
from plimsoll.api.server.leader import led, new_identity
from plimsoll.api.server.presence import Presence
from plimsoll.kube.client import Client
from plimsoll.store.errors import WriteFailedError

log = logging.getLogger("plimsoll.api")

CONTROLLERS = "system:kube-controller-manager"
# Kubernetes' names, for the health checks: the definitions of custom kinds are read, and their controllers begin.
DEFINITION_HOOKS = ("start-apiextensions-informers", "crd-informer-synced", "start-apiextensions-controllers")
# And the controller of APIServices. All are local: there is no remote one to observe.
AGGREGATION_HOOKS = (
    "start-kube-aggregator-informers",
    "apiservice-registration-controller",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-openapi-controller",
)
RESTART_S = 5.0


def client_of(app: App, name: str) -> Client:
    return Client(InProcess(app, control_plane_user(name)))


@asynccontextmanager
async def controllers(app: App) -> AsyncIterator[None]:
    cluster = app.cluster
    context = ControllerContext(cluster.store, client_of(app, CONTROLLERS))
    served = custom_resources.ServedDefinitions(context, cluster.catalog, app.pages.set_catalog)
    served.refresh()
    app.start_hooks |= dict.fromkeys((*DEFINITION_HOOKS, *AGGREGATION_HOOKS), "")
    at = kubernetes_service.advertised(app.pages.address)
    presence = Presence(cluster, at, new_identity())

    def published() -> None:
        app.start_hooks["bootstrap-controller"] = ""

    app.start_hooks |= dict.fromkeys(("bootstrap-controller", "start-service-ip-repair-controllers"), "")
    try:
        if not cluster.store.is_shared:  # else the leader does
            await kubernetes_service.publish(cluster, presence.addresses())
    except WriteFailedError as error:
        app.start_hooks["bootstrap-controller"] = str(error)
        log.error("the service default/kubernetes is not written: %s", error)  # its controller tries again
    kubernetes_service.report_conflicts(cluster)
    parts = {f"controller {each.name}": each.run for each in (custom_resources.serving(context, served),)}
    if not cluster.store.is_shared:
        parts = {}  # the controller of definitions does it

    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        if cluster.store.is_shared:
            await finish_deletions(cluster)
        every = _controllers(app, context, served, presence, published)
        async with _running({f"controller {controller.name}": controller.run for controller in every}):
            yield

    async with _running(parts), presence.kept(), led(cluster, CONTROLLERS.removeprefix("system:"), work):
        yield


def _controllers(
    app: App,
    context: ControllerContext,
    served: custom_resources.ServedDefinitions,
    presence: Presence,
    published: Callable[[], None],
) -> Sequence[Controller]:
    cluster, clock = app.cluster, app.cluster.clock
    profile, pods, replica_sets, revisions = cluster.profile, Orphans(), Orphans(), Orphans()
    return (
        namespaces.controller(context, clock, cluster.catalog),
        nodes.lifecycle_controller(context, profile, clock),
        nodes.taint_eviction_controller(context, profile, clock),
        pod_gc.controller(context, profile, clock),
        event_ttl.controller(context, clock, ttl_s=cluster.limits.event_ttl_s),
        quotas.controller(context, profile, clock, cluster.catalog),
        custom_resources.controller(context, served, clock),
        garbage_collector.controller(context, cluster.catalog),
        replicasets.replica_set_controller(context, pods, profile, clock),
        replicasets.replication_controller(context, pods, clock),
        deployments.controller(context, replica_sets, profile, clock),
        jobs.controller(context, pods, clock),
        cronjobs.controller(context, clock),
        statefulsets.controller(context, pods, revisions, clock),
        daemonsets.controller(context, pods, revisions, clock),
        disruption_budgets.controller(context),
        role_aggregation.controller(context),
        endpoints.controller(context),
        endpoints.mirroring(context),
        api_services.controller(context),
        binder.controller(context, clock),
        cleaner.controller(context, clock),
        policy_types.controller(context, cluster.catalog),
        protection.controller(context),
        kubernetes_service.controller(context, cluster, presence.addresses, published),
        kubernetes_service.claims_controller(context, cluster),
        service_accounts.controller(context, cluster.root_ca),
    )


def accounts(credentials: Credentials) -> Service:
    """Tokens of service accounts are checked against the cluster's objects, and others can get the key."""

    @asynccontextmanager
    async def service(app: App) -> AsyncIterator[None]:
        credentials.cluster, tokens = app.cluster, credentials.accounts
        app.pages.added[JWKS_PATH] = lambda: StaticPage(200, tokens.key_set(), "application/jwk-set+json")
        app.pages.added[CONFIGURATION_PATH] = lambda: StaticPage(200, tokens.configuration(app.pages.address))
        yield

    return service


def running(name: str, run: Callable[[App], Coroutine[Any, Any, None]]) -> Service:
    """A service that runs one endless coroutine, on one server at a time."""

    @asynccontextmanager
    async def service(app: App) -> AsyncIterator[None]:
        async with led(app.cluster, f"kube-{name}", lambda: _running({name: lambda: run(app)})):
            yield

    return service


@asynccontextmanager
async def _running(parts: dict[str, Callable[[], Coroutine[Any, Any, None]]]) -> AsyncIterator[None]:
    """A part that fails is logged and restarted after a pause; the others continue."""
    tasks = [
        asyncio.create_task(supervise(name, run, ExponentialBackoff(RESTART_S, RESTART_S)))
        for name, run in parts.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
