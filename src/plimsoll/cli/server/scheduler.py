"""`plimsoll scheduler`: runs only the scheduler, for any Kubernetes control plane."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll.cli import console
from plimsoll.cli.parameters import log_level, log_options, profile_option

if TYPE_CHECKING:
    from plimsoll.kube.kubeconfig import Access
    from plimsoll.rules.profile import Profile


@console.command()
@console.option("--kubeconfig", type=console.Path(), help="[default: $KUBECONFIG, then the pod's service account]")
@console.option("--context", default="", metavar="NAME", help="The kubeconfig context. [default: the current one]")
@profile_option()
@console.option("--feature-gates", metavar="LIST", default="", help="Name=true,Name=false,… as for kube-scheduler.")
@log_options
def scheduler(kubeconfig: Path | None, context: str, profile: str, feature_gates: str, **options: Any) -> None:
    """Assign pending pods to nodes by their requests, until Ctrl-C.

    `plimsoll api` includes the scheduler; use this with `plimsoll api --no-scheduler` and with other API servers. It
    schedules the pods with schedulerName default-scheduler, so run only one such scheduler.
    """
    import asyncio

    from plimsoll.kube.kubeconfig import chosen as chosen_access
    from plimsoll.logs import log_to_stderr
    from plimsoll.rules.config.parse import reading
    from plimsoll.rules.profile import profile_named

    chosen = profile_named(profile)
    read = reading(None, chosen, {"featureGates": feature_gates} if feature_gates else {})
    for note in read.notes:
        console.echo(f"plimsoll: {note}", err=True)
    access = chosen_access(kubeconfig, context, os.environ)
    log_to_stderr(log_level(options))
    console.echo(f"scheduling for {access.server}, profile {chosen.name}")
    preempts = read.config.gate("InPlacePodVerticalScalingSchedulerPreemption")
    asyncio.run(_run(access, chosen, preempts_for_resizes=preempts))


async def _run(access: Access, profile: Profile, *, preempts_for_resizes: bool) -> None:
    import asyncio
    import time

    from plimsoll.cli.daemon import stop_signals
    from plimsoll.kube.client import Client
    from plimsoll.kube.http import HttpTransport
    from plimsoll.scheduler.loop import Scheduler

    transport = HttpTransport(access, agent="plimsoll-scheduler")
    host = os.uname().nodename
    made = Scheduler(Client(transport), profile, host, time.monotonic, preempts_for_resizes=preempts_for_resizes)
    work = asyncio.create_task(made.run())
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        pass
    finally:
        await transport.close()
