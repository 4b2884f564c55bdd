"""The two forms of `plimsoll attach`, and `detach`: what is refused, and what is printed."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from plimsoll.attach.report import AboveHigh, AttachStatus, Change
from plimsoll.attach.writer import Restored
from plimsoll.cli.attach.output import restored_lines, status_lines
from tests.unit.console import run

NODE = ("attach", "--mode", "observe", "--pods", "/nowhere")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("attach",), "name a pod (plimsoll attach POD), or attach to this node"),
        (("attach", "web", "--mode", "observe"), "POD and --mode are two forms"),
        (("attach", "web", "--status"), "POD and --mode are two forms"),
        (("attach", "--mode", "all"), "--mode"),
        ((*NODE, "-i"), "-c, -i and -t are about a pod"),
        (("attach", "--mode", "enforce", "--once"), "use it with --mode observe"),
        (("attach", "--mode", "canary"), "needs --canary NAMESPACE or --canary-label KEY=VALUE"),
        ((*NODE, "--canary", "shop"), "need --mode canary"),
        ((*NODE, "--pods-socket", "s"), "two sources of pods"),
        (("attach", "--mode", "canary", "--canary-label", "team"), "expected KEY=VALUE"),
        (("attach", "--mode", "canary", "--canary-label", "a=b", "--pods", "p"), "needs the API server"),
        ((*NODE, "--nri-index", "9"), "expected two digits"),
        ((*NODE, "--policy", "/no/such/file"), "the policy /no/such/file cannot be read"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], says: str) -> None:
    ran = run(*words)
    assert ran.code == 2 and says in ran.err, ran


def test_an_invalid_policy_is_refused_before_anything_else(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("memoryQoS: most\nceilings: {memoryMin: -1}\n")
    ran = run(*NODE, "--policy", str(file))
    assert ran.code == 2
    assert 'memoryQoS: Unsupported value: "most"' in ran.err and "ceilings.memoryMin: Invalid value: -1" in ran.err


def test_status_and_detach_without_an_attach(tmp_path: Path) -> None:
    ran = run("attach", "--status", "--state-dir", str(tmp_path / "none"))
    assert ran.code == 2 and "no attach has run here" in ran.err
    ran = run("detach", "--state-dir", str(tmp_path / "none"))
    assert (ran.code, ran.out) == (0, "nothing to restore\n") and "does not exist" in ran.err


def test_the_last_status(tmp_path: Path) -> None:
    status = AttachStatus("enforce", 1, "n1", "containerd v2.1.9", False, True, time.time(), pods=3, files=7)
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status))
    ran = run("attach", "--status", "--state-dir", str(tmp_path))
    assert ran.code == 1 and "no attach runs now" in ran.out and "containerd v2.1.9 (not connected), 3 pods" in ran.out
    assert msgspec.json.decode(run("attach", "--status", "-o", "json", "--state-dir", str(tmp_path)).out)["files"] == 7


def test_the_table_of_what_would_be_written() -> None:
    change = Change("pod", "shop/\x1b[31mweb", "/kubepods/pod1", "memory.low", "0", "4096")
    status = AttachStatus(
        "observe", 1, "n1", "", False, True, time.time(), pending=(change,), above_high=(AboveHigh("a / b", 40.0, "1"),)
    )
    lines = list(status_lines(status))
    assert "a / b: would have been above memory.high (1) for 40 s" in lines
    assert lines[-2].split() == ["LEVEL", "SUBJECT", "FILE", "HAS", "POLICY"]
    assert "memory.low" in lines[-1] and "\x1b" not in lines[-1]  # a name cannot colour the terminal


def test_the_result_of_detach() -> None:
    done = [
        Restored("/a", "memory.low", "0", "restored"),
        Restored("/b", "memory.low", "0", "changed by another", "it has another value"),
        Restored("/c", "memory.low", "0", "failed", "EBUSY"),
    ]
    assert list(restored_lines(done, dry_run=False)) == [
        "/b/memory.low: changed by another: it has another value",
        "/c/memory.low: failed: EBUSY",
        "1 restored, 1 changed by another program, left as they are, 1 could not be restored",
    ]
    assert "/a/memory.low: would be 0 again" in list(restored_lines(done, dry_run=True))
