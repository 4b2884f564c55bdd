"""Matching: a Thompson NFA whose sets of states are kept as states of a DFA.

A pattern becomes a program of at most 5,000 instructions; a text of n characters takes at most n steps over it, and
once the states are known, one dictionary lookup per character. A search that would take more than 300,000 steps
raises RegexBudgetError. `find` follows the program thread by thread (Pike's
machine) and gives the leftmost match by Perl's preferences, as Go's `regexp` does.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from plimsoll.rules.re2.syntax import CharSet, RegexError, Tree, parse

MAX_PROGRAM = 5_000
MAX_STEPS = 300_000  # over instructions, in one text
_MAX_STATES = 2_000  # then they are forgotten and found again
_MAX_EDGES = 40_000


class RegexBudgetError(Exception):
    """The pattern is too large for so long a text."""

    def __init__(self, pattern: str) -> None:
        super().__init__(f"the pattern `{pattern[:100]}` takes too many steps for a text of this length")


class _Instruction(msgspec.Struct):
    """`char` continues at `out`; `split` at `out`, then at `other`; `assert` at `out` where it holds."""

    op: str
    out: int = -1
    other: int = -1
    chars: CharSet | None = None
    name: str = ""


class _Compiler:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.program: list[_Instruction] = []

    def add(self, instruction: _Instruction) -> int:
        if len(self.program) >= MAX_PROGRAM:
            raise RegexError("expression too large", self.pattern)
        self.program.append(instruction)
        return len(self.program) - 1

    def compiled(self, tree: Tree, out: int) -> int:
        """The first instruction of the tree, which continues at `out`."""
        match tree[0]:
            case "char":
                return self.add(_Instruction("char", out, chars=tree[1]))
            case "assert":
                return self.add(_Instruction("assert", out, name=tree[1]))
            case "group":
                return self.compiled(tree[1], out)
            case "cat":
                for each in reversed(tree[1]):
                    out = self.compiled(each, out)
                return out
            case "alt":
                first = self.compiled(tree[1][-1], out)
                for each in reversed(tree[1][:-1]):
                    first = self.add(_Instruction("split", self.compiled(each, out), first))
                return first
            case _:
                return self._repeated(tree[1], tree[2], tree[3], out, lazy=tree[4])

    def _repeated(self, tree: Tree, least: int, most: int | None, out: int, *, lazy: bool) -> int:
        if most is None:
            loop = self.add(_Instruction("split"))
            inner = self.compiled(tree, loop)
            self._set_split(loop, inner, out, lazy=lazy)
            out = loop
        else:
            end = out
            for _ in range(most - least):
                inner = self.compiled(tree, out)
                out = self.add(_Instruction("split"))
                self._set_split(out, inner, end, lazy=lazy)
        for _ in range(least):
            out = self.compiled(tree, out)
        return out

    def _set_split(self, at: int, inner: int, end: int, *, lazy: bool) -> None:
        self.program[at].out, self.program[at].other = (end, inner) if lazy else (inner, end)


_State = tuple[tuple[int, ...], str]  # instructions, and what the last character was


def _kind(char: str) -> str:
    """Of a character beside an assertion: `` at an end of the text, a newline, of a word, or another."""
    if not char or char == "\n":
        return char
    return "w" if char.isascii() and (char.isalnum() or char == "_") else "o"


def _holds(name: str, before: str, after: str) -> bool:
    match name:
        case "start":
            return before == ""
        case "end":
            return after == ""
        case "line-start":
            return before in ("", "\n")
        case "line-end":
            return after in ("", "\n")
        case _:
            return ((before == "w") is not (after == "w")) is (name == "word")


class Regex:
    """One pattern. Instances keep the states they have found, so use `compiled`."""

    def __init__(self, pattern: str) -> None:
        compiler = _Compiler(pattern)
        self.pattern = pattern
        last = compiler.add(_Instruction("match"))
        self._start = compiler.compiled(parse(pattern), last)
        self._program = compiler.program
        self._edges: dict[_State, dict[str, _State | bool]] = {}
        self._edge_count = 0
        self._reached = 0  # instructions seen by the last closure

    def _closure(self, states: tuple[int, ...], before: str, after: str, seen: set[int]) -> list[int]:
        """Instructions that consume a character or match, in order of preference, without those `seen` already."""
        found: list[int] = []
        stack = list(reversed(states))
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self._program[at]
            if instruction.op == "split":
                stack += (instruction.other, instruction.out)
            elif instruction.op == "assert":
                if _holds(instruction.name, before, after):
                    stack.append(instruction.out)
            else:
                found.append(at)
        return found

    def _edge(self, state: _State, char: str) -> _State | bool:
        """From a state by one character (none: the end of the text); True: there is a match."""
        states, before = state
        after, following = _kind(char), [self._start]
        next_states: list[int] = []
        seen: set[int] = set()
        steps = self._closure(states, before, after, seen)
        self._reached = len(seen)
        for at in steps:
            instruction = self._program[at]
            if instruction.op == "match":
                return True
            assert instruction.chars is not None
            if char and instruction.chars.has(char):
                next_states.append(instruction.out)
        if not char:
            return False
        return tuple(dict.fromkeys(next_states + following)), after

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere."""
        state: _State = ((self._start,), "")
        steps = 0
        for char in text:
            edges = self._edges.get(state)
            if edges is None:
                edges = self._edges[state] = {}
            found = edges.get(char)
            if found is None:
                found = edges[char] = self._edge(state, char)
                self._edge_count += 1
                steps += self._reached
                if steps > MAX_STEPS:
                    raise RegexBudgetError(self.pattern)
                if len(self._edges) > _MAX_STATES or self._edge_count > _MAX_EDGES:
                    self._edges, self._edge_count = {}, 0
            if found is True:
                return True
            assert not isinstance(found, bool)
            state = found
        return self._edge(state, "") is True

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """The leftmost match from `start` on: where it begins and ends."""
        threads: list[tuple[int, int]] = []  # instruction, where its match began; by preference
        best: tuple[int, int] | None = None
        steps = 0
        for at in range(start, len(text) + 1):
            if best is None:
                threads.append((self._start, at))
            if not threads:
                break
            char = text[at] if at < len(text) else ""
            before, after = _kind(text[at - 1]) if at else "", _kind(char)
            following: list[tuple[int, int]] = []
            kept: set[int] = set()
            seen: set[int] = set()
            for thread, began in threads:
                is_cut = False
                for step in self._closure((thread,), before, after, seen):
                    instruction = self._program[step]
                    if instruction.op == "match":
                        best, is_cut = (began, at), True
                        break
                    assert instruction.chars is not None
                    if char and instruction.out not in kept and instruction.chars.has(char):
                        kept.add(instruction.out)
                        following.append((instruction.out, began))
                if is_cut:
                    break
            threads = following
            steps += len(seen)
            if steps > MAX_STEPS:
                raise RegexBudgetError(self.pattern)
        return best

    def find_all(self, text: str, most: int = -1) -> list[str]:
        """Successive matches that do not overlap; `most` below 0: all."""
        found: list[str] = []
        at, previous_end = 0, -1
        while at <= len(text) and (most < 0 or len(found) < most):
            match = self.find(text, at)
            if match is None:
                break
            begin, end = match
            if end > begin or begin != previous_end:  # no empty match right behind a match
                found.append(text[begin:end])
            previous_end = end
            at = end if end > at else at + 1
        return found


@lru_cache(256)
def compiled(pattern: str) -> Regex:
    """Raises RegexError."""
    return Regex(pattern)
