"""Requests over kept connections, from one thread without an event loop, so that the server is measured and not the client.

A request is sent as soon as the response before it has arrived on the same connection. Bodies are counted and dropped.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

_PIECE, _ANSWER_S = 1 << 18, 60.0
_END_OF_HEAD, _END_OF_CHUNKS = b"\r\n\r\n", b"\r\n0\r\n\r\n"  # JSON has no carriage return


class Exchange:
    """One connection: a request, then its response."""

    def __init__(self, url: str, tls: ssl.SSLContext) -> None:
        place = urlsplit(url)
        plain = socket.create_connection((place.hostname, place.port), _ANSWER_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(plain, server_hostname=place.hostname)
        self.socket.setblocking(False)
        self.code = self.body_bytes = 0
        self.began = 0.0
        self._head, self._tail = b"", b""
        self._length: int | None = None  # of the body; None if it comes in chunks

    def send(self, request: bytes) -> None:
        self.code, self.body_bytes, self._head, self._tail = 0, 0, b"", b""
        self.began = time.perf_counter()
        sent = self.socket.send(request)
        assert sent == len(request), "a request is smaller than the buffer of a socket"

    def is_answered(self) -> bool:
        """After the socket became readable: whether the response is whole."""
        try:
            while not self._is_whole():
                part = self.socket.recv(_PIECE)
                if not part:
                    raise EOFError
                self._take(part)
        except ssl.SSLWantReadError:
            return False
        return True

    def _is_whole(self) -> bool:
        if not self.code:
            return False
        return self._tail.endswith(_END_OF_CHUNKS) if self._length is None else self.body_bytes >= self._length

    def _take(self, part: bytes) -> None:
        if not self.code:
            self._head += part
            head, found, part = self._head.partition(_END_OF_HEAD)
            if not found:
                return
            first, *lines = head.lower().split(b"\r\n")
            headers = dict(line.split(b":", 1) for line in lines)
            self.code = int(first.split(b" ", 2)[1])
            is_chunked = b"chunked" in headers.get(b"transfer-encoding", b"")
            self._length = None if is_chunked else int(headers.get(b"content-length", b"0"))
            self._tail = b"\r\n"
        self.body_bytes += len(part)
        self._tail = (self._tail + part)[-len(_END_OF_CHUNKS) :]


def load(
    url: str, tls: ssl.SSLContext, requests: Iterator[bytes], concurrency: int, seconds: float
) -> tuple[list[float], int]:
    """How long each request took in seconds, and the bytes of all bodies."""
    times_s: list[float] = []
    total_bytes = 0
    ready = select.epoll()
    exchanges = {each.socket.fileno(): each for each in (Exchange(url, tls) for _ in range(concurrency))}
    end = time.perf_counter() + seconds
    for number, exchange in exchanges.items():
        ready.register(number, select.EPOLLIN)
        exchange.send(next(requests))
    while exchanges:
        found = ready.poll(_ANSWER_S)
        assert found, f"no response within {_ANSWER_S:g} s"
        for number, _ in found:
            exchange = exchanges[number]
            if not exchange.is_answered():
                continue
            assert exchange.code in (200, 201), exchange.code
            now = time.perf_counter()
            times_s.append(now - exchange.began)
            total_bytes += exchange.body_bytes
            if now < end:
                exchange.send(next(requests))
            else:
                del exchanges[number]
                exchange.socket.close()  # which also leaves the epoll set
    ready.close()
    return times_s, total_bytes
