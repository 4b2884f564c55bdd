"""`plimsoll resize` against a real API server with a played node, as each profile answers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.manifests import container, pod, together
from tests.e2e.verbs import Verbs, namespace
from tests.e2e.waiting import until
from tests.e2e.world import World

DOCUMENTS = Path(__file__).resolve().parents[2] / "examples" / "documents"
_NUMBER = itertools.count(1)

pytestmark = [
    pytest.mark.parametrize(
        "cluster",
        [pytest.param(each, marks=pytest.mark.xdist_group(f"verbs {each}")) for each in ("1.27", "1.36")],
        indirect=True,
    ),
]


@pytest.fixture
def verbs(cluster: World) -> Iterator[Verbs]:
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
    assert "demo  cpu  limit    1 → 2\nthe node has room: accepted\n" in ran.out
    stages = [line.split()[2] for line in ran.err.splitlines()]
    assert stages[-1] == "reported"
    assert "allocated" in stages
    assert "restart" not in stages
    assert amounts(verbs) == {"cpu": "2", "memory": "200Mi"}
    assert verbs("resize", "demo", "--cpu", "2") == "pod " + f"{verbs.namespace}/demo  Guaranteed\n" + (
        "nothing changes: the pod has these amounts already\n"
    )


def test_dry_run_changes_nothing(verbs: Verbs) -> None:
    ran = verbs.ran("resize", "demo", "--cpu", "2", "--dry-run")
    assert (ran.code, "dry run: the server would take the request" in ran.out) == (0, True)
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
    assert "the server would refuse it" in ran.err
    assert "exceeded quota: q" in ran.err


def test_with_a_restart(verbs: Verbs) -> None:
    """Memory restarts the document's container: worth a question, and seen while we wait."""
    ran = verbs.ran("resize", "demo", "--memory", "500Mi", "--wait")
    assert ran.code == 1
    assert "restart: container demo is started anew" in ran.out
    assert "nothing was sent: give --yes" in ran.err
    assert amounts(verbs)["memory"] == "200Mi"
    ran = verbs.ran("resize", "demo", "--memory", "500Mi", "--wait", "--yes")
    assert ran.code == 0
    assert re.search(r"restart +restart count 1", ran.err)
    assert amounts(verbs)["memory"] == "500Mi"


def test_larger_than_the_node(verbs: Verbs, cluster: World) -> None:
    ran = verbs.ran("resize", "demo", "--cpu", "100", "--yes", "--wait")
    assert "the most that a pod can ask for here: cpu 15500m, memory 32Gi" in ran.out
    if cluster.profile == "1.36":
        assert ran.code == 2
        assert "refused by the API server\n  node didn't have enough allocatable resources: cpu" in ran.out
        assert amounts(verbs)["cpu"] == "1"
        return
    assert ran.code == 1
    assert "Infeasible: this node can never do it" in ran.out
    assert ran.err.splitlines()[-1].split()[2] == "infeasible"
    assert "Resize:            infeasible: Node didn't have enough capacity: cpu" in verbs("describe", "pod", "demo")
    ran = verbs.ran("resize", "demo", "--cpu", "2", "--wait")
    assert ran.code == 0, ran


def test_refused_before_it_is_sent(verbs: Verbs, cluster: World) -> None:
    ran = verbs.ran("resize", "demo", "--cpu", "3", "--limits-only")
    assert ran.code == 2
    words = "Pod QoS is immutable" if cluster.profile == "1.27" else "Pod QOS Class may not change as a result of"
    assert words in ran.out
    assert '{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}' in ran.out
    assert ran.err == "nothing was sent\n"
    assert amounts(verbs)["cpu"] == "1"


def test_no_room_now(verbs: Verbs) -> None:
    """Who would have to go."""
    big = container("c", cpu="12", memory="1Gi")
    verbs.apply(pod("big", big), pod("small", container("c", cpu="1", memory="1Gi")))
    verbs.running("big")
    verbs.running("small")
    ran = verbs.ran("resize", "demo", "--cpu", "14", "-o", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["outcome"]) == (1, "deferred")
    assert found["room"][0]["pods"] == [f"{verbs.namespace}/big"]
    assert "nothing was sent" in ran.err


def test_unsafe_shrink(verbs: Verbs) -> None:
    """The played containers use 10Mi each."""
    limits = {"cpu": "100m", "memory": "64Mi"}
    verbs.apply(pod("web", container("c", "50m", "8Mi", limits=limits)))
    verbs.running("web")

    def known() -> bool:
        """Metrics of a new pod come with the second look at it."""
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
    assert verbs.ran("resize", "gone", "--cpu", "1").code == 2
