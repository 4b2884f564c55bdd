"""Defaults of volumes: modes of projected files, paths and names that drivers assume (05 B6)."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.go_order import put
from plimsoll.codec.pull_policy import pull_policy
from plimsoll.codec.schema import struct

Document = dict[str, Any]

_MODE = 0o644
_BY_SOURCE: dict[str, Document] = {
    "hostPath": {"type": ""},
    "secret": {"defaultMode": _MODE},
    "configMap": {"defaultMode": _MODE},
    "downwardAPI": {"defaultMode": _MODE},
    "projected": {"defaultMode": _MODE},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
_TOKEN_SECONDS = 3600


def defaulted_volume(volume: Document) -> Document:
    """A volume without any source is an emptyDir."""
    source = next((name for name in volume if name != "name" and volume[name] is not None), "")
    if not source:
        return {**volume, "emptyDir": {}}
    value = _filled(volume, source, _BY_SOURCE.get(source, {}))
    if source == "downwardAPI":
        value = _with_items(value)
    elif source == "projected":
        value = {**value, "sources": [_projection(each) for each in value.get("sources") or []]}
    elif source == "ephemeral":
        value = _ephemeral(value)
    elif source == "image" and not value.get("pullPolicy"):
        value = {**value, "pullPolicy": pull_policy(value.get("reference") or "")}
    return volume if value is volume[source] else {**volume, source: value}


def _filled(holder: Document, name: str, defaults: Document) -> Document:
    return put(struct("core.Volume").fields[name].type.struct, holder[name], defaults) if defaults else holder[name]


def _with_items(source: Document) -> Document:
    items = source.get("items")
    return {**source, "items": [_file(each) for each in items]} if items else source


def _file(item: Document) -> Document:
    reference = item.get("fieldRef")
    return {**item, "fieldRef": put("core.ObjectFieldSelector", reference, {"apiVersion": "v1"})} if reference else item


def _projection(source: Document) -> Document:
    if source.get("downwardAPI"):
        return {**source, "downwardAPI": _with_items(source["downwardAPI"])}
    token = source.get("serviceAccountToken")
    if token is None or token.get("expirationSeconds") is not None:
        return source
    filled = put("core.ServiceAccountTokenProjection", token, {"expirationSeconds": _TOKEN_SECONDS})
    return {**source, "serviceAccountToken": filled}


def _ephemeral(source: Document) -> Document:
    template = source.get("volumeClaimTemplate")
    if not template:
        return source
    spec = put("core.PersistentVolumeClaimSpec", template.get("spec") or {}, {"volumeMode": "Filesystem"})
    return {**source, "volumeClaimTemplate": {**template, "spec": spec}}
