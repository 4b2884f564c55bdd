"""The Pod Security Standards, by level and version: the texts are those of Kubernetes' own admission."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.admission.pod_security import (
    LEVELS,
    PREFIX,
    Exemptions,
    PodSecurity,
    Policy,
    Standard,
    is_significant,
    namespace_errors,
    namespace_warnings,
    pod_security_from,
    policy_of,
    template_of,
    verdict,
)
from plimsoll.rules.admission.pod_security_checks import BASELINE, LAST_MINOR, RESTRICTED, PodView, findings

Document = dict[str, Any]
SAFE: Document = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(context: Document | None = None, container: Document | None = None, **spec: Any) -> PodView:
    """One container `c`, restricted but for `context`."""
    only = {"name": "c", "securityContext": {**SAFE, **(context or {})}, **(container or {})}
    annotations = spec.pop("annotations", {})
    return PodView({"annotations": annotations}, {"containers": [only], **spec})


def shown(level: str, minor: int, view: PodView) -> list[str]:
    return [f"{finding.reason} ({finding.detail})" for finding in findings(level, minor, view)]


VOLUMES = {
    "volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {}}, {"name": "e", "emptyDir": {}}]
}


@pytest.mark.parametrize(
    ("level", "minor", "view", "expected"),
    [
        pytest.param(BASELINE, 36, pod(hostPID=True, hostNetwork=True), "host namespaces (hostNetwork=true, hostPID=true)", id="namespaces"),
        pytest.param(BASELINE, 36, pod(**VOLUMES), 'hostPath volumes (volume "h")', id="hostPath"),
        pytest.param(RESTRICTED, 36, pod(**VOLUMES), 'restricted volume types (volumes "h", "n" use restricted volume types "hostPath", "nfs")', id="volume types"),
        pytest.param(BASELINE, 36, pod({"privileged": True}), 'privileged (container "c" must not set securityContext.privileged=true)', id="privileged"),
        pytest.param(BASELINE, 36, pod({"capabilities": {"add": ["NET_RAW", "CHOWN", "SYS_ADMIN"]}}), 'non-default capabilities (container "c" must not include "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)', id="capabilities"),
        pytest.param(RESTRICTED, 36, pod({"capabilities": {"add": ["NET_BIND_SERVICE", "CHOWN"]}}), 'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]; container "c" must not include "CHOWN" in securityContext.capabilities.add)', id="restricted capabilities"),
        pytest.param(BASELINE, 36, pod(container={"ports": [{"hostPort": 80}, {"hostPort": 443}]}), 'hostPort (container "c" uses hostPorts 443, 80)', id="host ports"),
        pytest.param(BASELINE, 34, pod(container={"livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}), 'probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")', id="probe hosts"),
        pytest.param(BASELINE, 33, pod(container={"livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}), "", id="probe hosts before 1.34"),
        pytest.param(BASELINE, 36, pod({"procMount": "Unmasked"}), 'procMount (container "c" must not set securityContext.procMount to "Unmasked")', id="proc mount"),
        pytest.param(BASELINE, 35, pod({"procMount": "Unmasked"}, hostUsers=False), "", id="proc mount with users of its own"),
        pytest.param(BASELINE, 34, pod({"procMount": "Unmasked"}, hostUsers=False), 'procMount (container "c" must not set securityContext.procMount to "Unmasked")', id="proc mount with users of its own before 1.35"),
        pytest.param(RESTRICTED, 35, pod({"procMount": "Unmasked"}, hostUsers=False), 'procMount (container "c" must not set securityContext.procMount to "Unmasked")', id="restricted proc mount"),
        pytest.param(BASELINE, 36, pod(securityContext={"seLinuxOptions": {"type": "spc_t", "user": "u"}}), 'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set)', id="SELinux"),
        pytest.param(BASELINE, 30, pod({"seLinuxOptions": {"type": "container_engine_t"}}), 'seLinuxOptions (container "c" set forbidden securityContext.seLinuxOptions: type "container_engine_t")', id="SELinux before 1.31"),
        pytest.param(BASELINE, 31, pod({"seLinuxOptions": {"type": "container_engine_t"}}), "", id="SELinux in 1.31"),
        pytest.param(BASELINE, 36, pod({"seccompProfile": {"type": "Unconfined"}}), 'seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")', id="seccomp"),
        pytest.param(BASELINE, 18, pod({"seccompProfile": {"type": "Unconfined"}}, annotations={"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}), 'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")', id="seccomp before 1.19"),
        pytest.param(RESTRICTED, 36, pod({"seccompProfile": None}), 'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")', id="no seccomp"),
        pytest.param(BASELINE, 36, pod(securityContext={"appArmorProfile": {"type": "Unconfined"}}), 'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")', id="AppArmor"),
        pytest.param(BASELINE, 36, pod(annotations={"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}), 'forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/c="unconfined"")', id="AppArmor annotation"),
        pytest.param(BASELINE, 36, pod(securityContext={"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}]}), "forbidden sysctls (kernel.msgmax)", id="sysctls"),
        pytest.param(BASELINE, 31, pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}), "forbidden sysctls (net.ipv4.tcp_rmem)", id="sysctls before 1.32"),
        pytest.param(BASELINE, 36, pod(securityContext={"windowsOptions": {"hostProcess": True}}), "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)", id="host process"),
        pytest.param(RESTRICTED, 36, pod({"allowPrivilegeEscalation": None}), 'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)', id="escalation"),
        pytest.param(RESTRICTED, 36, pod({"runAsNonRoot": None}), 'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)', id="root is possible"),
        pytest.param(RESTRICTED, 36, pod({"runAsNonRoot": False}), 'runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)', id="root"),
        pytest.param(RESTRICTED, 36, pod({"runAsUser": 0}), 'runAsUser=0 (container "c" must not set runAsUser=0)', id="user 0"),
        pytest.param(RESTRICTED, 36, pod({"runAsUser": 0, "runAsNonRoot": None}, hostUsers=False), "", id="user 0 with users of its own"),
        pytest.param(RESTRICTED, 36, PodView({}, {"os": {"name": "windows"}, "containers": [{"name": "w", "securityContext": {"runAsNonRoot": True}}]}), "", id="windows"),
        pytest.param(RESTRICTED, 24, PodView({}, {"os": {"name": "windows"}, "containers": [{"name": "w", "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}, "allowPrivilegeEscalation": False}}]}), 'unrestricted capabilities (container "w" must set securityContext.capabilities.drop=["ALL"])', id="windows before 1.25"),
    ],
)  # fmt: skip
def test_checks(level: str, minor: int, view: PodView, expected: str) -> None:
    assert shown(level, minor, view) == ([expected] if expected else [])


def test_several_findings_are_in_kubernetes_order() -> None:
    view = PodView({}, {"hostIPC": True, "containers": [{"name": "a"}, {"name": "b"}], **VOLUMES})
    assert [finding.reason for finding in findings(RESTRICTED, LAST_MINOR, view)] == [
        "host namespaces",
        "allowPrivilegeEscalation != false",
        "unrestricted capabilities",
        "restricted volume types",
        "runAsNonRoot != true",
        "seccompProfile",
    ]
    detail = findings(RESTRICTED, LAST_MINOR, view)[1].detail
    assert detail == 'containers "a", "b" must set securityContext.allowPrivilegeEscalation=false'


CONTEXTS = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "allowPrivilegeEscalation": st.booleans(),
        "runAsNonRoot": st.booleans(),
        "runAsUser": st.sampled_from([0, 1000]),
        "procMount": st.sampled_from(["Default", "Unmasked"]),
        "seccompProfile": st.fixed_dictionaries(
            {"type": st.sampled_from(["Unconfined", "RuntimeDefault", "Localhost"])}
        ),
        "capabilities": st.fixed_dictionaries(
            {}, optional={"add": st.lists(st.sampled_from(["CHOWN", "SYS_ADMIN"])), "drop": st.just(["ALL"])}
        ),
    },
)


@given(CONTEXTS, st.integers(min_value=0, max_value=LAST_MINOR), st.booleans())
def test_what_restricted_admits_baseline_admits(context: Document, minor: int, host_network: bool) -> None:
    view = PodView({}, {"hostNetwork": host_network, "containers": [{"name": "c", "securityContext": context}]})
    if not findings(RESTRICTED, minor, view):
        assert not findings(BASELINE, minor, view)
    assert not findings("privileged", minor, view)


# --- labels ---


def labels(**values: str) -> dict[str, str]:
    return {PREFIX + name.replace("_", "-"): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("given_labels", "expected"),
    [
        ({}, Policy()),
        (labels(enforce="baseline"), Policy(enforce=Standard("baseline"), warn=Standard("baseline"))),
        (labels(enforce="baseline", enforce_version="v1.30"), Policy(enforce=Standard("baseline", "v1.30"), warn=Standard("baseline", "v1.30"))),
        (labels(enforce="baseline", warn="privileged"), Policy(enforce=Standard("baseline"))),
        (labels(audit="restricted", audit_version="latest"), Policy(audit=Standard("restricted"))),
        (labels(enforce="strict"), Policy(enforce=Standard("restricted"))),
        (labels(warn="strict", audit="strict"), Policy()),
        (labels(enforce="baseline", enforce_version="1.30"), Policy(enforce=Standard("baseline"), warn=Standard("baseline"))),
    ],
)  # fmt: skip
def test_the_policy_of_a_namespace(given_labels: dict[str, str], expected: Policy) -> None:
    assert policy_of(given_labels, Policy())[0] == expected


def test_labels_that_cannot_be_read() -> None:
    found = namespace_errors(PodSecurity(), labels(enforce="strict", warn_version="1.30"), None)
    assert [str(error) for error in found] == [
        'metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, '
        "baseline, restricted",
        'metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1.30": must be "latest" or "v1.x"',
    ]
    assert namespace_errors(PodSecurity(), labels(enforce="strict"), labels(enforce="strict")) == []
    assert namespace_errors(PodSecurity(), labels(enforce="stricter"), labels(enforce="strict"))


def test_a_version_that_is_not_known_yet_is_the_newest() -> None:
    probe = pod(container={"livenessProbe": {"httpGet": {"host": "h"}}})
    for minor, refused in ((33, False), (34, True)):
        config = PodSecurity(newest=minor)
        found = verdict(config, "n", labels(enforce="baseline", enforce_version="v1.99"), "u", probe, is_pod=True)
        assert bool(found.refusal) is refused


# --- verdicts ---


def test_modes() -> None:
    everything = labels(enforce="baseline", audit="restricted", warn="restricted", warn_version="v1.30")
    view = PodView({}, {"containers": [{"name": "c", "securityContext": {**SAFE, "runAsNonRoot": None}}]})
    found = verdict(PodSecurity(), "n", everything, "u", view, is_pod=True)
    text = 'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)'
    assert found.refusal == ""
    assert found.warnings == (f'would violate PodSecurity "restricted:v1.30": {text}',)
    assert found.annotations == {
        "pod-security.kubernetes.io/enforce-policy": "baseline:latest",
        "pod-security.kubernetes.io/audit-violations": f'would violate PodSecurity "restricted:latest": {text}',
    }
    refused = verdict(PodSecurity(), "n", labels(enforce="restricted"), "u", view, is_pod=True)
    assert refused.refusal == f'violates PodSecurity "restricted:latest": {text}'
    assert refused.warnings == ()  # the error says it already
    workload = verdict(PodSecurity(), "n", labels(enforce="restricted"), "u", view, is_pod=False)
    assert (workload.refusal, workload.warnings) == ("", (f'would violate PodSecurity "restricted:latest": {text}',))


@pytest.mark.parametrize(
    ("exemptions", "why"),
    [
        (Exemptions(namespaces=("n",)), "namespace"),
        (Exemptions(usernames=("u",)), "user"),
        (Exemptions(runtime_classes=("kata",)), "runtimeClass"),
        (Exemptions(namespaces=("m",), usernames=("v",), runtime_classes=("runc",)), ""),
    ],
)
def test_exemptions(exemptions: Exemptions, why: str) -> None:
    config = PodSecurity(exemptions=exemptions)
    view = pod({"privileged": True}, runtimeClassName="kata")
    found = verdict(config, "n", labels(enforce="baseline"), "u", view, is_pod=True)
    assert found.annotations.get("pod-security.kubernetes.io/exempt", "") == why
    assert bool(found.refusal) is not bool(why)


def test_updates_that_matter() -> None:
    def spec(image: str, *ephemeral: str) -> Document:
        return {
            "spec": {"containers": [{"image": image}], "ephemeralContainers": [{"name": each} for each in ephemeral]}
        }

    assert not is_significant(spec("a"), spec("a"))
    assert is_significant(spec("a"), spec("b"))
    assert is_significant(spec("a"), spec("a", "debug"))
    assert not is_significant(spec("a", "debug"), spec("a", "debug"))


def test_templates() -> None:
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": []}}
    assert template_of("deployments", {"spec": {"template": template}}) == PodView(
        template["metadata"], template["spec"]
    )
    assert template_of("cronjobs", {"spec": {"jobTemplate": {"spec": {"template": template}}}}) is not None
    assert template_of("replicationcontrollers", {"spec": {"replicas": 1}}) is None


# --- namespaces with pods ---


def test_warnings_about_pods_that_are_there() -> None:
    bad = {"spec": {"hostNetwork": True, "containers": []}}
    pods = [{"metadata": {"name": name}, **bad} for name in ("b", "a", "z")]
    pods.append(
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "securityContext": {"privileged": True}}]}}
    )
    pods.append({"metadata": {"name": "fine"}, "spec": {"containers": []}})
    found = namespace_warnings(PodSecurity(), "n", labels(enforce="baseline"), {}, pods)
    assert found == [
        'existing pods in namespace "n" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 2 other pods): host namespaces",
        "p: privileged",
    ]
    assert namespace_warnings(PodSecurity(), "n", labels(enforce="baseline"), labels(enforce="restricted"), pods) == []
    exempt = PodSecurity(exemptions=Exemptions(namespaces=("n",)))
    assert namespace_warnings(exempt, "n", labels(enforce="baseline"), {}, pods) == [
        'namespace "n" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored'
    ]


# --- configuration ---


def configuration(**inner: Any) -> Document:
    kind = {"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"}
    plugin = {"name": "PodSecurity", "configuration": {**kind, **inner}}
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [plugin]}


def test_configuration() -> None:
    found = pod_security_from(
        configuration(
            defaults={"enforce": "baseline", "audit": "restricted", "audit-version": "v1.30"},
            exemptions={"namespaces": ["kube-system"], "usernames": ["system:admin"], "runtimeClasses": ["kata"]},
        ),
        lambda path: {},
    )
    assert found.defaults == Policy(enforce=Standard("baseline"), audit=Standard("restricted", "v1.30"))
    assert found.exemptions == Exemptions(("kube-system",), ("system:admin",), ("kata",))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "must be a AdmissionConfiguration of apiserver.config.k8s.io/v1"),
        (configuration(defaults={"enforce": "strict"}), "plugins[0].configuration.defaults.enforce: 'strict': must be one of privileged, baseline, restricted"),
        (configuration(defaults={"enforced": "strict"}), "plugins[0].configuration.defaults.enforced: unknown field; known are enforce, audit, warn, enforce-version, audit-version, warn-version"),
        (configuration(exemptions={"namespaces": ["a", "a"]}), "plugins[0].configuration.exemptions.namespaces[1]: 'a': Duplicate value"),
        (configuration(exemptions={"usernames": [""]}), "plugins[0].configuration.exemptions.usernames[0]: '': username must not be empty"),
        ({**configuration(), "plugins": [{"name": "ImagePolicyWebhook"}]}, "plugins[0].name: 'ImagePolicyWebhook' is not configurable here, only PodSecurity is"),
    ],
)  # fmt: skip
def test_configuration_refused(document: Any, reason: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        pod_security_from(document, lambda path: {})
    assert str(refused.value) == reason


def test_every_level_has_a_rank() -> None:
    assert LEVELS == ("privileged", "baseline", "restricted")
