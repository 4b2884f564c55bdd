"""A whole control plane put together: the API server with its loops, the joint with the nodes and the scheduler."""

from __future__ import annotations

import os
import time
from pathlib import Path

from plimsoll.api.app import App, Options, Service
from plimsoll.api.authority import Authority, kubeconfig
from plimsoll.api.certificates import certificate_requests
from plimsoll.api.identity import authenticator
from plimsoll.api.measurements import measured
from plimsoll.api.meter import Audit
from plimsoll.api.node_calls import NodeCalls
from plimsoll.api.node_metrics import NodeMetrics
from plimsoll.api.node_streams import NodeStreams
from plimsoll.api.reviews import REVIEWS
from plimsoll.api.services import client_of, loops, running
from plimsoll.api.users import NODE_PREFIX
from plimsoll.rules.profile import Profile
from plimsoll.scheduler.loop import Scheduler

SCHEDULER = "system:kube-scheduler"


def control_plane(
    state: Path,
    authority: Authority,
    profile: Profile,
    gates: dict[str, bool] | None = None,
    *,
    scheduler: bool = True,
    audit: Audit | None = None,
) -> App:
    calls = NodeCalls(authority)
    streams, metrics = NodeStreams(calls), NodeMetrics(calls)
    services: list[Service] = [measured, loops, metrics.service]
    if scheduler:
        services.append(running("scheduler", _schedule))
    return App(
        Options(
            state_directory=state,
            authenticate=authenticator(state),
            profile=profile,
            gates=gates,
            services=services,
            handlers={**REVIEWS, **certificate_requests(authority), **metrics.handlers()},
            streamers={
                ("", "pods", "log"): streams.log,
                ("", "pods", "exec"): streams.no_upgrade,
                ("", "nodes", "proxy"): streams.proxy,
            },
            sockets={("", "pods", "exec"): streams.exec},
            audit=audit,
        )
    )


async def _schedule(app: App) -> None:
    client = client_of(app, SCHEDULER)
    await Scheduler(client, app.cluster.profile, os.uname().nodename, time.monotonic).run()


def node_kubeconfig(authority: Authority, url: str, name: str) -> bytes:
    return kubeconfig(url, authority.ca_file.read_bytes(), f"{NODE_PREFIX}{name}", authority.issue_node(name))
