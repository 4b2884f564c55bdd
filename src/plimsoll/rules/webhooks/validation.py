"""What configurations of webhooks may contain, and their defaults, as Kubernetes has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_subdomain_problems, qualified_name_problems

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MAX_CONDITIONS = 64


def defaulted_webhooks(configuration: JsonObject, *, is_mutating: bool) -> JsonObject:
    webhooks = [_defaulted(each, is_mutating=is_mutating) for each in configuration.get("webhooks") or []]
    rest = {name: value for name, value in configuration.items() if name != "webhooks"}
    return {**rest, "webhooks": webhooks} if webhooks else rest


def _defaulted(webhook: JsonObject, *, is_mutating: bool) -> JsonObject:
    found = {
        **webhook,
        "failurePolicy": webhook.get("failurePolicy") or "Fail",
        "matchPolicy": webhook.get("matchPolicy") or "Equivalent",
        "namespaceSelector": webhook.get("namespaceSelector") or {},
        "objectSelector": webhook.get("objectSelector") or {},
        "timeoutSeconds": webhook["timeoutSeconds"] if webhook.get("timeoutSeconds") is not None else 10,
        "rules": [defaulted_rule(each) for each in webhook.get("rules") or []],
    }
    if is_mutating:
        found["reinvocationPolicy"] = webhook.get("reinvocationPolicy") or "Never"
    client = webhook.get("clientConfig") or {}
    if client.get("service") is not None and client["service"].get("port") is None:
        found["clientConfig"] = {**client, "service": {**client["service"], "port": 443}}
    return found


def defaulted_rule(rule: JsonObject) -> JsonObject:
    return {**rule, "scope": rule.get("scope") or "*"}


def webhook_errors(configuration: JsonObject, *, is_mutating: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, webhook in enumerate(configuration.get("webhooks") or []):
        path = f"webhooks[{index}]"
        errors += _webhook_errors(webhook, path, is_mutating=is_mutating)
        name = webhook.get("name") or ""
        if name in names:
            errors.append(FieldError("FieldValueDuplicate", f"{path}.name", value=name))
        names.add(name)
    return errors


def _webhook_errors(webhook: JsonObject, path: str, *, is_mutating: bool) -> Iterator[FieldError]:
    name = webhook.get("name") or ""
    yield from _full_name_errors(name, f"{path}.name")
    versions = webhook.get("admissionReviewVersions") or []
    if not versions:
        reason = "must specify one of v1, v1beta1"
        yield FieldError("FieldValueRequired", f"{path}.admissionReviewVersions", reason)
    elif not set(versions) & {"v1", "v1beta1"}:
        reason = "must include at least one of v1, v1beta1"
        yield FieldError("FieldValueInvalid", f"{path}.admissionReviewVersions", reason, str(versions[0]))
    yield from _choice(webhook, "failurePolicy", ("Fail", "Ignore"), path)
    yield from _choice(webhook, "matchPolicy", ("Equivalent", "Exact"), path)
    if is_mutating:
        yield from _choice(webhook, "reinvocationPolicy", ("IfNeeded", "Never"), path)
    if not webhook.get("sideEffects"):
        yield FieldError("FieldValueRequired", f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    else:
        yield from _choice(webhook, "sideEffects", ("None", "NoneOnDryRun"), path)
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        reason = "the timeout value must be between 1 and 30 seconds"
        yield FieldError("FieldValueInvalid", f"{path}.timeoutSeconds", reason, seconds)
    for index, rule in enumerate(webhook.get("rules") or []):
        yield from rule_errors(rule, f"{path}.rules[{index}]")
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(webhook.get(field), f"{path}.{field}")
    yield from _client_errors(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from condition_name_errors(webhook.get("matchConditions") or [], f"{path}.matchConditions")


def _full_name_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError("FieldValueRequired", path)
    elif problems := dns_subdomain_problems(name):
        yield FieldError("FieldValueInvalid", path, problems[0], name)
    elif name.count(".") < 2:
        reason = "should be a domain with at least three segments separated by dots"
        yield FieldError("FieldValueInvalid", path, reason, name)


def _choice(holder: JsonObject, field: str, allowed: tuple[str, ...], path: str) -> Iterator[FieldError]:
    value = holder.get(field)
    if value is not None and value not in allowed:
        listed = ", ".join(f'"{each}"' for each in allowed)
        yield FieldError("FieldValueNotSupported", f"{path}.{field}", f"supported values: {listed}", value)


def rule_errors(rule: JsonObject, path: str) -> Iterator[FieldError]:
    for field in ("operations", "apiGroups", "apiVersions", "resources"):
        values = rule.get(field) or []
        if not values:
            yield FieldError("FieldValueRequired", f"{path}.{field}")
        elif "*" in values and len(values) > 1 and field != "resources":
            reason = "if '*' is present, must not specify other " + {"operations": "operations"}.get(
                field, _WORDS[field]
            )
            yield FieldError("FieldValueInvalid", f"{path}.{field}", reason, str(values))
    for index, operation in enumerate(rule.get("operations") or []):
        if operation not in OPERATIONS:
            listed = ", ".join(f'"{each}"' for each in OPERATIONS)
            reason = f"supported values: {listed}"
            yield FieldError("FieldValueNotSupported", f"{path}.operations[{index}]", reason, operation)
    yield from _choice(rule, "scope", ("*", "Cluster", "Namespaced"), path)


_WORDS = {"operations": "operations", "apiGroups": "API groups", "apiVersions": "API versions"}


def selector_errors(selector: Any, path: str) -> Iterator[FieldError]:
    for index, term in enumerate((selector or {}).get("matchExpressions") or []):
        at = f"{path}.matchExpressions[{index}]"
        operator, values = term.get("operator"), term.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                reason = "must be specified when `operator` is 'In' or 'NotIn'"
                yield FieldError("FieldValueRequired", f"{at}.values", reason)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                reason = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield FieldError("FieldValueForbidden", f"{at}.values", reason)
        else:
            yield FieldError("FieldValueInvalid", f"{at}.operator", "not a valid selector operator", str(operator))


def _client_errors(client: JsonObject, path: str) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield FieldError("FieldValueRequired", path, "exactly one of url or service is required")
        return
    if url is not None:
        try:
            found = urlsplit(url)
            host, _ = found.hostname, found.port
        except ValueError:
            host, found = None, urlsplit("")
        if found.scheme != "https":
            reason = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            yield FieldError("FieldValueInvalid", f"{path}.url", reason, url)
        elif not host:
            yield FieldError("FieldValueInvalid", f"{path}.url", "host must be specified", url)
        elif found.username or found.query or found.fragment:
            reason = "user information, fragments and queries are not permitted in the URL"
            yield FieldError("FieldValueInvalid", f"{path}.url", reason, url)
        return
    assert service is not None
    for field in ("namespace", "name"):
        if not service.get(field):
            yield FieldError("FieldValueRequired", f"{path}.service.{field}", f"service {field} is required")
    port = service.get("port")
    if port is not None and not 0 < port < 65536:
        yield FieldError("FieldValueInvalid", f"{path}.service.port", "must be between 1 and 65535, inclusive", port)
    where = service.get("path")
    if where and not where.startswith("/"):
        yield FieldError("FieldValueInvalid", f"{path}.service.path", "must start with a '/'", where)


def condition_name_errors(conditions: list[JsonObject], path: str) -> Iterator[FieldError]:
    if len(conditions) > MAX_CONDITIONS:
        yield FieldError("FieldValueTooMany", path, f"must have at most {MAX_CONDITIONS} items", len(conditions))
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        name = condition.get("name") or ""
        if not name:
            yield FieldError("FieldValueRequired", f"{path}[{index}].name")
        elif problems := qualified_name_problems(name):
            yield FieldError("FieldValueInvalid", f"{path}[{index}].name", problems[0], name)
        elif name in names:
            yield FieldError("FieldValueDuplicate", f"{path}[{index}].name", value=name)
        names.add(name)
        if not (condition.get("expression") or "").strip():
            yield FieldError("FieldValueRequired", f"{path}[{index}].expression")


# --- policies ---


def defaulted_policy(policy: JsonObject) -> JsonObject:
    spec = dict(policy.get("spec") or {})
    spec["failurePolicy"] = spec.get("failurePolicy") or "Fail"
    if spec.get("matchConstraints") is not None:
        spec["matchConstraints"] = defaulted_constraints(spec["matchConstraints"])
    return {**policy, "spec": spec}


def defaulted_constraints(constraints: JsonObject) -> JsonObject:
    found = {
        **constraints,
        "matchPolicy": constraints.get("matchPolicy") or "Equivalent",
        "namespaceSelector": constraints.get("namespaceSelector") or {},
        "objectSelector": constraints.get("objectSelector") or {},
    }
    for field in ("resourceRules", "excludeResourceRules"):
        if constraints.get(field):
            found[field] = [defaulted_rule(each) for each in constraints[field]]
    return found


def constraint_errors(constraints: JsonObject | None, path: str, *, is_required: bool) -> Iterator[FieldError]:
    if constraints is None:
        if is_required:
            yield FieldError("FieldValueRequired", path)
        return
    if is_required and not constraints.get("resourceRules"):
        yield FieldError("FieldValueRequired", f"{path}.resourceRules")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(constraints.get(field) or []):
            yield from rule_errors(rule, f"{path}.{field}[{index}]")
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(constraints.get(field), f"{path}.{field}")
    yield from _choice(constraints, "matchPolicy", ("Equivalent", "Exact"), path)


def mutating_policy_errors(spec: JsonObject) -> list[FieldError]:
    """All but what is wrong with the expressions themselves."""
    errors = list(constraint_errors(spec.get("matchConstraints"), "spec.matchConstraints", is_required=True))
    errors += _operation_errors(spec.get("matchConstraints"), "spec.matchConstraints")
    errors += _choice(spec, "failurePolicy", ("Fail", "Ignore"), "spec")
    errors += condition_name_errors(spec.get("matchConditions") or [], "spec.matchConditions")
    if not spec.get("mutations"):
        reason = "mutations must contain at least one item"
        errors.append(FieldError("FieldValueRequired", "spec.mutations", reason))
    for index, mutation in enumerate(spec.get("mutations") or []):
        errors += _mutation_errors(mutation, f"spec.mutations[{index}]")
    if not spec.get("reinvocationPolicy"):
        errors.append(FieldError("FieldValueRequired", "spec.reinvocationPolicy"))
    errors += _choice(spec, "reinvocationPolicy", ("IfNeeded", "Never"), "spec")
    parameters = spec.get("paramKind")
    if parameters is not None:
        missing = [field for field in ("apiVersion", "kind") if not parameters.get(field)]
        errors += [FieldError("FieldValueRequired", f"spec.paramKind.{field}") for field in missing]
    return errors


def _mutation_errors(mutation: JsonObject, path: str) -> Iterator[FieldError]:
    kind = mutation.get("patchType") or ""
    fields = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    if not kind:
        yield FieldError("FieldValueRequired", f"{path}.patchType")
        return
    if kind not in fields:
        yield from _choice(mutation, "patchType", tuple(fields), path)
        return
    for other, field in fields.items():
        value = mutation.get(field)
        if other != kind and value is not None:
            reason = f"must not be specified when patchType is {kind}"
            yield FieldError("FieldValueInvalid", f"{path}.{field}", reason, f"{{{field}}}")
        if other != kind:
            continue
        if value is None:
            yield FieldError("FieldValueRequired", f"{path}.{field}", f"must be specified when patchType is {kind}")
        elif not (value.get("expression") or "").strip():
            yield FieldError("FieldValueRequired", f"{path}.{field}.expression")


def _operation_errors(constraints: JsonObject | None, path: str) -> Iterator[FieldError]:
    """Only what creates and updates can be changed."""
    for rule in (constraints or {}).get("resourceRules") or []:
        for operation in rule.get("operations") or []:
            if operation not in ("CREATE", "UPDATE"):
                reason = 'supported values: "CREATE", "UPDATE"'
                yield FieldError("FieldValueNotSupported", f"{path}.resourceRules.operations", reason, operation)


def binding_errors(binding: JsonObject, *, is_mutating: bool = False) -> list[FieldError]:
    spec = binding.get("spec") or {}
    errors: list[FieldError] = []
    if not spec.get("policyName"):
        errors.append(FieldError("FieldValueRequired", "spec.policyName"))
    reference = spec.get("paramRef")
    if reference is not None:
        if bool(reference.get("name")) == (reference.get("selector") is not None):
            what = (
                "name and selector are mutually exclusive"
                if reference.get("name")
                else "one of name or selector must be specified"
            )
            kind = "FieldValueForbidden" if reference.get("name") else "FieldValueRequired"
            errors.append(FieldError(kind, "spec.paramRef.name", what))  # type: ignore[arg-type]
        if not reference.get("parameterNotFoundAction"):
            errors.append(FieldError("FieldValueRequired", "spec.paramRef.parameterNotFoundAction"))
        else:
            errors += _choice(reference, "parameterNotFoundAction", ("Allow", "Deny"), "spec.paramRef")
    errors += constraint_errors(spec.get("matchResources"), "spec.matchResources", is_required=False)
    if is_mutating:
        return errors + list(_operation_errors(spec.get("matchResources"), "spec.matchResources"))
    actions = spec.get("validationActions") or []
    if not actions:
        errors.append(FieldError("FieldValueRequired", "spec.validationActions"))
    for index, action in enumerate(actions):
        if action not in ("Audit", "Deny", "Warn"):
            reason = 'supported values: "Audit", "Deny", "Warn"'
            errors.append(FieldError("FieldValueNotSupported", f"spec.validationActions[{index}]", reason, action))
    if "Deny" in actions and "Warn" in actions:
        reason = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        errors.append(FieldError("FieldValueInvalid", "spec.validationActions", reason, str(actions)))
    return errors
