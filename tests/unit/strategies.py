"""Hypothesis strategies that all property tests share, and the two lines that make an object of what they give.

Import it as `tests.unit.strategies`: the project's root is on the path (`pythonpath` in pyproject.toml) and `tests` is
a namespace package, so no test needs a conftest for it.

Pods come as documents of JSON types, because that is what users write; `lean` makes the frozen object. A valid pod is
built so that the API server's rules hold (a request is drawn together with its limit, pod level is at least what the
containers need), and then shown to validation, which decides.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import assume
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.config.kubelet import SWAP_BEHAVIORS, config_errors
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import PROFILE_NAMES, profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.effective import container_limits, container_requests

Json = dict[str, Any]

GI, MI = 1 << 30, 1 << 20
HUGEPAGE_BYTES = {"hugepages-2Mi": 2 * MI, "hugepages-1Gi": GI}

# --- quantities ---

_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

digits = st.text("0123456789", min_size=1, max_size=12)
_signs = st.sampled_from(("", "", "", "+", "-"))
_numbers = (
    digits | st.builds("{}.{}".format, digits, digits) | st.builds(".{}".format, digits) | digits.map("{}.".format)
)
_exponents = st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(("", "+", "-")), st.integers(0, 30))


@st.composite
def quantity_texts(draw: st.DrawFn) -> str:
    """Any text the grammar of 01 §1.1 allows, with odd zeros, signs and points."""
    suffix = draw(st.sampled_from(_DECIMAL_SUFFIXES + _BINARY_SUFFIXES) | _exponents)
    return draw(_signs) + draw(_numbers) + suffix


def positive_texts() -> st.SearchStrategy[str]:
    return quantity_texts().filter(lambda text: not text.startswith("-"))


wild_texts = st.text(max_size=12) | st.text("0123456789.+-eEinumkKMGTP", max_size=14)

# What people write for a CPU or for memory, with the odd ones among them; never negative, never beyond reason. Tables
# instead of combined strategies: one draw each, so that a pod costs Hypothesis a few milliseconds, not thirty.
_random = random.Random(1)
CPU_TEXTS = (
    "0", "1", "2", "250m", "0.5", "1.5", "100m", "1m", "10m", "9m", "0.1m", "1n", "0.0001", "+1", "1e-1", "2E0", "1.123",
    "00.5", ".5", "3.", "500000u", "4", "64", "256", "300", "255m", "1e3", "333333333n",
    *(f"{_random.randrange(20_000)}m" for _ in range(60)),
    *(f"{_random.randrange(9)}.{_random.randrange(100_000)}" for _ in range(30)),
)  # fmt: skip
MEMORY_TEXTS = (
    "0", "1", "1Gi", "64Mi", "128974848", "1.5Gi", "100m", "1500m", "0.1", "1e9", "1E3", "129M", "0.5Ki", "123Mi", "1G",
    "100.035Ki", "1.001", "2Gi", "300Mi", "400Mi", "7Gi", "250Gi", "251Gi", "1.0001Ki", "4095", "4097",
    *(str(_random.randrange(1 << 34)) for _ in range(30)),
    *(f"{_random.randrange(9000)}Mi" for _ in range(30)),
    *(f"{_random.randrange(9_000_000)}Ki" for _ in range(20)),
    *(f"{_random.randrange(10**9)}m" for _ in range(20)),
)  # fmt: skip
cpu_texts = st.sampled_from(CPU_TEXTS)
memory_texts = st.sampled_from(MEMORY_TEXTS)
amounts = st.integers(0, 10**24)  # nano-units

# --- resource lists ---


def _pairs(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """(lower, higher), the simplest first; every text stands in several pairs."""
    shuffled = [_random.sample(texts, len(texts)) for _ in range(4)]
    found = [pair for other in (texts, *shuffled) for pair in zip(texts, other, strict=True)]
    return [tuple(sorted(pair, key=lambda text: parse(text).nanos)) for pair in found]  # type: ignore[misc]


_SHAPES = ("none", "request", "limit", "both", "equal")
_SHAPE_PAIRS = st.sampled_from([(cpu, memory) for cpu in _SHAPES for memory in _SHAPES])
_CPU_PAIRS = st.sampled_from(_pairs(CPU_TEXTS))
_MEMORY_PAIRS = st.sampled_from(_pairs(MEMORY_TEXTS))
_POSITIVE_CPU = st.sampled_from([text for text in CPU_TEXTS if parse(text)])
_POSITIVE_MEMORY = st.sampled_from([text for text in MEMORY_TEXTS if parse(text)])
# (requests, limits) beside cpu and memory: mostly nothing.
_EXTRAS = st.sampled_from(
    (
        *[({}, {})] * 8,
        ({"ephemeral-storage": "1Gi"}, {"ephemeral-storage": "2Gi"}),
        ({}, {"ephemeral-storage": "100m"}),
        ({}, {"hugepages-2Mi": "4Mi"}),
        ({"hugepages-2Mi": "2097152"}, {"hugepages-2Mi": "2Mi"}),
        ({"hugepages-1Gi": "2Gi"}, {"hugepages-1Gi": "2Gi", "hugepages-2Mi": "0"}),
        ({}, {"nvidia.com/gpu": "3"}),
    )
)
_BLANKS = st.sampled_from(((False, False), (False, False), (True, False), (False, True), (True, True)))


def _shaped(shape: str, low: str, high: str) -> tuple[str | None, str | None]:
    """(request, limit), absent as None."""
    request = {"both": low, "equal": high, "request": low}.get(shape)
    return request, high if shape in ("both", "equal", "limit") else None


@st.composite
def container_resources(draw: st.DrawFn, *, compute_only: bool = False, guaranteed: bool = False) -> Json:
    """A valid `resources` block: requests within limits, huge pages and devices equal to theirs."""
    requests: Json = {}
    limits: Json = {}
    if guaranteed:
        limits = {"cpu": draw(_POSITIVE_CPU), "memory": draw(_POSITIVE_MEMORY)}
        requests = dict(limits) if draw(st.booleans()) else {}
    else:
        shapes = draw(_SHAPE_PAIRS)
        for name, shape, pairs in zip(("cpu", "memory"), shapes, (_CPU_PAIRS, _MEMORY_PAIRS), strict=True):
            request, limit = _shaped(shape, *(draw(pairs) if shape != "none" else ("0", "0")))
            if request is not None:
                requests[name] = request
            if limit is not None:
                limits[name] = limit
    if not compute_only:
        more_requests, more_limits = draw(_EXTRAS)
        if requests or limits or "ephemeral-storage" in more_limits:  # V-11: huge pages need company
            requests.update(more_requests)
            limits.update(more_limits)
    empty_requests, empty_limits = draw(_BLANKS)
    block: Json = {}
    if requests or empty_requests:
        block["requests"] = requests
    if limits or empty_limits:
        block["limits"] = limits
    return block


def _named(name: str, resources: Json, sidecar: bool = False) -> Json:
    container: Json = {"name": name, "image": "busybox:1.36"}
    if resources:
        container["resources"] = resources
    if sidecar:
        container["restartPolicy"] = "Always"
    return container


# --- pods ---


@st.composite
def plain_pods(draw: st.DrawFn) -> Json:
    """Containers alone: no init containers, no pod level, no overhead, nothing stored."""
    blocks = draw(st.lists(container_resources(compute_only=True), min_size=1, max_size=4))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "6f1c9a3e-0000-4000-8000-000000000001"},
        "spec": {"containers": [_named(f"c{index}", block) for index, block in enumerate(blocks)]},
    }


_OVERHEADS = st.sampled_from(
    (
        *[None] * 6,
        {},
        {"cpu": "10m"},
        {"cpu": "0.1m", "memory": "100m"},
        {"cpu": "0"},
        {"memory": "1.5Mi"},
        {"cpu": "1", "memory": "1Gi"},
    )
)
_PRIORITIES = st.sampled_from(
    (
        *[(None, None)] * 6,
        (0, None),
        (-5, "batch"),
        (1_999_999_999, "system-node-critical"),
        (2_000_000_000, "system-cluster-critical"),
        (2_000_001_000, "system-node-critical"),
    )
)
_ANNOTATIONS = st.sampled_from(
    (
        *[None] * 7,
        {"kubernetes.io/config.source": "file"},
        {"kubernetes.io/config.source": "api"},
        {"kubernetes.io/config.mirror": "x"},
    )
)
_STORED = st.sampled_from((*[None] * 9, "Guaranteed", "Burstable", "BestEffort"))
# Which containers there are: how many regular ones, and for each init container whether it is a sidecar.
_SHAPES_OF_PODS = st.sampled_from(
    [
        (count, inits)
        for inits in ((), (), (False,), (True,), (False, True), (True, False), (True, True, False))
        for count in (1, 2, 3)
    ]
)


@st.composite
def valid_pods(draw: st.DrawFn, *, pod_level: bool = True, stored: bool = True) -> Json:
    """Anything the API server takes: init containers, sidecars, pod level, overhead, huge pages, priorities, a stored class."""
    count, sidecars = draw(_SHAPES_OF_PODS)
    block = container_resources(guaranteed=draw(st.integers(0, 3)) == 3)
    spec: Json = {"containers": [_named(f"c{index}", draw(block)) for index in range(count)]}
    if sidecars:
        spec["initContainers"] = [_named(f"i{index}", draw(block), each) for index, each in enumerate(sidecars)]
    serial = draw(st.integers(0, 0xFFFFFFFFFFFF))
    metadata: Json = {"name": f"p{serial}", "uid": f"dba294ab-05fe-4314-a6d0-{serial:012x}"}
    metadata["namespace"] = ("", "default", "kube-system", "shop")[serial % 4]
    overhead = draw(_OVERHEADS)
    if overhead is not None:
        spec["overhead"] = overhead
    priority, priority_class = draw(_PRIORITIES)
    if priority is not None:
        spec["priority"] = priority
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
    annotations = draw(_ANNOTATIONS)
    if annotations is not None:
        metadata["annotations"] = annotations
        spec["nodeName"] = "n1"
    document: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if pod_level and draw(st.integers(0, 2)) == 2:
        spec["resources"] = draw(_pod_level(document))
    qos = draw(_STORED) if stored else None
    if qos is not None:
        document["status"] = {"qosClass": qos}
    assume(not create_errors(defaulted(lean(document))))
    return document


@st.composite
def _pod_level(draw: st.DrawFn, document: Json) -> Json:
    """A block that covers what the containers need: V-24 to V-26."""
    pod = defaulted(lean(document))
    needed, container_total = container_requests(pod), container_limits(pod)
    largest = {
        name: max((c.resources.limits or {}).get(name, parse("0")).milli for c in pod.spec.containers)
        for name in ("cpu", "memory")
    }
    requests: Json = {}
    limits: Json = {}
    shapes = draw(_SHAPE_PAIRS)
    for name, shape, most in zip(("cpu", "memory"), shapes, (20_000, 1 << 44), strict=True):
        more, room = draw(_MARGINS)
        request = (needed[name].milli if name in needed else 0) + more * most // 1000
        limit = max(request, largest[name]) + room * most // 1000
        low, high = _shaped(shape, f"{request}m", f"{limit}m")
        if low is not None:
            requests[name] = low
        if high is not None:
            limits[name] = high
    pages = draw(_PAGES)
    if pages is not None and (requests or limits):
        for name, size in HUGEPAGE_BYTES.items():
            total = container_total[name].value if name in container_total else 0
            limits[name] = requests[name] = str(total + size * pages)
    empty_requests, empty_limits = draw(_BLANKS)
    block: Json = {}
    if requests or empty_requests:
        block["requests"] = requests
    if limits or empty_limits:
        block["limits"] = limits
    return block


_MARGINS = st.sampled_from([(more, room) for more in (0, 1, 250, 999) for room in (0, 1, 500)])
_PAGES = st.sampled_from((None, None, None, 0, 2))


def lean(document: Json) -> Pod:
    return from_document(document, Pod)


# --- nodes ---


_SWAP_BYTES = st.sampled_from((0, GI, 8 * GI, 987_654_321_987))
_OTHERS = st.sampled_from(
    (
        {},
        {"ephemeral-storage": "100Gi"},
        {"hugepages-2Mi": "64Mi"},
        {"hugepages-1Gi": "2Gi", "hugepages-2Mi": "0", "ephemeral-storage": "3.5Gi"},
        {"nvidia.com/gpu": "8"},
    )
)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    return Machine(
        cores=draw(st.sampled_from((4, 1, 2, 16, 48, 256, 300))),
        memory_bytes=draw(st.sampled_from((8 * GI, 2 * GI, 16 * GI, 269509181440)) | st.integers(2 * GI, 1 << 42)),
        others={name: parse(text) for name, text in draw(_OTHERS).items()},
        swap_bytes=draw(_SWAP_BYTES),
        swap_controller=draw(st.integers(0, 4)) != 4,
        pid_capacity=draw(st.sampled_from((None, 32768, 4_194_304))),
        page_size=draw(st.sampled_from((4096, 16384, 65536))),
        name="n1",
    )


_DEFAULTS = {profile.name: default_config(profile) for profile in map(profile_named, PROFILE_NAMES)}
_RESERVATIONS = st.sampled_from(
    (
        {},
        {"cpu": "100m", "memory": "256Mi"},
        {"cpu": "0.25", "memory": "500M", "pid": "100"},
        {"cpu": "0", "memory": "0", "pid": "0"},
        {"cpu": "0.0001"},
        {"memory": "100m"},
        {"memory": "1.5Mi", "pid": "7"},
    )
)
_ENFORCEMENTS = st.sampled_from(
    (
        ("pods",),
        ("pods",),
        ("none",),
        ("pods", "system-reserved", "kube-reserved"),
        ("pods", "system-reserved-compressible", "kube-reserved-compressible"),
        ("system-reserved",),
    )
)
_OLDER_ENFORCEMENTS = _ENFORCEMENTS.filter(lambda values: not any(each.endswith("-compressible") for each in values))
_PERIODS = st.sampled_from((100_000, 50_000, 1000, 1_000_000)) | st.integers(1000, 1_000_000)


@st.composite
def node_settings(draw: st.DrawFn, *, static_cpus: bool | None = False, pod_level: bool | None = None) -> NodeConfig:
    """A machine, a kubelet configuration without contradictions and a profile, resolved."""
    machine = draw(machines())
    profile = draw(st.sampled_from(list(map(profile_named, PROFILE_NAMES))))
    version = draw(st.sampled_from((2, 2, 1)))
    swap = _DEFAULTS[profile.name].gate("NodeSwap")
    gates = dict(_DEFAULTS[profile.name].feature_gates)
    gates["MemoryQoS"], gates["QOSReserved"], gates["CustomCPUCFSQuotaPeriod"] = draw(_THREE)
    gates["PodLevelResources"] = draw(st.integers(0, 3)) != 3 if pod_level is None else pod_level
    static = draw(st.booleans()) if static_cpus is None else static_cpus
    factors = st.sampled_from((0.9, 0.8, 1.0, 0.05)) | st.floats(0.01, 1.0)
    unset = ("",) if profile.memory_min_from_requests != "no" else ()
    policies = (*unset, "None", "TieredReservation")
    system, kube = ({name: parse(text) for name, text in draw(_RESERVATIONS).items()} for _ in range(2))
    if static:
        system["cpu"] = parse("500m")
    config = msgspec.structs.replace(
        _DEFAULTS[profile.name],
        cgroup_root=draw(st.sampled_from(("", "/", "/custom", "/a/b"))),
        system_reserved=system,
        kube_reserved=kube,
        system_reserved_cgroup="/system.slice",
        kube_reserved_cgroup="/kube.slice",
        enforce_node_allocatable=draw(_ENFORCEMENTS if profile.compressible_enforcement else _OLDER_ENFORCEMENTS),
        qos_reserved_percent=draw(
            st.sampled_from(({}, {"memory": 0}, {"memory": 50}, {"memory": 100}, {"memory": 33}))
        ),
        cpu_cfs_quota=draw(st.integers(0, 4)) != 4,
        cpu_cfs_quota_period_us=draw(_PERIODS) if gates["CustomCPUCFSQuotaPeriod"] else 100_000,
        cpu_manager_policy="static" if static else "none",
        memory_throttling_factor=draw(factors) if gates["MemoryQoS"] else 0.9,
        memory_reservation_policy=draw(st.sampled_from(policies)) if gates["MemoryQoS"] else policies[0],
        single_process_oom_kill=None,
        swap_behavior=draw(st.sampled_from(("", *SWAP_BEHAVIORS[profile.swap_rule]))) if version == 2 and swap else "",
        pod_pids_limit=draw(st.sampled_from((-1, 1, 1024))),
        fail_cgroup_v1=False,
        eviction_hard=draw(st.sampled_from(({"memory.available": "100Mi"}, {"memory.available": "5%"}, {}))),
        feature_gates=gates,
    )
    assert config_errors(config, profile) == []
    return resolved(
        machine,
        config,
        profile,
        cgroup_version=version,
        driver=draw(st.sampled_from(("cgroupfs", "systemd"))),
        runtime=draw(st.sampled_from(("containerd", "crio", "process"))),
        weight=draw(st.sampled_from((None, "linear", "quadratic"))),
    )


_THREE = st.sampled_from([(a, b, c) for a in (True, False) for b in (False, True) for c in (False, True)])
