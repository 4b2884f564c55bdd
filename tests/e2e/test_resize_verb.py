"""`plimsoll resize` against a real API server with a fake node, as each profile answers."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fake_cluster import FakeCluster
from tests.e2e.manifests import container, pod, together
from tests.e2e.verbs import Verbs, namespace
from tests.e2e.waiting import until

DOCUMENTS = Path(__file__).resolve().parents[2] / "examples" / "documents"
ENDS_S = 90.0
_NUMBER = itertools.count(1)

pytestmark = [
    pytest.mark.parametrize(
        "cluster",
        [pytest.param(each, marks=pytest.mark.xdist_group(f"verbs {each}")) for each in ("documents", "1.36")],
        indirect=True,
    ),
]


@pytest.fixture
def verbs(cluster: FakeCluster) -> Iterator[Verbs]:
    """With the pod of document 003."""
    made = Verbs(cluster, f"resize-{next(_NUMBER)}")
    made("apply", "-f", "-", stdin=json.dumps(namespace(made.namespace)))
    made("apply", "-f", str(DOCUMENTS / "003-demo.yaml"))
    made.running("demo")
    yield made
    made("delete", f"namespace/{made.namespace}", "--no-wait")


def amounts(verbs: Verbs) -> dict[str, Any]:
    found = json.loads(verbs("get", "pod", "demo", "-o", "json"))
    return dict(found["spec"]["containers"][0]["resources"]["requests"])


def test_in_place(verbs: Verbs) -> None:
    ran = verbs.ran("resize", "demo", "--cpu", "2", "--wait")
    assert ran.code == 0, ran
    assert "demo  cpu  limit    1 → 2\naccepted: the node has enough free resources\n" in ran.out
    stages = [line.split()[2] for line in ran.err.splitlines()]
    assert stages[-1] == "reported"
    assert "allocated" in stages
    assert "restart" not in stages
    assert amounts(verbs) == {"cpu": "2", "memory": "200Mi"}
    assert verbs("resize", "demo", "--cpu", "2") == "pod " + f"{verbs.namespace}/demo  Guaranteed\n" + (
        "no change: the pod already has these resources\n"
    )


def test_dry_run_changes_nothing(verbs: Verbs) -> None:
    ran = verbs.ran("resize", "demo", "--cpu", "2", "--dry-run")
    assert (ran.code, "The server would accept the resize (dry run)" in ran.out) == (0, True)
    assert amounts(verbs) == {"cpu": "1", "memory": "200Mi"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"requests.cpu": "1500m"}},
    }
    verbs("apply", "-f", "-", stdin=json.dumps(quota))
    ran = verbs.ran("resize", "demo", "--cpu", "2", "--dry-run")
    assert ran.code == 2
    assert "The server would reject the resize" in ran.err
    assert "exceeded quota: q" in ran.err


def test_with_a_restart(verbs: Verbs) -> None:
    """Memory restarts the document's container: worth a question, and seen while we wait."""
    ran = verbs.ran("resize", "demo", "--memory", "500Mi", "--wait")
    assert ran.code == 1
    assert "restart: container demo is restarted, as its resize policy requires" in ran.out
    assert "The resize was not sent; use --yes" in ran.err
    assert amounts(verbs)["memory"] == "200Mi"
    ran = verbs.ran("resize", "demo", "--memory", "500Mi", "--wait", "--yes")
    assert ran.code == 0
    assert re.search(r"restart +restart count 1", ran.err)
    assert amounts(verbs)["memory"] == "500Mi"


def test_larger_than_the_node(verbs: Verbs, cluster: FakeCluster) -> None:
    ran = verbs.ran("resize", "demo", "--cpu", "100", "--yes", "--wait")
    assert re.search("cpu: the maximum for container demo on this node is 15500m(; now: [0-9m]+)?\n", ran.out)
    if cluster.profile == "1.36":
        assert ran.code == 2
        assert "rejected by the API server\n  node didn't have enough allocatable resources: cpu" in ran.out
        assert amounts(verbs)["cpu"] == "1"
        return
    assert ran.code == 1
    assert "Infeasible: the resize does not fit on this node" in ran.out
    assert ran.err.splitlines()[-1].split()[2] == "infeasible"
    assert "Resize:            infeasible: Node didn't have enough capacity: cpu" in verbs("describe", "pod", "demo")
    ran = verbs.ran("resize", "demo", "--cpu", "1", "--wait")
    assert (ran.code, "the pending resize is withdrawn" in ran.out, "infeasible" in ran.err) == (0, True, False), ran
    assert amounts(verbs)["cpu"] == "1"
    ran = verbs.ran("resize", "demo", "--cpu", "2", "--wait")
    assert ran.code == 0, ran


def test_refused_before_it_is_sent(verbs: Verbs, cluster: FakeCluster) -> None:
    ran = verbs.ran("resize", "demo", "--cpu", "3", "--limits-only")
    assert ran.code == 2
    words = "Pod QoS is immutable" if cluster.profile == "documents" else "Pod QOS Class may not change as a result of"
    assert words in ran.out
    assert '{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}' in ran.out
    assert ran.err == "The resize was not sent.\n"
    assert amounts(verbs)["cpu"] == "1"


def test_no_room_now(verbs: Verbs) -> None:
    """The pods that would have to be removed."""
    big = container("c", cpu="12", memory="1Gi")
    verbs.apply(pod("big", big), pod("small", container("c", cpu="1", memory="1Gi")))
    verbs.running("big")
    verbs.running("small")
    ran = verbs.ran("resize", "demo", "--cpu", "14", "-o", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["outcome"]) == (1, "deferred")
    assert found["room"]["pods"] == [f"{verbs.namespace}/big"]
    assert found["largest"][0]["ever"] == "15500m"
    assert "The resize was not sent; use --yes" in ran.err


def test_unsafe_shrink(verbs: Verbs) -> None:
    """The fake containers use 10Mi each."""
    limits = {"cpu": "100m", "memory": "64Mi"}
    verbs.apply(pod("web", container("c", "50m", "8Mi", limits=limits)))
    verbs.running("web")

    def known() -> bool:
        """Metrics of a new pod come with its second sample."""
        return "unsafe" in verbs.ran("resize", "web", "--memory", "9Mi", "--limits-only", "--dry-run").out

    until(known)
    ran = verbs.ran("resize", "web", "--memory", "9Mi", "--limits-only")
    assert ran.code == 1
    assert "unsafe shrink: container c uses 10Mi now, its new limit is 9Mi" in ran.out


def test_which_container(verbs: Verbs) -> None:
    verbs.apply(together(pod("two", container("a"), container("b"))))
    verbs.running("two")
    ran = verbs.ran("resize", "two", "--cpu", "200m")
    assert (ran.code, ran.out) == (2, "")
    assert "name one with -c: a, b" in ran.err
    assert verbs.ran("resize", "two", "-c", "b", "--cpu", "200m", "--wait").code == 0


def test_mistakes(verbs: Verbs) -> None:
    for words, text in (
        (("gone", "--cpu", "1"), "no pod gone in namespace"),
        (("dmeo", "--cpu", "1"), "did you mean demo?"),
        (("", "--cpu", "1"), "'' is not the name of a pod: write it as web or pod/web"),
        (("deployment/demo", "--cpu", "1"), "'deployment/demo' is not the name of a pod"),
        (("demo", "-c", "nope", "--cpu", "1"), "no container 'nope'; there are: demo"),
        (("demo", "--cpu", "1gb"), "'1gb' is not a valid amount; write it as 2 or 500m"),
        (("demo", "--memory", "500m"), "'500m' is not a whole number of bytes"),
        (("demo", "--memory", "-1Gi"), "must be greater than or equal to 0"),
        (("demo", "--cpu", "1", "--wait", "--dry-run"), "--dry-run and --wait exclude each other"),
    ):
        ran = verbs.ran("resize", *words)
        assert (ran.code, ran.out, text in ran.err) == (2, "", True), ran


def test_without_a_node_that_judges_it(verbs: Verbs) -> None:
    """A pod without a node waits for the scheduler; one that is being deleted has nothing to wait for."""
    verbs.apply(pod("lost", container("c", cpu="100m", memory="8Mi"), nodeSelector={"no": "where"}))
    ran = verbs.ran("resize", "lost", "--cpu", "200m")
    assert (ran.code, "not scheduled yet: the scheduler will use the new resources" in ran.out) == (0, True)
    verbs("apply", "-f", "-", stdin=json.dumps(with_finalizer("ending")))
    verbs.running("ending")
    verbs("delete", "pod", "ending", "--no-wait")
    ran = verbs.ran("resize", "ending", "--cpu", "200m", "--wait", "--yes")
    assert (ran.code, "the pod has no active node" in ran.out) == (1, True)
    assert ran.err.splitlines()[-1].split()[2] == "ended"
    free = json.dumps({**with_finalizer("ending", cpu="200m"), "metadata": {"name": "ending"}})
    verbs("apply", "-f", "-", "--force-conflicts", stdin=free)


def with_finalizer(name: str, cpu: str = "100m") -> dict[str, Any]:
    """A pod that stays until its finalizer is taken away."""
    document: dict[str, Any] = json.loads(pod(name, container("c", cpu=cpu, memory="8Mi")))
    document["metadata"]["finalizers"] = ["example.com/kept"]
    return document


@pytest.mark.parametrize(
    ("words", "at", "says"),
    [
        (("demo", "--memory", "500Mi"), "[y/N]", "\nThe resize was not sent."),
        (("lost", "--cpu", "200m", "--wait"), "not scheduled yet\r\n", "describe pod lost"),
    ],
    ids=["the question", "the wait"],
)
def test_ctrl_c(verbs: Verbs, words: tuple[str, ...], at: str, says: str) -> None:
    verbs.apply(pod("lost", container("c", cpu="100m", memory="8Mi"), nodeSelector={"no": "where"}))
    code, said = interrupted(verbs.words("resize", *words), at)
    assert (code, says in said) == (130, True), said
    assert amounts(verbs)["memory"] == "200Mi"


def is_asleep(pid: int) -> bool:
    """Whether it is blocked, and has been for a while."""

    def seen() -> tuple[str, str]:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        return fields["State"][0], fields["voluntary_ctxt_switches"]

    before = seen()
    time.sleep(0.02)
    return before[0] == "S" and seen() == before


def interrupted(words: list[str], at: str) -> tuple[int, str]:
    """On a terminal of its own, Ctrl-C once that text is there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(Path(sys.executable).with_name("plimsoll"), ["plimsoll", *words])
    said, sent = "", False
    try:
        while select.select([terminal], [], [], ENDS_S)[0]:
            try:
                said += os.read(terminal, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                break
            if not sent and at in said:
                until(lambda: is_asleep(pid))  # a signal just before Python reads a line is only heard after it
                os.write(terminal, b"\x03")
                sent = True
        else:
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said
    finally:
        os.close(terminal)
