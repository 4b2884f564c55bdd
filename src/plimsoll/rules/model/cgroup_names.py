"""Names and paths of cgroups (02 §2): the kubelet's component lists, both drivers, the containers of every runtime.

A cgroup is a tuple of components, `("kubepods", "burstable", "pod<uid>")`; the root is empty. The cgroupfs driver joins
them with `/`. The systemd driver replaces `-` inside a component by `_` and joins with `-`; each prefix is a slice in
its parent: `a-b.slice` is in `a.slice`.

Kubernetes: pkg/kubelet/cm/cgroup_manager_linux.go.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from plimsoll.errors import FieldError, InvalidNameError
from plimsoll.rules.model.objects import QoSClass

CgroupName = tuple[str, ...]
Driver = Literal["cgroupfs", "systemd"]
Runtime = Literal["process", "containerd", "crio"]

KUBEPODS = "kubepods"
UNKNOWN_UID = "<uid>"  # in place of the uid that the API server assigns
UNKNOWN_ID = "<id>"  # in place of the id that the runtime assigns
_PLAIN_UID = re.compile(r"[A-Za-z0-9.-]*+", re.ASCII)
_CLASS_COMPONENT: dict[str, CgroupName] = {
    "Guaranteed": (),  # directly under kubepods: there is no cgroup for this class
    "Burstable": ("burstable",),
    "BestEffort": ("besteffort",),
}
SCOPE_PREFIX: dict[Runtime, str] = {"containerd": "cri-containerd-", "crio": "crio-", "process": "plimsoll-"}
_FLAT_PREFIX = {"containerd": "", "crio": "crio-", "process": ""}


def below(parent: CgroupName, *components: str) -> CgroupName:
    """The kubelet refuses `/` and `_` in components: `_` means `-` in slice names, `/` is a level."""
    for component in components:
        if "/" in component or "_" in component:
            raise InvalidNameError(f'invalid character in component ["{component}"] of CgroupName')
    return parent + components


def root_name(cgroup_root: str, *, cgroups_per_qos: bool = True) -> CgroupName:
    """The cgroup of all pods: cgroupRoot, and `kubepods` in it unless cgroupsPerQOS is off."""
    root = parse_cgroupfs(cgroup_root)
    return below(root, KUBEPODS) if cgroups_per_qos else root


def class_name(pods_root: CgroupName, qos: QoSClass) -> CgroupName:
    return below(pods_root, *_CLASS_COMPONENT[qos])


def pod_name(pods_root: CgroupName, qos: QoSClass, uid: str) -> CgroupName:
    return below(class_name(pods_root, qos), f"pod{uid}")


def uid_errors(uid: str) -> list[FieldError]:
    """A uid becomes the name of a directory: errors for a uid that is not a valid name."""
    if _PLAIN_UID.fullmatch(uid):
        return []
    detail = "becomes the name of a cgroup: letters, digits, '-' and '.' only"
    return [FieldError("FieldValueInvalid", "metadata.uid", detail, uid)]


def parse_cgroupfs(path: str) -> CgroupName:
    """Without one leading `/`, split at `/`, with empty components: cgroupRoot under both drivers."""
    if path in ("", "/"):
        return ()
    return tuple(path.removeprefix("/").split("/"))


def parse_systemd(path: str) -> CgroupName:
    """The inverse: the last element, without `.slice`, split at `-`; ancestors are not checked."""
    if not (stripped := path.rstrip("/")) and path:
        last = "/"
    else:
        last = stripped.rsplit("/", 1)[-1] or "."
    return tuple(part.replace("_", "-") for part in last.removesuffix(".slice").split("-"))


def is_systemd_style(path: str) -> bool:
    return path.endswith(".slice")


def cgroupfs_path(name: CgroupName) -> str:
    return "/" + "/".join(component for component in name if component)


def slice_name(name: CgroupName) -> str:
    """The last slice alone, as systemd and OCI name it."""
    return "-".join(component.replace("-", "_") for component in name) + ".slice"


class Parent(msgspec.Struct, frozen=True):
    """A cgroup with many children: its path is computed once."""

    driver: Driver
    path: str
    stem: str  # the slice name without `.slice`; empty for the root

    def child(self, component: str) -> str:
        """The path of a child; refuses what `below` refuses."""
        if "/" in component or "_" in component:
            below((), component)
        if self.driver == "cgroupfs":
            return f"{self.path}/{component}"
        escaped = component.replace("-", "_")
        return f"{self.path}/{self.stem}-{escaped}.slice" if self.stem else f"/{escaped}.slice"


def parent(name: CgroupName, driver: Driver) -> Parent:
    path = cgroup_path(name, driver)
    stem = slice_name(name).removesuffix(".slice") if path != "/" else ""
    return Parent(driver, path if path != "/" else "", stem)


def systemd_path(name: CgroupName) -> str:
    """The path with every ancestor slice; raises InvalidNameError for an empty component."""
    if not name or name == ("",):
        return "/"
    escaped = slice_name(name).removesuffix(".slice")
    if escaped == "-":  # `-.slice` is systemd's name of the root
        return "/"
    parts = escaped.split("-")
    if "/" in escaped or "" in parts:
        raise InvalidNameError(
            f"error converting cgroup name [[{' '.join(name)}]] to systemd format: invalid slice name: {escaped}.slice"
        )
    path, prefix = "", ""
    for part in parts:
        prefix = f"{prefix}-{part}" if prefix else part
        path += f"/{prefix}.slice"
    return path


def cgroup_path(name: CgroupName, driver: Driver) -> str:
    return systemd_path(name) if driver == "systemd" else cgroupfs_path(name)


def container_component(container_id: str, driver: Driver, runtime: Runtime) -> str:
    """A container's cgroup below the pod's, as the runtime names it (02 §2.2)."""
    if driver == "systemd":
        return f"{SCOPE_PREFIX[runtime]}{container_id}.scope"
    return f"{_FLAT_PREFIX[runtime]}{container_id}"


def misplaced_container_path(pod: CgroupName, container_id: str, runtime: Runtime) -> str:
    """A container's path if only the kubelet uses systemd: at the root (02 §2.2)."""
    return f"/{slice_name(pod)}:{SCOPE_PREFIX[runtime].removesuffix('-')}:{container_id}"
