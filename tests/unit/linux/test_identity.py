"""The identity of this machine (05 B9, nodeInfo and addresses)."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

import pytest

from plimsoll.linux.identity import in_user_namespace, internal_ip, machine_identity, os_image


def root_with(tmp_path: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(tmp_path)


MACHINES: list[tuple[str, dict[str, str], tuple[str, str]]] = [
    ("a PC", {"etc/machine-id": "m1\n", "sys/class/dmi/id/product_uuid": "EC2-1\n"}, ("m1", "EC2-1")),
    ("no firmware", {"etc/machine-id": "m1\n"}, ("m1", "m1")),
    ("old place", {"var/lib/dbus/machine-id": "m2\n"}, ("m2", "m2")),
    ("an empty file", {"etc/machine-id": "", "var/lib/dbus/machine-id": "m2\n"}, ("m2", "m2")),
    ("a device tree", {"proc/device-tree/vm,uuid": "v1\0", "etc/machine-id": "m1"}, ("m1", "v1")),
    ("nothing", {}, ("", "")),
]


@pytest.mark.parametrize(("files", "ids"), [row[1:] for row in MACHINES], ids=[row[0] for row in MACHINES])
def test_ids(tmp_path: Path, files: dict[str, str], ids: tuple[str, str]) -> None:
    found = machine_identity(root_with(tmp_path, files))
    assert (found.machine_id, found.system_uuid) == ids
    assert found.kernel_version == os.uname().release


RELEASES = [
    ("quoted", 'NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n', "Debian GNU/Linux 12 (bookworm)"),
    ("bare", "PRETTY_NAME=Alpine\n", "Alpine"),
    ("open quote", 'PRETTY_NAME="half\n', '"half'),
    ("none", "NAME=x\n", "Linux"),
]


@pytest.mark.parametrize(("text", "name"), [row[1:] for row in RELEASES], ids=[row[0] for row in RELEASES])
def test_os_image(text: str, name: str) -> None:
    assert os_image(text) == name


def test_this_machine_has_a_boot() -> None:
    assert machine_identity().boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1", "node.example"])
def test_a_chosen_host_is_the_address(host: str) -> None:
    assert internal_ip(host) == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wildcard_address_becomes_an_own_address(host: str) -> None:
    assert not ipaddress.ip_address(internal_ip(host)).is_unspecified


@pytest.mark.parametrize(
    ("uid_map", "expected"),
    [
        ("         0          0 4294967295\n", False),
        ("         0       1000          1\n", True),
        ("0 0 1\n1 100000 65536\n", True),
        ("", False),  # a kernel without user namespaces
    ],
)
def test_a_user_namespace_is_known_by_its_map(uid_map: str, expected: bool) -> None:
    assert in_user_namespace(uid_map) == expected
