"""The fields that came with a release after 1.27: for an older one they are unknown fields (05 B4).

Kubernetes: the generated.proto of every group in each release's branch, up to 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from plimsoll.codec.schema.custom import CustomKind
from plimsoll.codec.schema.schema import SchemaKind, StructType, Type, struct
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import DOCUMENTS, FIRST_MINOR, LAST_MINOR, Profile, minor

# Struct, and its fields with the release that they came with: 1.N.
FIELDS = """\
apiextensions.CustomResourceDefinitionCondition observedGeneration=35
apiextensions.CustomResourceDefinitionStatus observedGeneration=35
apiextensions.CustomResourceDefinitionVersion selectableFields=30
apps.DeploymentStatus terminatingReplicas=33
apps.ReplicaSetStatus terminatingReplicas=33
authorization.ResourceAttributes fieldSelector=31 labelSelector=31
autoscaling2.HPAScalingRules tolerance=33
batch.JobSpec backoffLimitPerIndex=28 managedBy=30 maxFailedIndexes=28 podReplacementPolicy=28 successPolicy=30
batch.JobStatus failedIndexes=28 terminating=28
coordination.LeaseSpec preferredHolder=31 strategy=31
core.Container restartPolicy=28 restartPolicyRules=34
core.ContainerStatus allocatedResourcesStatus=31 stopSignal=33 user=31 volumeMounts=30
core.EnvVarSource fileKeyRef=34
core.EphemeralContainer restartPolicy=28 restartPolicyRules=34
core.Lifecycle stopSignal=33
core.LifecycleHandler sleep=29
core.LoadBalancerIngress ipMode=29
core.NodeRuntimeHandlerFeatures userNamespaces=31
core.NodeSpec podPreemptionPolicy=37
core.NodeStatus declaredFeatures=35 features=31 runtimeHandlers=30
core.NodeSystemInfo runningInUserNamespace=37 swap=33
core.PersistentVolumeClaimSpec volumeAttributesClassName=29
core.PersistentVolumeClaimStatus allocatedResourceStatuses=28 currentVolumeAttributesClassName=29
core.PersistentVolumeSpec volumeAttributesClassName=29
core.PersistentVolumeStatus lastPhaseTransitionTime=28
core.PodAffinityTerm matchLabelKeys=29 mismatchLabelKeys=29
core.PodCertificateProjection userAnnotations=35
core.PodCondition observedGeneration=33
core.PodResourceClaim resourceClaimName=31 resourceClaimTemplateName=31
core.PodSecurityContext appArmorProfile=30 seLinuxChangePolicy=32 supplementalGroupsPolicy=31
core.PodSpec hostnameOverride=34 resources=32 schedulingGroup=36
core.PodStatus allocatedResources=35 extendedResourceClaimStatus=34 hostIPs=28
core.PodStatus observedGeneration=33 resourceClaimStatuses=28 resources=35
core.ResourceClaim request=31
core.ResourceHealth message=36
core.SecurityContext appArmorProfile=30
core.ServiceSpec trafficDistribution=30
core.Volume image=31
core.VolumeMount recursiveReadOnly=30
core.VolumeMountStatus volumeStatus=36
core.VolumeProjection clusterTrustBundle=29 podCertificate=34
discovery.EndpointHints forNodes=33
"""
# Kinds that are served since a later release, by group, version and plural; their structs need no rows above.
KINDS_SINCE = {
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"): 36,
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings"): 36,
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"): 30,
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"): 30,
    ("authentication.k8s.io", "v1", "selfsubjectreviews"): 28,
    ("certificates.k8s.io", "v1", "clustertrustbundles"): 37,
    ("storage.k8s.io", "v1", "volumeattributesclasses"): 34,
}
Newer = dict[str, Any]  # field → the fields below it; None: the release does not have it
NO_NEWER: Newer = {}


def release_of(profile: Profile) -> int:
    """The N of 1.N whose fields the profile has; `documents` has all of them."""
    return LAST_MINOR if profile.name == DOCUMENTS else minor(profile.release)


def kind_since(group: str, version: str, plural: str) -> int:
    """The N of 1.N, from which on the kind is served."""
    return KINDS_SINCE.get((group, version, plural), FIRST_MINOR)


@cache
def newer_in(table: str, release: int) -> frozenset[str]:
    """The fields of a struct, by its name in the tables, that came after that release."""
    return frozenset(field for field, since in _since().get(table, {}).items() if since > release)


@cache
def newer_fields(kind: SchemaKind, release: int) -> Newer:
    """Where an object of that kind may have such fields."""
    if isinstance(kind, CustomKind) or release >= LAST_MINOR:
        return NO_NEWER
    return _below(kind.root, release, {})


def without_newer(document: JsonObject, newer: Newer) -> tuple[JsonObject, tuple[str, ...]]:
    """The object without them, and a strict error for each; itself if it has none."""
    if not newer:
        return document, ()
    problems: list[str] = []
    return _known(document, newer, "", problems), tuple(problems)


def _known(value: Any, newer: Newer, path: str, problems: list[str]) -> Any:
    if isinstance(value, list):
        items = [_known(each, newer, f"{path}[{index}]", problems) for index, each in enumerate(value)]
        return items if any(item is not each for item, each in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    changed = None
    for name in [each for each in value if each in newer] if newer.keys() & value.keys() else ():
        here = f"{path}.{name}" if path else name
        if newer[name] is None:
            problems.append(f'unknown field "{here}"')
            changed = {field: each for field, each in (changed or value).items() if field != name}
            continue
        kept = _known(value[name], newer[name], here, problems)
        if kept is not value[name]:
            changed = {**(changed or value), name: kept}
    return value if changed is None else changed


@cache
def _since() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line in FIELDS.splitlines():
        table, *fields = line.split()
        named = found.setdefault(table, {})
        named |= {name: int(since) for name, _, since in (each.partition("=") for each in fields)}
    return found


def _below(kind: StructType, release: int, made: dict[str, Newer]) -> Newer:
    """A schema of schemas refers to itself, so what is being made is entered first."""
    if kind.name in made:
        return made[kind.name]
    node = made[kind.name] = dict.fromkeys(newer_in(kind.name, release))
    for name, table in _structs(kind):
        if name not in node and (below := _below(struct(table), release, made)):
            node[name] = below
    return node


def _structs(kind: StructType) -> Iterator[tuple[str, str]]:
    """The fields that are objects, or lists of them."""
    for field in kind.fields.values():
        of: Type = field.type
        while of.form == "list" and of.item is not None:
            of = of.item
        if of.form == "object":
            yield field.name, of.struct
