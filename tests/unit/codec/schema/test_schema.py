"""The field tables: complete in themselves, and with the merge keys and list types of spec 05 B6."""

from __future__ import annotations

import pytest

from plimsoll.codec.manifests.unknown_fields import CONTAINER, POD_SPEC
from plimsoll.codec.schema.custom import METADATA
from plimsoll.codec.schema.schema import KINDS, Field, Type, schema, struct, struct_names


def reached(name: str, seen: set[str]) -> set[str]:
    if name not in seen:
        seen.add(name)
        for field in struct(name).fields.values():
            inner: Type | None = field.type
            while inner is not None:
                if inner.struct:
                    reached(inner.struct, seen)
                inner = inner.item
    return seen


def test_every_struct_is_part_of_a_kind() -> None:
    seen: set[str] = set()
    for kind in (*KINDS, METADATA):
        reached(kind.table, seen)
    assert seen == set(struct_names())


@pytest.mark.parametrize("name", struct_names())
def test_a_struct_is_sound(name: str) -> None:
    fields = struct(name).fields.values()
    assert struct(name).description
    assert all(field.description for field in fields)
    numbers = [field.number for field in fields if field.number]
    assert len(numbers) == len(set(numbers)), "two fields with one protobuf number"
    for field in fields:
        item = field.type.item
        for key in (field.merge_key, *field.keys):
            if key:
                assert item is not None
                assert key in struct(item.struct).fields


def test_kinds_have_their_names_first() -> None:
    assert list(schema("v1", "Pod").root.fields) == ["kind", "apiVersion", "metadata", "spec", "status"]
    with pytest.raises(KeyError):
        schema("v2", "Pod")


def test_explain_knows_the_same_fields() -> None:
    known = set(struct("core.PodSpec").fields)
    assert POD_SPEC - known == {"workloadRef"}  # of 1.35 only
    assert known <= POD_SPEC
    assert set(struct("core.EphemeralContainer").fields) == CONTAINER


def field(path: str) -> Field:
    name, _, member = path.rpartition(".")
    return struct(name).fields[member]


MERGE_KEYS = [
    ("core.PodSpec.containers", "name"),
    ("core.PodSpec.initContainers", "name"),
    ("core.PodSpec.ephemeralContainers", "name"),
    ("core.Container.env", "name"),
    ("core.Container.ports", "containerPort"),
    ("core.Container.volumeMounts", "mountPath"),
    ("core.Container.volumeDevices", "devicePath"),
    ("core.PodSpec.volumes", "name"),
    ("core.PodSpec.resourceClaims", "name"),
    ("core.PodStatus.resourceClaimStatuses", "name"),
    ("core.PodSpec.imagePullSecrets", "name"),
    ("core.PodSpec.schedulingGates", "name"),
    ("core.PodSpec.hostAliases", "ip"),
    ("core.PodSpec.topologySpreadConstraints", "topologyKey"),
    ("core.PodStatus.conditions", "type"),
    ("core.NodeStatus.conditions", "type"),
    ("core.NamespaceStatus.conditions", "type"),
    ("core.PodStatus.podIPs", "ip"),
    ("core.PodStatus.hostIPs", "ip"),
    ("core.NodeStatus.addresses", "type"),
    ("meta.ObjectMeta.ownerReferences", "uid"),
    ("meta.ObjectMeta.finalizers", ""),
    ("core.NodeSpec.podCIDRs", ""),
]


@pytest.mark.parametrize(("path", "key"), MERGE_KEYS, ids=[row[0] for row in MERGE_KEYS])
def test_strategic_merge_key(path: str, key: str) -> None:
    assert field(path).merges
    assert field(path).merge_key == key


REPLACED = [
    "core.PodSpec.tolerations",
    "core.NodeSpec.taints",
    "core.Container.command",
    "core.Container.args",
    "core.Container.envFrom",
    "core.Container.resizePolicy",
    "core.Capabilities.add",
    "core.Capabilities.drop",
    "core.PodStatus.containerStatuses",
    "core.PodStatus.initContainerStatuses",
    "core.NodeStatus.images",
    "core.NodeStatus.volumesAttached",
    "core.PodSpec.readinessGates",
    "core.ResourceRequirements.claims",
    "core.NamespaceSpec.finalizers",
]


@pytest.mark.parametrize("path", REPLACED)
def test_strategic_atomic(path: str) -> None:
    assert not field(path).merges


@pytest.mark.parametrize(
    "path", ["core.PodSpec.volumes", "core.PodSpec.resourceClaims", "apps.DeploymentSpec.strategy"]
)
def test_retain_keys(path: str) -> None:
    assert field(path).retain_keys


LIST_KEYS = [
    ("core.PodSpec.containers", ("name",)),
    ("core.Container.env", ("name",)),
    ("core.PodSpec.volumes", ("name",)),
    ("core.PodSpec.imagePullSecrets", ("name",)),
    ("core.PodSpec.schedulingGates", ("name",)),
    ("core.PodSpec.resourceClaims", ("name",)),
    ("core.ResourceRequirements.claims", ("name",)),
    ("core.Container.ports", ("containerPort", "protocol")),
    ("core.Container.volumeMounts", ("mountPath",)),
    ("core.Container.volumeDevices", ("devicePath",)),
    ("core.PodSpec.hostAliases", ("ip",)),
    ("core.PodStatus.podIPs", ("ip",)),
    ("core.PodSpec.topologySpreadConstraints", ("topologyKey", "whenUnsatisfiable")),
    ("core.PodStatus.conditions", ("type",)),
    ("core.NodeStatus.addresses", ("type",)),
    ("meta.ObjectMeta.ownerReferences", ("uid",)),
]


@pytest.mark.parametrize(("path", "keys"), LIST_KEYS, ids=[row[0] for row in LIST_KEYS])
def test_apply_list_keys(path: str, keys: tuple[str, ...]) -> None:
    assert field(path).keys == keys


@pytest.mark.parametrize("path", ["meta.ObjectMeta.finalizers", "core.NodeSpec.podCIDRs"])
def test_apply_sets(path: str) -> None:
    assert field(path).is_set


@pytest.mark.parametrize(
    "path",
    ["core.PodSpec.tolerations", "core.NodeSpec.taints", "core.Container.command", "core.PodStatus.hostIPs",
     "core.PodStatus.containerStatuses", "core.NodeStatus.images", "core.PodSpec.readinessGates"],
)  # fmt: skip
def test_apply_atomic_lists(path: str) -> None:
    assert not field(path).keys
    assert not field(path).is_set


@pytest.mark.parametrize(
    "name", ["meta.LabelSelector", "core.ObjectReference", "core.SecretKeySelector", "core.ConfigMapKeySelector"]
)
def test_apply_atomic_structs(name: str) -> None:
    assert struct(name).atomic


def test_apply_atomic_map() -> None:
    assert field("core.PodSpec.nodeSelector").atomic
