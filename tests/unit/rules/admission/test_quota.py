"""ResourceQuota: 01 §9, K-1 … K-7."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.quota import (
    bounds_pods,
    charged,
    in_scopes,
    increase,
    is_charged,
    scope_may_bound,
    usage,
    used_by,
)
from plimsoll.rules.model.objects import Pod, ResourceList
from plimsoll.rules.model.policies import ResourceQuota
from plimsoll.rules.profile import PROFILE_DOCUMENTS, Profile, profile_named

Json = dict[str, Any]


def pod(requests: Json | None = None, limits: Json | None = None, *, status: Json | None = None, **spec: Any) -> Pod:
    spec.setdefault("containers", [{"name": "a", "resources": {"requests": requests, "limits": limits}}])
    return from_document({"metadata": {"name": "x"}, "spec": spec, "status": status or {}}, Pod)


def quota(hard: Json, used: Json | None = None, name: str = "q", **spec: Any) -> ResourceQuota:
    status = {"hard": hard, "used": dict.fromkeys(hard, "0") if used is None else used}
    return from_document({"metadata": {"name": name}, "spec": {"hard": hard, **spec}, "status": status}, ResourceQuota)


def texts(resources: ResourceList | None) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in (resources or {}).items()}


COUNTS = {"count/pods": "1", "pods": "1"}
RESIZED = {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "5"}}}]}


@pytest.mark.parametrize(
    ("subject", "profile", "expected"),
    [
        pytest.param(pod(), profile_named("1.36"), COUNTS, id="K-1 counts"),
        pytest.param(
            pod(
                {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"},
                {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "3Gi"},
            ),
            profile_named("1.36"),
            {
                **COUNTS,
                "cpu": "1",
                "requests.cpu": "1",
                "limits.cpu": "2",
                "memory": "1Gi",
                "requests.memory": "1Gi",
                "limits.memory": "2Gi",
                "ephemeral-storage": "2Gi",
                "requests.ephemeral-storage": "2Gi",
                "limits.ephemeral-storage": "3Gi",
            },
            id="K-1 names",
        ),
        pytest.param(
            pod({"hugepages-2Mi": "4Mi", "example.com/gpu": "2"}, {"hugepages-2Mi": "4Mi", "example.com/gpu": "2"}),
            profile_named("1.36"),
            {**COUNTS, "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi", "requests.example.com/gpu": "2"},
            id="K-1 hugepages and extended",
        ),
        pytest.param(
            pod({"cpu": "1"}, {"cpu": "1"}, overhead={"cpu": "250m"}),
            profile_named("1.36"),
            {**COUNTS, "cpu": "1250m", "requests.cpu": "1250m", "limits.cpu": "1250m"},
            id="K-1 with overhead",
        ),
        pytest.param(
            pod({"cpu": "1"}, {"cpu": "1"}, status=RESIZED),
            profile_named("1.36"),
            {**COUNTS, "cpu": "3", "requests.cpu": "3", "limits.cpu": "5"},
            id="E-10 what it may still hold",
        ),
        pytest.param(
            pod({"cpu": "1"}, {"cpu": "1"}, status=RESIZED),
            PROFILE_DOCUMENTS,
            {**COUNTS, "cpu": "1", "requests.cpu": "1", "limits.cpu": "1"},
            id="E-12 documents knows only allocatedResources",
        ),
        pytest.param(
            pod(resources={"requests": {"cpu": "1"}}, status={"resources": {"requests": {"cpu": "9"}}}),
            profile_named("1.36"),
            {**COUNTS, "cpu": "1", "requests.cpu": "1"},
            id="E-11 pod level from the spec",
        ),
        pytest.param(
            pod({"cpu": "1"}, status={"phase": "Succeeded"}),
            profile_named("1.36"),
            {"count/pods": "1"},
            id="K-2 Succeeded",
        ),
        pytest.param(
            pod({"cpu": "1"}, status={"phase": "Failed"}), profile_named("1.36"), {"count/pods": "1"}, id="K-2 Failed"
        ),
    ],
)
def test_k1_usage(subject: Pod, profile: Profile, expected: Json) -> None:
    assert texts(usage(subject, profile)) == expected


def test_k2_after_the_deletion_grace_only_the_object_counts() -> None:
    assert texts(usage(pod({"cpu": "1"}), profile_named("1.36"), grace_elapsed=True)) == {"count/pods": "1"}


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("cpu", True),
        ("limits.ephemeral-storage", True),
        ("count/pods", True),
        ("requests.hugepages-1Gi", True),
        ("requests.nvidia.com/gpu", True),
        ("nvidia.com/gpu", False),
        ("services", False),
        ("requests.storage", False),
        ("count/deployments.apps", False),
    ],
)
def test_k1_names_that_pods_are_charged_under(name: str, bounds: bool) -> None:
    assert bounds_pods(name) is bounds


# --- K-3 ---

DEADLINE = pod(activeDeadlineSeconds=60)


@pytest.mark.parametrize(
    ("operation", "subresource", "new", "old", "profile", "handled"),
    [
        pytest.param("CREATE", "", pod(), None, profile_named("1.36"), True, id="create"),
        pytest.param("CREATE", "binding", pod(), None, profile_named("1.36"), False, id="binding"),
        pytest.param("UPDATE", "", pod(), pod(), profile_named("1.36"), False, id="plain update"),
        pytest.param("UPDATE", "", DEADLINE, pod(), profile_named("1.36"), True, id="the terminating scope flips"),
        pytest.param("UPDATE", "resize", pod(), pod(), profile_named("1.36"), True, id="resize"),
        pytest.param("UPDATE", "status", pod(), pod(), profile_named("1.36"), False, id="status"),
        pytest.param("UPDATE", "", pod(), pod(), PROFILE_DOCUMENTS, True, id="documents: every update"),
        pytest.param("DELETE", "", pod(), pod(), profile_named("1.36"), False, id="delete"),
    ],
)
def test_k3_when(operation: str, subresource: str, new: Pod, old: Pod | None, profile: Profile, handled: bool) -> None:
    assert is_charged(operation, subresource, new, old, profile) is handled


@pytest.mark.parametrize(
    ("new", "old", "used", "refused"),
    [
        pytest.param("3", "1", "4", False, id="growth that fits"),
        pytest.param("4", "1", "4", True, id="growth that does not"),
        pytest.param("1", "4", "9", False, id="shrinking never fails, even above the quota"),
        pytest.param("2", "2", "9", False, id="no change never fails"),
    ],
)
def test_k3_an_update_is_charged_its_increase(new: str, old: str, used: str, refused: bool) -> None:
    bounded = quota({"requests.cpu": "6"}, {"requests.cpu": used})
    found = charged([bounded], pod({"cpu": new}), profile_named("1.36"), old=pod({"cpu": old}))
    assert bool(found.refusal) is refused
    if not refused:
        expected = int(used) + max(0, int(new) - int(old))
        assert texts(found.quotas[0].status.used) == {"requests.cpu": str(expected)}


def test_k3_a_pending_larger_spec_is_charged_at_once() -> None:
    reported = {
        "containerStatuses": [
            {"name": "a", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
        ]
    }
    bounded = quota({"requests.cpu": "4"}, {"requests.cpu": "1"})
    found = charged(
        [bounded], pod({"cpu": "3"}, status=reported), profile_named("1.36"), old=pod({"cpu": "1"}, status=reported)
    )
    assert texts(found.quotas[0].status.used) == {"requests.cpu": "3"}


def test_k3_a_pod_that_enters_a_scope_is_charged_in_full() -> None:
    bounded = quota({"pods": "2"}, {"pods": "1"}, scopes=["Terminating"])
    found = charged([bounded], DEADLINE, profile_named("1.36"), old=pod())
    assert texts(found.quotas[0].status.used) == {"pods": "2"}


# --- K-4, K-5 ---


@pytest.mark.parametrize(
    ("subject", "hard", "refusal"),
    [
        pytest.param(
            pod(containers=[{"name": "b", "resources": {"requests": {"memory": "1"}}}, {"name": "a"}]),
            {"limits.cpu": "9", "requests.memory": "9"},
            "failed quota: q: must specify limits.cpu for: a,b; requests.memory for: a",
            id="K-4",
        ),
        pytest.param(
            pod({"cpu": "1"}, initContainers=[{"name": "i"}]),
            {"cpu": "9"},
            "failed quota: q: must specify cpu for: i",
            id="K-4 init containers",
        ),
        pytest.param(pod({"cpu": "0"}), {"cpu": "9"}, "", id="K-4 zero is named"),
        pytest.param(pod(), {"requests.ephemeral-storage": "9", "pods": "9"}, "", id="K-4 only cpu and memory"),
        pytest.param(
            pod(resources={"requests": {"cpu": "1"}}),
            {"limits.cpu": "9"},
            "",
            id="K-4 skipped with pod-level resources",
        ),
        pytest.param(pod({"cpu": "9"}), {"cpu": "9"}, "", id="K-5 just"),
        pytest.param(
            pod({"cpu": "10"}),
            {"cpu": "9"},
            "exceeded quota: q, requested: cpu=10, used: cpu=0, limited: cpu=9",
            id="K-5 alone too large",
        ),
        pytest.param(
            pod({"cpu": "2", "memory": "2Gi"}),
            {"requests.cpu": "1", "pods": "5", "memory": "1Gi"},
            "exceeded quota: q, requested: memory=2Gi,requests.cpu=2, used: memory=0,requests.cpu=0, limited: memory=1Gi,requests.cpu=1",
            id="K-5 names what is exceeded, sorted",
        ),
    ],
)
def test_k4_k5_refusals(subject: Pod, hard: Json, refusal: str) -> None:
    assert charged([quota(hard)], subject, profile_named("1.36")).refusal == refusal


def test_k5_worked() -> None:
    bounded = quota({"requests.cpu": "4"}, {"requests.cpu": "4"}, name="compute")
    assert charged([bounded], pod({"cpu": "1"}), profile_named("1.36")).refusal == (
        "exceeded quota: compute, requested: requests.cpu=1, used: requests.cpu=4, limited: requests.cpu=4"
    )


def test_a_quota_without_known_usage_refuses() -> None:
    bounded = quota({"pods": "4", "cpu": "4"}, {"pods": "1"})
    assert (
        charged([bounded], pod({"cpu": "1"}), profile_named("1.36")).refusal
        == "status unknown for quota: q, resources: cpu,pods"
    )


def test_one_refusal_charges_no_quota() -> None:
    quotas = (quota({"pods": "5"}, {"pods": "1"}, name="wide"), quota({"pods": "1"}, {"pods": "1"}, name="narrow"))
    found = charged(quotas, pod(), profile_named("1.36"))
    assert found.refusal == "exceeded quota: narrow, requested: pods=1, used: pods=1, limited: pods=1"
    assert found.quotas == quotas
    assert charged([quota({"services": "1"})], pod(), profile_named("1.36")).refusal == "", (
        "other objects' quotas don't apply"
    )


# --- K-6 ---

BURSTABLE = pod({"cpu": "1"})


def selector(operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "subject", "inside"),
    [
        pytest.param({}, pod(), True, id="no scopes"),
        pytest.param({"scopes": ["BestEffort"]}, pod(), True, id="BestEffort"),
        pytest.param({"scopes": ["BestEffort"]}, BURSTABLE, False, id="BestEffort, Burstable pod"),
        pytest.param({"scopes": ["NotBestEffort"]}, BURSTABLE, True, id="NotBestEffort"),
        pytest.param(
            {"scopes": ["BestEffort"]}, pod(status={"qosClass": "Burstable"}), False, id="the stored class decides"
        ),
        pytest.param({"scopes": ["Terminating"]}, DEADLINE, True, id="Terminating"),
        pytest.param({"scopes": ["NotTerminating"]}, DEADLINE, False, id="NotTerminating"),
        pytest.param({"scopes": ["NotTerminating", "BestEffort"]}, BURSTABLE, False, id="all scopes"),
        pytest.param({"scopes": ["PriorityClass"]}, pod(priorityClassName="high"), True, id="PriorityClass"),
        pytest.param({"scopes": ["PriorityClass"]}, pod(), False, id="PriorityClass, none"),
        pytest.param(
            {"scopeSelector": selector("In", "high", "low")}, pod(priorityClassName="low"), True, id="PriorityClass In"
        ),
        pytest.param({"scopeSelector": selector("In", "high")}, pod(), False, id="PriorityClass In, none"),
        pytest.param({"scopeSelector": selector("NotIn", "high")}, pod(), True, id="PriorityClass NotIn, none"),
        pytest.param({"scopeSelector": selector("DoesNotExist")}, pod(), True, id="PriorityClass DoesNotExist"),
        pytest.param({"scopes": ["Unheard"]}, pod(), False, id="unknown scope"),
    ],
)
def test_k6_scopes(spec: Json, subject: Pod, inside: bool) -> None:
    assert in_scopes(quota({"pods": "1"}, **spec), subject) is inside


@pytest.mark.parametrize(
    ("scope", "name", "may"),
    [
        ("BestEffort", "pods", True),
        ("BestEffort", "cpu", False),
        ("NotBestEffort", "limits.memory", True),
        ("Terminating", "requests.cpu", True),
        ("Terminating", "services", False),
    ],
)
def test_k6_what_a_scope_may_bound(scope: str, name: str, may: bool) -> None:
    assert scope_may_bound(scope, name) is may


def test_used_by_counts_the_pods_in_scope() -> None:
    bounded = quota({"requests.cpu": "9", "count/pods": "9", "services": "3"}, scopes=["NotBestEffort"])
    pods = [BURSTABLE, pod({"cpu": "500m"}), pod(), pod({"cpu": "4"}, status={"phase": "Failed"})]
    assert texts(used_by(bounded, pods, profile_named("1.36"), expired=[BURSTABLE])) == {
        "requests.cpu": "1500m",
        "count/pods": "4",
    }


LISTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 9).map(str))


@given(LISTS, LISTS)
def test_increase_is_never_negative_and_reaches_the_new_value(new: Json, old: Json) -> None:
    before, after = quota(old).spec.hard or {}, quota(new).spec.hard or {}
    found = increase(after, before)
    for name, quantity in after.items():
        grown = quantity.value - (before[name].value if name in before else 0)
        assert (found[name].value if name in found else 0) == max(0, grown)


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(0, 15))
def test_charges_add_up_and_never_pass_the_limit(cpus: list[int], hard: int) -> None:
    quotas: tuple[ResourceQuota, ...] = (quota({"cpu": str(hard)}),)
    expected = 0
    for cpu in cpus:
        found = charged(quotas, pod({"cpu": str(cpu)}), profile_named("1.36"))
        assert bool(found.refusal) is (expected + cpu > hard)
        quotas = found.quotas
        expected += 0 if found.refusal else cpu
    used = quotas[0].status.used
    assert used is not None and used["cpu"].value == expected
