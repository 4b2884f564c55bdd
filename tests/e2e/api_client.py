"""Requests to the API over one connection: for frequent reads, for which starting kubectl each time would cost too much."""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plimsoll.kube.kubeconfig import load
from tests.e2e.waiting import DEADLINE_S

Document = dict[str, Any]
TIMEOUT_S = DEADLINE_S


class ApiClient:
    """As the administrator, one request after the other."""

    def __init__(self, kubeconfig: Path) -> None:
        access = load(kubeconfig)
        self._context = ssl.create_default_context(cadata=(access.ca or b"").decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write((access.certificate or b"") + b"\n" + (access.key or b""))
            pair.flush()
            self._context.load_cert_chain(pair.name)
        self._host = urlsplit(access.server).netloc
        self._connection: http.client.HTTPSConnection | None = None

    def __call__(self, method: str, path: str, body: object = None) -> Document:
        """The object; an AssertionError with the answer where it is refused."""
        status, found = self.answer(method, path, body)
        assert status < 400, f"{method} {path}: {status} {found}"
        return found

    def answer(self, method: str, path: str, body: object = None) -> tuple[int, Document]:
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        for attempt in range(2):
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=TIMEOUT_S)
            try:
                self._connection.request(method, path, data, {"Content-Type": kind})
                answer = self._connection.getresponse()
                text = answer.read()
                return answer.status, json.loads(text) if text else {}
            except (ConnectionError, http.client.HTTPException):
                self._connection.close()
                self._connection = None
                if attempt:
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
