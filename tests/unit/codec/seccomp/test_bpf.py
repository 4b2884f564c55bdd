"""The BPF program against the profile it is made of: an interpreter of the kernel's few instructions is the judge."""

from __future__ import annotations

import struct

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from plimsoll.codec.seccomp.bpf import ABIS, MAX_INSTRUCTIONS, compiled
from plimsoll.codec.seccomp.profiles import (
    ALLOW,
    ENOSYS,
    EPERM,
    ERRNO,
    KILL_PROCESS,
    LOG,
    TRAP,
    Argument,
    Profile,
    Rule,
    default_profile,
)
from plimsoll.codec.seccomp.syscalls import AARCH64, X86, X86_64, numbers

X86_64_ARCH, X86_ARCH, AARCH64_ARCH = 0xC000003E, 0x40000003, 0xC00000B7
DENIED = ERRNO | EPERM


def verdict(program: bytes, arch: int, number: int, *args: int) -> int:
    """What the kernel would do: run the program on a `struct seccomp_data`."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *(args + (0,) * (6 - len(args))))
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, at = 0, 0
    while True:
        operation, jump_true, jump_false, k = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, k)
            case 0x05:
                at += k
            case 0x15:
                at += jump_true if accumulator == k else jump_false
            case 0x25:
                at += jump_true if accumulator > k else jump_false
            case 0x35:
                at += jump_true if accumulator >= k else jump_false
            case 0x54:
                accumulator &= k
            case 0x06:
                return k
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


@pytest.fixture(scope="module")
def default() -> bytes:
    return compiled(default_profile(["CHOWN", "SYS_CHROOT"], "x86_64"), "x86_64")


CALLS = [
    pytest.param("read", (), ALLOW, id="read"),
    pytest.param("ptrace", (), ALLOW, id="ptrace"),
    pytest.param("chroot", (), ALLOW, id="a call of a capability that the container has"),
    pytest.param("reboot", (), DENIED, id="a call of a capability that it has not"),
    pytest.param("mount", (), DENIED, id="mount"),
    pytest.param("unshare", (0x10000000,), DENIED, id="unshare a user namespace"),
    pytest.param("setns", (), DENIED, id="setns"),
    pytest.param("keyctl", (), DENIED, id="keyctl"),
    pytest.param("add_key", (), DENIED, id="add_key"),
    pytest.param("io_uring_setup", (), DENIED, id="io_uring"),
    pytest.param("bpf", (), DENIED, id="bpf"),
    pytest.param("userfaultfd", (), DENIED, id="userfaultfd"),
    pytest.param("clone", (0x01200011,), ALLOW, id="fork"),
    pytest.param("clone", (0x003D0F00,), ALLOW, id="a thread"),
    pytest.param("clone", (0x10000011,), DENIED, id="clone a user namespace"),
    pytest.param("clone", (0x00020011,), DENIED, id="clone a mount namespace"),
    pytest.param("clone", (0x02000011,), DENIED, id="clone a cgroup namespace"),
    pytest.param("clone3", (), ERRNO | ENOSYS, id="clone3"),
    pytest.param("socket", (1,), ALLOW, id="AF_UNIX"),
    pytest.param("socket", (2,), ALLOW, id="AF_INET"),
    pytest.param("socket", (16,), ALLOW, id="AF_NETLINK"),
    pytest.param("socket", (38,), DENIED, id="AF_ALG"),
    pytest.param("socket", (39,), ALLOW, id="AF_NFC"),
    pytest.param("socket", (40,), DENIED, id="AF_VSOCK"),
    pytest.param("socket", (1 << 32 | 40,), ALLOW, id="64 bits are compared, as by libseccomp"),
    pytest.param("personality", (0,), ALLOW, id="the usual personality"),
    pytest.param("personality", (0x0040000,), DENIED, id="no address randomization"),
]


@pytest.mark.parametrize(("name", "args", "expected"), CALLS)
def test_default_profile(default: bytes, name: str, args: tuple[int, ...], expected: int) -> None:
    assert verdict(default, X86_64_ARCH, numbers(X86_64)[name], *args) == expected


def test_other_interfaces_of_the_machine(default: bytes) -> None:
    assert verdict(default, X86_ARCH, numbers(X86)["mount"]) == DENIED
    assert verdict(default, X86_ARCH, numbers(X86)["read"]) == ALLOW
    assert verdict(default, X86_64_ARCH, 0x40000000 | numbers(X86_64)["read"]) == ERRNO | ENOSYS  # x32
    assert verdict(default, AARCH64_ARCH, numbers(AARCH64)["read"]) == KILL_PROCESS
    assert verdict(default, X86_64_ARCH, 9999) == DENIED


def test_administrators_may_mount() -> None:
    program = compiled(default_profile(["SYS_ADMIN"], "aarch64"), "aarch64")
    assert verdict(program, AARCH64_ARCH, numbers(AARCH64)["mount"]) == ALLOW
    assert verdict(program, AARCH64_ARCH, numbers(AARCH64)["clone3"]) == ALLOW


def test_an_unknown_machine_has_no_filter() -> None:
    assert compiled(default_profile([], "sparc64"), "sparc64") == b""


def test_numbers_are_the_kernels() -> None:
    x86_64, x86, arm = numbers(X86_64), numbers(X86), numbers(AARCH64)
    assert (x86_64["read"], x86_64["execve"], x86_64["seccomp"], x86_64["mseal"]) == (0, 59, 317, 462)
    assert (x86["read"], x86["execve"], x86["socketcall"]) == (3, 11, 102)
    assert (arm["openat"], arm["execve"], arm["clone3"], arm["newfstatat"]) == (56, 221, 435, 79)


NAMES = ("read", "write", "mount", "socket", "clone", "keyctl", "mseal", "io_setup")
WORDS = st.one_of(st.integers(0, 8), st.integers(0, 2**64 - 1), st.sampled_from([2**32 - 1, 2**32, 2**32 + 1, 2**63]))
ARGUMENTS = st.builds(
    Argument, st.integers(0, 5), WORDS, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "&=="]), WORDS
)
RULES = st.builds(
    Rule,
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple),
    st.sampled_from([ALLOW, DENIED, LOG, TRAP]),
    st.lists(ARGUMENTS, max_size=2, unique_by=lambda argument: argument.index).map(tuple),
)


def holds(argument: Argument, word: int) -> bool:
    return {
        "==": word == argument.value,
        "!=": word != argument.value,
        "<": word < argument.value,
        "<=": word <= argument.value,
        ">": word > argument.value,
        ">=": word >= argument.value,
        "&==": word & argument.value == argument.second,
    }[argument.operator]


@given(st.lists(RULES, max_size=6), st.sampled_from(NAMES), st.lists(WORDS, min_size=6, max_size=6), st.randoms())
def test_the_program_says_what_the_profile_says(rules: list[Rule], name: str, words: list[int], random: object) -> None:
    profile = Profile(DENIED, tuple(rules))
    near = [argument.value for rule in rules for argument in rule.arguments][:6]
    for args in (words, near + words[len(near) :]):
        program = compiled(profile, "x86_64")
        matching = [
            rule.action
            for rule in rules
            if name in rule.names and all(holds(argument, args[argument.index]) for argument in rule.arguments)
        ]
        event("a rule matches" if matching else "the default decides")
        # Rules with conditions come first; among equals libseccomp leaves the order open, so any of them will do.
        conditional = [
            rule.action
            for rule in rules
            if rule.arguments
            and name in rule.names
            and all(holds(argument, args[argument.index]) for argument in rule.arguments)
        ]
        assert verdict(program, X86_64_ARCH, numbers(X86_64)[name], *args) in (conditional or matching or [DENIED])


def test_programs_fit_into_the_kernel() -> None:
    for machine in ABIS:
        program = compiled(default_profile(["SYS_ADMIN", "SYS_PTRACE"], machine), machine)
        assert len(program) // 8 <= MAX_INSTRUCTIONS // 2
