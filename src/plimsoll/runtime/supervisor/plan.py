"""What the agent sends to the supervisor about one container, and `child` uses.

NamedTuples and not dataclasses: the supervisor has no memory to spare for `dataclasses` and what it imports.
"""

from __future__ import annotations

from typing import Any, NamedTuple

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


PRIVATE, TWO_WAY = "None", "Bidirectional"  # mountPropagation


class Bind(NamedTuple):
    host_path: str
    container_path: str
    read_only: bool = False
    propagation: str = PRIVATE
    is_device: bool = False  # a device file, which works in the container


class Identity(NamedTuple):
    """The process's user, groups and the most capabilities it may have."""

    user: int = 0
    group: int | None = 0  # None: that of the user in the container's /etc/passwd
    groups: tuple[int, ...] = ()
    capabilities: int = 0  # a mask
    no_new_privileges: bool = True
    merges_groups: bool = False  # also the groups of the user in the container's /etc/group


class LaunchPlan(NamedTuple):
    argv: tuple[str, ...]
    environment: dict[str, str]
    working_dir: str = ""
    root: str = ""  # an image's own directory; "": a view of the host
    expose: tuple[str, ...] = ()  # host paths, read-only, also where the view hides them
    binds: tuple[Bind, ...] = ()
    identity: Identity = Identity()
    seccomp: str = ""  # a BPF program in base64; "": no filter
    privileged: bool = False
    read_only_root: bool = False
    unmasked: bool = False  # /proc
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    oom_score_adj: int | None = None
    stop_signal: str = ""


def plan_from(document: dict[str, Any]) -> LaunchPlan:
    """From JSON, where tuples are lists. TypeError for an unknown field: the two sides differ in version."""
    fields = dict(document)
    fields["argv"] = tuple(map(str, fields["argv"]))
    fields["expose"] = tuple(fields.get("expose", ()))
    fields["binds"] = tuple(Bind(*bind) for bind in fields.get("binds", ()))
    user, group, groups, *others = fields.get("identity", Identity())
    fields["identity"] = Identity(user, group, tuple(groups), *others)
    return LaunchPlan(**fields)
