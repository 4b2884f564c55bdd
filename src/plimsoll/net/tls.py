"""The buffers of TLS connections."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

BUFFER_BYTES = 32 * 1024


def use_small_buffers() -> None:
    """Of every TLS connection that this process opens from now on.

    asyncio keeps 256 KiB for each of them, also for one that sends nothing more: 200 watchers cost 50 MB. It reads into
    another buffer of that size each time something arrives, which a process that returns large blocks to the kernel
    maps and unmaps. Two of TLS's records are enough.
    """
    SSLProtocol.max_size = BUFFER_BYTES
