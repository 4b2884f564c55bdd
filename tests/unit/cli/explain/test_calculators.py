"""`plimsoll explain qos|oom|memory-high|allocatable|weight`: the numbers of the specification."""

from __future__ import annotations

import re

import pytest

from tests.unit.console import run
from tests.unit.formulas import steps, value_of

SEED = [
    "--capacity",
    "cpu=48,memory=263192560Ki",
    "--system-reserved",
    "cpu=2,memory=4Gi",
    "--eviction-hard",
    "memory.available<500Mi",
]

# arguments of `plimsoll explain`, the first word of the output, and a part of the rest
ROWS = [
    ("01 §5 Guaranteed by limits", ["qos", "--limit", "cpu=10m,memory=1Gi"], "Guaranteed", "requests equal them"),
    ("01 §5 Burstable", ["qos", "--request", "cpu=1,memory=1Gi"], "Burstable", "no cpu and no memory limit"),
    ("01 §5 cpu only", ["qos", "--request", "cpu=1", "--limit", "cpu=1"], "Burstable", "no memory limit"),
    ("01 §5 BestEffort", ["qos"], "BestEffort", "no container"),
    ("01 §5 a device", ["qos", "--limit", "nvidia.com/gpu=1"], "BestEffort", ""),
    ("01 §7 1Gi of 8Gi", ["oom", "--request", "1Gi", "--capacity", "8Gi"], "875", "= 875"),
    ("01 §7 251Gi of the seed's node", ["oom", "--request", "251Gi", "--capacity", "263192560Ki"], "3", "3"),
    ("01 §7 nothing", ["oom", "--capacity", "8Gi"], "999", "999"),
    ("02 §6.1 1Gi / 2Gi", ["memory-high", "--request", "1Gi", "--limit", "2Gi"], "2040107008", "= 2040107008"),
    ("02 §6.1 300Mi / 400Mi", ["memory-high", "--request", "300Mi", "--limit", "400Mi"], "408944640", "390.0 MiB"),
    ("02 §6.1 0 / 400Mi", ["memory-high", "--limit", "400Mi"], "377487360", ""),
    ("02 §6.1 equal", ["memory-high", "--request", "64Mi", "--limit", "64Mi"], "not", "equals the limit"),
    ("02 §6.1 300Mi / none", ["memory-high", "--request", "300Mi", "--allocatable", "265214214144"], "238724247552", ""),
    ("02 §6.1 none / none, as documented", ["memory-high", "--allocatable", "265214214144"], "238692790272", "real 1.27 did not"),
    ("02 §6.1 none / none, 1.36", ["memory-high", "--allocatable", "265214214144", "--profile", "1.36"], "not", ""),
    ("02 §6.1 no limit and no node", ["memory-high", "--request", "1Gi"], "not", "--allocatable"),
    ("02 §6.1 none / none and no node, as documented", ["memory-high"], "not", "--allocatable"),
    ("02 §6.1 factor 0.8", ["memory-high", "--request", "1Gi", "--limit", "2Gi", "--factor", "0.8"], str(int((2**30 * 1.8) // 4096 * 4096)), ""),
    ("02 §6.1 1.22", ["memory-high", "--request", "300Mi", "--limit", "400Mi", "--formula", "1.22"], "335544320",
     "throttled 20.0 MiB above the request, 80.0 MiB below the limit\nsince 1.27, factor 0.9: 408944640  390.0 MiB"),
    ("02 §6.1 1.22, close to the limit", ["memory-high", "--request", "350Mi", "--limit", "400Mi", "--formula", "1.22"],
     "not", "⌊419430400 · 0.8⌋ = 335544320\nnot larger than the request: the container is never throttled before its limit\n"
     "since 1.27, factor 0.9: 414187520  395.0 MiB"),
    ("02 §6.1 1.22, early", ["memory-high", "--request", "500Mi", "--limit", "1000Mi", "--formula", "1.22", "--factor", "0.6"],
     "629145600", "throttled 100.0 MiB above the request, 400.0 MiB below the limit"),
    ("02 §6.1 1.22, no limit", ["memory-high", "--allocatable", "265214214144", "--formula", "1.22"], "212171371315", "below the allocatable"),
    ("02 §6.1 1.22, no limit and no node", ["memory-high", "--formula", "1.22"], "not", "--allocatable"),
    ("02 §6.1 1.37 has no factor", ["memory-high", "--request", "64Mi", "--limit", "128Mi", "--profile", "1.37"], "127504384",
     "note: memoryThrottlingFactor has no default here, 0.9 is assumed; a node writes this value only if it is set"),
    ("02 §4.2 250m", ["weight", "250m"], "0.25", "256"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "answer", "text"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_calculator(words: list[str], answer: str, text: str) -> None:
    ran = run("explain", *words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split()[0] == answer
    assert text in ran.out


def test_a_factor_that_is_given_is_not_assumed() -> None:
    ran = run("explain", "memory-high", "--request", "64Mi", "--limit", "128Mi", "--profile", "1.37", "--factor", "0.9")
    assert (ran.out.split()[0], "note:" in ran.out) == ("127504384", False)


WEIGHTS = [
    ("0", 2, 1, 1, 0),
    ("1m", 2, 1, 1, 1000),
    ("250m", 256, 10, 35, 25000),
    ("46", 47104, 1797, 2284, 4600000),
    ("256", 262144, 10000, 10000, 25600000),
]


@pytest.mark.parametrize(
    ("cpu", "shares", "linear", "quadratic", "quota"), WEIGHTS, ids=[f"02 §4.2 {row[0]}" for row in WEIGHTS]
)
def test_weight(cpu: str, shares: int, linear: int, quadratic: int, quota: int) -> None:
    lines = run("explain", "weight", cpu).out.splitlines()[1:]
    figures = [int(re.match(r"(?:cpu\.shares|cpu\.weight \(\w+\)|quota µs)\s+(\d+)", line)[1]) for line in lines]
    assert figures == [shares, linear, quadratic, quota]
    for line in lines:
        for step in steps(re.split(r"\d  ", line, maxsplit=1)[-1].partition("  ←")[0]):
            assert value_of(step.expression, doubles=True) == value_of(step.result, doubles=True), line


def test_weight_with_another_period() -> None:
    assert "⌊500 · 50000 / 1000⌋ = 25000" in run("explain", "weight", "500m", "--period", "50000").out


def test_allocatable() -> None:
    """01 §10.5."""
    ran = run("explain", "allocatable", *SEED)
    assert ran.code == 0
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in ran.out.splitlines()[1:])
    assert lines["cpu"] == "48 − 2 = 46"
    assert lines["memory"] == "263192560Ki − 4Gi − 500Mi = 258486256Ki"
    assert lines["pods"] == "110"
    assert lines["kubepods memory"].startswith("265214214144 ")


WRONG = [
    ("qos: no amount", ["qos", "--request", "cpu"], "is not name=amount"),
    ("qos: no quantity", ["qos", "--request", "cpu=x"], "quantities must match"),
    ("qos: negative", ["qos", "--request", "cpu=-1"], "greater than or equal to 0"),
    ("oom: no capacity", ["oom", "--request", "1Gi"], "--capacity"),
    ("oom: a node without memory", ["oom", "--capacity", "0"], "--capacity"),
    ("memory-high: factor 0", ["memory-high", "--factor", "0"], "--factor"),
    ("V-8 memory-high", ["memory-high", "--request", "2Gi", "--limit", "1Gi"], "must be less than or equal to the limit of 1Gi"),
    ("memory-high: factor above 1", ["memory-high", "--factor", "1.5"], "--factor"),
    ("memory-high: page size 0", ["memory-high", "--request", "1Gi", "--limit", "2Gi", "--page-size", "0"], "--page-size"),
    ("memory-high: negative page size", ["memory-high", "--request", "1Gi", "--limit", "2Gi", "--page-size", "-4096"], "--page-size"),
    ("weight: nothing", ["weight"], "CPU"),
    ("weight: no quantity", ["weight", "much"], "quantities must match"),
    ("weight: a period the kernel refuses", ["weight", "1", "--period", "10"], "--period"),
    ("allocatable: negative memory", ["allocatable", "--capacity", "cpu=4,memory=-8Gi"], "memory"),
    ("allocatable: negative cpu", ["allocatable", "--capacity", "cpu=-4,memory=8Gi"], "cpu"),
    ("allocatable: no memory", ["allocatable", "--capacity", "cpu=4"], "memory"),
    ("allocatable: no amount", ["allocatable", "--capacity", "cpu"], "is not name=amount"),
    ("allocatable: no quantity", ["allocatable", "--capacity", "cpu=4,memory=lots"], "quantities must match"),
    ("allocatable: two machines", ["allocatable", "--capacity", "cpu=4,memory=8Gi", "--node", "x.yaml"], "exclude each other"),
    ("allocatable: reserved more than there is", ["allocatable", "--capacity", "cpu=1,memory=1Gi", "--system-reserved", "cpu=2"], "invalid Node Allocatable configuration"),
    ("allocatable: an invalid huge page size", ["allocatable", "--capacity", "cpu=1,memory=1Gi,hugepages-x=1"], "hugepages-x"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_invalid_arguments(words: list[str], text: str) -> None:
    ran = run("explain", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.out == ""


GIANTS = [
    ("weight", ["weight", "1e400"]),
    ("oom", ["oom", "--request", "1e400", "--capacity", "8Gi"]),
    ("oom capacity", ["oom", "--request", "1", "--capacity", "1e400"]),
    ("memory-high", ["memory-high", "--request", "1", "--limit", "1e400"]),
    ("memory-high, both", ["memory-high", "--request", "1e399", "--limit", "1e400"]),
    ("allocatable", ["allocatable", "--capacity", "cpu=4,memory=1e400"]),
    ("allocatable cpu", ["allocatable", "--capacity", "cpu=1e400,memory=8Gi"]),
    ("qos", ["qos", "--limit", "cpu=1e400,memory=1e400"]),
    ("quota of a long number", ["weight", "9" * 999]),
]


@pytest.mark.parametrize("words", [row[1] for row in GIANTS], ids=[row[0] for row in GIANTS])
def test_huge_amounts_are_computed_or_rejected(words: list[str]) -> None:
    ran = run("explain", *words)
    assert ran.code in (0, 2)
    assert "Traceback" not in ran.err


def test_control_characters_are_escaped() -> None:
    name = "x\x1b]0;owned\x07"
    ran = run("explain", "allocatable", "--capacity", f"cpu=4,memory=8Gi,{name}=1")
    assert "\x1b" not in ran.out + ran.err
    assert "\x07" not in ran.out + ran.err
    ran = run("explain", "qos", "--request", f"{name}=z")
    assert "\x1b" not in ran.out + ran.err
