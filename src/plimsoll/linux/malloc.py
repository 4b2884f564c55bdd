"""How the C library's malloc returns memory to the kernel."""

from __future__ import annotations

from plimsoll.linux.libc import call

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES = 128 << 10


def return_large_blocks() -> bool:
    """Blocks of at least 128 KiB, such as the buffer of a TLS connection, go back to the kernel when they are freed.

    By default glibc raises that limit to the size of the first such block that is freed. Later ones then come from the
    heap, and a burst of connections leaves holes there, which locked memory (mlockall) can never give back.
    False where the C library has no such setting.
    """
    try:
        return bool(call("mallopt", _M_MMAP_THRESHOLD, LARGE_BYTES) and call("mallopt", _M_TRIM_THRESHOLD, LARGE_BYTES))
    except AttributeError:  # musl
        return False
