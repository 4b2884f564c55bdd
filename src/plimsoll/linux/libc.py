"""The C library, for system calls Python has no function for. Stdlib only: the runtime's supervisor lives on it."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | object) -> int:
    """A function of the C library that answers −1 and errno; OSError names the function."""
    done = getattr(_libc, name)(*arguments)
    if done < 0:
        raise failed(name)
    return int(done)


def system_call(name: str, number: int, *arguments: object) -> int:
    """A system call by its number. Plain integers go as longs: the variadic `syscall` reads whole registers."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    done = _libc.syscall(ctypes.c_long(number), *wide)
    if done < 0:
        raise failed(name)
    return int(done)


def failed(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")
