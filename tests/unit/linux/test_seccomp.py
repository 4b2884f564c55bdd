"""The default profile on the real kernel: what a process with the filter may still call, and what it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from plimsoll.codec.seccomp.bpf import ABIS

_SCRIPT = """
import ctypes, errno, json, os, socket, sys, threading
from plimsoll.codec.seccomp.bpf import compiled
from plimsoll.codec.seccomp.profiles import default_profile
from plimsoll.linux import namespaces, seccomp

libc = ctypes.CDLL(None, use_errno=True)

def outcome(name, *arguments):
    return "ok" if getattr(libc, name)(*arguments) >= 0 else errno.errorcode[ctypes.get_errno()]

def opened(family, kind):
    try:
        socket.socket(family, kind).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"

namespaces.no_new_privileges()
seccomp.install(compiled(default_profile(sys.argv[1:], os.uname().machine), os.uname().machine))
done = {
    "unshare user": outcome("unshare", 0x10000000),
    "mount": outcome("mount", b"none", b"/nonexistent", b"tmpfs", 0, None),
    "keyctl": outcome("syscall", 250 if os.uname().machine == "x86_64" else 219, 0, -3, 0),
    "vsock": opened(40, socket.SOCK_STREAM),
    "unix": opened(socket.AF_UNIX, socket.SOCK_STREAM),
    "inet": opened(socket.AF_INET, socket.SOCK_STREAM),
}
thread = threading.Thread(target=lambda: done.update(thread="ok"))
thread.start()
thread.join()
child = os.fork()
if child == 0:
    os.execv("/bin/true", ["true"])
done["fork and exec"] = "ok" if os.waitpid(child, 0)[1] == 0 else "failed"
print(json.dumps(done))
"""


@pytest.mark.skipif(os.uname().machine not in ABIS, reason=f"no filter for {os.uname().machine}")
@pytest.mark.parametrize(
    ("capabilities", "unshare", "mount"),
    [
        pytest.param([], "EPERM", "EPERM", id="default"),
        # Allowed by the filter; the kernel then decides by the path.
        pytest.param(["SYS_ADMIN"], {"ok", "EPERM", "ENOSPC"}, {"ENOENT", "EPERM"}, id="SYS_ADMIN"),
    ],
)
def test_default_profile(capabilities: list[str], unshare: str | set[str], mount: str | set[str]) -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT, *capabilities], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    done = json.loads(run.stdout)
    assert done.pop("unshare user") in unshare
    assert done.pop("mount") in mount
    assert done == {
        "keyctl": "EPERM",
        "vsock": "EPERM",
        "unix": "ok",
        "inet": "ok",
        "thread": "ok",
        "fork and exec": "ok",
    }
