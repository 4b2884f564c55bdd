"""Install a seccomp filter in this process (seccomp(2)). It stays through exec, and children inherit it."""

from __future__ import annotations

import ctypes

from plimsoll.linux.libc import call

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_INSTRUCTION_BYTES = 8


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(program: bytes) -> None:
    """`program`: an array of `struct sock_filter`. Needs CAP_SYS_ADMIN, or no_new_privs set before."""
    instructions = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // _INSTRUCTION_BYTES, ctypes.addressof(instructions))
    call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0)
