"""The C library, for system calls that Python does not wrap. Stdlib only (the supervisor imports it)."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | object) -> int:
    """Call a function of the C library that returns −1 and sets errno; the OSError names the function."""
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        raise failed(name)
    return int(result)


def system_call(name: str, number: int, *arguments: object) -> int:
    """Make a system call by its number. Integers are passed as longs: the variadic `syscall` reads whole registers."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = _libc.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        raise failed(name)
    return int(result)


def failed(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")
