"""Validation of pods/resize, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.model.gates import Gates
from tests.unit.rules.admission.resize_documents import (
    ALL,
    BURSTABLE,
    GUARANTEED,
    INIT,
    NO_PLR,
    ONLY,
    RESTARTING,
    container,
    document,
    resources,
    server,
    shown,
)

NO_INIT = Gates(init_containers=False)


QOS = 'spec: Invalid value: "": Pod QOS Class may not change as a result of resizing'


# What may change (step 9: adding is fine)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(resources({"cpu": "1500m"}), id="cpu request"),
        pytest.param(resources({"memory": "512Mi"}, {"memory": "1Gi"}), id="memory down"),
        pytest.param(resources({"cpu": "1000m", "memory": "1024Mi"}), id="same by value"),
    ],
)
def test_cpu_and_memory_may_change(after):
    assert server(document(), document(container(resources=after))) == []


def test_step_9_entries_may_be_added():
    assert server(document(container(resources={"requests": {"cpu": "1"}})), document()) == []
    assert (
        server(document(container(resources=BURSTABLE), container("d", {})), document(container(), container("d")))
        == []
    )


SIDECAR = container("i", {"requests": {"cpu": "1"}}, restartPolicy="Always")


RUNNING = {"name": "c", "state": {"running": {}}}


def init(spec: dict[str, Any], cpu: str = "2", **changes: Any) -> dict[str, Any]:
    return {**spec, "resources": {"requests": {"cpu": cpu}}, **changes}


STEPS = [
    (
        "1 create validation",
        document(),
        document(container(resources=resources({"cpu": "3"}))),
        ALL,
        ['spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 2'],
    ),
    (
        "1 hugepages rule off when the old pod breaks it",
        document(container(resources=resources({}, {"hugepages-2Mi": "3Mi"}))),
        document(container(resources=resources({"cpu": "1100m"}, {"hugepages-2Mi": "3Mi"}))),
        ALL,
        [],
    ),
    (
        "1 a name twice",
        document(container(), container("d")),
        document(container(), container("c")),
        ALL,
        [
            'spec.containers[1].name: Duplicate value: "c"',
            "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize",
        ],
    ),
    (
        "2 mirror pod, nothing else is said",
        document(metadata={"annotations": {"kubernetes.io/config.mirror": ""}}),
        document(
            container(resources=resources({"cpu": "3"})), metadata={"annotations": {"kubernetes.io/config.mirror": ""}}
        ),
        ALL,
        ["[]: Forbidden: static pods cannot be resized"],
    ),
    (
        "2 config.source plays no part",
        document(metadata={"annotations": {"kubernetes.io/config.source": "file"}}),
        document(
            container(resources=resources({"cpu": "2"})),
            metadata={"annotations": {"kubernetes.io/config.source": "file"}},
        ),
        ALL,
        [],
    ),
    (
        "3 windows",
        document(os={"name": "windows"}),
        document(container(resources=resources({"cpu": "3"})), os={"name": "windows"}),
        ALL,
        ["[]: Forbidden: windows pods cannot be resized"],
    ),
    ("4 class computed", document(), document(container(resources=GUARANTEED)), ALL, [QOS]),
    (
        "4 class stored",
        document(status={"qosClass": "Guaranteed"}),
        document(),
        ALL,
        ['spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'],
    ),
    (
        "5 node without support",
        document(status={"containerStatuses": [{"name": "x"}, RUNNING, {**RUNNING, "resources": {}}]}),
        document(),
        ALL,
        ["spec: Forbidden: Pod running on node without support for resize"],
    ),
    (
        "5 empty resources are support",
        document(status={"containerStatuses": [{**RUNNING, "resources": {}}]}),
        document(),
        ALL,
        [],
    ),
    (
        "5 nothing runs",
        document(status={"containerStatuses": [{"name": "c", "state": {"waiting": {}}}]}),
        document(),
        ALL,
        [],
    ),
    (
        "6 gate off, stop",
        document(resources={"requests": {"cpu": "4"}}),
        document(container("other"), resources={"requests": {"cpu": "4"}}),
        NO_PLR,
        [
            "[]: Forbidden: resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
        ],
    ),
    (
        "6 an empty block does not count",
        document(container(resources={}), resources={}),
        document(container(resources={}), resources={}),
        NO_PLR,
        [],
    ),
    (
        "6 block removed",
        document(resources={"requests": {"cpu": "4"}}),
        document(),
        ALL,
        ["spec.resources: Forbidden: pod-level resources cannot be removed"],
    ),
    (
        "6 entries removed, once per list",
        document(resources={"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"cpu": "5", "memory": "9Gi"}}),
        document(resources={"requests": {}, "limits": {"memory": "9Gi"}}),
        ALL,
        ["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"],
    ),
    (
        "6 cpu and memory change",
        document(resources={"requests": {"cpu": "4"}}),
        document(resources={"requests": {"cpu": "5", "memory": "8Gi"}}),
        ALL,
        [],
    ),
    (
        "6 block of cpu and memory added",
        document(),
        document(resources={"requests": {"cpu": "5", "memory": "8Gi"}}),
        ALL,
        [],
    ),
    (
        "6 hugepages at pod level",
        document(resources={"requests": {"cpu": "4"}, "limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}}),
        document(resources={"requests": {"cpu": "4"}, "limits": {"cpu": "4", "hugepages-2Mi": "4Mi"}}),
        ALL,
        ["spec: Forbidden: only cpu and memory resources are mutable at pod-level"],
    ),
    (
        "7 devices that stand for cpu",
        document(status={"nodeAllocatableResourceClaimStatuses": [{"name": "x"}]}),
        document(),
        ALL,
        ["spec: Forbidden: pods with node allocatable resource claims cannot be resized"],
    ),
    (
        "8 container added, stop",
        document(),
        document(container(resources={}), container("d")),
        ALL,
        ["spec.containers: Forbidden: containers may not be added or removed on resize"],
    ),
    (
        "8 both lists are examined",
        document(container("a"), container("b"), initContainers=[INIT]),
        document(container("b"), container("a")),
        ALL,
        [
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
            "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize",
            "spec.initContainers: Forbidden: initContainers may not be added or removed on resize",
        ],
    ),
    (
        "9 removed, once per list",
        document(),
        document(container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}})),
        ALL,
        ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"],
    ),
    (
        "9 zero counts as present",
        document(container(resources=resources({"ephemeral-storage": "0"}))),
        document(),
        ALL,
        [ONLY, "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"],
    ),
    (
        "9 init container",
        document(initContainers=[INIT]),
        document(initContainers=[{**INIT, "resources": {}}]),
        ALL,
        ["spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed"],
    ),
    (
        "10 other resources",
        document(),
        document(container(resources=resources({}, {"ephemeral-storage": "1Gi"}))),
        ALL,
        [ONLY],
    ),
    (
        "10 once per container",
        document(container("a"), container("b")),
        document(*(container(name, resources({}, {"x.com/gpu": "1"})) for name in "ab")),
        ALL,
        [ONLY, ONLY],
    ),
    ("10 resize policy", document(), document(container(resizePolicy=RESTARTING)), ALL, [ONLY]),
    (
        "10 old claims always count",
        document(container(resources={**BURSTABLE, "claims": [{"name": "x"}]})),
        document(container(resources={**BURSTABLE, "claims": [{"name": "x"}]})),
        ALL,
        [ONLY],
    ),
    (
        "10 new claims never do",
        document(),
        document(container(resources={**BURSTABLE, "claims": [{"name": "x"}]})),
        ALL,
        [],
    ),
    ("11 init container", document(initContainers=[INIT]), document(initContainers=[init(INIT)]), ALL, []),
    (
        "11 sidecar without the gate",
        document(initContainers=[SIDECAR]),
        document(initContainers=[init(SIDECAR)]),
        NO_INIT,
        [],
    ),
    (
        "11 init container without the gate",
        document(initContainers=[INIT]),
        document(initContainers=[init(INIT)]),
        NO_INIT,
        ["spec: Forbidden: resources for non-sidecar init containers are immutable"],
    ),
    (
        "11 other resources of an init container",
        document(initContainers=[INIT]),
        document(initContainers=[{**INIT, "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1"}}}]),
        ALL,
        ["spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable"],
    ),
    (
        "11 one error for each restarting policy",
        document(initContainers=[{**INIT, "resizePolicy": RESTARTING}]),
        document(initContainers=[init({**INIT, "resizePolicy": RESTARTING})]),
        ALL,
        [
            "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        ]
        * 2,
    ),
    (
        "11 unchanged, whatever its policy",
        document(initContainers=[{**INIT, "resizePolicy": RESTARTING}]),
        document(initContainers=[{**INIT, "resizePolicy": RESTARTING}]),
        ALL,
        [],
    ),
    (
        "12 empty block dropped",
        document(container(resources={}), resources={}),
        document(container(resources={})),
        ALL,
        [ONLY],
    ),
    (
        "12 not reached after another error",
        document(resources={}),
        document(container(resources={})),
        ALL,
        [
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ],
    ),
]


@pytest.mark.parametrize(("old", "new", "gates", "errors"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_steps(old, new, gates, errors):
    assert shown(server(old, new, gates)) == sorted(errors)
