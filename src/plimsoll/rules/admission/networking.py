"""Ingresses, their classes and network policies: what the API server accepts, with Kubernetes' messages."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from plimsoll.errors import FieldError
from plimsoll.rules.admission.addresses import is_ip
from plimsoll.rules.admission.pod_spec.placement import label_selector_errors
from plimsoll.rules.admission.services import endpoint_ip_errors, port_reference_errors
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import (
    Problems,
    dns_label_problems,
    dns_subdomain_problems,
    path_segment_problems,
    wildcard_subdomain_problems,
)

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
DEFAULT_INGRESS_CLASS = "ingressclass.kubernetes.io/is-default-class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_IN_PATHS, _NOT_AT_ENDS = ("//", "/./", "/../", "%2f", "%2F"), ("/..", "/.")
_MAX_CONTROLLER = 250
_CONTROLLER_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_TYPES = ("Ingress", "Egress")
_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_NOT_AN_ADDRESS = "must be a DNS name, not an IP address"
_PORT = "must be between 1 and 65535, inclusive"
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def _required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, detail)


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    shown = ", ".join(f'"{each}"' for each in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {shown}", value)


def _named(path: str, value: str, problems: Problems) -> Iterator[FieldError]:
    return (_invalid(path, value, problem) for problem in problems)


# --- ingresses ---


def ingress_errors(ingress: JsonObject) -> list[FieldError]:
    spec = ingress.get("spec") or {}
    errors: list[FieldError] = []
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        errors.append(_invalid("spec", None, "null: either `defaultBackend` or `rules` must be specified"))
    if spec.get("defaultBackend") is not None:
        errors += _backend_errors(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(spec.get("rules") or []):
        errors += _rule_errors(rule, f"spec.rules[{index}]")
    for index, tls in enumerate(spec.get("tls") or []):
        for place, host in enumerate(tls.get("hosts") or []):
            errors += _named(f"spec.tls[{index}].hosts[{place}]", host, _host_problems(host))
        if name := tls.get("secretName"):
            errors += _named(f"spec.tls[{index}].secretName", name, dns_subdomain_problems(name))
    name = spec.get("ingressClassName")
    if name is not None:
        errors += _named("spec.ingressClassName", name, dns_subdomain_problems(name))
    return errors


def ingress_class_annotation_errors(ingress: JsonObject) -> list[FieldError]:
    """Of a new ingress: the older annotation may be set beside the field, if they agree."""
    name = (ingress.get("spec") or {}).get("ingressClassName")
    old = (ingress["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if None in (name, old) or name == old:
        return []
    path = f"annotations.{CLASS_ANNOTATION}"
    return [_invalid(path, old, "must match `ingressClassName` when both are specified")]


def _host_problems(host: str) -> Problems:
    return wildcard_subdomain_problems(host) if "*" in host else dns_subdomain_problems(host)


def _rule_errors(rule: JsonObject, path: str) -> Iterator[FieldError]:
    if host := rule.get("host"):
        if is_ip(host):
            yield _invalid(f"{path}.host", host, _NOT_AN_ADDRESS)
        yield from _named(f"{path}.host", host, _host_problems(host))
    http = rule.get("http")
    if http is None:
        return
    if not http.get("paths"):
        yield _required(f"{path}.http.paths")
    for index, each in enumerate(http.get("paths") or []):
        yield from _path_errors(each, f"{path}.http.paths[{index}]")


def _path_errors(entry: JsonObject, path: str) -> Iterator[FieldError]:
    kind, text = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        yield _required(f"{path}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        yield _unsupported(f"{path}.pathType", kind, _PATH_TYPES)
    elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
        yield _invalid(f"{path}.path", text, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for each in _NOT_IN_PATHS:
            if each in text:
                yield _invalid(f"{path}.path", text, f"must not contain '{each}'")
        for each in _NOT_AT_ENDS:
            if text.endswith(each):
                yield _invalid(f"{path}.path", text, f"cannot end with '{each}'")
    yield from _backend_errors(entry.get("backend") or {}, f"{path}.backend")


def _backend_errors(backend: JsonObject, path: str) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield _invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _reference_errors(resource, f"{path}.resource")
    elif service is not None:
        if not service.get("name"):
            yield _required(f"{path}.service.name")
        else:
            yield from _named(f"{path}.service.name", service["name"], dns_label_problems(service["name"]))
        yield from _backend_port_errors(service.get("port") or {}, path)
    else:
        yield _invalid(path, "", "resource or service backend is required")


def _backend_port_errors(port: JsonObject, path: str) -> Iterator[FieldError]:
    name, number = port.get("name"), port.get("number")
    if name and number:
        yield _invalid(path, "", "cannot set both port name & port number")
    elif name:
        yield from port_reference_errors(f"{path}.service.port.name", name)
    elif number:
        yield from port_reference_errors(f"{path}.service.port.number", number)
    else:
        yield _required(path, "port name or number is required")


def _reference_errors(reference: JsonObject, path: str) -> Iterator[FieldError]:
    group = reference.get("apiGroup")
    if group is not None:
        yield from _named(f"{path}.apiGroup", group, dns_subdomain_problems(group))
    for field in ("kind", "name"):
        if not reference.get(field):
            yield _required(f"{path}.{field}")
        else:
            yield from _named(f"{path}.{field}", reference[field], path_segment_problems(reference[field]))


def ingress_status_errors(ingress: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    found = ((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    for index, each in enumerate(found):
        path = f"status.loadBalancer.ingress[{index}]"
        if each.get("ip") and not is_ip(each["ip"]):
            errors += endpoint_ip_errors(f"{path}.ip", each["ip"])
        if name := each.get("hostname"):
            errors += _named(f"{path}.hostname", name, dns_subdomain_problems(name))
            if is_ip(name):
                errors.append(_invalid(f"{path}.hostname", name, _NOT_AN_ADDRESS))
    return errors


# --- classes of ingresses ---


def ingress_class_errors(ingress_class: JsonObject) -> list[FieldError]:
    spec, path = ingress_class.get("spec") or {}, "spec.controller"
    controller = spec.get("controller") or ""
    errors: list[FieldError] = []
    if len(controller) > _MAX_CONTROLLER:
        errors.append(FieldError("FieldValueTooLong", path, f"may not be more than {_MAX_CONTROLLER} bytes"))
    host, _, rest = controller.partition("/")
    if not controller:
        errors.append(_required(path))
    elif not host or not rest:
        errors.append(_invalid(path, controller, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        errors += _named(path, host, dns_subdomain_problems(host))
        if not re.fullmatch(_CONTROLLER_PATH, rest):
            detail = f"Invalid path (regex used for validation is '{_CONTROLLER_PATH}')"
            errors.append(_invalid(path, rest, detail))
    if spec.get("parameters") is not None:
        errors += _parameter_errors(spec["parameters"])
    return errors


def _parameter_errors(parameters: JsonObject) -> Iterator[FieldError]:
    path = "spec.parameters"
    yield from _reference_errors(parameters, path)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope == "Namespace":
        if namespace is None:
            yield _required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            yield from _named(f"{path}.namespace", namespace, dns_label_problems(namespace))
    elif scope == "Cluster":
        if namespace is not None:
            yield FieldError("FieldValueForbidden", f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
    else:
        yield _unsupported(f"{path}.scope", scope or "", ("Cluster", "Namespace"))


# --- network policies ---


def network_policy_errors(policy: JsonObject) -> list[FieldError]:
    spec = policy.get("spec") or {}
    errors = list(label_selector_errors(spec.get("podSelector"), "spec.podSelector"))
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or []):
            path = f"spec.{direction}[{index}]"
            for place, port in enumerate(rule.get("ports") or []):
                errors += _policy_port_errors(port, f"{path}.ports[{place}]")
            for place, peer in enumerate(rule.get(side) or []):
                errors += _peer_errors(peer, f"{path}.{side}[{place}]")
    types = spec.get("policyTypes") or []
    if len(types) > len(_TYPES):
        return [*errors, _invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    for index, each in enumerate(types):
        if each not in _TYPES:
            errors.append(_unsupported(f"spec.policyTypes[{index}]", each, _TYPES))
    return errors


def _policy_port_errors(entry: JsonObject, path: str) -> Iterator[FieldError]:
    protocol, port, end = entry.get("protocol"), entry.get("port"), entry.get("endPort")
    if protocol is not None and protocol not in _PROTOCOLS:
        yield _unsupported(f"{path}.protocol", protocol, _PROTOCOLS)
    if end is not None and not isinstance(port, int):
        why = "may not be specified when `port` is " + ("not specified" if port is None else "non-numeric")
        yield _invalid(f"{path}.endPort", end, why)
    if port is None:
        return
    yield from port_reference_errors(f"{path}.port", port)
    if end is not None and isinstance(port, int):
        if end < port:
            yield _invalid(f"{path}.endPort", port, "must be greater than or equal to `port`")
        if not 0 < end < 65536:
            yield _invalid(f"{path}.endPort", end, _PORT)


def _peer_errors(peer: JsonObject, path: str) -> Iterator[FieldError]:
    selectors = [field for field in ("podSelector", "namespaceSelector") if peer.get(field) is not None]
    for field in selectors:
        yield from label_selector_errors(peer[field], f"{path}.{field}")
    block = peer.get("ipBlock")
    if block is not None:
        yield from _block_errors(block, f"{path}.ipBlock")
    if block is None and not selectors:
        yield _required(path, "must specify a peer")
    elif block is not None and selectors:
        yield FieldError("FieldValueForbidden", path, "may not specify both ipBlock and another peer")


def _network(text: str) -> tuple[_Network | None, str]:
    """The network, and what is wrong with its text."""
    address, _, length = text.partition("/")
    if not re.fullmatch("[0-9]+", length):
        return None, _CIDR
    plain = f"{'.'.join(part.lstrip('0') or '0' for part in address.split('.'))}/{length.lstrip('0') or '0'}"
    plain = text if ":" in address else plain
    try:
        found = ipaddress.ip_interface(plain)
    except ValueError:
        return None, _CIDR
    if plain != text or length != str(found.network.prefixlen):
        return found.network, "must not have leading 0s in IP or prefix length"
    if isinstance(found, ipaddress.IPv6Interface) and found.ip.ipv4_mapped is not None:
        return found.network, "must not have an IPv4-mapped IPv6 address"
    if found.ip != found.network.network_address:
        return found.network, "must not have bits set beyond the prefix length"
    return found.network, ""


def _block_errors(block: JsonObject, path: str) -> Iterator[FieldError]:
    cidr = block.get("cidr") or ""
    if not cidr:
        yield _required(f"{path}.cidr")
        return
    whole, problem = _network(cidr)
    if problem:
        yield _invalid(f"{path}.cidr", cidr, problem)
    for index, text in enumerate(block.get("except") or [] if whole is not None else []):
        part, problem = _network(text)
        if problem:
            yield _invalid(f"{path}.except[{index}]", text, problem)
        if part is not None and whole is not None and not _is_within(part, whole):
            yield _invalid(f"{path}.except[{index}]", text, "must be a strict subset of `cidr`")


def _is_within(part: _Network, whole: _Network) -> bool:
    is_same_family = part.version == whole.version
    return is_same_family and part.prefixlen > whole.prefixlen and part.network_address in whole
