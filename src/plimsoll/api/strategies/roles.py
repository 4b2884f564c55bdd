"""Roles and bindings: which rules, subjects and references are valid."""

from __future__ import annotations

from plimsoll.api.strategies.base import Strategy, WriteContext, invalid, required, unsupported
from plimsoll.errors import FieldError, quoted
from plimsoll.rules.access.rbac import GROUP
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_subdomain_problems

_SUBJECTS = ("ServiceAccount", "User", "Group")


class RoleStrategy(Strategy):
    """Of Role and ClusterRole."""

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = []
        for index, rule in enumerate(document.get("rules") or ()):
            errors += self._rule_errors(f"rules[{index}]", rule)
        aggregation = document.get("aggregationRule")
        if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
            reason = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errors.append(required("aggregationRule.clusterRoleSelectors", reason))
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)

    def _rule_errors(self, path: str, rule: JsonObject) -> list[FieldError]:
        errors = []
        if not rule.get("verbs"):
            errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        urls = rule.get("nonResourceURLs") or []
        if urls:
            if self.resource.namespaced:
                reason = "namespaced rules cannot apply to non-resource URLs"
                errors.append(invalid(f"{path}.nonResourceURLs", None, f"{_listed(urls)}: {reason}"))
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                reason = "rules cannot apply to both regular resources and non-resource URLs"
                errors.append(invalid(f"{path}.nonResourceURLs", None, f"{_listed(urls)}: {reason}"))
            return errors
        if not rule.get("apiGroups"):
            errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
        return errors


class BindingStrategy(Strategy):
    """Of RoleBinding and ClusterRoleBinding."""

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = self._reference_errors(document.get("roleRef") or {})
        for index, subject in enumerate(document.get("subjects") or ()):
            errors += _subject_errors(f"subjects[{index}]", subject, in_namespace=self.resource.namespaced)
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = self.create_errors(new, context)
        before, after = (document.get("roleRef") or {} for document in (old, new))
        if before != after:
            shown = ", ".join(
                f"{name}:{quoted(after.get(field) or '')}"
                for name, field in (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
            )
            errors.append(invalid("roleRef", None, f"rbac.RoleRef{{{shown}}}: cannot change roleRef"))
        return errors

    def _reference_errors(self, reference: JsonObject) -> list[FieldError]:
        errors = []
        if reference.get("apiGroup") != GROUP:
            errors.append(unsupported("roleRef.apiGroup", reference.get("apiGroup") or "", (GROUP,)))
        kinds = ("Role", "ClusterRole") if self.resource.namespaced else ("ClusterRole",)
        if reference.get("kind") not in kinds:
            errors.append(unsupported("roleRef.kind", reference.get("kind") or "", kinds))
        if not reference.get("name"):
            errors.append(required("roleRef.name"))
        return errors


def _subject_errors(path: str, subject: JsonObject, *, in_namespace: bool) -> list[FieldError]:
    """`in_namespace`: of a RoleBinding, where a service account without a namespace is one of the binding's."""
    errors = []
    kind, name, group = (subject.get(field) or "" for field in ("kind", "name", "apiGroup"))
    if not name:
        errors.append(required(f"{path}.name"))
    if kind == "ServiceAccount":
        errors += [invalid(f"{path}.name", name, problem) for problem in (dns_subdomain_problems(name) if name else ())]
        if group:
            errors.append(unsupported(f"{path}.apiGroup", group, ("",)))
        if not in_namespace and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(unsupported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        errors.append(unsupported(f"{path}.kind", kind, _SUBJECTS))
    return errors


def _listed(values: list[str]) -> str:
    return f"[{','.join(f'{chr(34)}{value}{chr(34)}' for value in values)}]"
