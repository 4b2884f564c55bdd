"""Pod Security admission: the labels of a namespace → which pods it takes, and what the client is warned about.

A namespace has a level (`privileged`, `baseline`, `restricted`) and a version of the standard for each of three modes:
`enforce` refuses pods, `warn` answers with a Warning header, `audit` writes an annotation into the audit event. A
workload (Deployment, Job, …) is never refused: its pods would be; but it is warned about and audited.

`pod_security_checks` has the checks themselves. Kubernetes: staging/src/k8s.io/pod-security-admission/admission.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.errors import FieldError, InvalidConfigError
from plimsoll.rules.admission.pod_security_checks import BASELINE, LAST_MINOR, RESTRICTED, Finding, PodView, findings
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems, dns_subdomain_problems
from plimsoll.rules.model.objects import POD_TEMPLATES

PRIVILEGED, LATEST = "privileged", "latest"
LEVELS = (PRIVILEGED, BASELINE, RESTRICTED)
PREFIX = "pod-security.kubernetes.io/"
ENFORCE, AUDIT, WARN = "enforce", "audit", "warn"
MODES = (ENFORCE, AUDIT, WARN)
MAX_PODS_CHECKED = 3000  # when a namespace gets another level

# Where the pods of a workload are described. Requests for other kinds are not checked.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "pods": (),
    **{f"{kind.lower()}s": path for kind, path in POD_TEMPLATES.items()},
}
IGNORED_SUBRESOURCES = ("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status")

_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,5})", re.ASCII)


class Standard(msgspec.Struct, frozen=True):
    """A level and a version of it: `restricted:v1.30`, `baseline:latest`."""

    level: str = PRIVILEGED
    version: str = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def minor(self, newest: int) -> int:
        """A version that this server does not know yet is the newest that it knows."""
        if self.version == LATEST:
            return newest
        return min(int(self.version.rpartition(".")[2]), newest)


class Policy(msgspec.Struct, frozen=True):
    enforce: Standard = Standard()
    audit: Standard = Standard()
    warn: Standard = Standard()

    @property
    def is_privileged(self) -> bool:
        return {self.enforce.level, self.audit.level, self.warn.level} == {PRIVILEGED}


class Exemptions(msgspec.Struct, frozen=True):
    namespaces: tuple[str, ...] = ()
    usernames: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()


class PodSecurity(msgspec.Struct, frozen=True):
    """The settings of the API server: the policy of a namespace without labels, and who is exempt."""

    defaults: Policy = Policy()
    exemptions: Exemptions = Exemptions()
    newest: int = LAST_MINOR  # minor version that `latest` means


DEFAULT_POD_SECURITY = PodSecurity()


class Verdict(msgspec.Struct, frozen=True):
    """`refusal` is the text of a 403; empty: the object is admitted. Annotations are of the audit event."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}


_ADMITTED = Verdict()


# --- labels ---


def policy_of(labels: Mapping[str, str], defaults: Policy) -> tuple[Policy, list[FieldError]]:
    """What cannot be read is `restricted` where it is enforced, `privileged` where it only informs, and `latest`."""
    if not labels:
        return defaults, []
    errors: list[FieldError] = []
    standards: dict[str, Standard] = {}
    valid: set[str] = set()
    for mode in MODES:
        standard: Standard = getattr(defaults, mode)
        level, version = labels.get(PREFIX + mode), labels.get(f"{PREFIX}{mode}-version")
        if level is not None:
            if level in LEVELS:
                valid.add(mode)
            else:
                errors.append(_invalid(mode, level, f"must be one of {', '.join(LEVELS)}"))
                level = RESTRICTED if mode == ENFORCE else PRIVILEGED
            standard = Standard(level, standard.version)
        if version is not None:
            if version != LATEST and not _VERSION.fullmatch(version):
                errors.append(_invalid(f"{mode}-version", version, 'must be "latest" or "v1.x"'))
                version = LATEST
            standard = Standard(standard.level, version)
        standards[mode] = standard
    enforced, warned = standards[ENFORCE], standards[WARN]
    if PREFIX + WARN not in labels and ENFORCE in valid and _rank(enforced) > _rank(warned):
        has_version = f"{PREFIX}{WARN}-version" in labels
        standards[WARN] = Standard(enforced.level, warned.version if has_version else enforced.version)
    return Policy(**standards), errors


def _invalid(label: str, value: str, reason: str) -> FieldError:
    return FieldError("FieldValueInvalid", f"metadata.labels[{PREFIX}{label}]", reason, value)


def _rank(standard: Standard) -> int:
    return LEVELS.index(standard.level)


# --- pods and workloads ---


def template_of(plural: str, document: JsonObject) -> PodView | None:
    """The pod, or the pods of a workload; None for one without a template."""
    found = document
    for field in TEMPLATES[plural]:
        found = found.get(field) or {}
    return PodView(found.get("metadata") or {}, found["spec"]) if found.get("spec") else None


def exemption(config: PodSecurity, namespace: str, user: str) -> str:
    """Why a request is not checked, in the audit event's word; "" where it is."""
    if namespace in config.exemptions.namespaces:
        return "namespace"
    return "user" if user in config.exemptions.usernames else ""


def verdict(
    config: PodSecurity, namespace: str, labels: Mapping[str, str], user: str, pod: PodView | None, *, is_pod: bool
) -> Verdict:
    """Of a new or changed pod, or of the template of a workload."""
    exempt = exemption(config, namespace, user)
    if exempt:
        return Verdict(annotations={f"{PREFIX}exempt": exempt})
    policy, errors = policy_of(labels, config.defaults)
    if not errors and policy.is_privileged:
        annotations = {f"{PREFIX}enforce-policy": str(Standard())} if is_pod else {}
        return Verdict(annotations=annotations)
    if pod is None:
        return _ADMITTED
    runtime_class = pod.spec.get("runtimeClassName")
    if runtime_class and runtime_class in config.exemptions.runtime_classes:
        return Verdict(annotations={f"{PREFIX}exempt": "runtimeClass"})
    annotations = {}
    if errors:
        annotations[f"{PREFIX}error"] = f"Failed to parse policy: {'; '.join(map(str, errors))}"
    refusal = ""
    if is_pod:
        annotations[f"{PREFIX}enforce-policy"] = str(policy.enforce)
        if found := _details(policy.enforce, config, pod):
            refusal = f'violates PodSecurity "{policy.enforce}": {found}'
    if found := _details(policy.audit, config, pod):
        annotations[f"{PREFIX}audit-violations"] = f'would violate PodSecurity "{policy.audit}": {found}'
    warnings: tuple[str, ...] = ()
    if not refusal and (found := _details(policy.warn, config, pod)):
        warnings = (f'would violate PodSecurity "{policy.warn}": {found}',)
    return Verdict(refusal, warnings, annotations)


def _details(standard: Standard, config: PodSecurity, pod: PodView) -> str:
    found = findings(standard.level, standard.minor(config.newest), pod)
    return ", ".join(_shown(finding) for finding in found)


def _shown(finding: Finding) -> str:
    return f"{finding.reason} ({finding.detail})" if finding.detail else finding.reason


def is_significant(old: JsonObject, new: JsonObject) -> bool:
    """Whether an update of a pod has to be checked: other images, or a container more."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    for kind in ("containers", "initContainers"):
        if _images(before, kind) != _images(after, kind):
            return True
    known = {each.get("name"): each.get("image") for each in before.get("ephemeralContainers") or ()}
    added = after.get("ephemeralContainers") or ()
    return any(each.get("name") not in known or known[each["name"]] != each.get("image") for each in added)


def _images(spec: JsonObject, kind: str) -> list[str | None]:
    return [each.get("image") for each in spec.get(kind) or ()]


# --- namespaces ---


def namespace_errors(config: PodSecurity, new: Mapping[str, str], old: Mapping[str, str] | None) -> list[FieldError]:
    """Of its labels; an update may keep bad ones that were there before."""
    _, errors = policy_of(new, config.defaults)
    if old is not None and errors == policy_of(old, config.defaults)[1]:
        return []
    return errors


def namespace_warnings(
    config: PodSecurity, name: str, new: Mapping[str, str], old: Mapping[str, str] | None, pods: Iterable[JsonObject]
) -> list[str]:
    """`pods` are those of the namespace; they are checked where the enforced level becomes stricter."""
    policy, _ = policy_of(new, config.defaults)
    before = None if old is None else policy_of(old, config.defaults)[0].enforce
    is_stricter = before is not None and (
        policy.enforce.version != before.version or _rank(policy.enforce) > _rank(before)
    )
    if name in config.exemptions.namespaces:
        changed = before is None or (is_stricter and policy.enforce.level != PRIVILEGED)
        return [_exempt_warning(name, policy, new)] if changed and not _is_as_default(policy, config) else []
    if not is_stricter or policy.enforce in (before, Standard()) or policy.enforce.level == PRIVILEGED:
        return []
    return _violations(config, name, policy.enforce, list(pods))


def _is_as_default(policy: Policy, config: PodSecurity) -> bool:
    return policy.is_privileged or policy == config.defaults


def _exempt_warning(name: str, policy: Policy, labels: Mapping[str, str]) -> str:
    shown = [
        f"{mode}={standard}"
        for mode in MODES
        if (standard := getattr(policy, mode)).level != PRIVILEGED
        and (PREFIX + mode in labels or f"{PREFIX}{mode}-version" in labels)
    ]
    return f'namespace "{name}" is exempt from Pod Security, and the policy ({", ".join(shown)}) will be ignored'


def _violations(config: PodSecurity, name: str, standard: Standard, pods: list[JsonObject]) -> list[str]:
    """One line for each kind of violation, with the first pod's name and how many more there are."""
    names: dict[str, list[str]] = {}
    ordered = _one_of_each_owner_first(config, pods)
    for pod in ordered[:MAX_PODS_CHECKED]:
        view = PodView(pod.get("metadata") or {}, pod.get("spec") or {})
        found = findings(standard.level, standard.minor(config.newest), view)
        if found:
            reasons = ", ".join(finding.reason for finding in found)
            names.setdefault(reasons, []).append(str(view.metadata.get("name") or ""))
    warnings = []
    if len(ordered) > MAX_PODS_CHECKED:
        first = f"the first {MAX_PODS_CHECKED} of {len(ordered)} existing pods"
        warnings.append(f"new PodSecurity enforce level only checked against {first}")
    if names:
        warnings.append(f'existing pods in namespace "{name}" violate the new PodSecurity enforce level "{standard}"')
    return [*warnings, *sorted(f"{_counted(who)}: {reasons}" for reasons, who in names.items())]


def _one_of_each_owner_first(config: PodSecurity, pods: list[JsonObject]) -> list[JsonObject]:
    first: list[JsonObject] = []
    others: list[JsonObject] = []
    owners = set()
    for pod in pods:
        if (pod.get("spec") or {}).get("runtimeClassName") in config.exemptions.runtime_classes:
            continue
        references = (pod.get("metadata") or {}).get("ownerReferences") or ()
        owner = next((each.get("uid") for each in references if each.get("controller")), None)
        (others if owner is not None and owner in owners else first).append(pod)
        owners.add(owner)
    return first + others


def _counted(names: list[str]) -> str:
    first, more = min(names), len(names) - 1
    if not more:
        return first
    return f"{first} (and {more} other {'pod' if more == 1 else 'pods'})"


# --- the configuration of the API server ---

PLUGIN = "PodSecurity"
_OUTER = ("AdmissionConfiguration", ("apiserver.config.k8s.io/v1",))
_INNER = (
    "PodSecurityConfiguration",
    tuple(f"pod-security.admission.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")),
)


def pod_security_from(document: Any, read: Callable[[str], Any]) -> PodSecurity:
    """From an AdmissionConfiguration; `read` reads the file that a plugin's `path` names. Raises InvalidConfigError."""
    outer = _checked(document, "", *_OUTER)
    _known(outer, "", ("apiVersion", "kind", "plugins"))
    found = PodSecurity()
    for index, plugin in enumerate(outer.get("plugins") or ()):
        at = f"plugins[{index}]"
        _known(plugin, at, ("name", "path", "configuration"))
        if plugin.get("name") != PLUGIN:
            raise InvalidConfigError(f"{at}.name", f"{plugin.get('name')!r} is not configurable here, only {PLUGIN} is")
        inner = plugin.get("configuration")
        if inner is None:
            inner = read(str(plugin.get("path") or ""))
        found = _configured(inner, f"{at}.configuration")
    return found


def _configured(document: Any, at: str) -> PodSecurity:
    inner = _checked(document, at, *_INNER)
    _known(inner, at, ("apiVersion", "kind", "defaults", "exemptions"))
    defaults, exemptions = inner.get("defaults") or {}, inner.get("exemptions") or {}
    fields = [*MODES, *(f"{mode}-version" for mode in MODES)]
    _known(defaults, f"{at}.defaults", fields)
    labels = {PREFIX + field: str(value) for field, value in defaults.items() if value}
    # A namespace's label `enforce` sets `warn` too; a default does not.
    labels = {PREFIX + "warn": "privileged", **labels}
    policy, errors = policy_of(labels, Policy())
    for error in errors:
        field = error.field.partition(PREFIX)[2].rstrip("]")
        raise InvalidConfigError(f"{at}.defaults.{field}", f"{error.value!r}: {error.detail}")
    _known(exemptions, f"{at}.exemptions", ("usernames", "namespaces", "runtimeClasses"))
    return PodSecurity(
        policy,
        Exemptions(
            namespaces=_names(exemptions, "namespaces", at, dns_label_problems),
            usernames=_names(exemptions, "usernames", at, lambda name: () if name else ("username must not be empty",)),
            runtime_classes=_names(exemptions, "runtimeClasses", at, dns_subdomain_problems),
        ),
    )


def _checked(document: Any, at: str, kind: str, versions: tuple[str, ...]) -> JsonObject:
    if not isinstance(document, dict) or document.get("kind") != kind or document.get("apiVersion") not in versions:
        raise InvalidConfigError(at, f"must be a {kind} of {versions[0]}")
    return document


def _known(value: Any, at: str, fields: Any) -> None:
    if not isinstance(value, dict):
        raise InvalidConfigError(at, "must be a map")
    for field in value:
        if field not in fields:
            raise InvalidConfigError(f"{at}.{field}".lstrip("."), f"unknown field; known are {', '.join(fields)}")


def _names(exemptions: JsonObject, field: str, at: str, problems: Callable[[str], Any]) -> tuple[str, ...]:
    names: list[str] = []
    for index, name in enumerate(exemptions.get(field) or ()):
        where = f"{at}.exemptions.{field}[{index}]"
        if not isinstance(name, str):
            raise InvalidConfigError(where, "must be text")
        for problem in problems(name):
            raise InvalidConfigError(where, f"{name!r}: {problem}")
        if name in names:
            raise InvalidConfigError(where, f"{name!r}: Duplicate value")
        names.append(name)
    return tuple(names)
