"""LimitRange: 01 §8, L-1 … L-4."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.limit_range import defaulted_limit_range, is_limited, limit_range_refusal, limit_ranged
from plimsoll.rules.model.objects import Pod, ResourceList
from plimsoll.rules.model.policies import LimitRange
from plimsoll.rules.profile import PROFILE_DOCUMENTS, Profile, profile_named

Json = dict[str, Any]
NOTE = "kubernetes.io/limit-ranger"


def limits(*items: Json) -> LimitRange:
    return from_document({"metadata": {"name": "lr"}, "spec": {"limits": list(items)}}, LimitRange)


def container(name: str = "a", requests: Json | None = None, limits: Json | None = None, **more: Any) -> Json:
    return {"name": name, "resources": {"requests": requests, "limits": limits}, **more}


def pod(*containers: Json, init: tuple[Json, ...] = (), annotations: Json | None = None, **spec: Any) -> Pod:
    return from_document(
        {
            "metadata": {"name": "x", "annotations": annotations},
            "spec": {"containers": list(containers), "initContainers": list(init), **spec},
        },
        Pod,
    )


def texts(resources: ResourceList | None) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in (resources or {}).items()}


@pytest.mark.parametrize(
    ("item", "default", "default_request"),
    [
        pytest.param({"max": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "2"}, id="L-1 from max"),
        pytest.param({"min": {"cpu": "1"}}, {}, {"cpu": "1"}, id="L-1 from min"),
        pytest.param(
            {"max": {"cpu": "2"}, "min": {"cpu": "1"}}, {"cpu": "2"}, {"cpu": "2"}, id="L-1 default before min"
        ),
        pytest.param(
            {"max": {"cpu": "2"}, "default": {"cpu": "1"}}, {"cpu": "1"}, {"cpu": "1"}, id="L-1 given default stays"
        ),
        pytest.param(
            {"default": {"cpu": "1"}, "defaultRequest": {"memory": "1Gi"}},
            {"cpu": "1"},
            {"cpu": "1", "memory": "1Gi"},
            id="L-1 per name",
        ),
        pytest.param({"max": {"cpu": "0.1m"}}, {"cpu": "1m"}, {"cpu": "1m"}, id="R-2 rounding"),
    ],
)
def test_l1_container_items_are_completed(item: Json, default: Json, default_request: Json) -> None:
    (found,) = defaulted_limit_range(limits({"type": "Container", **item})).spec.limits
    assert texts(found.default) == default
    assert texts(found.default_request) == default_request


def test_l1_pod_items_do_not() -> None:
    (found,) = defaulted_limit_range(limits({"type": "Pod", "max": {"cpu": "2"}})).spec.limits
    assert found.default is None and found.default_request is None


@pytest.mark.parametrize(
    ("operation", "subresource", "profile", "deleted", "limited"),
    [
        pytest.param("CREATE", "", profile_named("1.36"), False, True, id="create"),
        pytest.param("UPDATE", "", profile_named("1.36"), False, False, id="plain update"),
        pytest.param("UPDATE", "resize", profile_named("1.36"), False, True, id="resize"),
        pytest.param("UPDATE", "resize", profile_named("1.36"), True, False, id="resize of a pod being deleted"),
        pytest.param("UPDATE", "resize", PROFILE_DOCUMENTS, False, False, id="documents: resize escapes"),
        pytest.param("UPDATE", "status", profile_named("1.36"), False, False, id="status"),
        pytest.param("CREATE", "binding", profile_named("1.36"), False, False, id="binding"),
    ],
)
def test_l2_when(operation: str, subresource: str, profile: Profile, deleted: bool, limited: bool) -> None:
    assert is_limited(operation, subresource, profile, old_is_deleted=deleted) is limited


DEFAULTS = limits(
    {
        "type": "Container",
        "default": {"cpu": "1", "memory": "1Gi"},
        "defaultRequest": {"cpu": "500m", "memory": "512Mi"},
    }
)


@pytest.mark.parametrize(
    ("subject", "requests", "own_limits", "note"),
    [
        pytest.param(
            pod(container()),
            {"cpu": "500m", "memory": "512Mi"},
            {"cpu": "1", "memory": "1Gi"},
            "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a",
            id="all of it",
        ),
        pytest.param(
            pod(container("a", {"cpu": "0"}, {"memory": "0"})),
            {"cpu": "0", "memory": "512Mi"},
            {"cpu": "1", "memory": "0"},
            "LimitRanger plugin set: memory request for container a; cpu limit for container a",
            id="what is given stays, even zero",
        ),
        pytest.param(
            pod(container("a", {"cpu": "1", "memory": "1"}, {"cpu": "1", "memory": "1"})),
            {"cpu": "1", "memory": "1"},
            {"cpu": "1", "memory": "1"},
            None,
            id="nothing to add",
        ),
    ],
)
def test_l3_defaults(subject: Pod, requests: Json, own_limits: Json, note: str | None) -> None:
    filled = limit_ranged(subject, [DEFAULTS])
    resources = filled.spec.containers[0].resources
    assert (texts(resources.requests), texts(resources.limits)) == (requests, own_limits)
    assert (filled.metadata.annotations or {}).get(NOTE) == note


def test_l3_init_containers_and_several_containers() -> None:
    only_cpu = limits({"type": "Container", "defaultRequest": {"cpu": "100m"}})
    named = [container("a"), container("b", {"cpu": "1"}), container("c")]
    filled = limit_ranged(pod(*named, init=(container("i"),), annotations={"mine": "kept"}), [only_cpu])
    assert filled.metadata.annotations == {
        "mine": "kept",
        NOTE: "LimitRanger plugin set: cpu request for container a; cpu request for container c; cpu request for init container i",
    }
    assert texts(filled.spec.init_containers[0].resources.requests) == {"cpu": "100m"}


def test_l3_the_last_limit_range_that_sets_a_default_writes_the_annotation() -> None:
    first = limits({"type": "Container", "defaultRequest": {"cpu": "100m"}})
    second = limits({"type": "Container", "defaultRequest": {"cpu": "200m", "memory": "1Gi"}})
    filled = limit_ranged(pod(container()), [first, second, first])
    assert texts(filled.spec.containers[0].resources.requests) == {"cpu": "100m", "memory": "1Gi"}
    assert filled.metadata.annotations == {NOTE: "LimitRanger plugin set: memory request for container a"}


def test_l3_pod_items_and_pod_level_set_no_defaults() -> None:
    untouched = pod(container("a", {"cpu": "1"}), resources={"limits": {"cpu": "2"}})
    assert (
        limit_ranged(untouched, [limits({"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}})])
        is untouched
    )


MIN = limits({"type": "Container", "min": {"cpu": "100m"}})
MAX = limits({"type": "Container", "max": {"cpu": "1"}})
RATIO = limits({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}})
POD_MAX = limits({"type": "Pod", "max": {"memory": "1Gi"}})
POD_MIN = limits({"type": "Pod", "min": {"cpu": "1"}})
MANY = limits({"type": "Container", "min": {"memory": "1Gi", "cpu": "1"}, "max": {"cpu": "2"}})
HUGE = limits({"type": "Container", "max": {"memory": "9223372036854775808"}})


@pytest.mark.parametrize(
    ("subject", "limit_range", "refusal"),
    [
        pytest.param(pod(container("a", {"cpu": "100m"})), MIN, "", id="min, just enough"),
        pytest.param(
            pod(container("a", {"cpu": "50m"})),
            MIN,
            "minimum cpu usage per Container is 100m, but request is 50m",
            id="min, request",
        ),
        pytest.param(
            pod(container()),
            MIN,
            "minimum cpu usage per Container is 100m.  No request is specified",
            id="min, no request",
        ),
        pytest.param(
            pod(container("a", {"cpu": "100m"}, {"cpu": "0"})),
            MIN,
            "minimum cpu usage per Container is 100m, but limit is 0",
            id="min, limit",
        ),
        pytest.param(pod(container("a", {"cpu": "1"}, {"cpu": "1"})), MAX, "", id="max, just"),
        pytest.param(
            pod(container("a", None, {"cpu": "2"})),
            MAX,
            "maximum cpu usage per Container is 1, but limit is 2",
            id="max, limit",
        ),
        pytest.param(
            pod(container()), MAX, "maximum cpu usage per Container is 1.  No limit is specified", id="max, no limit"
        ),
        pytest.param(
            pod(container("a", {"cpu": "1001m"}, {"cpu": "1"})),
            MAX,
            "maximum cpu usage per Container is 1, but request is 1001m",
            id="max, request",
        ),
        pytest.param(
            pod(container("a", {"cpu": "1"}, {"cpu": "1"}), init=(container("i", None, {"cpu": "3"}),)),
            MAX,
            "maximum cpu usage per Container is 1, but limit is 3",
            id="init containers too",
        ),
        pytest.param(pod(container("a", {"cpu": "1"}, {"cpu": "2"})), RATIO, "", id="ratio, just"),
        pytest.param(
            pod(container("a", {"cpu": "300m"}, {"cpu": "1"})),
            RATIO,
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333",
            id="ratio",
        ),
        pytest.param(
            pod(container("a", {"cpu": "0"}, {"cpu": "1"})),
            RATIO,
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            id="ratio, zero request",
        ),
        pytest.param(
            pod(container("a", {"cpu": "1"})),
            RATIO,
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
            id="ratio, no limit",
        ),
        pytest.param(
            pod(container("a", {"memory": "1Mi"})),
            MANY,
            "[minimum cpu usage per Container is 1.  No request is specified, "
            "minimum memory usage per Container is 1Gi, but request is 1Mi, "
            "maximum cpu usage per Container is 2.  No limit is specified]",
            id="several findings",
        ),
        pytest.param(
            pod(container("a"), container("b")),
            MIN,
            "minimum cpu usage per Container is 100m.  No request is specified",
            id="the same finding once",
        ),
        pytest.param(
            pod(container("a", None, {"memory": "600Mi"}), container("b", None, {"memory": "600Mi"})),
            POD_MAX,
            "maximum memory usage per Pod is 1Gi, but limit is 1200Mi",
            id="pod item, sum",
        ),
        pytest.param(
            pod(container("a", None, {"memory": "1Gi"}), overhead={"memory": "1Gi"}),
            POD_MAX,
            "",
            id="pod item, without overhead",
        ),
        pytest.param(
            pod(container("a", {"cpu": "100m"}), resources={"requests": {"cpu": "1"}}),
            POD_MIN,
            "",
            id="pod item, pod level honoured",
        ),
        pytest.param(
            pod(container("a", {"memory": "1"}, {"memory": "9223372036854775809"})),
            HUGE,
            "maximum memory usage per Container is 9223372036854775808, but limit is 9223372036854775809",
            id="whole units where thousandths do not fit",
        ),
    ],
)
def test_l4_refusal(subject: Pod, limit_range: LimitRange, refusal: str) -> None:
    assert limit_range_refusal(subject, [limits(), limit_range]) == refusal


def test_l4_the_first_limit_range_with_violations_reports() -> None:
    assert (
        limit_range_refusal(pod(container()), [MAX, MIN])
        == "maximum cpu usage per Container is 1.  No limit is specified"
    )


MILLIS = st.integers(0, 3000)


@given(MILLIS, MILLIS, MILLIS, MILLIS)
def test_bounds_hold_exactly_between_min_and_max(least: int, most: int, request_milli: int, limit_milli: int) -> None:
    both = limits({"type": "Container", "min": {"cpu": f"{least}m"}, "max": {"cpu": f"{most}m"}})
    subject = pod(container("a", {"cpu": f"{request_milli}m"}, {"cpu": f"{limit_milli}m"}))
    within = all(least <= amount <= most for amount in (request_milli, limit_milli))
    assert (limit_range_refusal(subject, [both]) == "") is within


@given(st.sets(st.sampled_from(["cpu", "memory"])), st.sets(st.sampled_from(["cpu", "memory"])))
def test_defaulting_twice_adds_nothing(named: set[str], bounded: set[str]) -> None:
    subject = pod(container("a", dict.fromkeys(named, "1"), dict.fromkeys(bounded, "1")))
    once = limit_ranged(subject, [DEFAULTS])
    assert limit_ranged(once, [DEFAULTS]) is once
