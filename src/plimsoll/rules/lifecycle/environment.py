"""The environment of a container: `env` and `envFrom` → names and values, as the kubelet resolves them.

First every `envFrom` in order, then every `env` in order; later values replace earlier ones. A literal value may refer
to an earlier variable: `$(NAME)`. `$$` is one `$`, so `$$(NAME)` is the text `$(NAME)`; a reference to an unknown name
stays unchanged. Values from a field, a resource or a ConfigMap are never expanded.

A missing source is a ContainerConfigError with the kubelet's message, unless it is optional: then the variable is
omitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from plimsoll.errors import ContainerConfigError
from plimsoll.rules.gotext import quoted
from plimsoll.rules.model.objects import CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, ResourceList, listed
from plimsoll.rules.model.runnable import (
    ConfigMap,
    EnvFrom,
    EnvSource,
    KeyOf,
    ResourceField,
    RunContainer,
    RunPod,
    container_named,
    containers_of,
)
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.quantity import ZERO, from_units

ConfigMaps = Mapping[str, ConfigMap]  # of the pod's namespace, by name

INVALID_NAMES = "InvalidEnvironmentVariableNames"
_SECRETS = "no secrets are served here: use a config map, or the variable's value"
_ONE = from_units(1)

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.ASCII | re.DOTALL)
# An escaped `$`, or a reference; any other `$` is literal.
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


class Surroundings(msgspec.Struct, frozen=True):
    """What a fieldRef or resourceFieldRef can refer to outside the pod's object."""

    pod_ips: tuple[str, ...] = ()
    host_ips: tuple[str, ...] = ()
    allocatable: ResourceList = {}  # of the node: the default of a limit


class EnvironmentNote(msgspec.Struct, frozen=True):
    """A Warning event about a pod."""

    reason: str
    message: str


class Environment(msgspec.Struct, frozen=True):
    variables: dict[str, str] = {}
    notes: tuple[EnvironmentNote, ...] = ()


def environment(
    pod: RunPod,
    container: RunContainer,
    config_maps: ConfigMaps,
    surroundings: Surroundings,
    *,
    services: Mapping[str, str] | None = None,
    profile: Profile = DEFAULT_PROFILE,
) -> Environment:
    """`pod` has its allocated resources; `services` are the variables that come before all others
    (`rules.lifecycle.service_links`). Raises ContainerConfigError."""
    variables: dict[str, str] = dict(services or {})
    notes: list[EnvironmentNote] = []
    for source in container.env_from:
        notes.extend(_take_all(source, pod.metadata.namespace, config_maps, variables, profile))
    for variable in container.env:
        value: str | None = variable.value
        if value:
            value = expanded(value, variables)
        elif variable.value_from is not None:
            value = _resolved(variable.value_from, variable.name, pod, container, config_maps, surroundings)
        if value is None:
            continue
        if not variable.name or "=" in variable.name or "\0" in variable.name + value:
            raise ContainerConfigError(
                f"environment variable {quoted(variable.name)}: the name must not be empty or contain '=', and "
                "neither name nor value may contain a zero byte"
            )
        variables[variable.name] = value
    return Environment(variables, tuple(notes))


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by values and `$$` by `$`; references to unknown names stay."""
    return _expanded(text, lambda name: variables.get(name, f"$({name})"))


def strictly_expanded(text: str, variables: Mapping[str, str]) -> str:
    """For `subPathExpr`: every name must have a value. Raises ContainerConfigError."""

    def value(name: str) -> str:
        if not (text := variables.get(name, "")):
            raise ContainerConfigError(f"missing value for {quoted(name)}")
        return text

    return _expanded(text, value)


def _expanded(text: str, value: Callable[[str], str]) -> str:
    if "$" not in text:
        return text
    return _REFERENCE.sub(lambda match: "$" if match[1] else value(match[2]), text)


def referenced_config_maps(pod: RunPod) -> frozenset[str]:
    """The names of all ConfigMaps that the pod's containers and volumes refer to."""
    return frozenset(name for name in _named(pod) if name)


def _named(pod: RunPod) -> Iterator[str]:
    for container in containers_of(pod):
        for source in container.env_from:
            if source.config_map_ref is not None:
                yield source.config_map_ref.name
        for variable in container.env:
            if variable.value_from is not None and variable.value_from.config_map_key_ref is not None:
                yield variable.value_from.config_map_key_ref.name
    for volume in pod.spec.volumes:
        if volume.config_map is not None:
            yield volume.config_map.name
        for projection in volume.projected.sources if volume.projected is not None else ():
            if projection.config_map is not None:
                yield projection.config_map.name


# --- envFrom ---


def _take_all(
    source: EnvFrom, namespace: str, config_maps: ConfigMaps, variables: dict[str, str], profile: Profile
) -> Iterator[EnvironmentNote]:
    if source.secret_ref is not None and not source.secret_ref.optional:
        raise ContainerConfigError(f"{not_found('secret', source.secret_ref.name)}: {_SECRETS}")
    if source.config_map_ref is None:
        return
    name = source.config_map_ref.name
    config_map = config_maps.get(name)
    if config_map is None:
        if source.config_map_ref.optional:
            return
        raise ContainerConfigError(not_found("configmap", name))
    invalid: list[str] = []
    for key, value in (config_map.data or {}).items():
        prefixed = source.prefix + key
        is_name = is_variable_name(prefixed) if profile.invalid_variables_skipped else prefixed and "=" not in prefixed
        if is_name and "\0" not in prefixed + value:
            variables[prefixed] = value
        else:
            invalid.append(prefixed)
    if invalid:
        yield EnvironmentNote(
            INVALID_NAMES,
            f"Keys [{', '.join(sorted(invalid))}] from the EnvFrom configMap {namespace}/{name} were skipped since "
            "they are considered invalid environment variable names.",
        )


def is_variable_name(text: str) -> bool:
    """The rule of 1.27 for keys as variables; `.` and names that begin with `..` are invalid."""
    return _NAME.fullmatch(text) is not None and text != "." and not text.startswith("..")


def not_found(kind: str, name: str) -> str:
    """The API server's message."""
    return f"{kind} {quoted(name)} not found"


# --- valueFrom ---


def _resolved(
    source: EnvSource,
    variable: str,
    pod: RunPod,
    container: RunContainer,
    config_maps: ConfigMaps,
    surroundings: Surroundings,
) -> str | None:
    """None: optional and missing."""
    if source.field_ref is not None:
        return field_value(pod, source.field_ref.field_path, surroundings)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, surroundings.allocatable)
    if source.config_map_key_ref is not None:
        return _key_value(source.config_map_key_ref, pod.metadata.namespace, config_maps)
    if source.secret_key_ref is not None:
        if source.secret_key_ref.optional:
            return None
        raise ContainerConfigError(f"{not_found('secret', source.secret_key_ref.name)}: {_SECRETS}")
    raise ContainerConfigError(
        f"environment variable {quoted(variable)}: valueFrom supports fieldRef, resourceFieldRef and configMapKeyRef"
    )


def _key_value(reference: KeyOf, namespace: str, config_maps: ConfigMaps) -> str | None:
    config_map = config_maps.get(reference.name)
    if config_map is None:
        if reference.optional:
            return None
        raise ContainerConfigError(not_found("configmap", reference.name))
    value = (config_map.data or {}).get(reference.key)
    if value is None and not reference.optional:
        raise ContainerConfigError(f"couldn't find key {reference.key} in ConfigMap {namespace}/{reference.name}")
    return value


def field_value(pod: RunPod, path: str, surroundings: Surroundings) -> str:
    """The value of a fieldRef; raises ContainerConfigError."""
    metadata = pod.metadata
    pod_ips, host_ips = surroundings.pod_ips, surroundings.host_ips
    values = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "metadata.labels": map_text(metadata.labels),
        "metadata.annotations": map_text(metadata.annotations),
        "spec.nodeName": pod.spec.node_name,
        "spec.host": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": pod_ips[0] if pod_ips else "",
        "status.podIPs": ",".join(pod_ips),
        "status.hostIP": host_ips[0] if host_ips else "",
        "status.hostIPs": ",".join(host_ips),
    }
    if path in values:
        return values[path]
    subscripted = _SUBSCRIPT.fullmatch(path)
    if subscripted is None:
        raise ContainerConfigError(f"unsupported fieldPath: {path}")
    texts = metadata.labels if subscripted[1] == "metadata.labels" else metadata.annotations
    return (texts or {}).get(subscripted[2], "")


def map_text(values: Mapping[str, str] | None) -> str:
    """Labels or annotations as text: one `key="value"` per line, sorted by key."""
    return "\n".join(f"{key}={quoted(value)}" for key, value in sorted((values or {}).items()))


def resource_value(
    pod: RunPod, container: RunContainer | None, reference: ResourceField, allocatable: ResourceList
) -> str:
    """Rounded up to whole divisors; a limit that is not set is the pod's, else the node's allocatable."""
    if reference.container_name:
        container = container_named(pod, reference.container_name)
    if container is None:
        raise ContainerConfigError(f"container {reference.container_name} not found")
    kind, _, name = reference.resource.partition(".")
    if kind not in ("requests", "limits") or (
        name not in (CPU, MEMORY, EPHEMERAL_STORAGE) and not name.startswith(HUGEPAGES_PREFIX)
    ):
        raise ContainerConfigError(f"Unsupported container resource : {reference.resource}")
    amount, divisor = listed(container.resources, kind).get(name, ZERO), reference.divisor or _ONE
    if not amount and kind == "limits" and not name.startswith(HUGEPAGES_PREFIX):
        amount = listed(pod.spec.resources, "limits").get(name) or allocatable.get(name, ZERO)
    return str(-(-amount.milli // divisor.milli) if name == CPU else -(-amount.value // divisor.value))
