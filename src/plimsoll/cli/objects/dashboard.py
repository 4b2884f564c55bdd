"""`plimsoll dashboard`: prints and opens a link to the dashboard of the cluster, which works once, within a minute."""

from __future__ import annotations

import os
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.failure import FailedError
from plimsoll.cli.terminal import echo_json


@console.command("dashboard")
@cluster_options
@console.option("--open/--no-open", "opens", default=True, help="Whether to open a browser, where there is a screen.")
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text")
def dashboard(opens: bool, output: str, **options: Any) -> int:
    """Open the dashboard in a browser, as the user of the kubeconfig.

    The link works once, within a minute. No log contains its code: browsers do not send what follows `#`. The browser
    must trust the CA of the server, or you confirm its certificate.

    \b
    Examples:
      plimsoll dashboard
      plimsoll dashboard --no-open
      kubectl port-forward svc/plimsoll-api 6443:443   (then use the link with 127.0.0.1:6443)
    """
    link, seconds = answered(options, _link)
    if output == "json":
        echo_json({"link": link, "seconds": seconds})
        return 0
    console.echo(link)
    console.echo(f"This link works once, within {seconds:g} s.", err=True)
    if opens and _has_screen():
        import webbrowser

        webbrowser.open(link)
    return 0


async def _link(cluster: ClusterClient) -> tuple[str, float]:
    from plimsoll.kube.request import Request, api_error, document

    answer = await cluster.answer(Request("POST", "/dashboard/api/code"))
    if answer.status == 404:
        raise FailedError("error: this API server has no dashboard: it is not plimsoll's, or an older version")
    if answer.status >= 400:
        raise api_error(answer)
    found = document(answer)
    return f"{cluster.transport.server}/dashboard/#code={found['code']}", float(found["seconds"])


def _has_screen() -> bool:
    """A browser in the terminal would hide the link."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and not os.environ.get("SSH_CONNECTION")
