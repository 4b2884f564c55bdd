"""`plimsoll audit --watch`: audits again and again, reports what changes, and serves the last answers as metrics.

Values that change between two audits are kept, so that A22 can count them; the process keeps them in memory only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.audit.output import PRINTERS, prometheus_text, table_lines
from plimsoll.cli.audit.sources import Gathered
from plimsoll.cli.terminal import inert
from plimsoll.errors import PlimsollError
from plimsoll.rules.audit.evidence import NodeEvidence
from plimsoll.rules.audit.finding import Finding, NodeReport, exit_code
from plimsoll.rules.audit.overwrites import with_overwrites
from plimsoll.rules.audit.table import audit

CLIENT_TIMEOUT_S = 10.0


def watched(
    gather: Callable[[], Gathered],
    rules: Sequence[str],
    options: dict[str, Any],
    output: str,
    stop: Event | None = None,
    rounds: int | None = None,
) -> int:
    """Until interrupted, or `rounds` times. The exit code is that of the last audit."""
    stop = stop or Event()
    page = _Page()
    server = _serving(options["serve"], page) if options["serve"] else None
    known: dict[str, NodeEvidence] = {}
    before: set[Finding] = set()
    reports: list[NodeReport] = []
    done = 0
    try:
        while not stop.is_set():
            try:
                found = gather()
            except PlimsollError as error:
                console.echo(f"note: {inert(str(error))}; trying again", err=True)
                page.failures += 1
            else:
                evidence = [with_overwrites(known.get(each.name, each), each) for each in found.nodes]
                known = {each.name: each for each in evidence}
                reports = [audit(each, rules) for each in evidence]
                page.text = prometheus_text(reports, time.time())
                now = {each for report in reports for each in report.findings}
                if not done:
                    _show(reports, output, everything=options["everything"])
                else:
                    _changes(before, now)
                before = now
            done += 1
            if rounds is not None and done >= rounds:
                break
            stop.wait(options["interval_s"])
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()
    return exit_code(reports)


def _show(reports: Sequence[NodeReport], output: str, *, everything: bool) -> None:
    if output == "prom":
        return  # served, or scraped from the last line of a later audit
    lines = PRINTERS[output](reports) if output in PRINTERS else table_lines(reports, everything=everything)
    for line in lines:
        console.echo(line)


def _changes(before: set[Finding], now: set[Finding]) -> None:
    stamp = time.strftime("%H:%M:%S")
    for each in sorted(now - before, key=lambda each: (each.rule, each.subject)):
        text = f"{stamp}  new   {each.rule}  {each.subject}  {each.field}: {each.observed}; expected {each.expected}"
        console.echo(inert(text))
    for each in sorted(before - now, key=lambda each: (each.rule, each.subject)):
        console.echo(inert(f"{stamp}  gone  {each.rule}  {each.subject}  {each.field}"))


class _Page:
    def __init__(self) -> None:
        self.text = ""
        self.failures = 0


def _serving(address: str, page: _Page) -> ThreadingHTTPServer:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise console.UsageError(f"--serve {address}: expected HOST:PORT, such as 127.0.0.1:9755")

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            known = {"/metrics": page.text, "/healthz": "ok\n" if page.text else ""}
            body = known.get(self.path.partition("?")[0])
            status = 404 if body is None else 200 if body else 503
            data = (body or ("not audited yet\n" if body == "" else "try /metrics\n")).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 16

    try:
        server = Server((host.strip("[]") or "127.0.0.1", int(port)), Handler)
    except OSError as error:
        raise console.CommandError(f"--serve {address}: {error.strerror}") from None
    Thread(target=server.serve_forever, daemon=True).start()
    console.echo(f"note: metrics at http://{server.server_address[0]!s}:{server.server_address[1]}/metrics", err=True)
    return server
