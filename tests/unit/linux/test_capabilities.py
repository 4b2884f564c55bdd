"""Capabilities as manifests ask for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from plimsoll.linux.capabilities import (
    CONTAINERD_DEFAULT,
    NAMES,
    NUMBERS,
    UnknownCapabilityError,
    granted,
    has_capability,
    mask,
)

DEFAULT = CONTAINERD_DEFAULT


@pytest.mark.parametrize(
    ("add", "drop", "have"),
    [
        pytest.param((), (), DEFAULT, id="nothing said"),
        pytest.param(("NET_ADMIN",), (), DEFAULT | {"NET_ADMIN"}, id="added"),
        pytest.param((), ("CHOWN",), DEFAULT - {"CHOWN"}, id="dropped"),
        pytest.param((), ("ALL",), frozenset(), id="all dropped"),
        pytest.param(("SYS_TIME",), ("ALL",), {"SYS_TIME"}, id="all dropped but one"),
        pytest.param(("ALL",), (), set(NAMES), id="all"),
        pytest.param(("ALL",), ("SYS_ADMIN",), set(NAMES) - {"SYS_ADMIN"}, id="all but one"),
        pytest.param(("KILL",), ("KILL",), DEFAULT - {"KILL"}, id="what is dropped by name stays dropped"),
        pytest.param(("cap_net_admin",), (), DEFAULT | {"NET_ADMIN"}, id="as the kernel spells it"),
    ],
)
def test_granted(add: tuple[str, ...], drop: tuple[str, ...], have: set[str]) -> None:
    assert granted(add, drop) == have


def test_privileged_has_all() -> None:
    assert granted((), ("ALL",), privileged=True) == set(NAMES)


@pytest.mark.parametrize(("add", "drop"), [(("FLY",), ()), ((), ("",))])
def test_unknown(add: tuple[str, ...], drop: tuple[str, ...]) -> None:
    with pytest.raises(UnknownCapabilityError):
        granted(add, drop)


def test_numbers_are_the_kernels() -> None:
    assert (NUMBERS["CHOWN"], NUMBERS["SYS_ADMIN"], NUMBERS["MKNOD"], NUMBERS["BPF"]) == (0, 21, 27, 39)
    assert mask(DEFAULT) == 0xA80425FB
    assert len(NAMES) == 41


@pytest.mark.parametrize("name", ["KILL", "NET_RAW"])
def test_permitted_is_not_in_effect(name: str) -> None:
    if not has_capability(name):
        pytest.skip(f"CAP_{name} is missing")
    code = "from plimsoll.linux.capabilities import *\nset_own(mask(['KILL']), mask(['KILL', 'NET_RAW']))\n"
    code += f"print(has_capability({name!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name == 'KILL'}\n"
