"""Webhook configurations, admission policies and their bindings. Expressions are compiled when they are written."""

from __future__ import annotations

from plimsoll.api.strategies.base import Strategy, WriteContext
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.webhooks.validation import (
    binding_errors,
    condition_name_errors,
    constraint_errors,
    defaulted_constraints,
    defaulted_policy,
    defaulted_webhooks,
    mutating_policy_errors,
    webhook_errors,
)

_CODES = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")


class WebhookStrategy(Strategy):
    @property
    def is_mutating(self) -> bool:
        return self.resource.storage == "mutatingwebhookconfigurations"

    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_webhooks(document, is_mutating=self.is_mutating)

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_webhooks(new, is_mutating=self.is_mutating)

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = webhook_errors(document, is_mutating=self.is_mutating)
        for index, webhook in enumerate(document.get("webhooks") or []):
            if webhook.get("matchConditions"):
                from plimsoll.codec.cel.policies import condition_errors  # few webhooks have conditions

                errors += condition_errors(webhook["matchConditions"], f"webhooks[{index}].matchConditions")
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)


class PolicyStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_policy(super().prepared_for_create(document, context))

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_policy(super().prepared_for_update(old, new, context))

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        errors = list(constraint_errors(spec.get("matchConstraints"), "spec.matchConstraints", is_required=True))
        validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
        if not validations and not annotations:
            for field in ("validations", "auditAnnotations"):
                other = "auditAnnotations" if field == "validations" else "validations"
                reason = f"validations or auditAnnotations must be specified; {other} is empty"
                errors.append(FieldError("FieldValueRequired", f"spec.{field}", reason))
        for index, validation in enumerate(validations):
            path = f"spec.validations[{index}]"
            if not (validation.get("expression") or "").strip():
                errors.append(FieldError("FieldValueRequired", f"{path}.expression", "expression is not specified"))
            reason = validation.get("reason")
            if reason is not None and reason not in _CODES:
                listed = ", ".join(f'"{each}"' for each in _CODES)
                errors.append(
                    FieldError("FieldValueNotSupported", f"{path}.reason", f"supported values: {listed}", reason)
                )
        parameters = spec.get("paramKind")
        if parameters is not None:
            for field in ("apiVersion", "kind"):
                if not parameters.get(field):
                    errors.append(FieldError("FieldValueRequired", f"spec.paramKind.{field}"))
        errors += condition_name_errors(spec.get("matchConditions") or [], "spec.matchConditions")
        if errors:
            return errors
        from plimsoll.codec.cel.policies import policy_errors

        return policy_errors(spec)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return [] if old.get("spec") == new.get("spec") else self.create_errors(new, context)


class MutatingPolicyStrategy(PolicyStrategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        if errors := mutating_policy_errors(spec):
            return errors
        from plimsoll.codec.cel.mutations import mutation_errors

        return mutation_errors(spec)


class PolicyBindingStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        spec = dict(document.get("spec") or {})
        if spec.get("matchResources") is not None:
            spec["matchResources"] = defaulted_constraints(spec["matchResources"])
        return {**document, "spec": spec}

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return self.prepared_for_create(new, context)

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return binding_errors(document, is_mutating=self.resource.storage == "mutatingadmissionpolicybindings")

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)
