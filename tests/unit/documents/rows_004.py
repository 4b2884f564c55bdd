"""What no table of expected.yaml says about document 004: resources of a node, and their cgroups."""

from __future__ import annotations

from typing import get_args

import pytest

from plimsoll.errors import InvalidConfigError, InvalidQuantityError
from plimsoll.rules.config.parse import default_config, reading
from plimsoll.rules.model.cgroup_names import cgroup_path, pod_name
from plimsoll.rules.model.names import is_extended, is_hugepages, is_native, page_size
from plimsoll.rules.model.objects import QoSClass
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from tests.unit.documents.checks import Checks
from tests.unit.documents.examples import (
    DOCUMENTS,
    UID,
    VERSIONS,
    amount,
    amount_list,
    at,
    config_problems,
    container,
    explained,
    manifest,
    node,
    one_container,
    path_of_container,
    read_config,
    tree,
    work,
    written,
)

CHECKS = Checks()
row = CHECKS.row


@row("004-03")
def kinds_of_resources() -> None:
    for name in ("cpu", "memory", "ephemeral-storage"):
        assert is_native(name) and not is_hugepages(name) and not is_extended(name)
    assert is_hugepages("hugepages-2Mi") and not is_extended("hugepages-2Mi")
    assert page_size("hugepages-2Mi") == amount("2097152")
    assert is_extended("nvidia.com/gpu") and not is_native("nvidia.com/gpu")


@row("004-07")
def thousandths_of_a_core() -> None:
    assert amount("500m") == amount("0.5")
    assert str(amount("0.5")) == "500m"
    assert work(one_container({"cpu": "0.1m"})).requests["cpu"] == amount("1m")
    assert work(one_container({"cpu": "500.2m"})).requests["cpu"] == amount("501m")


@row("004-08")
def two_families_of_suffixes() -> None:
    assert amount("400Mi").value == 419430400
    assert amount("400M").value == 400000000
    for text in ("400MB", "4GB"):
        with pytest.raises(InvalidQuantityError):
            amount(text)


@row("004-09")
def capacity_in_bytes() -> None:
    assert node().capacity["memory"].value == 269509181440


@row("004-11")
def soft_threshold_takes_nothing_off() -> None:
    with_soft = node()
    without = node(settings={"evictionSoft": {}, "evictionSoftGracePeriod": {}})
    assert [each.hard for each in with_soft.thresholds] != [each.hard for each in without.thresholds]
    assert with_soft.allocatable == without.allocatable
    assert str(without.allocatable["memory"]) == "258486256Ki"
    with pytest.raises(InvalidConfigError) as raised:
        node(settings={"evictionSoftGracePeriod": {}})
    assert raised.value.reason == "grace period must be specified for the soft eviction threshold memory.available"


@row("004-18")
def system_reserved_is_taken_off() -> None:
    with_it, without = node(), node(settings={"systemReserved": {}})
    for name, reserved in amount_list({"cpu": "2", "memory": "4Gi"}).items():
        assert without.allocatable[name] - with_it.allocatable[name] == reserved
    limits = [at(tree(setting), "pods").value("memory.max") for setting in (without, with_it)]
    assert limits == [269509181440, 265214214144]


@row("004-19")
def kube_reserved_is_taken_off_too() -> None:
    setting = node(settings={"kubeReserved": {"cpu": "1", "memory": "1Gi"}})
    assert (str(setting.allocatable["cpu"]), str(setting.allocatable["memory"])) == ("45", "257437680Ki")
    assert str(setting.absolute["memory"]) == "257949680Ki"


@row("004-21")
def four_names_can_be_reserved() -> None:
    amounts_given = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "1000"}
    for field in ("systemReserved", "kubeReserved"):
        assert read_config(None, settings={field: amounts_given})
        assert list(config_problems({field: {"pods": "1"}}).values()) == ['cannot reserve "pods" resource']
    flags = {"systemReserved": "cpu=2,memory=4Gi", "kubeReserved": "memory=1Gi"}
    config = reading(None, PROFILE_DOCUMENTS, flags).config
    assert config.system_reserved == amount_list({"cpu": "2", "memory": "4Gi"})
    assert config.kube_reserved == amount_list({"memory": "1Gi"})


@row("004-22")
def reservation_and_threshold_are_missing() -> None:
    setting = node()
    assert setting.capacity["memory"] - setting.allocatable["memory"] == amount("4706304Ki")


@row("004-23")
def qos_reserved_needs_its_gate() -> None:
    setting = node(settings={"qosReserved": {"memory": "50%"}})
    assert not setting.config.gate("QOSReserved")
    top = tree(setting, "003-demo.yaml", "004-busybox.yaml")
    assert [at(top, "class", name).value("memory.max") for name in ("Burstable", "BestEffort")] == [None, None]


@row("004-24")
def listed_cpus_replace_the_reserved_figure() -> None:
    setting = node(
        settings={
            "reservedSystemCPUs": "0-1",
            "systemReserved": {"cpu": "7", "memory": "4Gi"},
            "kubeReserved": {"cpu": "3"},
        }
    )
    assert str(setting.allocatable["cpu"]) == "46"
    assert str(setting.allocatable["memory"]) == "258486256Ki"


@row("004-26")
def no_io_file_is_ever_written() -> None:
    files = [each.name for each in DOCUMENTS.glob("00[0-4]-*.yaml") if manifest(each.name)["kind"] == "Pod"]
    for profile in ("documents", "1.36"):
        for version in VERSIONS:
            found = {name for _, name, _ in written(tree(node(profile=profile, version=version), *files))}
            assert found
            assert not {name for name in found if name.startswith(("io.", "blkio."))}


@row("004-30")
def two_drivers() -> None:
    for profile in map(profile_named, ("documents", "1.36")):
        assert default_config(profile).cgroup_driver == "cgroupfs"
    assert at(tree(node(), "004-busybox.yaml"), "pod").path == "/kubepods/burstable/pod<uid>"
    from_config = node(settings={"cgroupDriver": "systemd"})
    slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice"
    assert at(tree(from_config, "004-busybox.yaml"), "pod").path == slices
    assert list(config_problems({"cgroupDriver": "other"})) == ["cgroupDriver"]


def script(version: str, driver: str = "cgroupfs") -> str:
    names = ("--node", str(DOCUMENTS / "004-node.yaml"), "--config", str(DOCUMENTS / "004-kubelet-config.yaml"))
    pod = str(DOCUMENTS / "004-busybox.yaml")
    return explained(pod, *names, "--cgroup", version, "--driver", driver, "-o", "sh")


@row("004-32")
def root_of_all_cgroups() -> None:
    for version in ("v1", "v2"):
        assert 'ROOT="${ROOT:-/sys/fs/cgroup}"' in script(version)


@row("004-32", "004-43", "004-46")
def kubepods_below_each_controller_or_the_root() -> None:
    lines = script("v1").splitlines()
    assert 'echo 47104 > "$ROOT"/cpu/kubepods/cpu.shares' in lines
    assert 'echo 265214214144 > "$ROOT"/memory/kubepods/memory.limit_in_bytes' in lines
    assert 'echo 1797 > "$ROOT"/kubepods/cpu.weight' in script("v2").splitlines()
    assert 'echo 1797 > "$ROOT"/kubepods.slice/cpu.weight' in script("v2", "systemd").splitlines()


@row("004-34", "004-47")
def two_class_cgroups_and_none_for_guaranteed() -> None:
    top = at(tree(node(), "003-demo.yaml", "004-busybox.yaml", "002-besteffort.yaml"), "pods")
    assert [(each.level, each.path) for each in top.children] == [
        ("pod", "/kubepods/pod<uid>"),
        ("class", "/kubepods/burstable"),
        ("class", "/kubepods/besteffort"),
    ]


@row("004-38")
def order_of_init_containers_matters() -> None:
    document = manifest("examples/sidecar.yaml")
    document["spec"]["initContainers"].sort(key=lambda each: each["name"] != "proxy")
    assert work(document).requests["cpu"] == amount("550m")
    document["spec"]["overhead"] = {"cpu": "10m"}
    assert work(document).requests["cpu"] == amount("560m")


@row("004-45")
def cgroup_root_stands_above_kubepods() -> None:
    assert {default_config(profile).cgroup_root for profile in map(profile_named, ("documents", "1.36"))} == {""}
    assert at(tree(node()), "pods").path == "/kubepods"
    for driver, path in (("cgroupfs", "/custom/kubepods"), ("systemd", "/custom.slice/custom-kubepods.slice")):
        assert at(tree(node(driver=driver, settings={"cgroupRoot": "/custom"})), "pods").path == path


@row("004-48")
def pods_of_each_class() -> None:
    found = {qos: cgroup_path(pod_name(("kubepods",), qos, UID), "cgroupfs") for qos in get_args(QoSClass)}
    assert found == {
        "Guaranteed": f"/kubepods/pod{UID}",
        "Burstable": f"/kubepods/burstable/pod{UID}",
        "BestEffort": f"/kubepods/besteffort/pod{UID}",
    }


@row("004-49")
def containers_by_runtime() -> None:
    assert path_of_container("003-demo.yaml", "cgroupfs") == "/kubepods/pod<uid>/<id>"
    assert path_of_container("003-demo.yaml", "cgroupfs", "crio") == "/kubepods/pod<uid>/crio-<id>"


@row("004-56")
def sum_is_converted_once() -> None:
    """10 and 102 shares would be 112, too: two thirds of a share show the difference."""
    document = manifest("002-guaranteed-limits-only.yaml")
    for name in ("foo", "bar"):
        container(document, name)["resources"]["limits"]["cpu"] = "6m"  # 6.144 shares each, 12.288 together
    document["spec"]["containers"] += [
        {**container(document, "foo"), "name": f"more-{number}"} for number in range(5)
    ]  # 7 × 6.144 = 43.008, not 7 × 6 = 42
    assert at(tree(node(version=1), document), "pod").value("cpu.shares") == 43


@row("004-57")
def least_quota_of_a_pod() -> None:
    document = one_container(limits={"cpu": "1m", "memory": "1Mi"})
    assert at(tree(node(version=1), document), "pod").value("cpu.cfs_quota_us") == 1000


@row("004-61")
def limits_are_enforced_unless_switched_off() -> None:
    enforced = at(tree(node(), "004-busybox.yaml"), "container")
    assert enforced.value("cpu.max") == "50000 100000"
    off = tree(node(settings={"cpuCFSQuota": False}), "004-busybox.yaml")
    assert at(off, "container").value("cpu.max") is None
    assert at(off, "pod").value("cpu.max") == "max 100000"
    off = tree(node(version=1, settings={"cpuCFSQuota": False}), "004-busybox.yaml")
    assert at(off, "container").value("cpu.cfs_quota_us") is None
    assert at(off, "pod").value("cpu.cfs_quota_us") == -1


@row("004-63")
def burstable_class_sums_before_it_converts() -> None:
    pods = []
    for milli in (250, 100, 1500):
        document = one_container({"cpu": f"{milli}m"})
        document["metadata"] = {"name": f"pod-{milli}", "uid": str(milli)}
        pods.append(document)
    assert at(tree(node(version=1), *pods), "class", "Burstable").value("cpu.shares") == 1894
    assert at(tree(node(), *pods), "class", "Burstable").value("cpu.weight") == 73
    assert at(tree(node(version=1)), "class", "Burstable").value("cpu.shares") == 2  # no pod at all


@row("004-75")
def cgroup_lines_are_all_defaults() -> None:
    for profile in map(profile_named, ("documents", "1.36")):
        found = read_config("004-kubelet-cgroups.yaml", profile.name)
        assert found.config == default_config(profile)
        assert (found.without_effect, found.notes) == ([], [])


@row("004-79")
def path_of_a_besteffort_container() -> None:
    assert path_of_container("001-besteffort.yaml", "cgroupfs") == "/kubepods/besteffort/pod<uid>/<id>"


@row("004-80")
def one_gibibyte_on_v1() -> None:
    document = manifest("004-busybox.yaml")
    container(document, "busybox")["resources"]["limits"]["memory"] = "1Gi"
    pod = at(tree(node(version=1), document), "pod")
    assert (work(document).qos, pod.value("memory.limit_in_bytes")) == ("Burstable", 1073741824)
