"""The nearest request that the API server accepts, with worked numbers (03 §4.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.resize import resize_errors
from plimsoll.rules.model.gates import DEFAULT_GATES
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resize.nearest_request import is_change, nearest_requests
from plimsoll.rules.resources.qos import computed_qos_class

Amounts = dict[str, str]
Lists = tuple[Amounts, Amounts]  # requests, limits


def version(*containers: Lists, level: Lists | None = None) -> PodVersion:
    def resources(lists: Lists) -> dict[str, Any]:
        return {kind: amounts for kind, amounts in zip(("requests", "limits"), lists, strict=True) if amounts}

    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {
            "containers": [
                {"name": f"c{index}", "image": "i", "resources": resources(lists)}
                for index, lists in enumerate(containers)
            ],
            **({} if level is None else {"resources": resources(level)}),
        },
        "status": {"phase": "Running"},
    }
    return PodVersion(document, from_document(document, Pod))


def errors(old: PodVersion, new: PodVersion) -> list[FieldError]:
    return resize_errors(old, new, DEFAULT_GATES, profile_named("1.36"))


def lists(pod: Pod) -> list[Lists]:
    def texts(amounts: Any) -> Amounts:
        return {name: str(amount) for name, amount in (amounts or {}).items()}

    return [(texts(each.resources.requests), texts(each.resources.limits)) for each in pod.spec.containers]


def nearest(old: PodVersion, new: PodVersion) -> list[Lists] | None:
    assert errors(old, new), "the request itself is refused"
    pod = next(nearest_requests(old, new, errors), None)
    return None if pod is None else lists(pod)


ONE: Lists = ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})
HALF: Lists = ({"cpu": "500m", "memory": "512Mi"}, {"cpu": "1", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            ONE, ({"cpu": "2", "memory": "1Gi"}, ONE[1]), ({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}),
            id="Guaranteed, only the request raised: the limit follows",
        ),
        pytest.param(
            ONE, (ONE[0], {"cpu": "1", "memory": "2Gi"}), ({"cpu": "1", "memory": "2Gi"}, {"cpu": "1", "memory": "2Gi"}),
            id="Guaranteed, only the limit raised: the request follows",
        ),
        pytest.param(
            ONE, ({"cpu": "3", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}), ({"cpu": "3", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"}),
            id="Guaranteed, both changed: the larger one",
        ),
        pytest.param(
            HALF, ({"cpu": "2", "memory": "512Mi"}, HALF[1]), ({"cpu": "2", "memory": "512Mi"}, {"cpu": "2", "memory": "1Gi"}),
            id="a request above its limit: the limit is raised",
        ),
        pytest.param(
            HALF, (HALF[0], {"cpu": "250m", "memory": "1Gi"}), ({"cpu": "250m", "memory": "512Mi"}, {"cpu": "250m", "memory": "1Gi"}),
            id="only the limit changed, below its request: the request is lowered",
        ),
        pytest.param(
            HALF, ({"cpu": "1", "memory": "1Gi"}, HALF[1]), ({"cpu": "999m", "memory": "1Gi"}, HALF[1]),
            id="Burstable would become Guaranteed: one millicore below the limit",
        ),
        pytest.param(
            ({"cpu": "1", "memory": "512Mi"}, ONE[1]), ONE, ({"cpu": "1", "memory": "1023Mi"}, ONE[1]),
            id="Burstable by memory alone: one MiB below the limit",
        ),
    ],
)  # fmt: skip
def test_one_container(old: Lists, new: Lists, expected: Lists) -> None:
    assert nearest(version(old), version(new)) == [expected]


def test_removed_amounts_return() -> None:
    assert nearest(version(HALF), version(({"cpu": "700m"}, {"cpu": "1"}))) == [
        ({"cpu": "700m", "memory": "512Mi"}, {"cpu": "1", "memory": "1Gi"})
    ]


def test_within_the_pod_level() -> None:
    """The pod level has 2 cores, the other container 500m: 1500m remain."""
    level: Lists = ({"cpu": "2"}, {"cpu": "2"})
    old = version(({"cpu": "1"}, {}), ({"cpu": "500m"}, {}), level=level)
    new = version(({"cpu": "1800m"}, {}), ({"cpu": "500m"}, {}), level=level)
    assert nearest(old, new) == [({"cpu": "1500m"}, {}), ({"cpu": "500m"}, {})]


def test_a_best_effort_pod_has_no_nearest_request() -> None:
    assert nearest(version(({}, {})), version(({"cpu": "1"}, {}))) is None


CPU = st.sampled_from(["500m", "1", "1500m", "2"])
MEMORY = st.sampled_from(["512Mi", "1Gi", "2Gi"])
AMOUNTS = st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": MEMORY})


@given(st.tuples(AMOUNTS, AMOUNTS), st.tuples(AMOUNTS, AMOUNTS))
def test_every_offer_is_accepted_and_changes_something(before: Lists, after: Lists) -> None:
    old, new = version(before), version(after)
    assume(not errors(old, old) and errors(old, new))
    offers = list(nearest_requests(old, new, errors))
    event("offers" if offers else "none")
    for offer in offers:
        assert not errors(old, PodVersion(new.document, offer))
        assert is_change(old.pod, offer)
        assert computed_qos_class(offer) == computed_qos_class(old.pod)
