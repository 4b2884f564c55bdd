"""TLS: the buffers of connections, and what the servers of this project have in common."""

from __future__ import annotations

import ssl
from asyncio import constants
from asyncio.sslproto import SSLProtocol

BUFFER_BYTES = 32 * 1024


def use_small_buffers() -> None:
    """Of every TLS connection that this process opens from now on.

    asyncio keeps 256 KiB for each of them, also for one that sends nothing more: 200 watchers cost 50 MB. It reads into
    another buffer of that size each time something arrives, which a process that returns large blocks to the kernel
    maps and unmaps. Two of TLS's records are enough. It also keeps as much of what a connection has received and no one
    reads: 300 clients with a body of megabytes that waits took 80 MB.
    """
    SSLProtocol.max_size = BUFFER_BYTES
    constants.FLOW_CONTROL_HIGH_WATER_SSL_READ = BUFFER_BYTES // 1024  # type: ignore[misc]


def server_context() -> ssl.SSLContext:
    """For a server that takes client certificates and asks for none; certificate and authorities are the caller's.

    It issues no session tickets: clients of Kubernetes do not resume sessions, and two tickets, each with the client's
    certificate, took a third of the server's time for a handshake (0.8 of 2.2 ms).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 0  # of TLS 1.3
    context.options |= ssl.OP_NO_TICKET  # of TLS 1.2
    return context
