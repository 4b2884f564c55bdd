"""A seccomp profile → the classic BPF program that the kernel runs for every system call (seccomp(2)).

The program checks the architecture, then finds the call's number by binary search over the ranges of numbers that
share one action. A call costs about ten instructions, whatever the profile lists. Rules with conditions on arguments
have a block of their own: arguments are 64 bits wide and the words of the machine 32, so each comparison starts with
the high half. A call of another ABI of the same machine (i386 on x86_64) is filtered by its own numbers; x32 is
answered with ENOSYS, as by a kernel without it.

The program is built from its end, so that every jump goes to a label that is known. A conditional jump reaches 255
instructions; a longer one is followed by two unconditional jumps.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from plimsoll.codec.seccomp.profiles import ENOSYS, ERRNO, KILL_PROCESS, Argument, Profile, Rule, calls
from plimsoll.codec.seccomp.syscalls import AARCH64, X86, X86_64, numbers

MAX_INSTRUCTIONS = 4096
_LD, _JA, _JEQ, _JGT, _JGE, _AND, _RET = 0x20, 0x05, 0x15, 0x25, 0x35, 0x54, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16
_X32_BIT = 0x40000000
# AUDIT_ARCH_* of linux/audit.h, by the machine's name in uname(2).
ABIS: Mapping[str, tuple[tuple[int, str], ...]] = {
    "x86_64": ((0xC000003E, X86_64), (0x40000003, X86)),
    "aarch64": ((0xC00000B7, AARCH64),),
}

Instruction = tuple[int, int, int, int]  # code, jt, jf, k


class _Program:
    """Instructions in reverse order; a label is the distance from the end, known when it is used."""

    def __init__(self) -> None:
        self._reversed: list[Instruction] = []
        self._returns: dict[int, int] = {}

    def here(self) -> int:
        return len(self._reversed)

    def emit(self, code: int, k: int, jt: int = 0, jf: int = 0) -> int:
        self._reversed.append((code, jt, jf, k))
        return self.here()

    def jump(self, label: int) -> int:
        return self.emit(_JA, self.here() - label)

    def branch(self, code: int, k: int, yes: int, no: int) -> int:
        """To `yes` where the comparison holds, else to `no`."""
        if max(self.here() - yes, self.here() - no) <= 255:
            return self.emit(code, k, self.here() - yes, self.here() - no)
        self.jump(no)
        self.jump(yes)
        return self.emit(code, k, 0, 1)

    def returns(self, action: int) -> int:
        if action not in self._returns:
            self._returns[action] = self.emit(_RET, action)
        return self._returns[action]

    def instructions(self) -> list[Instruction]:
        return self._reversed[::-1]


def compiled(profile: Profile, machine: str) -> bytes:
    """The program as an array of `struct sock_filter`; empty for a machine whose numbers are not known."""
    if machine not in ABIS:
        return b""
    rules, program = calls(profile), _Program()
    other = program.returns(KILL_PROCESS)  # a call of a foreign architecture: libseccomp's default too
    for arch, table in reversed(ABIS[machine]):
        start = _filter(program, profile, rules, numbers(table), x32=table is X86_64)
        other = program.branch(_JEQ, arch, start, other)
    program.emit(_LD, _ARCH)
    instructions = program.instructions()
    assert len(instructions) <= MAX_INSTRUCTIONS, len(instructions)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _filter(
    program: _Program, profile: Profile, rules: Mapping[str, tuple[Rule, ...]], table: Mapping[str, int], *, x32: bool
) -> int:
    """The block for one ABI; returns its label."""
    starts: dict[int, int] = {}
    for name, number in table.items():
        if name in rules:
            starts[number] = _decision(program, rules[name], program.returns(profile.default_action))
    ranges = _ranges(starts, program.returns(profile.default_action))
    label = _search(program, ranges)
    if x32:
        label = program.branch(_JGE, _X32_BIT, program.returns(ERRNO | ENOSYS), label)
    if label != program.here():
        program.jump(label)
    return program.emit(_LD, _NR)


def _decision(program: _Program, rules: Sequence[Rule], default: int) -> int:
    """The first rule whose conditions hold; conditions are checked before rules that have none, as in libseccomp."""
    label = default
    for rule in sorted(rules, key=lambda rule: bool(rule.arguments)):
        action = program.returns(rule.action)
        if not rule.arguments:
            label = action
            continue
        no, yes = label, action
        for argument in reversed(rule.arguments):
            yes = _condition(program, argument, yes, no)
        label = yes
    return label


def _condition(program: _Program, argument: Argument, yes: int, no: int) -> int:
    """Compare a 64-bit argument by its halves; both ABIs here are little-endian."""
    low_at, high_at = _ARGS + 8 * argument.index, _ARGS + 8 * argument.index + 4
    operator: str = argument.operator
    value = argument.value
    if operator in ("!=", "<", "<="):
        operator, (yes, no) = {"!=": "==", "<": ">=", "<=": ">"}[operator], (no, yes)
    if operator == "&==":
        mask, value = value, argument.second
        program.branch(_JEQ, value & 0xFFFFFFFF, yes, no)
        program.emit(_AND, mask & 0xFFFFFFFF)
        low = program.emit(_LD, low_at)
        program.branch(_JEQ, value >> 32, low, no)
        program.emit(_AND, mask >> 32)
        return program.emit(_LD, high_at)
    code = {"==": _JEQ, ">": _JGT, ">=": _JGE}[operator]
    program.branch(code, value & 0xFFFFFFFF, yes, no)
    low = program.emit(_LD, low_at)
    same = program.branch(_JEQ, value >> 32, low, no)
    if operator != "==":
        program.branch(_JGT, value >> 32, yes, same)
    return program.emit(_LD, high_at)


def _ranges(starts: Mapping[int, int], default: int) -> list[tuple[int, int]]:
    """(first number, label), each range up to the next; neighbours with one label are one range."""
    ranges = [(0, default)]
    for number in range(max(starts, default=0) + 2):
        label = starts.get(number, default)
        if label != ranges[-1][1]:
            ranges.append((number, label))
    return ranges if len(ranges) == 1 or ranges[1][0] != 0 else ranges[1:]


def _search(program: _Program, ranges: Sequence[tuple[int, int]]) -> int:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    above, below = _search(program, ranges[middle:]), _search(program, ranges[:middle])
    return program.branch(_JGE, ranges[middle][0], above, below)
