"""securityContext of pod and container → the values for the runtime, or the reason why not.

A container's field overrides the pod's. Every field reaches the runtime; what a runtime cannot do is refused with the
field's path (`Abilities`), because a setting that promises protection and does nothing is worse than none. SELinux
options are accepted where the kernel has no SELinux, as by a kubelet, and `without_effect` has a sentence about them.
windowsOptions mean nothing on Linux. fsGroupChangePolicy has no effect on the volumes that this node supports, as in
Kubernetes.

A process may gain privileges (by a set-user-ID program) unless allowPrivilegeEscalation is false. Kubernetes:
pkg/kubelet/kuberuntime/security_context.go, pkg/securitycontext/util.go.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.errors import ContainerConfigError, quoted
from plimsoll.rules.model.runnable import (
    PodSecurityContext,
    RunContainer,
    RunPod,
    SeccompProfile,
    SecurityContext,
    SeLinuxOptions,
    containers_of,
)

LOCALHOST = "localhost/"
MERGE, STRICT = "Merge", "Strict"
UNMASKED = "Unmasked"
_UNCONFINED = "Unconfined"
_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_ANNOTATED = {"unconfined": _UNCONFINED, "runtime/default": "RuntimeDefault"}
_NOTHING = SecurityContext()
_NOTHING_OF_POD = PodSecurityContext()


class Abilities(msgspec.Struct, frozen=True):
    """What the kernel and the runtime can do. A runtime behind CRI gets profiles and labels, and applies them."""

    has_selinux: bool = False
    applies_profiles: bool = True  # AppArmor profiles and SELinux labels


FULL_ABILITIES = Abilities()


class SecurityValues(msgspec.Struct, frozen=True):
    user: int | None = None  # None: the image's, or root
    group: int | None = None
    groups: tuple[int, ...] = ()
    groups_policy: str = MERGE  # or Strict: without the groups of the user in the image
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    privileged: bool = False
    no_new_privileges: bool = False
    read_only_root: bool = False
    unmasked_proc: bool = False
    seccomp: str = ""  # RuntimeDefault, Unconfined or localhost/<profile>; empty: the default of the node
    app_armor: str = ""  # the same, of AppArmor; empty: the default of the runtime
    se_linux: SeLinuxOptions | None = None


def security_values(
    pod: RunPod, container: RunContainer, image_user: int | None = None, abilities: Abilities = FULL_ABILITIES
) -> SecurityValues:
    """Raises ContainerConfigError with every refused field, or if runAsNonRoot is set and the user is root."""
    refused = [*_refused_by_pod(pod, abilities), *_refused_by_container(pod, container, abilities)]
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
    return SecurityValues(
        user=user,
        group=shared.run_as_group if own.run_as_group is None else own.run_as_group,
        groups=tuple(dict.fromkeys((*fs_group, *shared.supplemental_groups))),
        groups_policy=shared.supplemental_groups_policy or MERGE,
        add_capabilities=capabilities.add if capabilities is not None else (),
        drop_capabilities=capabilities.drop if capabilities is not None else (),
        privileged=bool(own.privileged),
        no_new_privileges=own.allow_privilege_escalation is False,
        read_only_root=bool(own.read_only_root_filesystem),
        unmasked_proc=own.proc_mount == UNMASKED,
        seccomp=_seccomp(own.seccomp_profile or shared.seccomp_profile),
        app_armor=_app_armor(pod, container),
        se_linux=own.se_linux_options or shared.se_linux_options,
    )


def sandbox_values(pod: RunPod) -> SecurityValues:
    """Of the sandbox, which runs the runtime's own program: the pod's settings, and a seccomp filter of the runtime."""
    shared = pod.spec.security_context or _NOTHING_OF_POD
    fs_group = () if shared.fs_group is None else (shared.fs_group,)
    return SecurityValues(
        user=shared.run_as_user,
        group=shared.run_as_group,
        groups=(*fs_group, *shared.supplemental_groups),
        groups_policy=shared.supplemental_groups_policy or MERGE,
        seccomp="RuntimeDefault",
        se_linux=shared.se_linux_options,
    )


def _app_armor(pod: RunPod, container: RunContainer) -> str:
    """The container's field, else the annotation of older releases, else the pod's field."""
    own = (container.security_context or _NOTHING).app_armor_profile
    named = (pod.metadata.annotations or {}).get(_APP_ARMOR_ANNOTATION + container.name)
    if own is None and named:
        return _ANNOTATED.get(named, named)
    profile = own or (pod.spec.security_context or _NOTHING_OF_POD).app_armor_profile
    if profile is None:
        return ""
    return LOCALHOST + profile.localhost_profile if profile.type == "Localhost" else profile.type


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


def only_user(pod: RunPod) -> int | None:
    """The user of all containers, if every one of them has the same runAsUser: who owns the pod's tokens."""
    shared = pod.spec.security_context or _NOTHING_OF_POD
    users = set()
    for container in containers_of(pod):
        own = container.security_context or _NOTHING
        users.add(shared.run_as_user if own.run_as_user is None else own.run_as_user)
    return users.pop() if len(users) == 1 else None


def without_effect(pod: RunPod, *, has_selinux: bool, forwards_ports: bool) -> list[str]:
    """Sentences about what the pod asks for and this node accepts without doing it. `forwards_ports`: hostPorts are the
    container runtime's to forward."""
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
        if port.host_port and not pod.spec.host_network and not forwards_ports
    ]
    reasons = ((fields, "SELinux is not enabled on this node"), (ports, "this node forwards no ports to pods"))
    return [f"{', '.join(paths)}: no effect, {reason}" for paths, reason in reasons if paths]


def no_user_namespaces(handler: str) -> str:
    """The kubelet's sentence about a runtime that cannot do `hostUsers: false`."""
    what = f"RuntimeClass handler {quoted(handler)}" if handler else "runtime"
    return f"can't set `spec.hostUsers: false`, {what} does not support user namespaces"


def app_armor_profiles(pod: RunPod) -> bool:
    """Whether a container asks for an AppArmor profile, by field or by the annotation of older releases."""
    return any(
        _app_armor(pod, container) not in ("", _UNCONFINED) and not (container.security_context or _NOTHING).privileged
        for container in containers_of(pod)
    )


def _refused_by_pod(pod: RunPod, abilities: Abilities) -> Iterator[str]:
    if pod.spec.resource_claims:
        yield "spec.resourceClaims"
    context = pod.spec.security_context
    if context is not None:
        yield from _refused_labels(context, "spec.securityContext", abilities)


def _refused_by_container(pod: RunPod, container: RunContainer, abilities: Abilities) -> Iterator[str]:
    context = container.security_context
    if context is not None:
        yield from _refused_labels(context, f"{container_path(pod, container)}.securityContext", abilities)


def _refused_labels(context: SecurityContext | PodSecurityContext, at: str, abilities: Abilities) -> Iterator[str]:
    if abilities.applies_profiles:
        return
    if context.se_linux_options is not None and abilities.has_selinux:
        yield f"{at}.seLinuxOptions"
    if context.app_armor_profile is not None and context.app_armor_profile.type != _UNCONFINED:
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
