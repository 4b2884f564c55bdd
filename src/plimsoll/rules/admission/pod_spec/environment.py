"""Validation of environment variables, and of the fields and resources that they and downward API volumes name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.field_errors import (
    backstep_errors,
    invalid,
    misnamed,
    not_found,
    one_of,
    required,
)
from plimsoll.rules.admission.pod_spec.rules import SpecRules
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import (
    config_map_key_problems,
    dns_label_problems,
    dns_subdomain_problems,
    qualified_name_problems,
)
from plimsoll.rules.quantity import QUANTITIES

FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_CONVERTED = frozenset(
    {*FIELDS, "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase",
     "spec.host"}
)  # fmt: skip
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGEPAGES = ("limits.hugepages-", "requests.hugepages-")
_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_SUBSCRIPT = re.compile(r"(.*)\['(.*)'\]", re.DOTALL)
_STRICT_NAME = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_STRICT_RULE = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not "
    "start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is "
    f"'{_STRICT_NAME}')"
)
_RELAXED_RULE = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def environment_errors(
    container: JsonObject, at: str, volumes: dict[str, JsonObject], rules: SpecRules
) -> Iterator[FieldError]:
    """`volumes`: every one of the pod, by name."""
    for index, variable in enumerate(container.get("env") or ()):
        path, name = f"{at}.env[{index}]", variable.get("name") or ""
        if not name:
            yield required(f"{path}.name")
        else:
            yield from misnamed(f"{path}.name", name, _name_problems(name, rules))
        if (source := variable.get("valueFrom")) is not None:
            yield from _source_errors(source, variable.get("value") or "", f"{path}.valueFrom", volumes, rules)
    for index, source in enumerate(container.get("envFrom") or ()):
        yield from _all_errors(source, f"{at}.envFrom", index, rules)


def _name_problems(name: str, rules: SpecRules) -> Iterator[str]:
    if rules.relaxed_environment:
        if not all(" " <= letter <= "~" and letter != "=" for letter in name):
            yield _RELAXED_RULE
        return
    if not re.fullmatch(_STRICT_NAME, name):
        yield _STRICT_RULE
    if name in (".", ".."):
        yield f"must not be '{name}'"
    elif name.startswith(".."):
        yield "must not start with '..'"


def _source_errors(
    source: JsonObject, value: str, at: str, volumes: dict[str, JsonObject], rules: SpecRules
) -> Iterator[FieldError]:
    kinds = [name for name in _SOURCES if source.get(name) is not None]
    for name in kinds:
        reference, path = source[name], f"{at}.{name}"
        if name == "fieldRef":
            yield from field_reference_errors(reference, path, FIELDS)
        elif name == "resourceFieldRef":
            yield from resource_reference_errors(reference, path, in_volume=False)
        elif name == "fileKeyRef":
            yield from _file_key_errors(reference, path, volumes)
        else:
            yield from misnamed(f"{path}.name", text := reference.get("name") or "", dns_subdomain_problems(text))
            yield from _key_errors(f"{path}.key", reference.get("key") or "")
    if not kinds:
        words = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        if not rules.environment_files:
            words = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield invalid(at, "", f"must specify one of: {words}")
    elif value:
        yield invalid(at, "", "may not be specified when `value` is not empty")
    elif len(kinds) > 1:
        yield invalid(at, "", "may not have more than one field specified at a time")


def _key_errors(path: str, key: str) -> Iterator[FieldError]:
    if key:
        yield from misnamed(path, key, config_map_key_problems(key))
    else:
        yield required(path)


def _file_key_errors(reference: JsonObject, at: str, volumes: dict[str, JsonObject]) -> Iterator[FieldError]:
    key, volume, file = (reference.get(name) or "" for name in ("key", "volumeName", "path"))
    if not key:
        yield required(f"{at}.key")
    elif not all(" " <= letter <= "~" and letter != "=" for letter in key):
        yield invalid(f"{at}.key", key, _RELAXED_RULE)
    if not volume:
        yield required(f"{at}.volumeName")
    else:
        yield from misnamed(f"{at}.volumeName", volume, dns_label_problems(volume))
    if not file:
        yield required(f"{at}.path")
    yield from backstep_errors(f"{at}.path", file)
    if volume not in volumes:
        yield not_found(f"{at}.volumeName", volume)
    elif volumes[volume].get("emptyDir") is None:
        yield invalid(f"{at}.volumeName", volume, "referenced volume must be of type emptyDir")


def _all_errors(source: JsonObject, at: str, index: int, rules: SpecRules) -> Iterator[FieldError]:
    path = f"{at}[{index}]"
    if prefix := source.get("prefix") or "":
        yield from misnamed(f"{path}.prefix", prefix, _name_problems(prefix, rules))
    kinds = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
    for name in kinds:
        if text := source[name].get("name") or "":
            yield from misnamed(f"{path}.{name}.name", text, dns_subdomain_problems(text))
        else:
            yield required(f"{path}.{name}.name")
    if not kinds:
        yield invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(kinds) > 1:
        yield invalid(at, "", "may not have more than one field specified at a time")


def field_reference_errors(reference: JsonObject, at: str, known: tuple[str, ...]) -> Iterator[FieldError]:
    """A `fieldRef`; `known`: the fields without a key that may be named here, sorted."""
    path, version = reference.get("fieldPath") or "", reference.get("apiVersion") or "v1"
    if not path:
        yield required(f"{at}.fieldPath")
        return
    problem = ""
    subscript = _SUBSCRIPT.fullmatch(path)
    if version != "v1":
        problem = f"unsupported pod version: {version}"
    elif subscript and subscript[1] not in ("metadata.annotations", "metadata.labels"):
        problem = f"field label does not support subscript: {path}"
    elif not subscript and path not in _CONVERTED:
        problem = f"field label not supported: {path}"
    if problem:
        yield invalid(f"{at}.fieldPath", path, f"error converting fieldPath: {problem}")
    elif subscript:
        key = subscript[2].lower() if subscript[1] == "metadata.annotations" else subscript[2]
        yield from misnamed(at, key, qualified_name_problems(key))
    else:
        yield from one_of(f"{at}.fieldPath", "spec.nodeName" if path == "spec.host" else path, known)


def resource_reference_errors(reference: JsonObject, at: str, *, in_volume: bool) -> Iterator[FieldError]:
    resource = reference.get("resource") or ""
    if in_volume and not reference.get("containerName"):
        yield required(f"{at}.containerName")
    elif not resource:
        yield required(f"{at}.resource")
    elif not resource.startswith(_HUGEPAGES):
        yield from one_of(f"{at}.resource", resource, _RESOURCES)
    divisor = QUANTITIES[str(reference.get("divisor") or "0")]
    if not divisor:
        return
    kind = resource.partition(".")[2]
    if kind == "cpu":
        if str(divisor) not in ("1m", "1"):
            yield invalid(
                f"{at}.divisor", resource, "only divisor's values 1m and 1 are supported with the cpu resource"
            )
        return
    words = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(kind)
    if resource.startswith(_HUGEPAGES):
        words = "hugepages"
    if words is not None and str(divisor) not in _DIVISORS:
        listed = ", ".join(_DIVISORS)
        yield invalid(
            f"{at}.divisor", resource, f"only divisor's values {listed} are supported with the {words} resource"
        )
