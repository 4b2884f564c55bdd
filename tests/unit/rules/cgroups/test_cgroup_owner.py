"""Paths of cgroups → pod, class, container, runtime (spec 02 §2.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.kernel.files import own_cgroups
from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, owner_of, placed
from plimsoll.rules.model.cgroup_names import (
    Driver,
    Runtime,
    below,
    cgroup_path,
    container_component,
    misplaced_container_path,
    pod_name,
)
from plimsoll.rules.model.objects import QoSClass

UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"
SLICED = UID.replace("-", "_")
ID = "4a1" + "0f" * 30 + "e"
BURSTABLE = "/kubepods.slice/kubepods-burstable.slice"
POD_SLICE = f"{BURSTABLE}/kubepods-burstable-pod{SLICED}.slice"

ROWS = [
    ("containerd, cgroupfs", f"/kubepods/burstable/pod{UID}/{ID}", ("container", "cgroupfs", "/kubepods", "Burstable", UID, ID, None)),
    ("CRI-O, cgroupfs", f"/kubepods/pod{UID}/crio-{ID}", ("container", "cgroupfs", "/kubepods", "Guaranteed", UID, ID, "crio")),
    ("CRI-O's monitor", f"/kubepods/pod{UID}/crio-conmon-{ID}", ("monitor", "cgroupfs", "/kubepods", "Guaranteed", UID, ID, "crio")),
    ("containerd, systemd", f"{POD_SLICE}/cri-containerd-{ID}.scope", ("container", "systemd", "/kubepods.slice", "Burstable", UID, ID, "containerd")),
    ("CRI-O, systemd", f"{POD_SLICE}/crio-{ID}.scope", ("container", "systemd", "/kubepods.slice", "Burstable", UID, ID, "crio")),
    ("CRI-O's monitor, systemd", f"{POD_SLICE}/crio-conmon-{ID}.scope", ("monitor", "systemd", "/kubepods.slice", "Burstable", UID, ID, "crio")),
    ("our own, systemd", f"{POD_SLICE}/plimsoll-{ID}.scope", ("container", "systemd", "/kubepods.slice", "Burstable", UID, ID, "process")),
    ("our own with dashes in its id", f"{POD_SLICE}/plimsoll-web-0.scope", ("container", "systemd", "/kubepods.slice", "Burstable", UID, "web-0", "process")),
    ("docker", f"{POD_SLICE}/docker-{ID}.scope", ("container", "systemd", "/kubepods.slice", "Burstable", UID, ID, None)),
    ("static pod", "/kubepods/besteffort/podd0be98fd9be67c8b4d5a6b8c0ffe0001", ("pod", "cgroupfs", "/kubepods", "BestEffort", "d0be98fd9be67c8b4d5a6b8c0ffe0001", "", None)),
    ("Guaranteed pod, systemd", f"/kubepods.slice/kubepods-pod{SLICED}.slice", ("pod", "systemd", "/kubepods.slice", "Guaranteed", UID, "", None)),
    ("below a cgroup root", f"/custom/kubepods/burstable/pod{UID}/{ID}", ("container", "cgroupfs", "/custom/kubepods", "Burstable", UID, ID, None)),
    ("below a cgroup root, systemd", f"/custom.slice/custom-kubepods.slice/custom-kubepods-pod{SLICED}.slice", ("pod", "systemd", "/custom.slice/custom-kubepods.slice", "Guaranteed", UID, "", None)),
    ("a node in a container", f"/docker/abc/kubelet/kubepods/pod{UID}/{ID}", ("container", "cgroupfs", "/docker/abc/kubelet/kubepods", "Guaranteed", UID, ID, None)),
    ("from another namespace", f"/../../kubepods/pod{UID}/{ID}", ("container", "cgroupfs", "/kubepods", "Guaranteed", UID, ID, None)),
    ("all pods", "/kubepods", ("pods", "cgroupfs", "/kubepods", None, "", "", None)),
    ("all pods, systemd", "/kubepods.slice", ("pods", "systemd", "/kubepods.slice", None, "", "", None)),
    ("a class", "/kubepods/besteffort", ("class", "cgroupfs", "/kubepods", "BestEffort", "", "", None)),
    ("a class, systemd", BURSTABLE, ("class", "systemd", "/kubepods.slice", "Burstable", "", "", None)),
    ("something else below kubepods", "/kubepods/gpu", ("other", "cgroupfs", "/kubepods", None, "", "", None)),
    ("something else, systemd", "/kubepods.slice/kubepods-gpu.slice", ("other", "systemd", "/kubepods.slice", None, "", "", None)),
    ("no pod", "/system.slice/ssh.service", ("other", None, "", None, "", "", None)),
    ("the root", "/", ("other", None, "", None, "", "", None)),
    ("a name with a colon", "/a.slice:b:c", ("other", None, "", None, "", "", None)),
    ("a name that only sounds like it", "/kubepods-like/pod1", ("other", None, "", None, "", "", None)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "said"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_owner(path: str, said: tuple[str | None, ...]) -> None:
    found = owner_of(path)
    assert (
        found.kind,
        found.driver,
        found.pods_root,
        found.qos_class,
        found.pod_uid,
        found.container_id,
        found.runtime,
    ) == said
    assert found.path == path
    assert not found.misplaced


def test_crun_puts_processes_one_level_deeper() -> None:
    found = owner_of(f"{POD_SLICE}/crio-{ID}.scope/container")
    assert (found.kind, found.container_id, found.inside) == ("inside", ID, "/container")


@pytest.mark.parametrize("slice_name", [f"kubepods-pod{SLICED}.slice", f"kubepods-burstable-pod{SLICED}.slice"])
def test_the_documents_driver_mismatch(slice_name: str) -> None:
    path = f"/{slice_name}:cri-containerd:{ID}"
    assert owner_of(path) == CgroupOwner(
        path,
        "container",
        "systemd",
        "",
        "Burstable" if "burstable" in slice_name else "Guaranteed",
        UID,
        ID,
        "containerd",
        misplaced=True,
    )


@given(
    st.sampled_from(["cgroupfs", "systemd"]),
    st.sampled_from(["containerd", "crio", "process"]),
    st.sampled_from(["Guaranteed", "Burstable", "BestEffort"]),
    st.sampled_from([(), ("custom",), ("plimsoll-test-0a1b",)]),
    st.from_regex(r"[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}", fullmatch=True),
    st.from_regex(r"[a-f0-9]{64}", fullmatch=True),
)
def test_it_reads_what_hierarchy_writes(
    driver: Driver, runtime: Runtime, qos: QoSClass, root: tuple[str, ...], uid: str, container_id: str
) -> None:
    pod = pod_name(below(root, "kubepods"), qos, uid)
    found = owner_of(f"{cgroup_path(pod, driver)}/{container_component(container_id, driver, runtime)}")
    assert (found.kind, found.driver, found.qos_class, found.pod_uid, found.container_id) == (
        "container",
        driver,
        qos,
        uid,
        container_id,
    )
    assert found.runtime in ((runtime,) if driver == "systemd" or runtime == "crio" else (None,))
    assert found.pods_root == cgroup_path(below(root, "kubepods"), driver)
    lost = owner_of(misplaced_container_path(pod, container_id, runtime))
    assert (lost.misplaced, lost.pod_uid, lost.qos_class, lost.runtime) == (True, uid, qos, runtime)


DOCUMENT_004 = f"""\
11:net_cls:/kubepods/besteffort/pod{UID}/{ID}
10:cpu,cpuacct:/kubepods/besteffort/pod{UID}/{ID}
9:memory:/kubepods/besteffort/pod{UID}/{ID}
8:blkio:/kubepods/besteffort/pod{UID}/{ID}
7:devices:/kubepods/besteffort/pod{UID}/{ID}
6:hugetlb:/kubepods/besteffort/pod{UID}/{ID}
5:pids:/kubepods/besteffort/pod{UID}/{ID}
4:freezer:/kubepods/besteffort/pod{UID}/{ID}
3:cpuset:/kubepods/besteffort/pod{UID}/{ID}
2:perf_event:/kubepods/besteffort/pod{UID}/{ID}
1:name=systemd:/kubepods/besteffort/pod{UID}/{ID}
0::/
"""


def of_text(text: str) -> tuple[CgroupOwner, dict[str, str]]:
    found = placed((each.controllers, each.path) for each in own_cgroups(text))
    return found.owner, found.elsewhere


def test_the_listing_of_document_004() -> None:
    owner, elsewhere = of_text(DOCUMENT_004)
    assert (owner.pod_uid, owner.container_id, owner.qos_class, elsewhere) == (UID, ID, "BestEffort", {})


def test_hierarchies_that_disagree_are_named() -> None:
    owner, elsewhere = of_text(DOCUMENT_004.replace(f"3:cpuset:/kubepods/besteffort/pod{UID}/{ID}", "3:cpuset:/"))
    assert owner.pod_uid == UID
    assert elsewhere == {"cpuset": "/"}


def test_unified_alone_and_nothing_at_all() -> None:
    assert of_text(f"0::{POD_SLICE}/cri-containerd-{ID}.scope\n")[0].container_id == ID
    assert of_text("") == (CgroupOwner("/", "other"), {})
