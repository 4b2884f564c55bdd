"""The environment of a container: `env` and `envFrom` → names and values, as the kubelet resolves them.

First the services, then every `envFrom` in order, then every `env` in order; later values replace earlier
ones. A literal value may refer to an earlier variable: `$(NAME)`. `$$` is one `$`, so `$$(NAME)` is the text `$(NAME)`;
a reference to an unknown name stays unchanged. Values from a field, a resource, a ConfigMap, a Secret or a file are
never expanded.

A missing source is a ContainerConfigError with the kubelet's message, unless it is optional: then the variable is
omitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from plimsoll.errors import ContainerConfigError, quoted
from plimsoll.rules.lifecycle.api_objects import Keyed, PodObjects, data_of, not_found
from plimsoll.rules.lifecycle.environment_files import Files, file_key_value
from plimsoll.rules.model.objects import CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, ResourceList, listed
from plimsoll.rules.model.run_volumes import ResourceField
from plimsoll.rules.model.runnable import (
    ConfigMap,
    EnvFrom,
    EnvSource,
    KeyOf,
    RunContainer,
    RunPod,
    container_named,
)
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.quantity import ZERO, from_units

INVALID_NAMES = "InvalidEnvironmentVariableNames"
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
    objects: PodObjects,
    surroundings: Surroundings,
    *,
    services: Mapping[str, str] | None = None,
    files: Files | None = None,
    profile: Profile = DEFAULT_PROFILE,
) -> Environment:
    """`pod` has its allocated resources; `services` are the variables that come before all others
    (`rules.lifecycle.service_links`), `files` those that it names in a `fileKeyRef`, None where the gate EnvFiles is
    off. Raises ContainerConfigError."""
    variables: dict[str, str] = dict(services or {})
    notes: list[EnvironmentNote] = []
    for source in container.env_from:
        notes.extend(_take_all(source, pod.metadata.namespace, objects, variables, profile))
    for variable in container.env:
        value: str | None = variable.value
        if value:
            value = expanded(value, variables)
        elif variable.value_from is not None:
            value = _resolved(variable.value_from, variable.name, pod, container, objects, surroundings, files)
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


# --- envFrom ---


def _take_all(
    source: EnvFrom, namespace: str, objects: PodObjects, variables: dict[str, str], profile: Profile
) -> Iterator[EnvironmentNote]:
    for reference, kind, found in (
        (source.config_map_ref, "configMap", objects.config_maps),
        (source.secret_ref, "secret", objects.secrets),
    ):
        if reference is None:
            continue
        keyed = found.get(reference.name)
        if keyed is None:
            if reference.optional:
                continue
            raise ContainerConfigError(not_found(kind.lower(), reference.name))
        invalid = _take_keys(source.prefix, _texts(keyed, kind), variables, profile)
        if invalid:
            yield EnvironmentNote(
                INVALID_NAMES,
                f"Keys [{', '.join(sorted(invalid))}] from the EnvFrom {kind} {namespace}/{reference.name} were "
                "skipped since they are considered invalid environment variable names.",
            )


def _take_keys(prefix: str, texts: Mapping[str, str], variables: dict[str, str], profile: Profile) -> list[str]:
    """The names that cannot be variables."""
    invalid: list[str] = []
    for key, value in texts.items():
        prefixed = prefix + key
        is_name = is_variable_name(prefixed) if profile.invalid_variables_skipped else prefixed and "=" not in prefixed
        if is_name and "\0" not in prefixed + value:
            variables[prefixed] = value
        else:
            invalid.append(prefixed)
    return invalid


def _texts(keyed: Keyed, kind: str) -> Mapping[str, str]:
    """What may become variables: of a ConfigMap `data` only; the bytes of a Secret are text."""
    if isinstance(keyed, ConfigMap):
        return keyed.data or {}
    return {key: data.decode("utf-8", "surrogateescape") for key, data in data_of(keyed, kind).items()}


def is_variable_name(text: str) -> bool:
    """The rule of 1.27 for keys as variables; `.` and names that begin with `..` are invalid."""
    return _NAME.fullmatch(text) is not None and text != "." and not text.startswith("..")


# --- valueFrom ---


def _resolved(
    source: EnvSource,
    variable: str,
    pod: RunPod,
    container: RunContainer,
    objects: PodObjects,
    surroundings: Surroundings,
    files: Files | None,
) -> str | None:
    """None: optional and missing."""
    if source.field_ref is not None:
        return field_value(pod, source.field_ref.field_path, surroundings)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, surroundings.allocatable)
    if source.config_map_key_ref is not None:
        return _key_value(source.config_map_key_ref, "ConfigMap", objects.config_maps, pod.metadata.namespace)
    if source.secret_key_ref is not None:
        return _key_value(source.secret_key_ref, "Secret", objects.secrets, pod.metadata.namespace)
    if source.file_key_ref is not None and files is not None:
        return file_key_value(source.file_key_ref, files)
    last = " and secretKeyRef" if files is None else ", secretKeyRef and fileKeyRef"
    raise ContainerConfigError(
        f"environment variable {quoted(variable)}: valueFrom supports fieldRef, resourceFieldRef, configMapKeyRef{last}"
    )


def _key_value(reference: KeyOf, kind: str, found: Mapping[str, Keyed], namespace: str) -> str | None:
    keyed = found.get(reference.name)
    if keyed is None:
        if reference.optional:
            return None
        raise ContainerConfigError(not_found(kind.lower(), reference.name))
    value = _texts(keyed, kind).get(reference.key)
    if value is None and not reference.optional:
        raise ContainerConfigError(f"couldn't find key {reference.key} in {kind} {namespace}/{reference.name}")
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
