"""Seccomp profiles from files, in the form of the OCI runtime specification."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.codec.seccomp.profiles import ALLOW, ERRNO, Argument, InvalidProfileError, Rule, read_profile


def text(**fields: Any) -> bytes:
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", **fields}).encode()


def test_a_file() -> None:
    entry = {
        "names": ["clone"],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
    }
    profile = read_profile(text(architectures=["SCMP_ARCH_X86_64"], syscalls=[entry], comment="ignored"))
    assert profile.default_action == ERRNO | 1
    assert profile.rules == (Rule(("clone",), ALLOW, (Argument(0, 2114060288, "&=="),)),)


def test_one_argument_twice_is_two_rules() -> None:
    args = [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"} for value in (1, 2)]
    profile = read_profile(text(syscalls=[{"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": args}]))
    assert [rule.arguments for rule in profile.rules] == [(Argument(0, 1),), (Argument(0, 2),)]


def test_error_numbers() -> None:
    profile = read_profile(
        text(defaultErrnoRet=38, syscalls=[{"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}])
    )
    assert (profile.default_action, profile.rules[0].action) == (ERRNO | 38, ERRNO | 13)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(b"{", "not a seccomp profile", id="no JSON"),
        pytest.param(b"{}", "defaultAction", id="no default"),
        pytest.param(b'{"defaultAction": "MAYBE"}', "defaultAction: 'MAYBE' is not one of", id="action"),
        pytest.param(
            text(syscalls=[{"names": ["a"], "action": "SCMP_ACT_NOTIFY"}]), r"syscalls\[0\].action", id="notify"
        ),
        pytest.param(
            text(
                syscalls=[
                    {
                        "names": ["a"],
                        "action": "SCMP_ACT_ALLOW",
                        "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}],
                    }
                ]
            ),
            r"syscalls\[0\].args\[0\].index",
            id="index",
        ),
        pytest.param(text(listenerPath="/run/x"), "listenerPath", id="listener"),
    ],
)
def test_what_is_refused(document: bytes, message: str) -> None:
    with pytest.raises(InvalidProfileError, match=message):
        read_profile(document)
