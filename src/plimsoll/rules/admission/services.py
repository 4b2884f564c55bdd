"""Services and endpoints: what the API server accepts, with Kubernetes' messages."""

from __future__ import annotations

import ipaddress
from typing import Any

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.addresses import is_ip
from plimsoll.rules.admission.pod_spec.probes import port_name_problems
from plimsoll.rules.admission.service_addresses import HEADLESS, has_cluster_ip, has_health_port, has_node_ports
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_value_problems,
    qualified_name_problems,
)

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
POLICIES = ("Cluster", "Local")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_MAX_AFFINITY_S = 86400
_PORT = "must be between 1 and 65535, inclusive"


def service_errors(service: JsonObject, family: str) -> list[FieldError]:
    """`family`: of the server's range of cluster IPs."""
    spec = service.get("spec") or {}
    kind = spec.get("type") or ""
    is_headless = spec.get("clusterIP") == HEADLESS
    errors: list[FieldError] = []
    if not spec.get("ports") and not is_headless and kind != "ExternalName":
        errors.append(_required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and is_headless:
        errors.append(_invalid("spec.clusterIPs[0]", HEADLESS, f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        errors += _external_errors(spec)
    errors += _port_list_errors(spec)
    for key, value in (spec.get("selector") or {}).items():
        errors += [_invalid("spec.selector", key, problem) for problem in qualified_name_problems(key)]
        errors += [_invalid("spec.selector", value, problem) for problem in label_value_problems(value)]
    errors += _affinity_errors(spec)
    if kind != "ExternalName":
        errors += _address_errors(spec, family)
    for index, address in enumerate(spec.get("externalIPs") or []):
        errors += _ip_errors(f"spec.externalIPs[{index}]", address)
    if kind not in TYPES:
        errors.append(_unsupported("spec.type", kind, TYPES))
    return errors + _traffic_errors(spec)


def _external_errors(spec: JsonObject) -> list[FieldError]:
    reason = "may not be set for ExternalName services"
    errors = [_forbidden(f"spec.{field}", reason) for field in ("clusterIPs", "ipFamilies") if spec.get(field)]
    if spec.get("ipFamilyPolicy") is not None:
        errors.append(_forbidden("spec.ipFamilyPolicy", reason))
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        return [*errors, _required("spec.externalName")]
    return errors + [_invalid("spec.externalName", name, problem) for problem in dns_subdomain_problems(name)]


def _port_list_errors(spec: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    ports = spec.get("ports") or []
    names: set[str] = set()
    seen: set[tuple[Any, ...]] = set()
    nodes: set[tuple[Any, ...]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        name, protocol, number = port.get("name") or "", port.get("protocol") or "", port.get("port") or 0
        if not name and len(ports) > 1:
            errors.append(_required(f"{path}.name"))
        elif name:
            errors += [_invalid(f"{path}.name", name, problem) for problem in dns_label_problems(name)]
            if name in names:
                errors.append(FieldError("FieldValueDuplicate", f"{path}.name", value=name))
            names.add(name)
        if not 0 < number < 65536:
            errors.append(_invalid(f"{path}.port", number, _PORT))
        if protocol not in PROTOCOLS:
            errors.append(_unsupported(f"{path}.protocol", protocol, PROTOCOLS))
        errors += port_reference_errors(f"{path}.targetPort", port.get("targetPort"))
        if port.get("nodePort"):
            if spec.get("type") == "ClusterIP":
                errors.append(_forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
            if (protocol, port["nodePort"]) in nodes:
                errors.append(FieldError("FieldValueDuplicate", f"{path}.nodePort", value=port["nodePort"]))
            nodes.add((protocol, port["nodePort"]))
        if (protocol, number) in seen:
            shown = f'{{"name":"","protocol":"{protocol}","port":{number},"targetPort":0}}'
            errors.append(FieldError("FieldValueDuplicate", path, shown))
        seen.add((protocol, number))
    return errors


def port_reference_errors(path: str, port: Any) -> list[FieldError]:
    """A port by number, or by the name of a container's port."""
    if isinstance(port, int):
        return [] if 0 < port < 65536 else [_invalid(path, port, _PORT)]
    name = str(port or "")
    return [_invalid(path, name, problem) for problem in port_name_problems(name)]


def _affinity_errors(spec: JsonObject) -> list[FieldError]:
    affinity = spec.get("sessionAffinity") or ""
    if affinity not in ("ClientIP", "None"):
        return [_unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None"))]
    config = spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    if affinity == "None":
        return [_forbidden(path, "must not be set when session affinity is None")] if config is not None else []
    timeout = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if timeout is None:
        return [_required(path, "when session affinity type is ClientIP")]
    if not 0 < timeout <= _MAX_AFFINITY_S:
        reason = f"must be greater than 0 and less than {_MAX_AFFINITY_S}"
        return [_invalid(f"{path}.clientIP.timeoutSeconds", timeout, reason)]
    return []


def _address_errors(spec: JsonObject, family: str) -> list[FieldError]:
    errors: list[FieldError] = []
    address, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if address and not addresses:
        errors.append(_required("spec.clusterIPs"))
    elif address and addresses[0] != address:
        errors.append(_shown("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    elif addresses and not address:
        errors.append(_shown("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified"))
    for index, each in enumerate(addresses):
        if each == HEADLESS and index == 0:
            if len(addresses) > 1:
                errors.append(_shown("spec.clusterIPs", addresses, "'None' must be the first and only value"))
            continue
        errors += _ip_errors(f"spec.clusterIPs[{index}]", each)
    is_free = address == HEADLESS and not spec.get("selector")  # its endpoints may have any family
    for index, each in enumerate(spec.get("ipFamilies") or []):
        if each not in FAMILIES:
            errors.append(_unsupported(f"spec.ipFamilies[{index}]", each, FAMILIES))
        elif each != family and not is_free:
            errors.append(_invalid(f"spec.ipFamilies[{index}]", each, "not configured on this cluster"))
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in FAMILY_POLICIES:
        errors.append(_unsupported("spec.ipFamilyPolicy", policy, FAMILY_POLICIES))
    elif (policy == "RequireDualStack" or len(addresses) > 1) and not is_free:
        reason = "this cluster is not configured for dual-stack services"
        errors.append(_invalid("spec.ipFamilyPolicy", policy, reason))
    return errors


def _ip_errors(path: str, address: str) -> list[FieldError]:
    problem = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    return [] if is_ip(address) else [_invalid(path, address, problem)]


def _traffic_errors(spec: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    kind = spec.get("type")
    only = "may only be used when `type` is 'LoadBalancer'"
    if spec.get("loadBalancerSourceRanges") and kind != "LoadBalancer":
        errors.append(_forbidden("spec.LoadBalancerSourceRanges", only))
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        errors.append(_forbidden("spec.allocateLoadBalancerNodePorts", only))
    if spec.get("loadBalancerClass") is not None and kind != "LoadBalancer":
        errors.append(_forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'"))
    external = spec.get("externalTrafficPolicy")
    if external:
        if kind not in ("NodePort", "LoadBalancer") and not spec.get("externalIPs"):
            reason = "may only be set for externally-accessible services"
            errors.append(_invalid("spec.externalTrafficPolicy", external, reason))
        elif external not in POLICIES:
            errors.append(_unsupported("spec.externalTrafficPolicy", external, POLICIES))
    if spec.get("healthCheckNodePort") and not has_health_port(spec):
        reason = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(_invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], reason))
    internal = spec.get("internalTrafficPolicy")
    if internal is not None and internal not in POLICIES:
        errors.append(_unsupported("spec.internalTrafficPolicy", internal, POLICIES))
    return errors


def service_update_errors(old: JsonObject, new: JsonObject, family: str) -> list[FieldError]:
    errors = service_errors(new, family)
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if "ExternalName" in (before.get("type"), after.get("type")):
        return errors
    had, has = before.get("clusterIPs") or [], after.get("clusterIPs") or []
    if had and not has:
        errors.append(_shown("spec.clusterIPs[0]", has, "primary clusterIP can not be unset"))
    elif had and has[0] != had[0]:
        errors.append(_shown("spec.clusterIPs[0]", has, "may not change once set"))
    return errors


# --- fields that the server fills in ---


def normalized(service: JsonObject, old: JsonObject | None, family: str) -> JsonObject:
    """clusterIP and clusterIPs agree; an update keeps what was allocated and does not name it; what the type does not
    have is dropped where the type changes; families follow the server's range."""
    spec = dict(service.get("spec") or {})
    before = (old or {}).get("spec") or {}
    if old is not None:
        _keep_allocated(spec, before)
        _drop_by_type(spec, before)
    address, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if address and (not addresses or (old is not None and addresses == before.get("clusterIPs"))):
        spec["clusterIPs"] = [address]
    elif addresses and not address and old is None:
        spec["clusterIP"] = addresses[0]
    if spec.get("type") in TYPES and spec["type"] != "ExternalName":
        _with_families(spec, family)
    return {**service, "spec": spec}


def _keep_allocated(spec: JsonObject, before: JsonObject) -> None:
    if has_cluster_ip(before) and has_cluster_ip(spec) and before.get("clusterIP"):
        spec["clusterIP"] = spec.get("clusterIP") or before["clusterIP"]
        spec["clusterIPs"] = spec.get("clusterIPs") or before.get("clusterIPs") or []
    if has_node_ports(before) and has_node_ports(spec):
        known = {_identity(port): port.get("nodePort") for port in before.get("ports") or []}
        used = {port.get("nodePort") for port in spec.get("ports") or [] if port.get("nodePort")}
        ports = []
        for port in spec.get("ports") or []:
            number = known.get(_identity(port))
            ports.append(
                {**port, "nodePort": number} if not port.get("nodePort") and number not in used and number else port
            )
        spec["ports"] = ports
    if has_health_port(before) and has_health_port(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort") or 0


def _identity(port: JsonObject) -> tuple[Any, ...]:
    return port.get("protocol"), port.get("port")


def _drop_by_type(spec: JsonObject, before: JsonObject) -> None:
    """A client that changes only the type need not clear the fields of the old one."""
    if before.get("type") == spec.get("type"):
        return
    if spec.get("type") == "ExternalName" and has_cluster_ip(before):
        for field in ("clusterIP", "clusterIPs"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)
        for field in ("ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)
    if has_node_ports(before) and not has_node_ports(spec):
        known = {port.get("nodePort") for port in before.get("ports") or []}
        spec["ports"] = [
            {name: value for name, value in port.items() if name != "nodePort" or value not in known}
            for port in spec.get("ports") or []
        ]
    if spec.get("type") not in ("NodePort", "LoadBalancer") and not spec.get("externalIPs"):
        spec.pop("externalTrafficPolicy", None)
    if before.get("type") == "LoadBalancer":
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)


def _with_families(spec: JsonObject, family: str) -> None:
    is_free = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = [family, *(each for each in FAMILIES if each != family)] if is_free else [family]
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = "RequireDualStack" if is_free and len(spec["ipFamilies"]) > 1 else "SingleStack"


# --- endpoints ---


def endpoint_subset_errors(subsets: list[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, subset in enumerate(subsets):
        path = f"subsets[{index}]"
        for field in ("addresses", "notReadyAddresses"):
            for place, address in enumerate(subset.get(field) or []):
                errors += endpoint_ip_errors(f"{path}.{field}[{place}].ip", address.get("ip") or "")
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(_required(path, "must specify `addresses` or `notReadyAddresses`"))
        ports = subset.get("ports") or []
        for place, port in enumerate(ports):
            here = f"{path}.ports[{place}]"
            if not port.get("name") and len(ports) > 1:
                errors.append(_required(f"{here}.name"))
            if not 0 < (port.get("port") or 0) < 65536:
                errors.append(_invalid(f"{here}.port", port.get("port") or 0, _PORT))
            if (port.get("protocol") or "") not in PROTOCOLS:
                errors.append(_unsupported(f"{here}.protocol", port.get("protocol") or "", PROTOCOLS))
    return errors


def endpoint_ip_errors(path: str, text: str) -> list[FieldError]:
    """An address that a node may send traffic to: not its own, and not everyone's."""
    if errors := _ip_errors(path, text):
        return errors
    address = ipaddress.ip_address(text)
    for found, reason in (
        (address.is_unspecified, "may not be unspecified (0.0.0.0 or ::)"),
        (address.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (address.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            address.is_multicast
            and (address in ipaddress.ip_network("224.0.0.0/24") if address.version == 4 else True),
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ):
        if found:
            return [_invalid(path, text, reason)]
    return []


def slice_errors(document: JsonObject) -> list[FieldError]:
    kind = document.get("addressType") or ""
    errors: list[FieldError] = []
    if not kind:
        errors.append(_required("addressType"))
    elif kind not in ("FQDN", *FAMILIES):
        errors.append(_unsupported("addressType", kind, ("FQDN", "IPv4", "IPv6")))
    endpoints = document.get("endpoints") or []
    if len(endpoints) > 1000:
        errors.append(FieldError("FieldValueInvalid", "endpoints", "must have at most 1000 items", len(endpoints)))
    for index, endpoint in enumerate(endpoints):
        path = f"endpoints[{index}].addresses"
        addresses = endpoint.get("addresses") or []
        if not addresses:
            errors.append(_required(path, "must contain at least 1 address"))
        for place, address in enumerate(addresses):
            if kind in FAMILIES:
                errors += endpoint_ip_errors(f"{path}[{place}]", address)
            else:
                errors += [
                    _invalid(f"{path}[{place}]", address, problem) for problem in dns_subdomain_problems(address)
                ]
    names: set[str] = set()
    for index, port in enumerate(document.get("ports") or []):
        name = port.get("name") or ""
        if name:
            errors += [_invalid(f"ports[{index}].name", name, problem) for problem in dns_label_problems(name)]
        if name in names:
            errors.append(FieldError("FieldValueDuplicate", f"ports[{index}].name", value=name))
        names.add(name)
        if port.get("protocol") not in PROTOCOLS:
            errors.append(_unsupported(f"ports[{index}].protocol", port.get("protocol") or "", PROTOCOLS))
    return errors


def _required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, detail)


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)


def _invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def _shown(path: str, value: list[str], detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, f"{msgspec.json.encode(value).decode()}: {detail}")


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    listed = ", ".join(f'"{name}"' for name in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)
