"""The bundled `nginx`: a small page on port 80. One thread, little memory, ends on TERM.

Self-contained: it is run by its path, without the package.
"""

import os
import select
import signal
import socket
import sys

PORT = int(os.environ.get("PORT", "80"))
MAX_CLIENTS, MAX_HEAD_BYTES = 256, 16384
PAGE = b"""<!DOCTYPE html>
<html><head><title>Welcome to nginx!</title></head>
<body><h1>Welcome to nginx!</h1><p>This is Plimsoll's stand-in for the nginx image.</p></body></html>
"""


def answer(head: bytes) -> tuple[bytes, bool]:
    """The response to a request's head, and whether the connection stays open."""
    line, _, rest = head.partition(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return response(b"400 Bad Request", b"bad request\n", False, True), False
    fields = {
        name.strip().lower(): value.strip().lower()
        for name, _, value in (field.partition(b":") for field in rest.split(b"\r\n"))
    }
    keep = fields.get(b"connection", b"") != b"close" and words[2] != b"HTTP/1.0"
    if words[0] not in (b"GET", b"HEAD"):
        return response(b"405 Not Allowed", b"method not allowed\n", False, True), False
    path = words[1].partition(b"?")[0]
    if path not in (b"/", b"/index.html", b"/healthz"):
        return response(b"404 Not Found", b"not found\n", keep, words[0] == b"GET"), keep
    return response(b"200 OK", PAGE, keep, words[0] == b"GET"), keep


def response(status: bytes, body: bytes, keep: bool, with_body: bool) -> bytes:
    head = b"HTTP/1.1 %s\r\nServer: nginx (plimsoll)\r\nContent-Type: text/html\r\n" % status
    head += b"Content-Length: %d\r\nConnection: %s\r\n\r\n" % (len(body), b"keep-alive" if keep else b"close")
    return head + (body if with_body else b"")


def serve(port: int) -> None:
    try:
        listening = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    except OSError:
        listening = socket.create_server(("", port), backlog=128)
    listening.setblocking(False)
    waiting = select.epoll()
    waiting.register(listening, select.EPOLLIN)
    clients: dict[int, tuple[socket.socket, bytearray]] = {}
    sys.stdout.write(f"listening on port {port}\n")
    sys.stdout.flush()
    while True:
        for fd, _ in waiting.poll():
            if fd == listening.fileno():
                try:
                    client, _address = listening.accept()
                except OSError:
                    continue
                if len(clients) >= MAX_CLIENTS:
                    oldest = next(iter(clients))
                    clients.pop(oldest)[0].close()
                client.settimeout(5)
                clients[client.fileno()] = (client, bytearray())
                waiting.register(client, select.EPOLLIN)
            elif fd in clients and not talk(*clients[fd]):
                clients.pop(fd)[0].close()


def talk(client: socket.socket, buffer: bytearray) -> bool:
    """Read from the client and answer complete requests; False when it is done."""
    try:
        data = client.recv(4096)
        if not data:
            return False
        buffer += data
        while b"\r\n\r\n" in buffer:
            head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
            buffer[:] = rest
            said, keep = answer(head)
            client.sendall(said)
            sys.stdout.write(f'"{head.partition(bytes((13, 10)))[0].decode("latin-1")}" {said[9:12].decode()}\n')
            sys.stdout.flush()
            if not keep:
                return False
    except OSError:
        return False
    return len(buffer) <= MAX_HEAD_BYTES


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: os._exit(0))
    serve(PORT)
