"""What the agent wants, as messages; what comes back, as values; and the Status that ends an exec."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.rules.lifecycle.host_files import Dns
from plimsoll.runtime.cri import image_messages as im
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.answers import (
    container_seen,
    driver_configured,
    driver_from,
    features_from,
    image_found,
    inside,
    resources_from,
)
from plimsoll.runtime.cri.exec import exit_code
from plimsoll.runtime.cri.requests import (
    container_config,
    linux_resources,
    namespaces,
    sandbox_config,
    security_context,
)
from plimsoll.runtime.interface import (
    ContainerMount,
    ContainerSpec,
    ContainerUser,
    CriResources,
    PortMapping,
    RuntimeCallError,
    RuntimeFeatures,
    SandboxSpec,
    Security,
    SeLinuxOptions,
    UserRange,
)

POD = SandboxSpec(
    pod_uid="u", name="web", namespace="n", hostname="web", cgroup_parent="/kubepods/podu", labels={"a": "b"}
)

NAMESPACES = [
    ({}, (m.POD, m.CONTAINER, m.POD)),
    ({"host_network": True}, (m.NODE, m.CONTAINER, m.POD)),
    ({"host_pid": True, "share_process_namespace": True}, (m.POD, m.NODE, m.POD)),
    ({"share_process_namespace": True}, (m.POD, m.POD, m.POD)),
    ({"host_ipc": True}, (m.POD, m.CONTAINER, m.NODE)),
]


@pytest.mark.parametrize(("changed", "modes"), NAMESPACES)
def test_namespaces_of_the_host_or_the_pod(changed: dict[str, Any], modes: tuple[int, int, int]) -> None:
    found = namespaces(msgspec.structs.replace(POD, **changed))
    assert (found.network, found.pid, found.ipc) == modes


def test_labels_that_the_reference_asks_for_win() -> None:
    labels = {"io.kubernetes.pod.uid": "forged", "a": "b"}
    sandbox = sandbox_config(msgspec.structs.replace(POD, labels=labels))
    three = {"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "n", "io.kubernetes.pod.uid": "u"}
    assert sandbox.labels == {"a": "b", **three}
    container = container_config(
        POD, ContainerSpec("main", 3, "nginx", "sha256:1", labels=labels, stop_signal="SIGTERM")
    )
    assert container.labels == {"a": "b", **three, "io.kubernetes.container.name": "main"}
    assert container.annotations == {"io.kubernetes.container.restartCount": "3"}
    assert container.image == m.ImageSpec(image="sha256:1", user_specified_image="nginx")
    assert (container.stop_signal, sandbox.linux and sandbox.linux.cgroup_parent) == (23, "/kubepods/podu")


def test_the_hosts_network_has_the_hosts_name() -> None:
    assert sandbox_config(msgspec.structs.replace(POD, host_network=True)).hostname == ""


def test_dns_and_ports() -> None:
    ports = (PortMapping(80, 8080), PortMapping(53, 53, "UDP", "127.0.0.1"))
    dns = Dns(("10.96.0.10",), ("svc.cluster.local",), ("ndots:5",))
    found = sandbox_config(msgspec.structs.replace(POD, dns=dns, ports=ports))
    assert found.dns_config == m.DNSConfig(("10.96.0.10",), ("svc.cluster.local",), ("ndots:5",))
    assert found.port_mappings == (m.PortMapping(0, 80, 8080, ""), m.PortMapping(1, 53, 53, "127.0.0.1"))
    assert sandbox_config(POD).dns_config is None, "the runtime copies the machine's file"


SECURITY = [
    pytest.param(Security(), None, None, False, True, id="image's-user"),
    pytest.param(Security(user=0), 0, None, False, True, id="root"),
    pytest.param(Security(group=5), 0, 5, False, True, id="a-group-needs-a-user"),
    pytest.param(Security(privileged=True), None, None, True, False, id="privileged"),
    pytest.param(Security(unmasked_proc=True), None, None, False, False, id="unmasked"),
]


@pytest.mark.parametrize(("asked", "user", "group", "privileged", "confined"), SECURITY)
def test_security(asked: Security, user: int | None, group: int | None, privileged: bool, confined: bool) -> None:
    found = security_context(POD, asked)
    assert (found.run_as_user and found.run_as_user.value) == user
    assert (found.run_as_group and found.run_as_group.value) == group
    assert (found.privileged, found.no_new_privs) == (privileged, False)
    assert ("/proc/kcore" in found.masked_paths, "/proc/sys" in found.readonly_paths) == (confined, confined)


def test_profiles_labels_and_groups() -> None:
    asked = Security(
        no_new_privileges=True,
        groups=(7,),
        groups_policy="Strict",
        app_armor="localhost/mine",
        se_linux=SeLinuxOptions(level="s0:c1"),
    )
    found = security_context(POD, asked)
    assert found.no_new_privs
    assert (found.supplemental_groups, found.supplemental_groups_policy) == ((7,), 1)
    assert found.apparmor == m.SecurityProfile(profile_type=2, localhost_ref="mine")
    assert found.apparmor_profile == "localhost/mine"
    assert found.selinux_options == m.SELinuxOption(level="s0:c1")
    assert security_context(POD, Security(app_armor="RuntimeDefault")).apparmor_profile == "runtime/default"
    assert security_context(POD, Security()).apparmor is None


def test_the_sandbox_has_the_settings_of_the_pod() -> None:
    own = Security(user=5, group=6, groups=(7,), se_linux=SeLinuxOptions(type="a_t"))
    users = UserRange(65536, 65536)
    spec = msgspec.structs.replace(POD, security=own, sysctls={"net.ipv4.ip_unprivileged_port_start": "0"}, users=users)
    linux = sandbox_config(spec).linux
    assert linux is not None
    assert linux.sysctls == {"net.ipv4.ip_unprivileged_port_start": "0"}
    context = linux.security_context
    assert context is not None
    assert (context.run_as_user, context.run_as_group) == (m.Int64Value(value=5), m.Int64Value(value=6))
    assert context.selinux_options == m.SELinuxOption(type="a_t")
    assert context.seccomp == m.SecurityProfile(profile_type=0)
    mapping = (m.IDMapping(host_id=65536, length=65536),)
    assert context.namespace_options is not None
    assert context.namespace_options.userns_options == m.UserNamespace(mode=m.POD, uids=mapping, gids=mapping)


def test_mounts() -> None:
    users = UserRange(65536, 65536)
    spec = ContainerSpec(
        "main",
        0,
        "nginx",
        "sha256:1",
        mounts=(
            ContainerMount("/h", "/c", read_only=True, propagation="HostToContainer", recursive_read_only=True),
            ContainerMount("", "/i", image="sha256:2", image_sub_path="dir"),
        ),
    )
    first, second = container_config(msgspec.structs.replace(POD, users=users), spec).mounts
    assert (first.host_path, first.propagation, first.recursive_read_only) == ("/h", 1, True)
    assert first.uidMappings == first.gidMappings != ()
    assert second.image == m.ImageSpec(image="sha256:2")
    assert (second.image_sub_path, second.readonly, second.host_path) == ("dir", True, "")


@pytest.mark.parametrize(
    ("name", "version", "images"),
    [("containerd", "1.6.20", False), ("containerd", "v2.0.1", False), ("containerd", "2.1.9", True), ("cri-o", "1.31.0", True), ("x", "9.9", False)],
)  # fmt: skip
def test_features(name: str, version: str, images: bool) -> None:
    handlers = (
        m.RuntimeHandler(name="runc", features=m.RuntimeHandlerFeatures(user_namespaces=True)),
        m.RuntimeHandler(name="", features=m.RuntimeHandlerFeatures(recursive_read_only_mounts=True)),
    )
    answer = m.StatusResponse(runtime_handlers=handlers, features=m.RuntimeFeatures(supplemental_groups_policy=True))
    found = features_from(answer, name, version)
    assert found == RuntimeFeatures(True, ("runc", ""), frozenset({"runc"}), frozenset({""}), images)
    assert not features_from(m.StatusResponse(), name, version).strict_groups


def test_the_user_of_a_container() -> None:
    user = m.ContainerUser(linux=m.LinuxContainerUser(uid=7, gid=8, supplemental_groups=(8, 9)))
    found = container_seen(m.Container(id="c"), m.ContainerStatusResponse(status=m.ContainerStatus(user=user)))
    assert found.user == ContainerUser(7, 8, (8, 9))
    assert container_seen(m.Container(id="c"), m.ContainerStatusResponse()).user is None


def test_resources_there_and_back() -> None:
    asked = CriResources(2, -1, 100000, 5, 6, -997, "0-1", "0", {"2MB": 2**63}, {"memory.high": "max"})
    status = m.ContainerStatus(resources=m.ContainerResources(linux=linux_resources(asked)))
    assert resources_from(status) == asked
    assert resources_from(m.ContainerStatus()) is None


CONFIG = '{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":%s},"other":{"options":null}}}}'
DRIVERS = [
    (CONFIG % '{"SystemdCgroup":true}', "", "systemd"),
    (CONFIG % '{"SystemdCgroup":false}', "", "cgroupfs"),
    (CONFIG % '{"SystemdCgroup":true}', "other", "cgroupfs"),
    (CONFIG % "{}", "unknown", None),
    ("{}", "", None),
    ("nonsense", "", None),
]


@pytest.mark.parametrize(("config", "handler", "driver"), DRIVERS)
def test_the_driver_in_the_configuration(config: str, handler: str, driver: str | None) -> None:
    assert driver_configured({"config": config}, handler) == driver


def test_the_driver_that_is_reported() -> None:
    assert driver_from(m.RuntimeConfigResponse()) is None
    assert driver_from(m.RuntimeConfigResponse(linux=m.LinuxRuntimeConfiguration(cgroup_driver=0))) == "systemd"
    assert driver_from(m.RuntimeConfigResponse(linux=m.LinuxRuntimeConfiguration(cgroup_driver=1))) == "cgroupfs"


@pytest.mark.parametrize("text", ["", "[]", '{"pid":"x"}', "{", '{"config":5}'])
def test_information_that_cannot_be_read_is_none(text: str) -> None:
    assert inside({"info": text}).pid == 0
    assert image_found(im.CriImage(id="i"), {"info": text}).runs == ""


def test_what_an_image_runs() -> None:
    info = {"info": '{"imageSpec":{"config":{"Entrypoint":["/bin/sh"],"Cmd":["-c","x"]}}}'}
    found = image_found(im.CriImage(id="i", uid=m.Int64Value(value=101)), info)
    assert (found.runs, found.user) == ("/bin/sh -c x", 101)


ENDS: list[tuple[dict[str, Any], int | str]] = [
    ({"status": "Success"}, 0),
    (
        {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
        },
        7,
    ),
    ({"status": "Failure", "reason": "NonZeroExitCode", "message": "odd"}, "odd"),
    ({"status": "Failure", "message": "no such file"}, "no such file"),
    ({}, "Exec"),
]


@pytest.mark.parametrize(("status", "ended"), ENDS)
def test_how_an_exec_ended(status: dict[str, Any], ended: int | str) -> None:
    if isinstance(ended, int):
        assert exit_code(status) == ended
    else:
        with pytest.raises(RuntimeCallError, match=ended):
            exit_code(status)
