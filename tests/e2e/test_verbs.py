"""The verbs for people without kubectl, against a real API server with a fake node."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.terminal import display_width
from tests.e2e.fake_cluster import NODE, FakeCluster
from tests.e2e.manifests import container, guaranteed, pod, together
from tests.e2e.verbs import Verbs, namespace
from tests.e2e.waiting import until
from tests.unit.console import run

_NUMBER = itertools.count(1)

pytestmark = [
    pytest.mark.parametrize("cluster", ["documents"], indirect=True),
    pytest.mark.xdist_group("verbs documents"),
]


@pytest.fixture
def verbs(cluster: FakeCluster) -> Iterator[Verbs]:
    made = Verbs(cluster, f"verbs-{next(_NUMBER)}")
    made("apply", "-f", "-", stdin=json.dumps(namespace(made.namespace)))
    yield made
    made("delete", f"namespace/{made.namespace}", "--no-wait")


def test_apply_says_what_it_did(verbs: Verbs, tmp_path: Path) -> None:
    assert verbs.apply(pod("web"), pod("api")) == "pod/web created\npod/api created\n"
    assert verbs.apply(pod("web")) == "pod/web unchanged\n"
    assert verbs.apply(pod("web", labels={"app": "web"})) == "pod/web configured\n"
    assert verbs("apply", "-f", "-", "--dry-run", stdin=pod("no")) == "pod/no created (server dry run)\n"
    assert verbs.ran("get", "pod", "no").code == 1
    (tmp_path / "a.yaml").write_text(pod("from-file"))
    assert verbs("apply", "-f", str(tmp_path)) == "pod/from-file created\n"


def test_apply_refused(verbs: Verbs) -> None:
    """One is refused, the others are done, and the exit code shows it."""
    bad = pod("bad", container("c", cpu="2", limits={"cpu": "1"}))
    ran = verbs.ran("apply", "-f", "-", stdin=together(bad, pod("good")))
    assert (ran.code, ran.out) == (1, "pod/good created\n")
    assert "must be less than or equal to cpu limit" in ran.err
    ran = verbs.ran("apply", "-f", "-", stdin=json.dumps({**namespace("x"), "kind": "Nothing"}))
    assert "the server doesn't have a kind 'Nothing' in 'v1'" in ran.err
    elsewhere = json.loads(pod("web"))
    elsewhere["metadata"]["namespace"] = "other"
    ran = verbs.ran("apply", "-f", "-", stdin=json.dumps(elsewhere))
    assert (ran.code, "has namespace other" in ran.err) == (2, True)


def test_get(verbs: Verbs) -> None:
    assert f"No resources found in {verbs.namespace} namespace." in verbs.ran("get", "pods").err
    verbs.apply(pod("web", labels={"app": "web"}), pod("api", labels={"app": "api"}))
    verbs.running("web")
    verbs.running("api")
    lines = verbs("get", "pods").splitlines()
    assert lines[0] == "NAME   READY   STATUS    RESTARTS   AGE"
    assert re.fullmatch(r"api    1/1     Running   0          \d+s", lines[1])
    assert verbs("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert verbs("get", "po", "web", "-o", "name") == "pod/web\n"
    assert verbs("get", "pod/web", "node/n1", "-o", "name") == "pod/web\nnode/n1\n"
    assert verbs("get", "pods", "-o", "wide").splitlines()[0].endswith("NODE   NOMINATED NODE   READINESS GATES")
    everywhere = verbs("get", "pods", "-A").splitlines()
    assert everywhere[0].startswith("NAMESPACE")
    assert any(line.split()[:2] == [verbs.namespace, "web"] for line in everywhere)
    both = verbs("get", "pods,nodes")
    assert "pod/web" in both
    assert "\n\nNAME" in both
    one = json.loads(verbs("get", "pod", "web", "-o", "json"))
    assert (one["metadata"]["name"], "managedFields" in one["metadata"]) == ("web", False)
    listed = json.loads(verbs("get", "pods", "-o", "json"))
    assert [(each["kind"], each["metadata"]["name"]) for each in listed["items"]] == [("Pod", "api"), ("Pod", "web")]
    assert "name: web\n" in verbs("get", "pod", "web", "-o", "yaml")
    ran = verbs.ran("get", "pads")
    assert (ran.code, ran.err) == (1, 'error: the server doesn\'t have a resource type "pads"; did you mean pods?\n')
    ran = verbs.ran("get", "pod", "missing")
    assert (ran.code, ran.err) == (1, 'Error from server (NotFound): pods "missing" not found\n')


def test_get_watch(verbs: Verbs) -> None:
    verbs.apply(pod("web"))
    verbs.running("web")
    command = [str(Path(sys.executable).with_name("plimsoll")), *verbs.words("get", "pods", "-w")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().split()[0] == "NAME"
            assert process.stdout.readline().split()[0] == "web"
            verbs.apply(pod("new"))
            assert process.stdout.readline().split()[0] == "new"
        finally:
            process.terminate()


def test_describe(verbs: Verbs) -> None:
    verbs.apply(pod("web", guaranteed("app", "500m", "64Mi"), labels={"app": "web"}))
    verbs.running("web")
    text = verbs("describe", "pod", "web")
    for line in (
        "Name:              web",
        "QoS Class:         Guaranteed",
        "Requests:          0.5 CPU, 64.0 MiB",
        "    Allocated:     cpu 500m, memory 64Mi",
        "Labels:            app=web",
    ):
        assert line in text.splitlines(), text
    assert re.search(r"Normal +Scheduled +\d+s +default-scheduler +Successfully assigned", text)
    node = verbs("describe", "node/n1")
    assert re.search(rf"{verbs.namespace}/web +Guaranteed +0.5 CPU \(3 %\)", node)
    assert re.search(r"(?m)^  Ready +True +KubeletReady", node)
    assert f"name: {verbs.namespace}" in verbs("describe", "namespaces") or verbs.namespace in verbs("describe", "ns")


def test_delete(verbs: Verbs) -> None:
    verbs.apply(pod("web", labels={"app": "web"}), pod("api", labels={"app": "api"}))
    verbs.running("web")
    where = f"from {verbs.namespace} namespace"
    assert verbs("delete", "pod", "web") == f'pod "web" deleted {where}\n'
    assert verbs.ran("get", "pod", "web").code == 1
    assert verbs("delete", "pods", "-l", "app=api", "--grace-period", "0") == f'pod "api" deleted {where}\n'
    ran = verbs.ran("delete", "pod", "web")
    assert (ran.code, "not found" in ran.err) == (1, True)
    assert verbs("delete", "pod", "web", "--ignore-not-found") == ""
    assert "-l LABELS or --all" in verbs.ran("delete", "pods").err
    verbs.apply(pod("web"))
    assert verbs("delete", "-f", "-", stdin=pod("web")) == f'pod "web" deleted {where}\n'


def test_delete_before_the_node_has_seen_the_pod(verbs: Verbs) -> None:
    os.kill(verbs.cluster.node_pid, signal.SIGSTOP)
    try:
        verbs.apply(pod("web"))
        until(lambda: NODE in verbs("get", "pod", "web", "-o", "wide", "--no-headers"))
        verbs("delete", "pod", "web", "--no-wait")
    finally:
        os.kill(verbs.cluster.node_pid, signal.SIGCONT)
    until(lambda: verbs.ran("get", "pod", "web").code == 1)
    verbs.apply(pod("web"))
    verbs.running("web")


def test_logs(verbs: Verbs) -> None:
    verbs.apply(pod("web"))
    verbs.running("web")
    assert verbs("logs", "web") == "web started, attempt 0\n"
    verbs("exec", "web", "--", "log", "evil \x1b[2J\tend")
    assert verbs("logs", "pod/web", "--tail", "1") == "evil \x1b[2J\tend\n"
    assert verbs("logs", "web", "--tail", "1", terminal=True) == "evil \\x1b[2J\tend\n"
    assert verbs("logs", "web", "--tail", "1", "--raw", terminal=True) == "evil \x1b[2J\tend\n"
    assert re.match(r"\d{4}-\d\d-\d\dT\S+Z web started", verbs("logs", "web", "--timestamps"))
    assert "previous terminated container" in verbs.ran("logs", "web", "--previous").err
    verbs("exec", "web", "--", "kill", "1")
    until(lambda: verbs.ran("logs", "web", "-p").out.startswith("web started, attempt 0\n"))
    assert "container missing is not valid" in verbs.ran("logs", "web", "-c", "missing").err


def test_logs_follow(verbs: Verbs) -> None:
    verbs.apply(pod("web"))
    verbs.running("web")
    command = [str(Path(sys.executable).with_name("plimsoll")), *verbs.words("logs", "web", "-f")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "web started, attempt 0\n"
            verbs("exec", "web", "--", "log", "more")
            assert process.stdout.readline() == "more\n"
        finally:
            process.terminate()


EXECS = [
    ("output", ["web", "--", "echo", "hello", "there"], "", 0, "hello there\n", ""),
    ("without dashes", ["web", "echo", "-n", "x"], "", 0, "-n x\n", ""),
    ("an exit code", ["web", "--", "sh", "-c", "exit 7"], "", 7, "", ""),
    ("stderr", ["web", "--", "nothing"], "", 127, "", "sh: nothing: not found\n"),
    ("input", ["-i", "web", "--", "cat"], "in\n", 0, "in\n", ""),
    ("no such container", ["-c", "x", "web", "--", "true"], "", 1, "", "container x is not valid for pod web"),
    ("no such pod", ["gone", "--", "true"], "", 1, "", '"gone" not found'),
]


def test_exec(verbs: Verbs) -> None:
    verbs.apply(pod("web"))
    verbs.running("web")
    for name, words, stdin, code, out, err in EXECS:
        ran = verbs.ran("exec", *words, stdin=stdin)
        assert (ran.code, ran.out) == (code, out), name
        assert err in ran.err, name


def test_exec_on_a_terminal(verbs: Verbs) -> None:
    """The far side learns the size of ours, and ours is put back."""
    verbs.apply(pod("web"))
    verbs.running("web")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    before = termios.tcgetattr(theirs)
    command = [
        str(Path(sys.executable).with_name("plimsoll")),
        *verbs.words("exec", "-it", "web", "--", "stty", "size"),
    ]
    said: list[bytes] = []

    def read() -> None:
        while data := _read(ours):
            said.append(data)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        assert process.wait(60) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    reader.join(60)
    os.close(ours)
    assert b"33 77" in b"".join(said)


def _read(number: int) -> bytes:
    try:
        return os.read(number, 4096)
    except OSError:  # the other end is closed
        return b""


def test_events(verbs: Verbs) -> None:
    assert "No events found" in verbs.ran("events").err
    verbs.apply(pod("web"), pod("api"))
    verbs.running("web")
    verbs.running("api")
    lines = until(lambda: verbs("events").splitlines())
    assert lines[0] == "LAST SEEN   TYPE     REASON      OBJECT    MESSAGE"
    only = verbs("events", "--for", "pod/web").splitlines()
    assert len(only) == 2
    assert re.fullmatch(r"\d+s +Normal +Scheduled +pod/web +Successfully assigned \S+/web to n1", only[1])
    assert verbs.ran("events", "--types", "Warning").out == ""
    assert verbs("events", "-A").startswith("NAMESPACE")
    assert {each["reason"] for each in json.loads(verbs("events", "-o", "json"))["items"]} == {"Scheduled"}


def test_what_the_node_reports(verbs: Verbs) -> None:
    assert "memory.available  1.0 GiB    32.0 GiB  100.0 MiB  hard   924.0 MiB" in verbs("pressure")
    assert json.loads(verbs("pressure", "n1", "-o", "json"))["signals"][0]["available"] == "1Gi"
    ran = run("oom", "--kubeconfig", str(verbs.cluster.kubeconfig))
    assert (ran.out.count("was killed by the kernel"), ran.code) == (2, 0)
    ran = run("oom", "web", "--kubeconfig", str(verbs.cluster.kubeconfig))
    assert ran.out.count("was killed by the kernel: out of memory at the container's memory limit (256Mi)") == 1
    assert verbs("oom") == "No OOM kills found.\n"
    ran = verbs.ran("oom", "nosuch")
    assert (ran.code, ran.out, ran.err) == (1, "", 'Error from server (NotFound): pods "nosuch" not found\n')
    assert run("oom", "nosuch", "--kubeconfig", str(verbs.cluster.kubeconfig)).code == 1
    assert 'nodes "n9" not found' in verbs.ran("pressure", "n9").err
    assert 'nodes "n9" not found' in verbs.ran("oom", "--on", "n9").err
    assert verbs.ran("oom", "--on", "node/n1").code == 0


def test_live_eviction_order(verbs: Verbs) -> None:
    verbs.apply(pod("best", {"name": "c", "image": "i"}), pod("web", guaranteed("c", "100m", "64Mi")))
    verbs.running("best")
    verbs.running("web")

    def known() -> list[dict[str, Any]]:
        """Once metrics have been taken of both."""
        words = ["--kubeconfig", str(verbs.cluster.kubeconfig), "-o", "json"]
        found = json.loads(run("explain", "eviction-order", *words).out)
        mine = [each for each in found["decision"]["order"] if each["namespace"] == verbs.namespace]
        return mine if all(each["hasUsage"] for each in mine) else []

    order = until(known)
    assert [(each["name"], each["exceeds"]) for each in order] == [("best", True), ("web", False)]
    asked = ["explain", "eviction-order", "--available", "1Gi", "--kubeconfig", str(verbs.cluster.kubeconfig)]
    ran = run(*asked)
    assert "memory.available: 1Gi available, soft threshold 2Gi: met" in ran.out  # the node's own
    assert "note" not in ran.out
    ran = run(*asked, "--eviction-hard", "memory.available<500Mi")
    assert "hard threshold 500Mi: not met" in ran.out
    assert "the thresholds come from the options" in ran.out


NARROW = [
    ["get", "pods", "-o", "wide", "--show-labels"],
    ["get", "pods,nodes", "-o", "wide"],
    ["get", "pods", "-A"],
    ["describe", "pods"],
    ["describe", "node", "n1"],
    ["events", "-A"],
    ["pressure"],
    ["oom", "-n", ""],
]


def test_output_fits_a_terminal(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns; full width in a pipe."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    names = [f"a-rather-long-name-of-a-deployment-7d4b9c6f5-{index}" for index in range(3)]
    verbs.apply(*(pod(name, labels={"app": name, "example.com/some-label": "some-value"}) for name in names))
    for name in names:
        verbs.running(name)
    until(lambda: "Scheduled" in verbs("events"))
    for words in NARROW:
        text = verbs(*words, terminal=True)
        assert max(map(display_width, text.splitlines())) <= 80, f"{words}\n{text}"
        assert "\x1b" not in text
    assert max(map(len, verbs("get", "pods", "-o", "wide", "--show-labels").splitlines())) > 150
    table = verbs("get", "pods", terminal=True).splitlines()
    assert all(line.split()[0] == name for line, name in zip(table[1:], names, strict=True))  # no need to cut


def test_a_closed_pipe_is_quiet(verbs: Verbs) -> None:
    verbs.apply(*(pod(f"p{index}") for index in range(3)))
    plimsoll = str(Path(sys.executable).with_name("plimsoll"))
    for words in (["get", "pods", "-o", "json"], ["get", "pods", "-w"], ["describe", "pods"]):
        with subprocess.Popen(
            [plimsoll, *verbs.words(*words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.close()
            verbs("label", "pods", "--all", f"seen={process.pid}", "--overwrite")  # what a watch prints
            if "-w" in words:
                until(lambda: _ended(process, verbs))
            assert process.stderr.read() == b"", words


def _ended(process: subprocess.Popen[bytes], verbs: Verbs) -> bool:
    """A watch notices the closed pipe when it prints the next line."""
    verbs("annotate", "pods", "--all", f"at={time.monotonic()}", "--overwrite")
    return process.poll() is not None


def test_documents_are_harmless(verbs: Verbs) -> None:
    evil = json.loads(pod("web"))
    evil["metadata"]["annotations"] = {"note": "\x1b]0;title\x07\x9b"}
    verbs.apply(json.dumps(evil))
    for words in (["describe", "pod", "web"], ["get", "pod", "web", "-o", "yaml"], ["get", "pod", "web", "-o", "json"]):
        text = verbs(*words, terminal=True)
        assert "\x1b]" not in text, words
        assert "\x9b" not in text, words
