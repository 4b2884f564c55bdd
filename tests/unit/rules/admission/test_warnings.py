"""What is accepted with a warning, in the words and the order of kube-apiserver 1.36.4, which has answered each of these."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.admission.pod_spec.warnings import name_warnings, pod_warnings, template_warnings

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SECCOMP = "container.seccomp.security.alpha.kubernetes.io/c"
APPARMOR = "container.apparmor.security.beta.kubernetes.io/c"
ABC = {"matchLabels": {"a": "b"}}


def container(name: str = "c", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", **fields}


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": {"containers": list(containers) or [container()], **spec}}


def port(number: int = 80, **fields: Any) -> dict[str, Any]:
    return {"containerPort": number, "protocol": "TCP", **fields}


def spread(**fields: Any) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": ABC, **fields}


def items(*paths: str) -> list[dict[str, str]]:
    return [{"key": f"k{number}", "path": path} for number, path in enumerate(paths)]


TERM = {"topologyKey": "k"}
TOKEN = {"serviceAccountToken": {"path": "x", "expirationSeconds": 3600}}
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": (pod(), []),
    "node selector": (
        pod(nodeSelector={"beta.kubernetes.io/arch": "amd64"}),
        ['spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "kubernetes.io/arch" instead'],
    ),
    "node affinity": (
        pod(
            affinity={
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]}
                        ]
                    },
                    PREFERRED: [
                        {
                            "weight": 1,
                            "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "-"]}]},
                        }
                    ],
                }
            }
        ),
        [
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key: "
            'node-role.kubernetes.io/master is use "node-role.kubernetes.io/control-plane" instead',
            f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].values[1]: - is invalid, a valid "
            "label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
            "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ],
    ),
    "spread": (
        pod(
            topologySpreadConstraints=[
                spread(topologyKey="failure-domain.beta.kubernetes.io/zone"),
                spread(labelSelector=None),
            ]
        ),
        [
            "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since "
            'v1.17; use "topology.kubernetes.io/zone" instead',
            "spec.topologySpreadConstraints[1].labelSelector: a null labelSelector results in matching no pod",
        ],
    ),
    "pod affinity": (
        pod(
            affinity={
                "podAffinity": {REQUIRED: [TERM, {**TERM, "labelSelector": ABC}]},
                "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
            }
        ),
        [
            f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector: a null labelSelector results in matching no pod",
            f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector: "
            "a null labelSelector results in matching no pod",
        ],
    ),
    "annotations": (
        pod(
            annotations={
                "security.alpha.kubernetes.io/sysctls": "a=b",
                "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
                SECCOMP: "runtime/default",
            }
        ),
        [
            "metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; "
            'use the "sysctls" field instead',
            "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; "
            'use the "seccompProfile" field instead',
            f'metadata.annotations[{SECCOMP}]: non-functional in v1.27+; use the "seccompProfile" field instead',
        ],
    ),
    "with the field": (
        pod(
            container(securityContext={"seccompProfile": {"type": "RuntimeDefault"}}),
            annotations={"seccomp.security.alpha.kubernetes.io/pod": "runtime/default", SECCOMP: "runtime/default"},
            securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
        ),
        [],
    ),
    "volumes": (
        pod(volumes=[{"name": "g", "gitRepo": {"repository": "r"}}, {"name": "r", "rbd": {"monitors": ["m"], "image": "i"}}]),
        [
            "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            "spec.volumes[1].rbd: deprecated in v1.28, non-functional in v1.31+",
        ],
    ),
    "paths": (
        pod(
            volumes=[
                {"name": "a", "configMap": {"name": "m", "items": items("a", "b", "a/c", "a/", "bb")}},
                {"name": "b", "secret": {"secretName": "s", "items": items("x/y/z", "x/y", "x")}},
            ]
        ),
        [
            'volume "a" (ConfigMap "m"): overlapping paths: "a/c" with "a"',
            'volume "a" (ConfigMap "m"): overlapping paths: "a" with "a"',
            'volume "a" (ConfigMap "m"): overlapping paths: "a" with "a/c"',
            'volume "b" (Secret "s"): overlapping paths: "x/y" with "x/y/z"',
            'volume "b" (Secret "s"): overlapping paths: "x" with "x/y/z"',
            'volume "b" (Secret "s"): overlapping paths: "x" with "x/y"',
        ],
    ),
    "projected paths": (
        pod(
            volumes=[
                {
                    "name": "p",
                    "projected": {
                        "sources": [{"configMap": {"name": "m", "items": items("x/y")}}, TOKEN, {"secret": {"name": "s"}}]
                    },
                }
            ]
        ),
        ['volume "p" (Projected): overlapping paths: "x" (ServiceAccountToken) with "x/y" (ConfigMap "m")'],
    ),
    "aliases": (
        pod(hostAliases=[{"ip": ip, "hostnames": ["h"]} for ip in ("10.0.0.1", "10.0.0.1", "fd00:0:0::1")]),
        [
            'spec.hostAliases[1].ip: duplicate ip "10.0.0.1"',
            'spec.hostAliases[2].ip: IPv6 address "fd00:0:0::1" should be in RFC 5952 canonical format ("fd00::1")',
        ],
    ),
    "pull secrets": (
        pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}, {}]),
        [
            'spec.imagePullSecrets[1].name: duplicate name "a"',
            'spec.imagePullSecrets[2].name: invalid empty name ""',
        ],
    ),
    "fractions": (
        pod(container(resources={"limits": {"memory": "1500m"}, "requests": {"memory": "100m", "ephemeral-storage": "1m"}})),
        [
            'spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer',
            'spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer',
            'spec.containers[0].resources.requests[ephemeral-storage]: fractional byte value "1m" is invalid, must be an integer',
        ],
    ),
    "variables": (
        pod(
            container(
                env=[
                    {"name": "A", "value": "1"},
                    {"name": "A", "value": "$(A)2"},
                    {"name": "A", "value": "$(A)"},
                    {"name": "A", "value": "3"},
                ]
            )
        ),
        [
            'spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply',
            'spec.containers[0].env[3]: hides previous definition of "A", which may be dropped when using apply',
        ],
    ),
    "ports": (
        pod(
            container("a", ports=[port(name="web"), port(hostPort=80), port(81, protocol="UDP")]),
            container("b", ports=[port(hostPort=80, hostIP="127.0.0.1"), port(), port(82, name="web", hostIP="127.0.0.1")]),
        ),
        [
            "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
            "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]",
            "spec.containers[1].ports[0]: dangerously ambiguous port definition with spec.containers[0].ports[1]",
            "spec.containers[1].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            "spec.containers[1].ports[1]: overlapping port definition with spec.containers[0].ports[1]",
            "spec.containers[1].ports[1]: overlapping port definition with spec.containers[1].ports[0]",
            "spec.containers[1].ports[2]: hostIP set without hostPort: "
            "{Name:web HostPort:0 ContainerPort:82 Protocol:TCP HostIP:127.0.0.1}",
            'spec.containers[1].ports[2]: duplicate port name "web" with spec.containers[0].ports[0], '
            "services and probes that select ports by name will use spec.containers[0].ports[0]",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), CASES.values(), ids=CASES)
def test_pods(given: dict[str, Any], expected: list[str]) -> None:
    assert pod_warnings(given) == expected


def test_a_template_is_named_by_its_path() -> None:
    given = pod(container(env=[{"name": "A"}, {"name": "A"}]), annotations={APPARMOR: "runtime/default"})
    assert template_warnings(given, "spec.template") == [
        f'spec.template.metadata.annotations[{APPARMOR}]: deprecated since v1.30; use the "appArmorProfile" field instead',
        'spec.template.spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
    ]
    given["spec"]["securityContext"] = {"appArmorProfile": {"type": "RuntimeDefault"}}
    assert len(template_warnings(given, "spec.template")) == 1


def test_addresses_that_newer_releases_refuse() -> None:
    servers = pod(dnsConfig={"nameservers": ["010.0.0.1", "8.8.8.8", "::ffff:1.2.3.4"]})
    assert pod_warnings(servers) == [
        'spec.dnsConfig.nameservers[0]: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"',
        'spec.dnsConfig.nameservers[2]: non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4"',
    ]


def test_a_negative_grace_of_a_template() -> None:
    text = "must be >= 0; negative values are invalid and will be treated as 1"
    assert template_warnings(pod(terminationGracePeriodSeconds=-1), "t") == [
        f"t.spec.terminationGracePeriodSeconds: {text}"
    ]


def test_names() -> None:
    text = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
    assert name_warnings("a.b", "the Pod's hostname") == [f"{text}: [must not contain dots]"]
    assert name_warnings("a-b", "the Pod's hostname") == []


def test_many_that_are_equal_take_linear_time() -> None:
    """Ten thousand equal ports are fifty million pairs."""
    ports = [port() for _ in range(10_000)]
    assert len(pod_warnings(pod(container(ports=ports)))) == 64
    apart = [port(hostPort=1 + number % 60_000, hostIP="127.0.0.1") for number in range(10_000)]
    assert pod_warnings(pod(container(ports=apart))) == []
