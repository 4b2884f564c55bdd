"""Which systemd unit a cgroup is, and whether its name may be given to systemd at all (spec 02 §2.1, §2.3).

Under the systemd driver a path is a chain of slices, each named after all above it, and at its end perhaps a scope:
`/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope`. systemd knows more characters than these in names
(`@` for templates, `\\x2d` as an escape) and other kinds of units; we never mean any of them, so they are refused.
"""

from __future__ import annotations

import re

import msgspec

from plimsoll.errors import InvalidName

ROOT_SLICE = "-.slice"
LONGEST_NAME = 255
# Units of the machine itself: values may be written to them, but they are neither made nor removed nor stopped.
MACHINE_UNITS = frozenset({ROOT_SLICE, "system.slice", "user.slice", "machine.slice", "init.scope"})

_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*\.(?:slice|scope)", re.ASCII)


class Unit(msgspec.Struct, frozen=True):
    name: str
    parent: str  # the slice it lives in; `-.slice` at the top
    is_scope: bool = False

    @property
    def is_machines_own(self) -> bool:
        return self.name in MACHINE_UNITS


def unit_of(path: str) -> Unit | None:
    """The unit of a cgroup; None below a scope, whose inside is delegated. InvalidName where it can be none."""
    if path == "/":
        return Unit(ROOT_SLICE, "")
    parent = ROOT_SLICE
    names = path.removeprefix("/").split("/")
    for depth, name in enumerate(names):
        _check_name(name, path)
        if name.endswith(".scope"):
            return Unit(name, parent, is_scope=True) if depth == len(names) - 1 else None
        if _parent_slice(name, path) != parent:
            raise InvalidName(f"{name!r} of {path!r} is no slice of {parent}: systemd would put it elsewhere")
        parent = name
    return Unit(names[-1], _parent_slice(names[-1], path))


def _check_name(name: str, path: str) -> None:
    if len(name) > LONGEST_NAME:
        raise InvalidName(f"{name[:40]!r}… is longer than {LONGEST_NAME} characters: no name for a systemd unit")
    if not _NAME.fullmatch(name):
        rule = "letters, digits and _ . : - only, ending in .slice or .scope"
        raise InvalidName(f"{name!r} of {path[:LONGEST_NAME]!r} is no name for a systemd unit of ours: {rule}")


def _parent_slice(name: str, path: str) -> str:
    parts = name.removesuffix(".slice").split("-")
    if "" in parts:
        raise InvalidName(f"invalid slice name: {name} (of {path!r}): an empty part between dashes")
    return "-".join(parts[:-1]) + ".slice" if len(parts) > 1 else ROOT_SLICE
