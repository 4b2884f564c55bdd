"""Validation of a pod's volumes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.environment import field_reference_errors, resource_reference_errors
from plimsoll.rules.admission.pod_spec.field_errors import (
    backstep_errors,
    descending_path_errors,
    duplicate,
    file_path_errors,
    forbidden,
    invalid,
    misnamed,
    mode_errors,
    one_of,
    required,
    too_long,
)
from plimsoll.rules.admission.service_account import TOKEN_SOURCE
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems, dns_subdomain_problems
from plimsoll.rules.quantity import QUANTITIES

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_LEAST_TOKEN_S, _MOST_TOKEN_S = 600, 2**32
_MOST_DRIVER = 63
_TWICE = "may not specify more than 1 volume type"


def volume_errors(volumes: list[JsonObject], pod_name: str, at: str) -> tuple[list[FieldError], dict[str, JsonObject]]:
    """And the valid volumes by name, which mounts may refer to."""
    errors: list[FieldError] = []
    valid: dict[str, JsonObject] = {}
    for index, volume in enumerate(volumes):
        path, name = f"{at}[{index}]", volume.get("name") or ""
        found = [*_source_errors(volume, path, name, pod_name)]
        if not name:
            found.append(required(f"{path}.name"))
        else:
            found += misnamed(f"{path}.name", name, dns_label_problems(name))
        if name in valid:
            found.append(duplicate(f"{path}.name", name))
        if found:
            errors += found
        else:
            valid[name] = volume
    return errors, valid


def _source_errors(volume: JsonObject, at: str, name: str, pod_name: str) -> Iterator[FieldError]:
    kinds = [kind for kind in volume if kind in _PLACES and volume[kind] is not None]
    if len(kinds) > 1:
        kinds.sort(key=_PLACES.__getitem__)
    for number, kind in enumerate(kinds):
        if number:
            yield forbidden(f"{at}.{kind}", _TWICE)
        elif (check := _CHECKS.get(kind)) is not None and volume[kind] != TOKEN_SOURCE:
            yield from check(volume[kind], f"{at}.{kind}")
    if kinds[:1] == ["ephemeral"] and pod_name and name:
        claim = f"{pod_name}-{name}"
        for problem in dns_subdomain_problems(claim):
            yield invalid(f"{at}.name", name, f'PVC name "{claim}": {problem}')


def _empty_dir(source: JsonObject, at: str) -> Iterator[FieldError]:
    limit = source.get("sizeLimit")
    if limit is not None and QUANTITIES[str(limit)].nanos < 0:
        yield forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(source: JsonObject, at: str) -> Iterator[FieldError]:
    if not (path := source.get("path") or ""):
        yield required(f"{at}.path")
        return
    yield from backstep_errors(f"{at}.path", path)
    yield from one_of(f"{at}.type", source.get("type"), _HOST_PATH_TYPES)


def _files_of(name: str) -> Callable[[JsonObject, str], Iterator[FieldError]]:
    """Of a Secret or ConfigMap, which the field `name` names."""

    def check(source: JsonObject, at: str) -> Iterator[FieldError]:
        if not source.get(name):
            yield required(f"{at}.{name}")
        yield from mode_errors(f"{at}.defaultMode", source.get("defaultMode"))
        for index, item in enumerate(source.get("items") or ()):
            yield from _item_errors(item, f"{at}.items[{index}]")

    return check


def _item_errors(item: JsonObject, at: str) -> Iterator[FieldError]:
    for field in ("key", "path"):
        if not item.get(field):
            yield required(f"{at}.{field}")
    yield from file_path_errors(f"{at}.path", item.get("path") or "")
    yield from mode_errors(f"{at}.mode", item.get("mode"))


def _downward(source: JsonObject, at: str) -> Iterator[FieldError]:
    """Kubernetes names the volume in the paths, not the item."""
    yield from mode_errors(f"{at}.defaultMode", source.get("defaultMode"))
    for item in source.get("items") or ():
        yield from _downward_item(item, at)


def _downward_item(item: JsonObject, at: str) -> Iterator[FieldError]:
    if not (path := item.get("path") or ""):
        yield required(f"{at}.path")
    yield from file_path_errors(f"{at}.path", path)
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_reference_errors(field, f"{at}.fieldRef", _FIELDS)
        if resource is not None:
            yield invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif resource is not None:
        yield from resource_reference_errors(resource, f"{at}.resourceFieldRef", in_volume=True)
    else:
        yield required(at, "one of fieldRef and resourceFieldRef is required")
    yield from mode_errors(f"{at}.mode", item.get("mode"))


def _projected(source: JsonObject, at: str) -> Iterator[FieldError]:
    yield from mode_errors(f"{at}.defaultMode", source.get("defaultMode"))
    paths: set[str] = set()

    def clash(path: str, shown: str) -> Iterable[FieldError]:
        if path in paths:
            return (invalid(at, shown, "conflicting duplicate paths"),)
        if path:
            paths.add(path)
        return ()

    for index, part in enumerate(source.get("sources") or ()):
        path = f"{at}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if (files := part.get(kind)) is not None:
                if not files.get("name"):
                    yield required(f"{path}.{kind}.name")
                for number, item in enumerate(files.get("items") or ()):
                    yield from _item_errors(item, f"{path}.{kind}.items[{number}]")
                    yield from clash(item.get("path") or "", files.get("name") or "")
        for item in (part.get("downwardAPI") or {}).get("items") or ():
            yield from _downward_item(item, f"{path}.downwardAPI")
            yield from clash(item.get("path") or "", item.get("path") or "")
        if (token := part.get("serviceAccountToken")) is not None:
            yield from _token_errors(token, f"{path}.serviceAccountToken", at)
        if (bundle := part.get("clusterTrustBundle")) is not None:
            yield from _bundle_errors(bundle, f"{path}.clusterTrustBundle")
            yield from clash(bundle.get("path") or "", bundle.get("path") or "")
        if len(part) > 1 and sum(part.get(kind) is not None for kind in _PROJECTIONS) > 1:
            yield forbidden(path, "may not specify more than 1 volume type per source")


_PROJECTIONS = ("secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate")


def _token_errors(token: JsonObject, at: str, volume_at: str) -> Iterator[FieldError]:
    seconds, path = token.get("expirationSeconds"), token.get("path") or ""
    if seconds is not None and seconds < _LEAST_TOKEN_S:
        yield invalid(f"{at}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds is not None and seconds > _MOST_TOKEN_S:
        yield invalid(f"{at}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if not path:
        yield required(f"{volume_at}.path")
    yield from file_path_errors(f"{volume_at}.path", path)


def _bundle_errors(bundle: JsonObject, at: str) -> Iterator[FieldError]:
    name, signer = bundle.get("name"), bundle.get("signerName")
    if name is not None and signer is not None:
        yield invalid(at, "", "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            yield required(f"{at}.name", "must be a valid object name")
        if bundle.get("labelSelector") is not None:
            yield invalid(f"{at}.labelSelector", "", "labelSelector must be unset if name is specified")
    elif signer is None:
        yield required(at, "either name or signerName must be specified")
    elif not signer:
        yield required(f"{at}.signerName", "must be a valid signer name")
    if not bundle.get("path"):
        yield required(f"{at}.path")
    yield from file_path_errors(f"{at}.path", bundle.get("path") or "")


def _claim(source: JsonObject, at: str) -> Iterator[FieldError]:
    if not source.get("claimName"):
        yield required(f"{at}.claimName")


def _ephemeral(source: JsonObject, at: str) -> Iterator[FieldError]:
    if source.get("volumeClaimTemplate") is None:
        yield required(f"{at}.volumeClaimTemplate")


def _image(source: JsonObject, at: str) -> Iterator[FieldError]:
    if not source.get("reference"):
        yield required(f"{at}.reference")
    yield from one_of(f"{at}.pullPolicy", source.get("pullPolicy"), PULL_POLICIES)


def _csi(source: JsonObject, at: str) -> Iterator[FieldError]:
    driver = source.get("driver") or ""
    if not driver:
        yield required(f"{at}.driver")
        return
    if len(driver) > _MOST_DRIVER:
        yield too_long(f"{at}.driver", _MOST_DRIVER)
    yield from misnamed(f"{at}.driver", driver, dns_subdomain_problems(driver.lower()))


def _nfs(source: JsonObject, at: str) -> Iterator[FieldError]:
    for field in ("server", "path"):
        if not source.get(field):
            yield required(f"{at}.{field}")
    if not (path := source.get("path") or "").startswith("/"):
        yield invalid(f"{at}.path", path, "must be an absolute path")


def _iscsi(source: JsonObject, at: str) -> Iterator[FieldError]:
    for field in ("targetPortal", "iqn"):
        if not source.get(field):
            yield required(f"{at}.{field}")


def _git_repository(source: JsonObject, at: str) -> Iterator[FieldError]:
    if not source.get("repository"):
        yield required(f"{at}.repository")
    yield from descending_path_errors(f"{at}.directory", source.get("directory") or "")


_CHECKS: dict[str, Callable[[JsonObject, str], Iterator[FieldError]]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repository,
    "secret": _files_of("secretName"),
    "nfs": _nfs,
    "iscsi": _iscsi,
    "persistentVolumeClaim": _claim,
    "downwardAPI": _downward,
    "configMap": _files_of("name"),
    "projected": _projected,
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
# In the order in which Kubernetes looks at them: the first counts. What no node here can mount is not looked into.
_SOURCES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "flocker", "downwardAPI", "fc", "flexVolume",
    "configMap", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "storageos", "photonPersistentDisk",
    "projected", "scaleIO", "portworxVolume", "csi", "ephemeral", "image",
)  # fmt: skip
_PLACES = {kind: place for place, kind in enumerate(_SOURCES)}
