"""What a resize will come to, before it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean import from_document
from plimsoll.rules.fit import allocated_load
from plimsoll.rules.objects import Metadata, Node, NodeStatus, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize import ResizeSetting
from plimsoll.rules.resize_forecast import Forecast, forecast
from plimsoll.rules.versions import Version

ALLOCATABLE = {"cpu": parse("4"), "memory": parse("4Gi"), "pods": parse("110")}
NODE = Node(Metadata("n1"), status=NodeStatus(ALLOCATABLE, ALLOCATABLE))


def version(requests: dict[str, str], limits: dict[str, str] | None = None, **extra: Any) -> Version:
    resources = {"requests": requests, "limits": limits if limits is not None else requests}
    container = {"name": "c", "image": "i", "resources": resources, **extra}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u0"},
        "spec": {"containers": [container], "restartPolicy": "Always"},
        "status": {"phase": "Running"},
    }
    return Version(document, from_document(document, Pod))


def other(name: str, cpu: str, memory: str = "1Mi") -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return from_document({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec}, Pod)


SMALL = {"cpu": "1", "memory": "1Gi"}


def asked(
    new: Version, *others: Pod, old: Version | None = None, profile: str = "1.27", used: int | None = None
) -> Forecast:
    setting = ResizeSetting(allocated_load(NODE, others), profile_named(profile))
    return forecast(old or version(SMALL), new, setting, working_sets=None if used is None else {"c": used})


def test_it_fits() -> None:
    assert asked(version({"cpu": "2", "memory": "1Gi"})).outcome == "accepted"
    assert asked(version(SMALL)).outcome == "unchanged"


@pytest.mark.parametrize(
    ("others", "pods"),
    [
        ([other("a", "1700m"), other("b", "400m"), other("c", "600m")], ("ns/c",)),
        ([other("a", "1900m"), other("b", "300m"), other("c", "300m")], ("ns/b",)),
        ([other("a", "400m"), other("b", "400m"), other("c", "400m"), other("d", "1"), other("e", "900m")], ("ns/e",)),
    ],
    ids=["the smallest that frees enough", "not the one that holds most", "of several the smallest"],
)
def test_who_would_have_to_go(others: list[Pod], pods: tuple[str, ...]) -> None:
    found = asked(version({"cpu": "1800m", "memory": "1Gi"}), *others)
    assert found.outcome == "deferred"
    (helps,) = found.helps
    assert (helps.resource, helps.pods) == ("cpu", pods)


def test_several_together() -> None:
    found = asked(version({"cpu": "3500m", "memory": "1Gi"}), other("a", "1"), other("b", "900m"), other("c", "800m"))
    (helps,) = found.helps
    assert (str(helps.short), helps.pods, str(helps.freed)) == ("2200m", ("ns/a", "ns/b", "ns/c"), "2700m")


def test_larger_than_the_node() -> None:
    found = asked(version({"cpu": "100", "memory": "1Gi"}))
    assert (found.outcome, str(found.largest["cpu"])) == ("infeasible", "4")
    modern = asked(version({"cpu": "100", "memory": "1Gi"}), profile="1.36")
    assert (modern.outcome, str(modern.largest["cpu"])) == ("deferred", "4")


def test_the_class_would_change() -> None:
    found = asked(version({"cpu": "2", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"}))
    assert found.outcome == "refused"
    assert found.nearest is not None
    resources = found.nearest.spec.containers[0].resources
    assert resources.requests == resources.limits == {"cpu": parse("3"), "memory": parse("1Gi")}


def test_a_burstable_pod_must_not_become_guaranteed() -> None:
    old = version({"cpu": "1", "memory": "512Mi"}, SMALL)
    found = asked(version(SMALL), old=old)
    assert found.outcome == "refused"
    assert found.nearest is not None
    assert found.nearest.spec.containers[0].resources.requests == {"cpu": parse("1"), "memory": parse("512Mi")}


@pytest.mark.parametrize(
    ("requests", "limits", "nearest"),
    [
        ({"cpu": "3"}, {"cpu": "2"}, ("3", "3")),
        ({"cpu": "1"}, {"cpu": "500m"}, ("500m", "500m")),
    ],
    ids=["a request above the limit raises it", "a limit below the request lowers it"],
)
def test_limits_are_no_lower_than_requests(
    requests: dict[str, str], limits: dict[str, str], nearest: tuple[str, str]
) -> None:
    """Of a Burstable pod, by its memory."""
    old = version({"cpu": "1", "memory": "512Mi"}, {"cpu": "2", "memory": "1Gi"})
    found = asked(version({**requests, "memory": "512Mi"}, {**limits, "memory": "1Gi"}), old=old)
    assert (found.outcome, found.nearest is not None) == ("refused", True)
    assert found.nearest is not None
    resources = found.nearest.spec.containers[0].resources
    assert resources.requests is not None
    assert resources.limits is not None
    assert (str(resources.requests["cpu"]), str(resources.limits["cpu"])) == nearest


def test_nothing_near_would_be_taken() -> None:
    found = asked(version({"cpu": "-1", "memory": "1Gi"}))
    assert (found.outcome, found.nearest) == ("refused", None)


def test_what_is_pending_counts_as_not_given() -> None:
    """An earlier wish waits: the node compares with what it has allocated, the API with what the spec says."""
    pending = {**SMALL, "cpu": "100"}
    status = {
        "resize": "Infeasible",
        "containerStatuses": [
            {"name": "c", "allocatedResources": SMALL, "resources": {"requests": SMALL, "limits": SMALL}}
        ],
    }
    document = {**version(pending).document, "status": status}
    old = Version(document, from_document(document, Pod))
    assert asked(version(SMALL), old=old).outcome == "unchanged"
    assert asked(version({**SMALL, "cpu": "2"}), old=old).outcome == "accepted"


@pytest.mark.parametrize(
    ("policy", "restarts", "unsafe"),
    [("NotRequired", (), 1), ("RestartContainer", ("c",), 0)],
    ids=["in place", "anew"],
)
def test_a_shrink_below_what_is_used(policy: str, restarts: tuple[str, ...], unsafe: int) -> None:
    rules = [{"resourceName": "memory", "restartPolicy": policy}]
    old = version(SMALL, resizePolicy=rules)
    found = asked(version({"cpu": "1", "memory": "512Mi"}, resizePolicy=rules), old=old, used=600 << 20)
    assert found.outcome == "accepted"
    assert (found.restarts, len(found.unsafe)) == (restarts, unsafe)
