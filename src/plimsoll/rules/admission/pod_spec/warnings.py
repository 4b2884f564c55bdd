"""What is accepted and probably not meant: the warnings that a create or a changed template is answered with.

Texts and order are those of Kubernetes 1.36 (pkg/api/pod/warnings.go), for all profiles.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from plimsoll.rules.admission.service_account import TOKEN_SOURCE
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems, label_value_problems
from plimsoll.rules.quantity import QUANTITIES

_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_WARNED_VOLUMES = frozenset({*_VOLUMES, "ephemeral"})
_WITH_FILES = frozenset({"configMap", "secret", "downwardAPI", "projected"})
_BYTES = ("memory", "ephemeral-storage")
_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_POD_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_CONTAINER_SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_GONE = 'non-functional in v1.27+; use the "seccompProfile" field instead'

_MOST = 64  # an answer has no room for more: a list of equal ports has the square of its length

Found = Iterator[str]


def name_warnings(name: str, use: str) -> list[str]:
    """`use`: what the name becomes a part of."""
    problems = dns_label_problems(name)
    text = f"metadata.name: this is used in {use}, which can result in surprising behavior; a DNS label is recommended"
    return [f"{text}: [{' '.join(problems)}]"] if problems else []


def template_warnings(template: JsonObject, path: str) -> list[str]:
    return list(islice(_warnings(template, f"{path}."), _MOST))


def pod_warnings(pod: JsonObject) -> list[str]:
    return list(islice(_warnings(pod, ""), _MOST))


def claim_warnings(spec: JsonObject, path: str) -> Found:
    resources = spec.get("resources") or {}
    for kind in ("requests", "limits"):
        yield from _fraction(resources.get(kind) or {}, "storage", f"{path}.resources.{kind}")


def _warnings(pod: JsonObject, path: str) -> Found:
    """Of a pod or a template; `path` is empty or ends with a dot."""
    spec, annotations = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations") or {}
    affinity, at = spec.get("affinity") or {}, f"{path}spec"
    yield from _placement(spec, affinity, at)
    for name, text in _ANNOTATIONS.items() if annotations else ():
        if name in annotations:
            yield f"{path}metadata.annotations[{name}]: {text}"
    for index, volume in enumerate(spec.get("volumes") or ()):
        if not _WARNED_VOLUMES.isdisjoint(volume):
            yield from _volume(volume, f"{at}.volumes[{index}]")
    for volume in spec.get("volumes") or ():
        if not _WITH_FILES.isdisjoint(volume):
            yield from _overlaps(volume)
    yield from _duplicates(spec.get("hostAliases"), "ip", f"{at}.hostAliases")
    yield from _duplicates(spec.get("imagePullSecrets"), "name", f"{at}.imagePullSecrets")
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{at}.imagePullSecrets[{index}].name: invalid empty name ""'
    if overhead := spec.get("overhead"):
        for name in _BYTES:
            yield from _fraction(overhead, name, f"{at}.overhead")
    security = spec.get("securityContext") or {}
    if not security.get("seccompProfile") and _POD_SECCOMP in annotations:
        yield f"{path}metadata.annotations[{_POD_SECCOMP}]: {_SECCOMP_GONE}"
    containers = [
        (each, f"{at}.{kind}[{index}]")
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for index, each in enumerate(spec.get(kind) or ())
    ]
    for container, where in containers:
        if annotations:
            yield from _profiles(container, annotations, security, path)
        if resources := container.get("resources"):
            yield from _amounts(resources, f"{where}.resources")
        if len(variables := container.get("env") or ()) > 1:
            yield from _hidden_variables(variables, f"{where}.env")
    ports = [
        (port, f"{where}.ports[{index}]")
        for container, where in containers
        for index, port in enumerate(container.get("ports") or ())
    ]
    if ports:
        yield from _ports(ports)
        yield from _port_names(ports)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield f"{at}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
    if affinity:
        yield from _pod_affinity(affinity, f"{at}.affinity")
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from _address(server, f"{at}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from _address(alias.get("ip") or "", f"{at}.hostAliases[{index}].ip")


def _placement(spec: JsonObject, affinity: JsonObject, path: str) -> Found:
    for label in spec.get("nodeSelector") or ():
        if label in _LABELS:
            yield f"{path}.nodeSelector[{label}]: {_LABELS[label]}"
    if node := affinity.get("nodeAffinity"):
        yield from _node_affinity(node, f"{path}.affinity.nodeAffinity")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        where, label = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey")
        if label in _LABELS:
            yield f"{where}.topologyKey: {label} is {_LABELS[label]}"
        if constraint.get("labelSelector") is None:
            yield f"{where}.labelSelector: {_NULL_SELECTOR}"


def _node_affinity(node: JsonObject, at: str) -> Found:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate((node.get(required) or {}).get("nodeSelectorTerms") or ()):
        yield from _node_term(term, f"{at}.{required}.nodeSelectorTerms[{index}]", with_values=False)
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(node.get(preferred) or ()):
        yield from _node_term(
            weighted.get("preference") or {}, f"{at}.{preferred}[{index}].preference", with_values=True
        )


def _node_term(term: JsonObject, path: str, *, with_values: bool) -> Found:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        label, where = expression.get("key"), f"{path}.matchExpressions[{index}]"
        if label in _LABELS:
            yield f"{where}.key: {label} is {_LABELS[label]}"
        for place, value in enumerate(expression.get("values") or () if with_values else ()):
            for problem in label_value_problems(value):
                yield f"{where}.values[{place}]: {value} is invalid, {problem}"


def _pod_affinity(affinity: JsonObject, path: str) -> Found:
    for kind in ("podAffinity", "podAntiAffinity"):
        for when, inner in (("required", None), ("preferred", "podAffinityTerm")):
            name = f"{when}DuringSchedulingIgnoredDuringExecution"
            for index, each in enumerate((affinity.get(kind) or {}).get(name) or ()):
                term = (each.get(inner) or {}) if inner else each
                if term.get("labelSelector") is None:
                    yield f"{path}.{kind}.{name}[{index}].{f'{inner}.' if inner else ''}labelSelector: {_NULL_SELECTOR}"


def _volume(volume: JsonObject, path: str) -> Found:
    for kind, text in _VOLUMES.items():
        if volume.get(kind) is not None:
            yield f"{path}.{kind}: {text}"
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template:
        yield from claim_warnings(template.get("spec") or {}, f"{path}.ephemeral.volumeClaimTemplate.spec")


# --- files of volumes: one that hides another ---


def _overlaps(volume: JsonObject) -> Found:
    name = volume.get("name") or ""
    for kind, title, naming in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
        if source := volume.get(kind):
            described = f'{title} "{source.get(naming) or ""}"'
            yield from _collisions(
                [(item.get("path") or "", "") for item in source.get("items") or ()], name, described
            )
    if source := volume.get("downwardAPI"):
        yield from _collisions(
            [(item.get("path") or "", "") for item in source.get("items") or ()], name, "DownwardAPI"
        )
    if (projected := volume.get("projected")) and projected != TOKEN_SOURCE:
        sources = projected.get("sources") or ()
        for source in sources:
            if not any(value is not None for value in source.values()):
                yield f'volume "{name}" (Projected) has no sources provided'
        yield from _collisions([file for source in sources for file in _projected(source)], name, "Projected")


def _projected(source: JsonObject) -> Iterator[tuple[str, str]]:
    """Each path with what it comes from."""
    for kind, title in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if (each := source.get(kind)) and each.get("items"):
            yield from ((item.get("path") or "", f'{title} "{each.get("name") or ""}"') for item in each["items"])
    for item in (source.get("downwardAPI") or {}).get("items") or ():
        yield item.get("path") or "", "DownwardAPI"
    if token := source.get("serviceAccountToken"):
        yield token.get("path") or "", "ServiceAccountToken"
    if bundle := source.get("clusterTrustBundle"):
        yield bundle.get("path") or "", f'ClusterTrustBundle "{bundle.get("name") or bundle.get("signerName") or ""}"'
    if certificate := source.get("podCertificate"):
        for field, part in (
            ("certificateChainPath", "chain"),
            ("keyPath", "key"),
            ("credentialBundlePath", "credential bundle"),
        ):
            if certificate.get(field):
                yield certificate[field], f"PodCertificate {part}"


def _collisions(files: Sequence[tuple[str, str]], volume: str, described: str) -> Found:
    """Each path with those before it that are the same, above or below it."""
    paths = {path for path, _ in files}
    if len(paths) == len(files) and not any("/" in path for path in paths):
        return
    before: list[tuple[str, str]] = []
    same: dict[str, list[int]] = {}
    below: dict[str, list[int]] = {}  # of each directory
    for sent, source in files:
        path = sent.rstrip("/")
        if not path:
            continue
        parents = [path[:end] for end, letter in enumerate(path) if letter == "/"]
        for number in sorted(
            [*chain.from_iterable(same.get(each, ()) for each in (*parents, path)), *below.get(path, ())]
        ):
            text = f"{_file(path, source)} with {_file(*before[number])}"
            yield f'volume "{volume}" ({described}): overlapping paths: {text}'
        same.setdefault(path, []).append(len(before))
        for parent in parents:
            below.setdefault(parent, []).append(len(before))
        before.append((path, source))


def _file(path: str, source: str) -> str:
    return f'"{path}" ({source})' if source else f'"{path}"'


# --- lists ---


def _duplicates(items: list[JsonObject] | None, field: str, path: str) -> Found:
    seen: set[str] = set()
    for index, item in enumerate(items or ()):
        value = item.get(field) or ""
        if value in seen:
            yield f'{path}[{index}].{field}: duplicate {field} "{value}"'
        seen.add(value)


def _hidden_variables(env: Iterable[JsonObject], path: str) -> Found:
    seen: set[str] = set()
    for index, variable in enumerate(env):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"  # a value that is made of the one before is fine
        if name in seen and (variable.get("valueFrom") or value == reference or reference not in value):
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _ports(ports: Iterable[tuple[JsonObject, str]]) -> Found:
    """Only ports that have something in common are compared: there may be thousands."""
    paths: list[str] = []
    same: dict[tuple[Any, ...], list[int]] = {}  # by number and protocol; then also by host port; then also by host IP
    for port, path in ports:
        host_ip, host_port = port.get("hostIP") or "", port.get("hostPort") or 0
        if host_ip and not host_port:
            yield f"{path}: hostIP set without hostPort: {_go_port(port)}"
        number = (port.get("containerPort"), port.get("protocol"))
        equal = same.get((*number, host_port, host_ip), [])
        if host_port:
            overlapping = same.get((*number, 0), [])
            ambiguous = same.get((*number, host_port) if not host_ip else (*number, host_port, ""), [])
        else:
            overlapping, ambiguous = same.get(number, []), []
        for other in sorted({*equal, *overlapping, *ambiguous}):
            kind = "duplicate" if other in equal else "overlapping" if other in overlapping else "dangerously ambiguous"
            yield f"{path}: {kind} port definition with {paths[other]}"
        for key in (number, (*number, host_port), (*number, host_port, host_ip)):
            same.setdefault(key, []).append(len(paths))
        paths.append(path)


def _go_port(port: JsonObject) -> str:
    """As Go prints the structure."""
    names = (("Name", "name"), ("HostPort", "hostPort"), ("ContainerPort", "containerPort"), ("Protocol", "protocol"))
    words = [f"{name}:{port.get(field) or (0 if 'Port' in name else '')}" for name, field in names]
    return "{" + " ".join([*words, f"HostIP:{port.get('hostIP')}"]) + "}"


def _port_names(ports: Iterable[tuple[JsonObject, str]]) -> Found:
    first: dict[str, str] = {}
    for port, path in ports:
        name = port.get("name") or ""
        if name in first:
            other = first[name]
            yield (
                f'{path}: duplicate port name "{name}" with {other}, '
                f"services and probes that select ports by name will use {other}"
            )
        elif name:
            first[name] = path


# --- values ---


def _amounts(resources: JsonObject, path: str) -> Found:
    for name in _BYTES:
        for kind in ("limits", "requests"):
            if (amounts := resources.get(kind)) and name in amounts:
                yield from _fraction(amounts, name, f"{path}.{kind}")


def _fraction(amounts: JsonObject, name: str, path: str) -> Found:
    amount = amounts.get(name)
    if isinstance(amount, str) and QUANTITIES[amount].milli % 1000:
        yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'


def _profiles(container: JsonObject, annotations: JsonObject, pod: JsonObject, path: str) -> Found:
    """Annotations without the field that took their place. `pod`: the security context of the pod."""
    name, own = container.get("name") or "", container.get("securityContext") or {}
    if not own.get("seccompProfile") and f"{_CONTAINER_SECCOMP}{name}" in annotations:
        yield f"{path}metadata.annotations[{_CONTAINER_SECCOMP}{name}]: {_SECCOMP_GONE}"
    profile = annotations.get(f"{_APPARMOR}{name}")
    if not path or profile is None or own.get("appArmorProfile"):  # that of a pod becomes the field
        return
    if pod.get("appArmorProfile") is None or pod["appArmorProfile"] != _apparmor_field(profile):
        text = 'deprecated since v1.30; use the "appArmorProfile" field instead'
        yield f"{path}metadata.annotations[{_APPARMOR}{name}]: {text}"


def _apparmor_field(annotation: str) -> JsonObject | None:
    kind = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}.get(annotation)
    if kind:
        return {"type": kind}
    local = annotation.removeprefix("localhost/")
    return {"type": "Localhost", "localhostProfile": local} if local and local != annotation else None


def _address(text: str, path: str) -> Found:
    plain = ".".join(part.lstrip("0") or "0" for part in text.split("."))
    try:
        address = ipaddress.ip_address(text if ":" in text else plain)
    except ValueError:  # validation has refused it
        return
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped or (":" not in text and plain != text):
        yield f'{path}: non-standard IP address "{text}" is invalid: use "{mapped or address}"'
    elif str(address) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'
