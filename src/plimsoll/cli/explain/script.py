"""An Explanation as a shell script that creates the same cgroups.

The real uid and container ids exist only when a pod runs; the script derives both from names, so that it can be run as
it is. Text from a manifest is quoted for the shell.
"""

from __future__ import annotations

import hashlib
import shlex
import uuid
from collections.abc import Iterator

from plimsoll.rules.cgroups.desired import Cgroup
from plimsoll.rules.explain.explanation import Explanation
from plimsoll.rules.model.cgroup_names import UNKNOWN_ID, UNKNOWN_UID, cgroup_path
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import DOCUMENTED
from plimsoll.rules.resources.files import controller_of

_OPTIONAL = (
    "hugetlb.",
    "memory.swap.",
    "memory.memsw.",
    "io.",
    "blkio.",
)  # the kernel may lack them or refuse the value
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def script(found: Explanation, setting: NodeConfig) -> str:
    lines = [
        "#!/bin/sh",
        "# Creates the cgroups of these pods. Run it as root on a machine without a kubelet.",
        "# uids and container ids are derived from names: the real ones exist only when the pods run.",
        "set -eu",
        'ROOT="${ROOT:-/sys/fs/cgroup}"',
    ]
    if setting.policy.cgroup_version == 2:
        for ancestor in _ancestors(cgroup_path(setting.pods_root, setting.driver)):
            lines += [f"mkdir -p {_quoted(ancestor)}", *_enabled(ancestor)]
    if setting.driver == "systemd":
        lines.append("# With the systemd driver, units own these files: a daemon-reload resets them.")
    for child in found.tree.children:
        lines += _made(child, "", setting)
    return "\n".join(lines) + "\n"


def _made(cgroup: Cgroup, pod: str, setting: NodeConfig) -> Iterator[str]:
    if cgroup.level == "pod":
        pod = cgroup.name
    path = _concrete(cgroup, pod, setting)
    if not path:  # a pod without a cgroup (cgroupsPerQOS: false): the runtime places its containers
        return
    yield ""
    yield f"# {cgroup.level}: {_comment(cgroup.name)}"
    version = setting.policy.cgroup_version
    if cgroup.level == "reserved":
        yield "# must exist: the kubelet only sets its values"
    elif version == 2:
        yield f"mkdir -p {_quoted(path)}"
        if cgroup.level != "container":
            yield from _enabled(path)
    else:
        for controller in dict.fromkeys(controller_of(file.name) for file in cgroup.files):
            yield f"mkdir -p {_quoted(f'/{controller}{path}')}"
    for file in cgroup.files:
        hierarchy = "" if version == 2 else f"/{controller_of(file.name)}"
        if file.reason.note.startswith(DOCUMENTED):
            yield f"# {file.name}: {file.reason.note}"
        for text in str(file.value).splitlines():  # a file with one line per device takes one device per write
            line = f"echo {shlex.quote(text)} > {_quoted(f'{hierarchy}{path}/{file.name}')}"
            if text.startswith("/dev/"):
                line = f"# with MAJOR:MINOR of {text.split()[0]}: {line}"
            yield f"{line} || true  # not in every kernel" if file.name.startswith(_OPTIONAL) else line
    if cgroup.oom_score_adj is not None:
        yield f"# for each of its processes: echo {cgroup.oom_score_adj} > /proc/PID/oom_score_adj"
    for child in cgroup.children:
        yield from _made(child, pod, setting)


def _ancestors(path: str) -> list[str]:
    """The cgroups above kubepods, from the root down."""
    parts = path.strip("/").split("/")[:-1]
    return ["/".join(["", *parts[:count]]) for count in range(len(parts) + 1)]


def _enabled(path: str) -> Iterator[str]:
    """Enable one controller at a time, because a kernel may lack some."""
    for controller in _V2_CONTROLLERS:
        yield f"echo +{controller} > {_quoted(path + '/cgroup.subtree_control')} 2>/dev/null || true"


def _concrete(cgroup: Cgroup, pod: str, setting: NodeConfig) -> str:
    uid = str(uuid.uuid5(uuid.NAMESPACE_OID, pod))
    if setting.driver == "systemd":
        uid = uid.replace("-", "_")
    container_id = hashlib.sha256(f"{pod}/{cgroup.name}".encode()).hexdigest()
    path = cgroup.path.replace(UNKNOWN_UID, uid).replace(UNKNOWN_ID, container_id)
    return path if not path or path.startswith("/") else f"/{path}"


def _quoted(path: str) -> str:
    return '"$ROOT"' + shlex.quote(path)


def _comment(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)
