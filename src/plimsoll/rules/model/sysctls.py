"""Names of sysctls, and the namespace of the kernel that each belongs to.

Kubernetes: staging/src/k8s.io/component-helpers/node/util/sysctl.
"""

from __future__ import annotations

import re

MAX_LENGTH = 253
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
NAME_REGEX = rf"^({_SEGMENT}[\./])*{_SEGMENT}$"
_NAME = re.compile(NAME_REGEX, re.ASCII)
_IPC_NAMES = frozenset((
    "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
    "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni",
))  # fmt: skip
BEGINNINGS = frozenset(("kernel.shm", "kernel.msg"))  # of patterns such as kernel.shm*
_UTS_NAMES = frozenset(("kernel.domainname",))
_PREFIXES = (("net.", "Net"), ("fs.mqueue.", "IPC"), ("user.", "User"))


def is_name(text: str) -> bool:
    return len(text) <= MAX_LENGTH and _NAME.fullmatch(text) is not None


def normalized(name: str) -> str:
    """With dots between its parts; a dot inside a part, as in the name of a VLAN, becomes a slash."""
    first = next((letter for letter in name if letter in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def namespace_of(name: str) -> str:
    """Of a normalized name: IPC, Net, UTS, User; "" if it has none and would change the whole machine."""
    if name in _IPC_NAMES or name in BEGINNINGS:
        return "IPC"
    if name in _UTS_NAMES:
        return "UTS"
    return next((namespace for prefix, namespace in _PREFIXES if name.startswith(prefix)), "")
