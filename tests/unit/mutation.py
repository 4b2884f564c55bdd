"""Manifests that no user would write: the bundled examples, changed at random, byte by byte and field by field.

A case is made from a seed and a number alone, so `case(7, 1234)` is the same bytes and the same words on every machine.
`fuzz` runs cases through `plimsoll explain` in this process and says which ones did anything but explain or refuse:
let an exception out, ended with another code than 0 or 2, took longer than a second or so, or printed a control code.
`tests/unit/test_fuzz.py` runs a few, `./dev prove fuzz` twenty thousand.
"""

from __future__ import annotations

import copy
import json
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.unit.console import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NODE = ("--capacity", "cpu=4,memory=8Gi")
CONTROL = "\x1b\x07\x00\x9b"
SLOW_SECONDS = 5.0  # of processor time, which doubles where others use the same core and its caches
HANG_SECONDS = 60
MOST_BYTES = 300_000  # a megabyte of brackets takes seconds in any reader: that is size, not a hang


class Case(NamedTuple):
    data: bytes
    words: tuple[str, ...]  # after `plimsoll`; {} stands for the file
    name: str  # of the mutation, for the counts


class Failure(NamedTuple):
    number: int
    case: Case
    why: str


class Outcome(NamedTuple):
    counts: Counter[str]
    failures: list[Failure]


# --- the corpus ---


def corpus() -> tuple[list[bytes], list[Any]]:
    """The examples as bytes, and every document in them as a value."""
    files = sorted(
        path for path in EXAMPLES.rglob("*") if path.suffix in (".yaml", ".json") and path.name != "expected.yaml"
    )
    texts = [path.read_bytes() for path in files]
    return texts, [document for text in texts for document in yaml.safe_load_all(text) if document is not None]


# --- bytes ---

TOKENS = [
    b"\0", b"\x1b[31m", b"\x07", b"\x85", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", "\u202e".encode(), "\u2028".encode(),
    b"\t", b"\r", b"\r\n", b"\n\n", b"---\n", b"--- x\n", b"...\n", b"%YAML 1.1\n", b"# ", b"&a ", b"*a", b"*b", b"<<: *a\n",
    b"<<: 5\n", b"!!binary ", b"!!int ", b"!!str ", b"!!null ", b"!x ", b"? ", b": ", b"- ", b", ", b"[", b"]", b"{", b"}",
    b"'", b'"', b"\\", b"\\u0000", b"\\x1b", b"\\ud800", b"|2\n", b">-\n", b"~", b"null", b".nan", b".inf", b"-.inf", b"yes",
    b"1e400", b"1e999999999", b"1e-999999999", b"9" * 40, b"9" * 5000, b"0" * 600 + b"x", b"0x" + b"f" * 40, b"0b", b"08",
    b"1_000", b"1.5Gi", b"-1", b"8Ei", b"1K", b"kind: List\nitems:\n- ", b"kind: Pod\n", b"kind: Deployment\n", b"a" * 2000,
]  # fmt: skip


def _bytes(rng: random.Random, texts: list[bytes]) -> bytes:
    data = bytearray(rng.choice(texts))
    for _ in range(rng.choice((1, 1, 2, 5))):
        here = rng.randrange(len(data) + 1)
        there = min(len(data), here + rng.choice((1, 2, 8, 40)))
        kind = rng.randrange(9)
        if kind == 0 and here < len(data):
            data[here] = rng.randrange(256)
        elif kind == 1:
            del data[here:there]
        elif kind == 2:
            data[here:here] = data[here:there] * rng.choice((1, 2, 50))
        elif kind == 3:
            data[here:here] = rng.choice(TOKENS)
        elif kind == 4:
            data[here:there] = rng.choice(TOKENS)
        elif kind == 5:
            lines = bytes(data).splitlines(keepends=True)
            rng.shuffle(lines)
            data = bytearray(b"".join(lines))
        elif kind == 6:
            other = rng.choice(texts)
            data[here:] = other[rng.randrange(len(other)) :]
        elif kind == 7:
            data = bytearray(bytes(data).replace(b"  ", rng.choice((b" ", b"\t", b"   "))))
        else:
            data = bytearray(data[:here])
    if rng.randrange(20) == 0:
        return bytes(data).decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32")))
    return bytes(data)


# --- fields ---

ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**300, 0.5, 1e300, -0.0, 5e-324, "", " ", "\0", "\x1b]0;x\x07",
    "1e400", "-1e400", "1e999999999999", "1e-400", "0" * 600 + "x", "1" * 2000 + "x", "9" * 999, "9" * 1001, "1Ki", "1K", "8Ei", "0.0001m", "+1", ".", "100m",
    "Always", "Never", "Guaranteed", "Pod", "List", "PodList", "system-node-critical", "a_b", "a/b", "../x", "x" * 300, "\u202e", "\ud800", "é",
    [], {}, [None], [[]], {"": None}, {"cpu": "1"}, {"limits": {"cpu": "1e400", "memory": "1e400"}}, {"requests": {"memory": "1"}, "limits": {"memory": "1e300"}},
    {"limits": {"hugepages-x": "1", "cpu": "1"}}, {"limits": {"hugepages-0": "1", "cpu": "1"}}, {"limits": {"hugepages-1n": "1", "cpu": "1"}}, {"limits": {"\x1b": "1"}},
    [{"name": "c"}] * 50, {"items": []}, 123456789012345678901234567890,
]  # fmt: skip
NAMES = ("cpu", "memory", "limits", "requests", "resources", "containers", "initContainers", "name", "uid", "kind", "items", "spec", "hugepages-2Mi", "overhead", "status", "qosClass", "priority", "restartPolicy", "metadata", "\x1b[31m", "x" * 1100, "")  # fmt: skip


def _places(value: Any) -> list[tuple[Any, ...]]:
    """Paths to everything inside that is not too deep."""
    found, waiting = [], [((), value)]
    while waiting:
        path, inner = waiting.pop()
        pairs = inner.items() if isinstance(inner, dict) else enumerate(inner[:20]) if isinstance(inner, list) else ()
        if len(path) < 30:
            waiting += [((*path, key), each) for key, each in pairs]
        if path:
            found.append(path)
    return found


def _fields(rng: random.Random, documents: list[Any]) -> bytes:
    value = json.loads(json.dumps(rng.choice(documents), default=str))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = _places(value)
        if not places:
            break
        path = rng.choice(places)
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        last, kind = path[-1], rng.randrange(7)
        if kind <= 2:
            holder[last] = copy.deepcopy(rng.choice(ODD_VALUES))
        elif kind == 3:
            del holder[last]
        elif kind == 4 and isinstance(holder, dict):
            holder[rng.choice(NAMES)] = holder[last]
        elif kind == 5 and isinstance(holder, list):
            holder.extend([holder[last]] * rng.choice((1, 3, 200)))
        else:
            holder[last] = _deep(holder[last], rng.choice((1, 3, 60, 600)), rng.choice(("list", "items", "spec")))
    if rng.randrange(8) == 0:
        value = _deep(value, rng.choice((1, 5, 700)), "items")
    return _dumped(rng, value)


def _deep(value: Any, depth: int, how: str) -> Any:
    for _ in range(depth):
        value = [value] if how == "list" else {"kind": "List", "items": [value]} if how == "items" else {"spec": value}
    return value


def _dumped(rng: random.Random, value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=rng.randrange(2) == 0, indent=rng.choice((None, 1)))
        if rng.randrange(2):
            text = "# YAML\n" + text  # then the same text is read as flow YAML
        elif rng.randrange(4) == 0:
            text = yaml.safe_dump(value, allow_unicode=True)
    except (RecursionError, ValueError, yaml.YAMLError):
        text = "[" * 600 + "]" * 600
    return text.encode("utf-8", "surrogatepass")


# --- shapes ---


def _bomb(rng: random.Random, _: Any) -> bytes:
    width, levels = rng.randint(2, 12), rng.randint(2, 9)
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    merged = rng.choice(("", "<<: *a0\n", "spec: *a1\n", "kind: Pod\nmetadata: {name: p}\n"))
    return ("\n".join(lines) + "\n" + merged).encode()


def _bottomless(rng: random.Random, _: Any) -> bytes:
    depth = rng.choice((50, 500, 1500, 9000, 11000))
    opening, closing = rng.choice((("[", "]"), ("{a: ", "}"), ('{"a":', "}"), ("- ", ""), ("? ", ""), ("&a [", "]")))
    lead = rng.choice(("", "kind: Pod\nmetadata: ", "kind: Pod\nmetadata: {name: p}\nspec: ", "# x\n"))
    middle = "1" if closing == "}" else ""
    return (lead + opening * depth + middle + closing * depth + "\n").encode()


def _listed(rng: random.Random, _: Any) -> bytes:
    depth = rng.choice((5, 100, 400, 2000))
    return ('{"kind": "List", "items": [' * depth + '{"kind": "Pod"}' + "]}" * depth).encode()


def _many(rng: random.Random, texts: list[bytes]) -> bytes:
    separator = rng.choice((b"\n---\n", b"\n", b"\n...\n", b"\n---\n---\n"))
    return separator.join(rng.choice(texts) for _ in range(rng.choice((2, 10, 40))))


def _twice(rng: random.Random, _: Any) -> bytes:
    key = rng.choice(("cpu", "name", "kind", "spec", "1", "yes"))
    lines = [f"{key}: {rng.randrange(9)}" for _ in range(rng.choice((2, 5, 3000)))]
    return (
        "kind: Pod\nmetadata: {name: p, name: q}\nspec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1, cpu: 2}}}]}\n"
        + "\n".join(lines)
    ).encode()


def _numbers(rng: random.Random, _: Any) -> bytes:
    number = rng.choice(("1e400", '"1e400"', "1e-400", "9" * 400, '"' + "9" * 400 + '"', "1e99999999999999999999", '"1e99999999999999999999"', "-0", "0x" + "F" * 300, ".5", "+1", "1_0", "0o7", "!!float 1", '"8Ei"', '"9Ei"'))  # fmt: skip
    place = rng.choice(("limits", "requests"))
    name = rng.choice(("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "x.y/z"))
    return f"kind: Pod\nmetadata: {{name: p}}\nspec: {{priority: {rng.choice(('1', number))}, containers: [{{name: c, image: i, resources: {{{place}: {{{name}: {number}, cpu: 1}}}}}}]}}\n".encode()


def _noise(rng: random.Random, _: Any) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 20, 2000)))


# mutation, how often, and whether it wants the examples as bytes or as values
_MUTATIONS: list[tuple[Callable[[random.Random, Any], bytes], int, str]] = [
    (_bytes, 40, "texts"),
    (_fields, 40, "documents"),
    (_bomb, 3, "texts"),
    (_bottomless, 4, "texts"),
    (_listed, 2, "texts"),
    (_many, 3, "texts"),
    (_twice, 2, "texts"),
    (_numbers, 4, "texts"),
    (_noise, 2, "texts"),
]
_WORDS = [
    *[("explain", "{}", *NODE)] * 8,
    ("explain", "{}", *NODE, "--advise", "--profile", "1.36"),
    ("explain", "{}", *NODE, "-o", "json", "--feature-gates", "MemoryQoS=true"),
    ("explain", "{}", *NODE, "-o", "yaml", "--cgroup", "v1"),
    ("explain", "{}", *NODE, "-o", "sh", "--driver", "systemd"),
    ("explain", "{}", *NODE, "-o", "table", "--runtime", "crio"),
    ("explain", "{}", *NODE, "--diff", "documents,1.36"),
    ("plan", "{}", *NODE),
]
_NODE_WORDS = [
    ("explain", str(EXAMPLES / "burstable.yaml"), "--config", "{}", *NODE),
    ("explain", str(EXAMPLES / "burstable.yaml"), "--node", "{}"),
]

_CORPUS: dict[str, Any] = {}


def case(seed: int, number: int) -> Case:
    if not _CORPUS:
        _CORPUS["texts"], _CORPUS["documents"] = corpus()
    rng = random.Random(f"{seed}/{number}")
    mutation, _, wants = rng.choices(_MUTATIONS, [weight for _, weight, _ in _MUTATIONS])[0]
    words = rng.choice(_NODE_WORDS if rng.randrange(12) == 0 else _WORDS)
    return Case(mutation(rng, _CORPUS[wants])[:MOST_BYTES], words, mutation.__name__.strip("_"))


# --- the run ---


class _Hangs(BaseException):
    """Not an Exception: nothing on the way may take it for one of its own."""


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wrong_with(each: Case, file: Path) -> tuple[str, str]:
    """What is wrong with the answer (empty for nothing), and in one word what the answer was."""
    file.write_bytes(each.data)
    words = [str(file) if word == "{}" else word for word in each.words]
    started = time.process_time()
    try:
        with _alarm(HANG_SECONDS):
            ran = run(*words)
    except _Hangs:
        return f"hangs: more than {HANG_SECONDS} s", "hangs"
    except Exception as error:  # noqa: BLE001 - any exception at all is the finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = next((f for f in reversed(traceback.extract_tb(error.__traceback__)) if "plimsoll" in f.filename), last)
        return f"{type(error).__name__} at {Path(place.filename).name}:{place.name}: {str(error)[:100]}", "exception"
    seconds = time.process_time() - started
    if ran.code not in (0, 2):
        return f"exit code {ran.code}: {ran.err[:200]!r}", "code"
    if "Traceback" in ran.err:
        return f"a traceback: {ran.err[-200:]!r}", "traceback"
    if seconds > SLOW_SECONDS:
        return f"slow: {seconds:.1f} s", "slow"
    if ran.code == 2 and not ran.err:
        return "refused without a word", "silent"
    shown = ran.err if "json" in words or "sh" in words or words[0] == "plan" else ran.out + ran.err
    if found := [character for character in CONTROL if character in shown]:
        return f"control character {found[0]!r} printed", "control"
    return "", "explained" if ran.code == 0 else "refused"


def fuzz(seed: int, cases: int, directory: Path, *, stop_after: int = 20) -> Outcome:
    """`cases` cases; stops early once there are enough failures."""
    outcome = Outcome(Counter(), [])
    file = directory / "case.yaml"
    for number in range(cases):
        each = case(seed, number)
        why, word = wrong_with(each, file)
        outcome.counts.update(("cases", word, f"mutation {each.name}"))
        if why:
            outcome.failures.append(Failure(number, each, why))
            if len(outcome.failures) >= stop_after:
                break
    return outcome


def report(seed: int, failures: list[Failure]) -> str:
    """One paragraph per kind of failure: how to see it again, with the smallest input that did it."""
    kinds: dict[str, list[Failure]] = {}
    for failure in failures:
        kinds.setdefault(failure.why.partition(":")[0], []).append(failure)
    lines = []
    for found in kinds.values():
        least = min(found, key=lambda failure: len(failure.case.data))
        data = least.case.data if len(least.case.data) <= 300 else least.case.data[:300] + b"..."
        lines.append(
            f"{len(found)} × {least.why}\n  case({seed}, {least.number}) {least.case.name}: plimsoll {' '.join(least.case.words)}\n  {data!r}"
        )
    return "\n".join(lines)
