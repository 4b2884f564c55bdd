"""What 1.37 reports differently from 1.36: why a sandbox is not ready, the user namespace, causes of disruption budgets."""

from __future__ import annotations

import pytest

from plimsoll.rules.controllers.disruption_budgets import MAX_DISRUPTED_PODS, refusal
from plimsoll.rules.lifecycle.status import NodeView, pod_status
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.observed import NO_MEMORY, ObservedPod, ObservedSandbox
from plimsoll.rules.node.node_object import MachineIdentity, NodeFacts, NodeHealth, node_document
from plimsoll.rules.profile import profile_named
from tests.unit.rules.release_pods import both, node
from tests.unit.rules.run_pods import a_pod

SANDBOXES = [
    pytest.param((), "no pod sandbox exists", id="none"),
    pytest.param(
        (ObservedSandbox("b", 1), ObservedSandbox("a")),
        "multiple pod sandboxes are ready and need to be reconciled",
        id="two",
    ),
    pytest.param((ObservedSandbox("a", ready=False),), "pod sandbox is not ready", id="not ready"),
    pytest.param(
        (ObservedSandbox("a", host_network=True),),
        "network namespace mode changed and sandbox needs to be recreated",
        id="network",
    ),
    pytest.param((ObservedSandbox("a", lacks_ip=True),), "pod sandbox has no IP address", id="no address"),
    pytest.param((ObservedSandbox("b", 1), ObservedSandbox("a", ready=False)), "", id="replaced"),
    pytest.param((ObservedSandbox("a", host_network=False),), "", id="ready"),
]


@pytest.mark.parametrize(("sandboxes", "message"), SANDBOXES)
def test_the_condition_of_the_sandbox_has_a_reason(sandboxes: tuple[ObservedSandbox, ...], message: str) -> None:
    def condition(release: str) -> tuple[str, str, str]:
        view = NodeView(("192.0.2.1",), "plimsoll", profile_named(release))
        shown = pod_status(a_pod("a"), ObservedPod(sandboxes), NO_MEMORY, 1e6, view)
        found = next(each for each in shown.conditions if each.type == "PodReadyToStartContainers")
        return found.status, found.reason, found.message

    status = "False" if message else "True"
    assert both(condition) == ((status, "", ""), (status, "PodSandboxNotReady" if message else "", message))


@pytest.mark.parametrize("inside", [False, True])
def test_a_node_says_whether_it_runs_in_a_user_namespace(inside: bool) -> None:
    def info(release: str) -> JsonObject:
        machine = MachineIdentity(in_user_namespace=inside)
        facts = NodeFacts("n1", "n1", "192.0.2.1", 10250, machine, "x://1", "v1")
        found: JsonObject = node_document(facts, node(release), NodeHealth(), "t")["status"]["nodeInfo"]
        return found

    assert both(lambda release: info(release).get("runningInUserNamespace")) == (None, inside)
    off = node("1.37", {"featureGates": {"KubeletInUserNamespace": False}})
    facts = NodeFacts("n1", "n1", "192.0.2.1", 10250, MachineIdentity(in_user_namespace=inside), "x://1", "v1")
    assert "runningInUserNamespace" not in node_document(facts, off, NodeHealth(), "t")["status"]["nodeInfo"]


def budget(**status: object) -> JsonObject:
    return {"metadata": {"name": "b", "generation": 1}, "status": {"observedGeneration": 1, **status}}


def failed(reason: str) -> list[JsonObject]:
    return [{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "no scale"}]


NOT_NOW = "The disruption budget b does not allow evicting pods currently"
REFUSALS = [
    pytest.param(budget(disruptionsAllowed=1), None, "", id="allowed"),
    pytest.param(
        budget(observedGeneration=0), "The disruption budget b is still being processed by the server.", "", id="old"
    ),
    pytest.param(
        budget(disruptionsAllowed=-1),
        f"{NOT_NOW}: pdb disruptions allowed is negative",
        "pdb disruptions allowed is negative",
        id="negative",
    ),
    pytest.param(
        budget(disruptionsAllowed=1, disruptedPods=dict.fromkeys(map(str, range(MAX_DISRUPTED_PODS + 1)), "t")),
        f"{NOT_NOW}: too many pending evictions not confirmed by PDB controller",
        "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        id="too many",
    ),
    pytest.param(
        budget(currentHealthy=2, desiredHealthy=3),
        "The disruption budget b needs 3 healthy pods and has 2 currently",
        "",
        id="needed",
    ),
    pytest.param(
        budget(currentHealthy=2, desiredHealthy=3, conditions=failed("SyncFailed")),
        f"{NOT_NOW} because it failed sync: no scale",
        "",
        id="not synchronized",
    ),
    pytest.param(
        budget(currentHealthy=4, desiredHealthy=3, conditions=failed("Other")),
        f"{NOT_NOW} (Other): no scale",
        "",
        id="other condition",
    ),
    pytest.param(budget(currentHealthy=4, desiredHealthy=3), NOT_NOW, "", id="no reason"),
]


@pytest.mark.parametrize(("of", "cause", "forbidden"), REFUSALS)
def test_why_a_budget_refuses_an_eviction(of: JsonObject, cause: str | None, forbidden: str) -> None:
    found = refusal(of)
    assert (found and found.cause) == cause
    assert (found.forbidden if found else "") == forbidden
