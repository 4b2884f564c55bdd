"""What pod and container cgroups shall hold (spec 02 §4.3–§4.5, §5, §6.2, §7)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from plimsoll.rules.cgroups.desired import workload
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.effective import pod_limits, pod_requests
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.resources.values import (
    Values,
    as_kept,
    container_swap_bytes,
    container_values,
    declared_limits,
    page_size_bytes,
    pod_values,
    uses_limited_swap,
)
from tests.examples import examples
from tests.unit.strategies import Json, lean, node_settings, valid_pods

MI, GI = 1 << 20, 1 << 30
NODE = NodePolicy(8 * GI, 8 * GI)


def block(cpu: str | None = None, memory: str | None = None, *, requests: Json | None = None, **more: str) -> Json:
    """A container's resources: limits as named, requests as set or from limits."""
    limits = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text is not None} | more
    return {"limits": limits} | ({} if requests is None else {"requests": requests})


def pod(*blocks: Json, inits: tuple[tuple[Json, bool], ...] = (), **fields: Any) -> Pod:
    document = {
        "metadata": {"name": "p", "annotations": fields.pop("annotations", None)},
        "status": fields.pop("status", {}),
        "spec": {
            "containers": [{"name": f"c{i}", "resources": each} for i, each in enumerate(blocks)],
            "initContainers": [
                {"name": f"i{i}", "resources": each, "restartPolicy": "Always" if sidecar else None}
                for i, (each, sidecar) in enumerate(inits)
            ],
            **fields,
        },
    }
    return defaulted(lean(document))


def of_pod(each: Pod, policy: NodePolicy = NODE, **more: Any) -> Values:
    return pod_values(
        each,
        qos_class(each, gates=policy.gates),
        pod_requests(each, gates=policy.gates),
        pod_limits(each, gates=policy.gates),
        policy,
        **more,
    )


def of_container(each: Pod, index: int = 0, policy: NodePolicy = NODE, **more: Any) -> Values:
    container = (each.spec.init_containers + each.spec.containers)[index]
    return container_values(each, container, qos_class(each, gates=policy.gates), policy, **more)


def changed(**fields: Any) -> NodePolicy:
    return msgspec.structs.replace(NODE, **fields)


# --- §4.4 ---

FULL, EMPTY = block("500m", "400Mi"), {}
DECLARED = [
    ("all limited", pod(FULL), (True, True)),
    ("one unlimited container", pod(FULL, EMPTY), (False, False)),
    ("cpu only", pod(FULL, block("1")), (True, False)),
    ("zero is no limit", pod(FULL, block("0", "1Gi")), (False, True)),
    ("an unlimited plain init", pod(FULL, inits=((EMPTY, False),)), (False, False)),
    ("an unlimited init after a limited sidecar", pod(FULL, inits=((FULL, True), (EMPTY, False))), (True, True)),
    ("an unlimited init before a limited sidecar", pod(FULL, inits=((EMPTY, False), (FULL, True))), (False, False)),
    ("an unlimited sidecar after a limited one", pod(FULL, inits=((FULL, True), (EMPTY, True))), (True, True)),
    ("pod-level cpu limit", pod(EMPTY, resources={"limits": {"cpu": "1"}}), (True, False)),
    ("pod-level zero", pod(EMPTY, resources={"limits": {"cpu": "0", "memory": "1Gi"}}), (False, True)),
    ("overhead does not count", pod(EMPTY, overhead={"cpu": "1", "memory": "1Gi"}), (False, False)),
]


@pytest.mark.parametrize(
    ("each", "expected"), [row[1:] for row in DECLARED], ids=[f"02 §4.4 {row[0]}" for row in DECLARED]
)
def test_declared_limits(each: Pod, expected: tuple[bool, bool]) -> None:
    assert declared_limits(each) == expected


def test_declared_limits_with_the_gate_off() -> None:
    assert declared_limits(pod(EMPTY, resources={"limits": {"cpu": "1"}}), gates=Gates(pod_level=False)) == (
        False,
        False,
    )


REQ = {"cpu": "250m", "memory": "1Gi"}
POD = [
    ("example: A limited, B not", pod(block("500m", "400Mi", requests={"cpu": "250m", "memory": "1Mi"}), EMPTY), Values(256)),
    ("example: cpu in both, memory in one", pod(block("500m"), block("1", "1Gi")), Values(1536, 150_000, 100_000)),
    ("example: the seed's nginx", pod(block("500m", "2Gi", requests=REQ)), Values(256, 50_000, 100_000, 2147483648)),
    ("Guaranteed", pod(block("1", "200Mi")), Values(1024, 100_000, 100_000, 209715200)),
    ("BestEffort", pod(EMPTY), Values(2)),
    ("BestEffort though containers ask", pod({"requests": REQ}, resources={}), Values(2)),
    ("stored Guaranteed without limits: set, but none", pod(EMPTY, status={"qosClass": "Guaranteed"}), Values(2, 0, 100_000, 0)),
    ("stored BestEffort with limits", pod(FULL, status={"qosClass": "BestEffort"}), Values(2)),
    ("overhead counts", pod(FULL, overhead={"cpu": "100m", "memory": "1Mi"}), Values(614, 60_000, 100_000, 401 * MI)),
    ("§7 huge pages of requests, every size", pod(block("1", "1Gi", **{"hugepages-2Mi": "4Mi"})),
     Values(1024, 100_000, 100_000, GI, hugetlb={2 * MI: 4 * MI})),
]  # fmt: skip


@pytest.mark.parametrize(("each", "expected"), [row[1:] for row in POD], ids=[f"02 §4.4 {row[0]}" for row in POD])
def test_pod_values(each: Pod, expected: Values) -> None:
    assert of_pod(each) == expected


def test_the_examples_container() -> None:
    """02 §4.4: A's own cgroup has 50000/100000 and 419430400 though its pod has neither."""
    own = of_container(pod(block("500m", "400Mi"), EMPTY))
    assert (own.cpu_quota_us, own.cpu_period_us, own.memory_bytes) == (50_000, 100_000, 419430400)


QUOTAS = [
    ("off: −1 with the period at pod level", changed(cfs_quota=False), False, (-1, 100_000), (None, None)),
    ("exclusive CPUs: none", changed(), True, (-1, 100_000), (-1, 100_000)),
    ("exclusive CPUs with quota, as in documents", changed(quota_with_exclusive_cpus=True), True, (100_000, 100_000), (100_000, 100_000)),
    ("another period", changed(period_us=50_000), False, (50_000, 50_000), (50_000, 50_000)),
    ("gate off [quirk]: quota of 100 ms with the configured period", changed(period_us=50_000, custom_period=False), False, (100_000, 50_000), (100_000, 100_000)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "exclusive", "in_pod", "in_container"),
    [row[1:] for row in QUOTAS],
    ids=[f"02 §4.3 {row[0]}" for row in QUOTAS],
)
def test_quotas(policy: NodePolicy, exclusive: bool, in_pod, in_container) -> None:
    each = pod(block("1", "1Gi"))
    values = of_pod(each, policy, exclusive_cpus=exclusive)
    assert (values.cpu_quota_us, values.cpu_period_us) == in_pod
    values = of_container(each, policy=policy, exclusive_cpus=exclusive)
    assert (values.cpu_quota_us, values.cpu_period_us) == in_container


def test_no_quota_where_none_is_declared() -> None:
    """02 §4.3: cpuCFSQuota false writes −1 only where a quota is written at all."""
    assert of_pod(pod(EMPTY), changed(cfs_quota=False)).cpu_quota_us is None
    own = of_container(pod(EMPTY))
    assert (own.cpu_quota_us, own.cpu_period_us) == (None, 100_000), "the period is always sent to a container"


SHARES = [
    ("request", block("2", requests={"cpu": "250m"}), {}, 256),
    ("a request of zero is a request", block("2", requests={"cpu": "0"}), {}, 2),
    ("limit where there is no request", {"limits": {}, "requests": {}}, {"limits": {"cpu": "2"}}, 2048),
    ("nothing", EMPTY, {}, 2),
]


@pytest.mark.parametrize(
    ("resources", "level", "shares"), [row[1:] for row in SHARES], ids=[f"02 §4.1 {row[0]}" for row in SHARES]
)
def test_container_shares(resources: Json, level: Json, shares: int) -> None:
    each = pod(resources, **({"resources": level} if level else {}))
    assert of_container(each).cpu_shares == shares


def test_inheritance_from_pod_level() -> None:
    """02 §4.4: what a container lacks it is sent from pod level, init containers too; never with the gate off."""
    each = pod(EMPTY, block("100m"), inits=((EMPTY, False),), resources={"limits": {"cpu": "2", "memory": "1Gi"}})
    got = [(of_container(each, i).cpu_quota_us, of_container(each, i).memory_bytes) for i in range(3)]
    assert got == [(200_000, GI), (200_000, GI), (10_000, GI)]
    gated = of_container(each, 0, changed(gates=Gates(pod_level=False)))
    assert (gated.cpu_quota_us, gated.memory_bytes) == (None, None)


# --- §5 ---

SWAP = [
    ("worked: 2Gi of 16Gi, 8Gi swap", pod(block("1", "4Gi", requests={"memory": "2Gi"})), {}, 1073741824),
    ("only a limit: request follows, so equal", pod(block(memory="4Gi"), EMPTY), {}, 0),
    ("a limit and a request of zero", pod(block(memory="4Gi", requests={"memory": "0"}), EMPTY), {}, 0),
    ("Guaranteed", pod(block("1", "4Gi")), {}, 0),
    ("request equals limit in a Burstable pod", pod(block(memory="4Gi", requests={"memory": "4Gi"}), EMPTY), {}, 0),
    ("neither", pod(EMPTY, block("1")), {}, 0),
    ("request only", pod({"requests": {"memory": "2Gi"}}), {}, 1073741824),
    ("critical", pod({"requests": {"memory": "2Gi"}}, priority=2_000_000_000), {}, 0),
    ("static", pod({"requests": {"memory": "2Gi"}}, annotations={"kubernetes.io/config.source": "file"}), {}, 0),
    ("NoSwap", pod({"requests": {"memory": "2Gi"}}), {"limited_swap": False}, 0),
    ("no swap controller: nothing is set", pod({"requests": {"memory": "2Gi"}}), {"swap_controller": False}, None),
    ("v1: nothing of v2", pod({"requests": {"memory": "2Gi"}}), {"cgroup_version": 1}, None),
    ("request above capacity", pod({"requests": {"memory": "17Gi"}}), {}, 0),
]


@pytest.mark.parametrize(("each", "fields", "swap"), [row[1:] for row in SWAP], ids=[f"02 §5 {row[0]}" for row in SWAP])
def test_swap(each: Pod, fields: Json, swap: int | None) -> None:
    policy = NodePolicy(
        **{"memory_capacity_bytes": 16 * GI, "swap_capacity_bytes": 8 * GI, "limited_swap": True, **fields}
    )
    assert of_container(each, policy=policy).swap_bytes == swap
    container = each.spec.containers[0]
    assert uses_limited_swap(each, container, qos_class(each), policy) or not swap
    assert container_swap_bytes(each, container, qos_class(each), policy) == (swap or 0)


def test_swap_on_v1() -> None:
    """02 §5: memory+swap equals the memory limit, own or inherited; none without a limit or a controller."""
    v1 = changed(cgroup_version=1)
    assert of_container(pod(block("1", "1Gi")), policy=v1).memory_and_swap_bytes == GI
    assert of_container(pod(EMPTY, resources={"limits": {"memory": "2Gi"}}), policy=v1).memory_and_swap_bytes == 2 * GI
    assert of_container(pod(EMPTY), policy=v1).memory_and_swap_bytes is None
    assert (
        of_container(
            pod(block("1", "1Gi")), policy=changed(cgroup_version=1, swap_controller=False)
        ).memory_and_swap_bytes
        is None
    )


def test_oom_group() -> None:
    assert of_container(pod(EMPTY), policy=changed(oom_group=True)).oom_group == 1
    assert of_container(pod(EMPTY)).oom_group is None
    assert of_pod(pod(EMPTY), changed(oom_group=True)).oom_group is None, "02 §5: container cgroups only"


# --- §6.2: (memory.min, memory.low) of the pod and of its container ---

GUARANTEED, BURSTABLE = pod(block("1", "1Gi")), pod(block("2", "2Gi", requests={"memory": "1Gi"}))
NO_REQUEST = pod(block("1"))
SURPRISE = pod({"requests": {"memory": "1Gi"}}, resources={})  # BestEffort by an empty pod-level block
PROTECTED = [
    ("None, Guaranteed", "none", GUARANTEED, (None, None), (0, 0)),
    ("None, Burstable", "none", BURSTABLE, (None, None), (0, 0)),
    ("None, no request", "none", NO_REQUEST, (None, None), (0, 0)),
    ("Tiered, Guaranteed", "tiered", GUARANTEED, (GI, None), (GI, None)),
    ("Tiered, Burstable", "tiered", BURSTABLE, (None, GI), (None, GI)),
    ("Tiered, no request", "tiered", NO_REQUEST, (None, None), (0, 0)),
    ("Tiered, BestEffort with a request [quirk]", "tiered", SURPRISE, (None, GI), (None, GI)),
    ("Tiered, BestEffort by overhead [quirk]", "tiered", pod(EMPTY, overhead={"memory": "1Mi"}), (None, MI), (0, 0)),
    ("documents, Guaranteed", "requests", GUARANTEED, (GI, None), (GI, None)),
    ("documents, Burstable", "requests", BURSTABLE, (GI, None), (GI, None)),
    ("documents, no request", "requests", NO_REQUEST, (None, None), (None, None)),
    ("documents, BestEffort", "requests", pod(EMPTY), (None, None), (None, None)),
]


@pytest.mark.parametrize(
    ("reservation", "each", "in_pod", "in_container"),
    [row[1:] for row in PROTECTED],
    ids=[f"02 §6.2 {row[0]}" for row in PROTECTED],
)
def test_protection(reservation, each: Pod, in_pod, in_container) -> None:
    policy = changed(memory_qos=True, reservation=reservation)
    values, own = of_pod(each, policy), of_container(each, policy=policy)
    assert (values.memory_min_bytes, values.memory_low_bytes) == in_pod
    assert (own.memory_min_bytes, own.memory_low_bytes) == in_container
    off = of_container(each, policy=changed(reservation=reservation))
    assert (off.memory_min_bytes, off.memory_low_bytes, off.memory_high_bytes) == (None, None, None), "the gate is off"


def test_memory_high_is_of_the_own_limit() -> None:
    """02 §6.1: pod-level limits are ignored; allocatable is used."""
    policy = changed(memory_qos=True, allocatable_memory_bytes=4 * GI)
    each = pod({"requests": {"memory": "1Gi"}}, resources={"limits": {"memory": "2Gi"}})
    assert of_container(each, policy=policy).memory_high_bytes == int((GI + 3 * GI * 0.9) // 4096) * 4096
    assert of_pod(each, policy).memory_high_bytes is None, "container cgroups only"


# --- §7 ---


def test_hugetlb_of_containers() -> None:
    """02 §7: per host size the own limit if the key is there, even 0, else pod level's, else 0; no others."""
    host = changed(hugepage_sizes=(2 * MI, GI))
    limits = {"cpu": "2", "hugepages-2Mi": "8Mi", "hugepages-1Gi": "2Gi"}
    each = pod(
        block("1", **{"hugepages-2Mi": "0", "hugepages-64Ki": "64Ki"}),
        EMPTY,
        resources={"limits": limits, "requests": limits},
    )
    assert of_container(each, 0, host).hugetlb == {2 * MI: 0, GI: 2 * GI}
    assert of_container(each, 1, host).hugetlb == {2 * MI: 8 * MI, GI: 2 * GI}
    assert of_container(each, 1, changed(hugepage_sizes=(2 * MI, GI), gates=Gates(pod_level=False))).hugetlb == {
        2 * MI: 0,
        GI: 0,
    }
    assert of_container(each, 0).hugetlb is None


def test_page_sizes() -> None:
    assert page_size_bytes("hugepages-1Gi") == GI
    assert page_size_bytes("hugepages-2Mi") == 2 * MI
    assert page_size_bytes("hugepages-64Ki") == 65536


PIDS = [(-1, None), (0, None), (1, 1), (1024, 1024)]


@pytest.mark.parametrize(("limit", "pids"), PIDS, ids=[f"02 §7 podPidsLimit {row[0]}" for row in PIDS])
def test_pids(limit: int, pids: int | None) -> None:
    assert of_pod(pod(EMPTY), changed(pod_pids_limit=limit)).pids == pids
    assert of_container(pod(EMPTY), policy=changed(pod_pids_limit=limit)).pids is None


KEPT = [
    ("255m", Values(2, 25_500, 100_000), "systemd", 26_000),
    ("cgroupfs leaves it", Values(2, 25_500, 100_000), "cgroupfs", 25_500),
    ("unlimited", Values(2, -1, 100_000), "systemd", -1),
    ("none", Values(2, 0, 100_000), "systemd", 0),
    ("absent", Values(2), "systemd", None),
]


@pytest.mark.parametrize(
    ("values", "driver", "quota"), [row[1:] for row in KEPT], ids=[f"02 §2.3 {row[0]}" for row in KEPT]
)
def test_what_the_driver_keeps(values: Values, driver, quota: int | None) -> None:
    assert as_kept(values, driver).cpu_quota_us == quota


# --- properties ---


@settings(max_examples=examples(150), deadline=None)
@given(valid_pods(), node_settings(static_cpus=None))
def test_any_valid_pod(document: Json, setting) -> None:
    work = workload(lean(document), setting)
    policy = setting.policy
    assert 2 <= work.values.cpu_shares <= 262144
    if work.qos == "BestEffort":
        assert (work.values.cpu_shares, work.values.cpu_period_us, work.values.memory_bytes) == (2, None, None)
    for values in (work.values, *work.container_values):
        assert values.cpu_quota_us is None or values.cpu_quota_us in (-1, 0) or values.cpu_quota_us >= 1000
        assert (values.memory_and_swap_bytes is None) or policy.cgroup_version == 1 or policy.swap_with_memory
        assert (values.swap_bytes is None) or policy.cgroup_version == 2
        if not policy.memory_qos:
            assert (values.memory_min_bytes, values.memory_low_bytes) == (None, None)
            assert values.memory_high_bytes in ((None, -1) if policy.high_reset else (None,))
    for container, own in zip(work.containers, work.container_values, strict=True):
        limit = (container.resources.limits or {}).get("memory")
        if own.memory_high_bytes is not None and limit:  # an inherited limit plays no part (02 §6.1)
            assert own.memory_high_bytes <= limit.value
        assert 2 <= own.cpu_shares <= 262144
        assert own.swap_bytes in (None, -1) or 0 <= own.swap_bytes <= policy.swap_capacity_bytes
        assert (own.swap_bytes == -1) == (policy.unlimited_swap and own.swap_bytes is not None)
    if work.values.memory_min_bytes is not None:
        assert work.values.memory_min_bytes == work.requests["memory"].value
