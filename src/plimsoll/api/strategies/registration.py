"""APIServices (`rules.controllers.api_services`): all are local, so all are available."""

from __future__ import annotations

from plimsoll.api.strategies.base import Strategy, WriteContext
from plimsoll.errors import FieldError
from plimsoll.rules.controllers.api_services import api_service_errors, local_status
from plimsoll.rules.model.json_object import JsonObject


class ApiServiceStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return {**super().prepared_for_create(document, context), "status": local_status(context.now)}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return api_service_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return api_service_errors(new)
