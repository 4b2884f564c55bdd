"""What is dropped while a feature gate is off (05 B6), as the API servers of the releases do it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from plimsoll.rules.admission.disabled_fields import without_disabled
from plimsoll.rules.admission.feature_fields import KIND_FEATURES, POD_FEATURES
from plimsoll.rules.config.gates import KNOWN_GATES
from plimsoll.rules.model.gates import Gates

RESTART = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}


def off(*names: str, **rows: Any) -> Gates:
    return Gates(off=frozenset(names), **rows)


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def container(**fields: Any) -> dict[str, Any]:
    return spec(containers=[{"name": "c", **fields}, {"name": "d"}])


def sources(*each: Any) -> dict[str, Any]:
    return spec(volumes=[{"name": "v", "projected": {"sources": list(each)}}])


# gate, the pod as sent, what is stored of it
PODS = [
    ("HostnameOverride", spec(hostnameOverride="a"), spec()),
    ("GenericWorkload", spec(schedulingGroup={"podGroupName": "g"}), spec()),
    ("UserNamespacesSupport", spec(hostUsers=False), spec()),
    ("SupplementalGroupsPolicy", spec(securityContext={"supplementalGroupsPolicy": "Strict", "fsGroup": 1}),
     spec(securityContext={"fsGroup": 1})),
    ("DynamicResourceAllocation",
     {"spec": {"resourceClaims": [{"name": "a"}], "containers": [{"resources": {"claims": [{"name": "a"}]}}]}},
     {"spec": {"containers": [{"resources": {}}]}}),
    ("EnvFiles", container(env=[{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k"}}}]),
     container(env=[{"name": "A", "valueFrom": {}}])),
    ("SidecarContainers", spec(initContainers=[{"name": "s", "restartPolicy": "Always"}]),
     spec(initContainers=[{"name": "s"}])),
    ("ContainerStopSignals", container(lifecycle={"stopSignal": "SIGHUP"}), container()),
    ("ContainerStopSignals", container(lifecycle={"stopSignal": "SIGHUP", "preStop": {}}),
     container(lifecycle={"preStop": {}})),
    ("ClusterTrustBundleProjection", sources({"clusterTrustBundle": {"path": "p"}}), sources({})),
    ("ImageVolume",
     spec(volumes=[{"name": "i", "image": {"reference": "r"}}, {"name": "e", "emptyDir": {}}],
          containers=[{"name": "c", "volumeMounts": [{"name": "i", "mountPath": "/i"}, {"name": "e", "mountPath": "/e"}]}]),
     spec(volumes=[{"name": "e", "emptyDir": {}}],
          containers=[{"name": "c", "volumeMounts": [{"name": "e", "mountPath": "/e"}]}])),
    ("ProcMountType", container(securityContext={"procMount": "Unmasked"}),
     container(securityContext={"procMount": "Default"})),
    ("ContainerRestartRules",
     spec(initContainers=[{"restartPolicy": "Always"}, {"restartPolicy": "Never"}],
          containers=[{"restartPolicy": "Never", "restartPolicyRules": [RESTART]}]),
     spec(initContainers=[{"restartPolicy": "Always"}, {}], containers=[{}])),
    ("PodHostIPs", {"status": {"hostIPs": [{"ip": "10.0.0.1"}], "phase": "Running"}}, {"status": {"phase": "Running"}}),
    ("PodObservedGenerationTracking",
     {"status": {"observedGeneration": 2, "conditions": [{"type": "Ready", "observedGeneration": 2}]}},
     {"status": {"conditions": [{"type": "Ready"}]}}),
]  # fmt: skip


@pytest.mark.parametrize(("gate", "sent", "stored"), PODS)
def test_a_pod(gate: str, sent: dict[str, Any], stored: dict[str, Any]) -> None:
    before = copy.deepcopy(sent)
    assert without_disabled("pods", sent, None, off(gate)) == stored
    assert without_disabled("pods", sent, {"spec": {}}, off(gate)) == stored
    assert without_disabled("pods", sent, sent, off(gate)) == sent, "a stored pod that has the field keeps it"
    assert without_disabled("pods", sent, None, off("another")) is sent
    template = {"metadata": {}, "spec": {"schedule": "x", "jobTemplate": {"spec": {"template": sent}}}}
    found = without_disabled("cronjobs", template, None, off(gate))
    assert found["spec"]["jobTemplate"]["spec"]["template"] == stored and found["spec"]["schedule"] == "x"
    assert sent == before


def test_restart_policies_that_a_release_refuses_are_kept() -> None:
    """Before 1.34 only init containers could have one, and validation says so."""
    sent = spec(containers=[{"restartPolicy": "Never", "restartPolicyRules": [RESTART]}])
    gates = off("ContainerRestartRules", restart_policy_dropped=False)
    assert without_disabled("pods", sent, None, gates) == spec(containers=[{"restartPolicy": "Never"}])


def test_resources_in_the_status_stay_with_a_stored_resize_policy() -> None:
    status = {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {}}],
        "resize": "Proposed",
    }
    sent, stored = {"spec": {}, "status": status}, container(resizePolicy=[{"resourceName": "cpu"}])
    gates = off("InPlacePodVerticalScaling")
    assert without_disabled("pods", sent, stored, gates) == sent
    assert without_disabled("pods", sent, {"spec": {}}, gates)["status"] == {"containerStatuses": [{"name": "c"}]}


# kind, gate, the object as sent, what is stored of it
OBJECTS = [
    ("jobs", "JobManagedBy", spec(managedBy="a/b"), spec()),
    ("jobs", "JobPodReplacementPolicy", spec(podReplacementPolicy="Failed"), spec()),
    ("leases", "CoordinatedLeaderElection", spec(strategy="a", holderIdentity="b"), spec(holderIdentity="b")),
    ("services", "ServiceTrafficDistribution", spec(trafficDistribution="PreferClose"), spec()),
    ("nodes", "NodeDeclaredFeatures", {"status": {"declaredFeatures": ["A"]}}, {"status": {}}),
    ("statefulsets", "MaxUnavailableStatefulSet",
     spec(updateStrategy={"rollingUpdate": {"maxUnavailable": 2, "partition": 0}}),
     spec(updateStrategy={"rollingUpdate": {"partition": 0}})),
    ("horizontalpodautoscalers", "HPAConfigurableTolerance", spec(behavior={"scaleUp": {"tolerance": "0.1"}}),
     spec(behavior={"scaleUp": {}})),
    ("endpointslices", "PreferSameTrafficDistribution", {"endpoints": [{"hints": {"forNodes": [{"name": "n"}]}}]},
     {"endpoints": [{"hints": {}}]}),
    ("persistentvolumeclaims", "VolumeAttributesClass", spec(volumeAttributesClassName="g"), spec()),
    ("customresourcedefinitions", "CustomResourceFieldSelectors",
     spec(versions=[{"name": "v1", "selectableFields": [{"jsonPath": ".spec.a"}]}]), spec(versions=[{"name": "v1"}])),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "gate", "sent", "stored"), OBJECTS)
def test_other_kinds(kind: str, gate: str, sent: dict[str, Any], stored: dict[str, Any]) -> None:
    assert without_disabled(kind, sent, None, off(gate)) == stored
    assert without_disabled(kind, sent, {"spec": {}}, off(gate)) == stored
    assert without_disabled(kind, sent, sent, off(gate)) == sent


def test_a_new_job_loses_the_rules_that_fail_an_index() -> None:
    rules = [{"action": "FailIndex"}, {"action": "Ignore"}]
    sent = spec(backoffLimitPerIndex=1, podFailurePolicy={"rules": rules})
    gates = off("JobBackoffLimitPerIndex")
    assert without_disabled("jobs", sent, None, gates) == spec(podFailurePolicy={"rules": [{"action": "Ignore"}]})
    assert without_disabled("jobs", sent, spec(), gates) == spec(podFailurePolicy={"rules": rules})


@pytest.mark.parametrize("also", [(), ("UserNamespacesSupport",)])
def test_handlers_of_a_node_need_one_of_two_gates(also: tuple[str, ...]) -> None:
    sent = {"status": {"runtimeHandlers": [{"name": ""}], "phase": ""}}
    found = without_disabled("nodes", sent, sent, off("RecursiveReadOnlyMounts", *also))
    assert found["status"] == ({"phase": ""} if also else sent["status"])


def test_every_feature_has_a_known_gate() -> None:
    named = {each.gate for each in (*POD_FEATURES, *(one for all in KIND_FEATURES.values() for one in all))}
    assert named <= set(KNOWN_GATES)
