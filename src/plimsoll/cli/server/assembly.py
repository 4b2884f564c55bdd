"""The control plane: API server, controllers, node proxy and scheduler in one process."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll.api.auth.authenticator import Credentials
from plimsoll.api.auth.ca import Authority
from plimsoll.api.auth.encryption import SecretSealing
from plimsoll.api.handlers.accounts import account_handlers
from plimsoll.api.handlers.csr import certificate_requests
from plimsoll.api.handlers.reviews import REVIEWS
from plimsoll.api.machinery.audit import Audit
from plimsoll.api.machinery.cluster import DEFAULT_LIMITS, Limits
from plimsoll.api.machinery.users import User
from plimsoll.api.nodeproxy.client import NodeCalls
from plimsoll.api.nodeproxy.metrics_api import NodeMetrics
from plimsoll.api.nodeproxy.pod_proxy import PodProxy
from plimsoll.api.nodeproxy.streams import SUBPROTOCOLS, NodeStreams
from plimsoll.api.server.app import App, Options, Service
from plimsoll.api.server.metrics import metrics_service
from plimsoll.api.server.services import accounts, client_of, controllers, running
from plimsoll.rules.admission.pod_security import DEFAULT_POD_SECURITY, PodSecurity
from plimsoll.rules.admission.service_addresses import DEFAULT_RANGES, ServiceRanges
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import Profile
from plimsoll.scheduler.loop import Scheduler
from plimsoll.web.dashboard import PREFIX, Dashboard

if TYPE_CHECKING:
    from plimsoll.store.etcd.location import Location

SCHEDULER = "system:kube-scheduler"
RESERVE_BYTES = 8 * 1024 * 1024


def control_plane(
    state: Path,
    authority: Authority,
    profile: Profile,
    gates: dict[str, bool] | None = None,
    *,
    scheduler: bool = True,
    audit: Audit | None = None,
    services: ServiceRanges = DEFAULT_RANGES,
    pod_security: PodSecurity = DEFAULT_POD_SECURITY,
    etcd: Location | None = None,
    approves_serving: bool = False,
    event_ttl_s: float = DEFAULT_LIMITS.event_ttl_s,
    added: Sequence[Service] = (),
) -> App:
    calls = NodeCalls(authority)
    streams, metrics, proxy = NodeStreams(calls), NodeMetrics(calls), PodProxy(calls)
    credentials = Credentials(state)
    dashboard = Dashboard(calls, credentials.sessions, _explained, _forecast)
    parts: list[Service] = [
        accounts(credentials),
        metrics_service,
        controllers,
        metrics.service,
        dashboard.hub.service,
        *added,
    ]
    if scheduler:
        parts.append(running("scheduler", _schedule))
    return App(
        Options(
            state_directory=state,
            authenticate=credentials,
            profile=profile,
            gates=gates,
            services=parts,
            service_ranges=services,
            handlers={
                **REVIEWS,
                **account_handlers(credentials),
                **certificate_requests(authority, approves_serving=approves_serving),
                **metrics.handlers(),
            },
            streamers={
                ("", "pods", "log"): streams.log,
                **{("", "pods", name): streams.over_http for name in SUBPROTOCOLS},
                ("", "nodes", "proxy"): streams.proxy,
                ("", "pods", "proxy"): proxy.pods,
                ("", "services", "proxy"): proxy.services,
            },
            sockets={
                ("", "pods", "log"): streams.log_over_websocket,
                **{("", "pods", name): streams.over_websocket for name in SUBPROTOCOLS},
            },
            mounts={PREFIX: dashboard.mount},
            audit=audit,
            root_ca=authority.ca_file.read_text(),
            sealing=SecretSealing(state),
            pod_security=pod_security,
            reserve_bytes=RESERVE_BYTES,
            etcd=etcd,
            limits=Limits(event_ttl_s=event_ttl_s),
        )
    )


def _explained(question: JsonObject) -> JsonObject:
    from plimsoll.cli.server.dashboard_questions import explain_question  # with all of `explain`, only where asked

    return explain_question(question)


async def _forecast(app: App, user: User, question: JsonObject) -> JsonObject:
    from plimsoll.cli.server.dashboard_questions import forecast_question

    return await forecast_question(app, user, question)


async def _schedule(app: App) -> None:
    client, host = client_of(app, SCHEDULER), os.uname().nodename
    preempts = app.cluster.gates.scheduler_preempts
    await Scheduler(client, app.cluster.profile, host, time.monotonic, preempts_for_resizes=preempts).run()
