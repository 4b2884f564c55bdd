"""The identity of this machine: ids, names and addresses for the Node object (05 B9, nodeInfo)."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Sequence

from plimsoll.rules.node.node_object import MachineIdentity

MACHINE_ID = ("/etc/machine-id", "/var/lib/dbus/machine-id")
# In cAdvisor's order: the firmware, the hypervisor's device tree, the machine id.
SYSTEM_UUID = (
    "/sys/class/dmi/id/product_uuid",
    "/proc/device-tree/system-id",
    "/proc/device-tree/vm,uuid",
    *MACHINE_ID,
)
OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}  # as Go names them
_REMOTE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # addresses reserved for documentation


def machine_identity(root: str = "/") -> MachineIdentity:
    """For `status.nodeInfo`. `root`: the machine's root directory."""
    system = os.uname()
    return MachineIdentity(
        machine_id=_first_text(root, MACHINE_ID),
        system_uuid=_first_text(root, SYSTEM_UUID),
        boot_id=_first_text(root, ("/proc/sys/kernel/random/boot_id",)),
        kernel_version=system.release,
        os_image=os_image(_first_text(root, OS_RELEASE)),
        architecture=ARCHITECTURES.get(system.machine, system.machine),
        operating_system="linux",
        in_user_namespace=in_user_namespace(_first_text(root, ("/proc/self/uid_map",))),
    )


def in_user_namespace(uid_map: str) -> bool:
    """Whether this is the `uid_map` (user_namespaces(7)) of another than the first user namespace."""
    return bool(uid_map) and uid_map.split() != ["0", "0", "4294967295"]


def os_image(os_release: str) -> str:
    """`PRETTY_NAME` of os-release(5), whose values are quoted as in a shell."""
    for line in os_release.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "PRETTY_NAME":
            try:
                return " ".join(shlex.split(value))
            except ValueError:  # an unterminated quote
                return value.strip()
    return "Linux"


def internal_ip(listen_host: str) -> str:
    """The address at which clients reach a server on this host; for a wildcard address, that of the default route."""
    if listen_host not in ("", "0.0.0.0", "::"):
        return listen_host
    family = socket.AF_INET6 if listen_host == "::" else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_REMOTE[family], 9))  # sends nothing; the kernel only selects a route
        except OSError:
            return "::1" if family == socket.AF_INET6 else "127.0.0.1"
        return str(probe.getsockname()[0])


def _first_text(root: str, paths: Sequence[str]) -> str:
    """The text of the first file that can be read and is not empty."""
    for path in paths:
        try:
            with open(os.path.join(root, path.lstrip("/")), encoding="utf-8", errors="replace") as file:
                text = file.read().strip().strip("\0")
        except OSError:
            continue
        if text:
            return text
    return ""
