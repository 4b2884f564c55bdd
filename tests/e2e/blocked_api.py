"""A proxy between an agent and its API server that passes every request on, except those that a test blocks.

It uses the server's certificate towards the agent and the agent's towards the server. A test chooses the requests to
block; each waits until the test passes it on. So the moments between two requests of a real agent, milliseconds
otherwise, become as long as a test needs them. A test may also have it answer by itself, with anything.
"""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from plimsoll.kube import kubeconfig
from tests.e2e.waiting import DEADLINE_S

Document = dict[str, Any]
WAIT_S = DEADLINE_S


class BlockedRequest:
    """One request: `pass_on` it, then read its `code`."""

    def __init__(self, method: str, path: str, body: Document) -> None:
        self.method, self.path, self.body = method, path, body
        self.code = 0
        self.passed, self.answered = threading.Event(), threading.Event()

    def pass_on(self) -> int:
        """The API's answer, which the agent has received by then."""
        self.passed.set()
        assert self.answered.wait(WAIT_S), f"{self.method} {self.path} was not answered"
        return self.code


class BlockedApi:
    def __init__(self) -> None:
        self._is_blocked: Callable[[BlockedRequest], bool] = lambda _request: False
        self._blocked: list[BlockedRequest] = []
        self._changed = threading.Condition()
        self.garbage: Callable[[BlockedRequest], bytes] = lambda _request: b""  # sent in place of the API's answer
        self.port = 0

    def block(self, which: Callable[[BlockedRequest], bool]) -> None:
        with self._changed:
            self._is_blocked = which

    def release(self) -> None:
        """Block nothing any more."""
        with self._changed:
            self._is_blocked = lambda _request: False
            for each in self._blocked:
                each.passed.set()
            self._blocked.clear()

    def next(self) -> BlockedRequest:
        """The next request that is blocked."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._blocked, WAIT_S), "no such request has come"
            return self._blocked.pop(0)

    def come(self, request: BlockedRequest) -> None:
        with self._changed:
            if not self._is_blocked(request):
                return
            self._blocked.append(request)
            self._changed.notify_all()
        assert request.passed.wait(WAIT_S)


@contextmanager
def blocked_api(access_file: Path, pki: Path, through: Path) -> Iterator[BlockedApi]:
    """`access_file`: the agent's kubeconfig; `through`: where the kubeconfig of the proxy is written."""
    access = kubeconfig.load(access_file)
    assert access.certificate is not None and access.key is not None and access.ca is not None
    proxy = BlockedApi()
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "client.pem"
        pair.write_bytes(access.certificate + b"\n" + access.key)
        upstream = ssl.create_default_context(cadata=access.ca.decode())
        upstream.load_cert_chain(pair)
    address = access.server.removeprefix("https://")

    class Handler(_Handler):
        api, tls, target = proxy, upstream, address

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    proxy.port = server.server_address[1]
    through.write_text(access_file.read_text().replace(address, f"127.0.0.1:{proxy.port}"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.release()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ClassVar[BlockedApi]
    tls: ClassVar[ssl.SSLContext]
    target: ClassVar[str]

    def _proxy(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = BlockedRequest(self.command, self.path, json.loads(data) if data.startswith(b"{") else {})
        self.api.come(request)
        if garbage := self.api.garbage(request):
            self.close_connection = True
            self.wfile.write(garbage)
            return
        upstream = http.client.HTTPSConnection(self.target, context=self.tls)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            upstream.request(self.command, self.path, data or None, headers)
            answer = upstream.getresponse()
            request.code = answer.status
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while part := answer.read1(1 << 16):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            upstream.close()
            request.answered.set()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Not on the test's output."""
