"""securityContext of pod and container → the values for the runtime, or the reason why not; other refused settings.

A container's field overrides the pod's. Supported: runAsUser, runAsGroup, runAsNonRoot, supplementalGroups, fsGroup
(as a group of every process, and as the group of volumes), capabilities, privileged, readOnlyRootFilesystem,
allowPrivilegeEscalation, seccompProfile. Every other field is refused with its path, because a setting that promises
protection and does nothing is worse than none. Values that change nothing are accepted: an `Unconfined` AppArmor
profile, the `Default` proc mount, and fsGroupChangePolicy, which Kubernetes does not apply to the volumes that this
node supports. SELinux options are accepted where the kernel has no SELinux, as a kubelet does; `without_effect` has a
sentence about them.

Privileges cannot be gained unless the manifest allows it (`allowPrivilegeEscalation: true`, or `privileged`); the
default of Kubernetes is to allow it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.errors import ContainerConfigError
from plimsoll.rules.model.runnable import (
    PodSecurityContext,
    RunContainer,
    RunPod,
    SeccompProfile,
    SecurityContext,
    containers_of,
)

LOCALHOST = "localhost/"
_UNCONFINED = {"type": "Unconfined"}
_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_NOTHING = SecurityContext()
_NOTHING_OF_POD = PodSecurityContext()


class SecurityValues(msgspec.Struct, frozen=True):
    user: int | None = None  # None: the image's, or root
    group: int | None = None
    groups: tuple[int, ...] = ()
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    privileged: bool = False
    no_new_privileges: bool = True
    read_only_root: bool = False
    seccomp: str = ""  # RuntimeDefault, Unconfined or localhost/<profile>; empty: the default of the node


def security_values(
    pod: RunPod, container: RunContainer, image_user: int | None = None, *, has_selinux: bool = False
) -> SecurityValues:
    """Raises ContainerConfigError with every refused field, or if runAsNonRoot is set and the user is root."""
    refused = [*_refused_by_pod(pod, has_selinux), *_refused_by_container(pod, container, has_selinux)]
    if refused:
        listed = ", ".join(refused)
        raise ContainerConfigError(
            f"{listed}: not supported by this node, remove {'it' if len(refused) == 1 else 'them'}"
        )
    own = container.security_context or _NOTHING
    shared = pod.spec.security_context or _NOTHING_OF_POD
    user = shared.run_as_user if own.run_as_user is None else own.run_as_user
    _check_non_root(pod, container, own, shared, user, image_user)
    fs_group = () if shared.fs_group is None else (shared.fs_group,)
    capabilities = own.capabilities
    privileged = bool(own.privileged)
    return SecurityValues(
        user=user,
        group=shared.run_as_group if own.run_as_group is None else own.run_as_group,
        groups=tuple(dict.fromkeys((*shared.supplemental_groups, *fs_group))),
        add_capabilities=capabilities.add if capabilities is not None else (),
        drop_capabilities=capabilities.drop if capabilities is not None else (),
        privileged=privileged,
        no_new_privileges=not (privileged or own.allow_privilege_escalation),
        read_only_root=bool(own.read_only_root_filesystem),
        seccomp=_seccomp(own.seccomp_profile or shared.seccomp_profile),
    )


def _seccomp(profile: SeccompProfile | None) -> str:
    if profile is None:
        return ""
    return LOCALHOST + profile.localhost_profile if profile.type == "Localhost" else profile.type


def fs_group(pod: RunPod) -> int | None:
    shared = pod.spec.security_context
    return None if shared is None else shared.fs_group


def _check_non_root(
    pod: RunPod,
    container: RunContainer,
    own: SecurityContext,
    shared: PodSecurityContext,
    user: int | None,
    image_user: int | None,
) -> None:
    non_root = shared.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
    if not non_root:
        return
    metadata = pod.metadata
    which = f'(pod: "{metadata.name}_{metadata.namespace}({metadata.uid})", container: {container.name})'
    if user == 0:
        raise ContainerConfigError(f"container's runAsUser breaks non-root policy {which}")
    if user is None and not image_user:
        raise ContainerConfigError(f"container has runAsNonRoot and image will run as root {which}")


def without_effect(pod: RunPod, *, has_selinux: bool) -> list[str]:
    """Sentences about what the pod asks for and this node accepts without doing it."""
    contexts: list[tuple[str, SecurityContext | PodSecurityContext | None]] = [("spec", pod.spec.security_context)]
    contexts += [(container_path(pod, each), each.security_context) for each in containers_of(pod)]
    fields = [
        f"{at}.securityContext.seLinuxOptions"
        for at, context in contexts
        if context is not None and context.se_linux_options is not None and not has_selinux
    ]
    ports = [
        f"{container_path(pod, each)}.ports[{place}].hostPort"
        for each in containers_of(pod)
        for place, port in enumerate(each.ports)
        if port.host_port and not pod.spec.host_network
    ]
    reasons = ((fields, "SELinux is not enabled on this node"), (ports, "this node forwards no ports to pods"))
    return [f"{', '.join(paths)}: no effect, {reason}" for paths, reason in reasons if paths]


def app_armor_profiles(pod: RunPod) -> bool:
    """Whether a container asks for an AppArmor profile, by field or by the annotation of older releases."""
    annotations = pod.metadata.annotations or {}
    shared = pod.spec.security_context or _NOTHING_OF_POD
    for container in containers_of(pod):
        own = container.security_context or _NOTHING
        profile = own.app_armor_profile or shared.app_armor_profile
        if profile is None and (named := annotations.get(_APP_ARMOR_ANNOTATION + container.name)):
            profile = {"type": "Unconfined" if named == "unconfined" else named}
        if profile is not None and profile != _UNCONFINED and not own.privileged:
            return True
    return False


def _refused_by_pod(pod: RunPod, has_selinux: bool) -> Iterator[str]:
    if pod.spec.host_users is False:
        yield "spec.hostUsers"
    if pod.spec.resource_claims:
        yield "spec.resourceClaims"
    context = pod.spec.security_context
    if context is None:
        return
    at = "spec.securityContext"
    if context.sysctls:
        yield f"{at}.sysctls"
    if context.supplemental_groups_policy:
        yield f"{at}.supplementalGroupsPolicy"
    if context.se_linux_change_policy and has_selinux:
        yield f"{at}.seLinuxChangePolicy"
    yield from _refused_profiles(context, at, has_selinux)


def _refused_by_container(pod: RunPod, container: RunContainer, has_selinux: bool) -> Iterator[str]:
    if container.restart_policy_rules:
        yield f"{container_path(pod, container)}.restartPolicyRules"
    if container.restart_policy and container in pod.spec.containers:
        yield f"{container_path(pod, container)}.restartPolicy"
    context = container.security_context
    if context is None:
        return
    at = f"{container_path(pod, container)}.securityContext"
    if context.proc_mount not in (None, "", "Default"):
        yield f"{at}.procMount"
    yield from _refused_profiles(context, at, has_selinux)


def _refused_profiles(context: SecurityContext | PodSecurityContext, at: str, has_selinux: bool) -> Iterator[str]:
    if context.se_linux_options is not None and has_selinux:
        yield f"{at}.seLinuxOptions"
    if context.windows_options is not None:
        yield f"{at}.windowsOptions"
    if context.app_armor_profile is not None and context.app_armor_profile != _UNCONFINED:
        yield f"{at}.appArmorProfile"


def container_path(pod: RunPod, container: RunContainer) -> str:
    """The container's path in its manifest."""
    kinds = (
        ("containers", pod.spec.containers),
        ("initContainers", pod.spec.init_containers),
        ("ephemeralContainers", pod.spec.ephemeral_containers),
    )
    for kind, containers in kinds:
        for index, each in enumerate(containers):
            if each.name == container.name:
                return f"spec.{kind}[{index}]"
    return f"spec.containers[{container.name}]"
