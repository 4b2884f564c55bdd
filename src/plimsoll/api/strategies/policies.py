"""Quotas, limit ranges, classes of priority and runtime, disruption budgets: what is allowed (01 §8–9, 05 A5)."""

from __future__ import annotations

from typing import Any

from plimsoll.api.strategies.base import (
    Strategy,
    WriteContext,
    count_or_percent_errors,
    forbidden,
    immutable,
    invalid,
    required,
    unsupported,
)
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError, InvalidQuantityError
from plimsoll.rules.admission.quota import bounds_pods, scope_may_bound
from plimsoll.rules.admission.runtime_class import runtime_class_errors
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import OBJECT_COUNTS, qualified_name_problems
from plimsoll.rules.model.policies import RuntimeClass
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.resources.defaulting import BUILT_IN

MAX_USER_PRIORITY = 1_000_000_000
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")

_SCOPES = (
    "BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating",
    "VolumeAttributesClass",
)  # fmt: skip
_COUNTED = OBJECT_COUNTS | {"requests.storage"}
_BOUNDS = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
_MUST_EXIST = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")


def _amount(value: Any) -> Quantity | None:
    try:
        return QUANTITIES[str(value)]
    except InvalidQuantityError:
        return None


class QuotaStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        errors = []
        for name, value in (spec.get("hard") or {}).items():
            path = f"spec.hard[{name}]"
            if problems := qualified_name_problems(name):
                errors += [invalid(path, name, problem) for problem in problems]
            elif "/" not in name and name not in _COUNTED and not bounds_pods(name):
                errors.append(invalid(path, name, "must be a standard resource for quota"))
            amount = _amount(value)
            if amount is not None and amount.nanos < 0:
                errors.append(invalid(path, str(value), "must be greater than or equal to 0"))
            elif amount is not None and name in (*_COUNTED, "pods") and amount.milli % 1000:
                errors.append(invalid(path, str(value), "must be an integer"))
        return errors + _scope_errors(spec, context.profile)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = self.create_errors(new, context)
        before, after = (sorted((document.get("spec") or {}).get("scopes") or []) for document in (old, new))
        if before != after:
            errors.append(immutable("spec.scopes", after))
        return errors


def _scope_errors(spec: JsonObject, profile: Profile) -> list[FieldError]:
    errors: list[FieldError] = []
    known = _SCOPES if profile.quota_of_volume_attributes else _SCOPES[:-1]
    scopes, path = spec.get("scopes") or [], "spec.scopes"
    for scope in scopes:
        if scope not in known:
            errors.append(FieldError("FieldValueInvalid", path, "unsupported scope", scopes))
        elif any(bounds_pods(name) and not scope_may_bound(scope, name) for name in spec.get("hard") or {}):
            errors.append(FieldError("FieldValueInvalid", path, "unsupported scope applied to resource", scopes))
    if _conflict(scopes):
        errors.append(FieldError("FieldValueInvalid", path, "conflicting scopes", scopes))
    path = "spec.scopeSelector.matchExpressions"
    requirements = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    for requirement in requirements:
        scope, operator = requirement.get("scopeName") or "", requirement.get("operator") or ""
        values = requirement.get("values") or []
        if scope not in known:
            errors.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        elif scope not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
            errors.append(invalid(f"{path}.operator", operator, _MUST_EXIST))
        if operator in ("In", "NotIn"):
            if not values:
                reason = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(required(f"{path}.values", reason))
        elif operator not in ("Exists", "DoesNotExist"):
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
        elif values:
            reason = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            errors.append(FieldError("FieldValueInvalid", f"{path}.values", reason, values))
    if _conflict([requirement.get("scopeName") for requirement in requirements]):
        errors.append(FieldError("FieldValueInvalid", path, "conflicting scopes", scopes))
    return errors


def _conflict(scopes: list[Any]) -> bool:
    return any({scope, f"Not{scope}"} <= set(scopes) for scope in ("BestEffort", "Terminating"))


class LimitRangeStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, item in enumerate((document.get("spec") or {}).get("limits") or []):
            path = f"spec.limits[{index}]"
            type_ = item.get("type") or ""
            if type_ in seen:
                errors.append(FieldError("FieldValueDuplicate", f"{path}.type", "", type_))
            seen.add(type_)
            if "/" not in type_ and type_ not in _LIMIT_TYPES:
                errors.append(unsupported(f"{path}.type", type_, _LIMIT_TYPES))
            if type_ == "Pod":
                errors += [
                    forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
                    for field in ("default", "defaultRequest")
                    if item.get(field)
                ]
            stores = [bound for field in ("min", "max") for bound in item.get(field) or {}]
            if type_ == "PersistentVolumeClaim" and "storage" not in stores:
                reason = "either minimum or maximum storage value is required, but neither was provided"
                errors.append(required(f"{path}.limits", reason))
            errors += _item_errors(item, path)
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)


# (path of the finding, smaller, larger, message)
_PAIRS = (
    ("min", "min", "max", "min value {} is greater than max value {}"),
    ("defaultRequest", "min", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "defaultRequest", "max", "default request value {} is greater than max value {}"),
    ("defaultRequest", "defaultRequest", "default", "default request value {} is greater than default limit value {}"),
    ("default", "min", "default", "min value {} is greater than default value {}"),
    ("default", "default", "max", "default value {} is greater than max value {}"),
)


def _item_errors(item: JsonObject, path: str) -> list[FieldError]:
    errors = []
    for name in sorted({name for field in _BOUNDS for name in item.get(field) or {}}):
        amounts = {field: _amount((item.get(field) or {}).get(name, "")) for field in _BOUNDS}
        for field, low, high, words in _PAIRS:
            least, most = amounts[low], amounts[high]
            if least is not None and most is not None and least > most:
                where = f"{path}.{field}[{name}]"
                shown = (item.get(field) or {})[name]
                errors.append(invalid(where, str(shown), words.format(least, most)))
        ratio = amounts["maxLimitRequestRatio"]
        if ratio is not None and ratio.milli < 1000:
            errors.append(invalid(f"{path}.maxLimitRequestRatio[{name}]", str(ratio), f"ratio {ratio} is less than 1"))
    return errors


class PriorityClassStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return {**document, "value": document.get("value") or 0}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors: list[FieldError] = []
        name, value = document["metadata"]["name"], document.get("value") or 0
        if name.startswith("system-"):
            if BUILT_IN.get(name) != value:
                reason = "priority class names with 'system-' prefix are reserved for system use only. error: "
                known = "is not a known system priority class" if name not in BUILT_IN else "has another value"
                errors.append(forbidden("metadata.name", f"{reason}{name} {known}"))
        elif value > MAX_USER_PRIORITY:
            reason = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
            errors.append(forbidden("value", reason))
        policy = document.get("preemptionPolicy") or PREEMPTION_POLICIES[0]
        if policy not in PREEMPTION_POLICIES:
            errors.append(unsupported("preemptionPolicy", policy, PREEMPTION_POLICIES))
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = []
        if (old.get("value") or 0) != (new.get("value") or 0):
            errors.append(forbidden("value", "may not be changed in an update."))
        if old.get("preemptionPolicy") != new.get("preemptionPolicy"):
            errors.append(immutable("preemptionPolicy", new.get("preemptionPolicy") or ""))
        return errors


class RuntimeClassStrategy(Strategy):
    unconditional_update = False
    create_on_update = True

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return runtime_class_errors(from_document(document, RuntimeClass))

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        before, after = old.get("handler") or "", new.get("handler") or ""
        errors = self.create_errors(new, context)
        return errors if before == after else [*errors, immutable("handler", after)]


class DisruptionBudgetStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        errors = []
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if least is not None and most is not None:
            errors.append(invalid("spec", None, "minAvailable and maxUnavailable cannot be both set"))
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in EVICTION_POLICIES:
            errors.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES))
        for field, value in (("minAvailable", least), ("maxUnavailable", most)):
            found = count_or_percent_errors(f"spec.{field}", value)
            if not found and isinstance(value, str) and int(value.removesuffix("%")) > 100:
                found = [invalid(f"spec.{field}", value, "must not be greater than 100%")]
            errors += found
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)


class ServiceAccountStrategy(Strategy):
    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return [
            required(f"imagePullSecrets[{index}].name")
            for index, secret in enumerate(document.get("imagePullSecrets") or [])
            if not secret.get("name")
        ]
