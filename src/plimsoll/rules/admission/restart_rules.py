"""Validation of a container's restart policy and restart rules, with Kubernetes' messages (1.35+).

Kubernetes: validateContainerRestartPolicy in pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from plimsoll.errors import FieldError
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Container

POLICIES = ("Always", "Never", "OnFailure")
OPERATORS = ("In", "NotIn")
MAX_RULES, MAX_CODES = 20, 255


def restart_errors(container: Container, path: str, gates: Gates, *, is_init: bool) -> list[FieldError]:
    policy, rules = container.restart_policy, container.restart_policy_rules
    where = f"{path}.restartPolicy"
    if policy is None:
        needed = "must specify restartPolicy when restart rules are used"
        return [FieldError("FieldValueRequired", where, needed)] if rules and gates.restart_rules else []
    if not gates.restart_rules:
        return _without_rules(policy, where, is_init=is_init)
    if is_init and policy == "Always" and not gates.restart_all:
        reason = "restartPolicyRules are not allowed for init containers with restart policy Always"
        return [FieldError("FieldValueForbidden", f"{path}.restartPolicyRules", reason)] if rules else []
    errors = [] if policy in POLICIES else [_unsupported(where, policy, POLICIES)]
    if len(rules) > MAX_RULES:
        errors.append(_too_many(f"{path}.restartPolicyRules", len(rules), MAX_RULES))
    actions = ("Restart", "RestartAllContainers") if gates.restart_all else ("Restart",)
    for index, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{index}]"
        if rule.action not in actions:
            errors.append(_unsupported(f"{at}.action", rule.action, actions))
        codes = rule.exit_codes
        if codes is None:
            errors.append(FieldError("FieldValueRequired", f"{at}.exitCodes", "must be specified"))
            continue
        if codes.operator not in OPERATORS:
            errors.append(_unsupported(f"{at}.exitCodes.operator", codes.operator, OPERATORS))
        if len(codes.values) > MAX_CODES:
            errors.append(_too_many(f"{at}.exitCodes.values", len(codes.values), MAX_CODES))
    return errors


def _without_rules(policy: str, where: str, *, is_init: bool) -> list[FieldError]:
    if not is_init:
        return [FieldError("FieldValueForbidden", where, "may not be set for non-init containers")]
    return [] if policy == "Always" else [_unsupported(where, policy, ("Always",))]


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)


def _too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError("FieldValueTooMany", path, f"must have at most {most} items", count)
