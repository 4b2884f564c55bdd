"""Secrets: what each type must contain (Kubernetes' sentences, which never show the data)."""

from __future__ import annotations

import base64

import msgspec

from plimsoll.api.strategies.base import Strategy, WriteContext, forbidden, immutable, invalid, required
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import config_map_key_problems, decoded_bytes

MAX_BYTES = 1024 * 1024
OPAQUE, ACCOUNT_TOKEN = "Opaque", "kubernetes.io/service-account-token"
ACCOUNT_NAME = "kubernetes.io/service-account.name"
_REDACTED = "<secret contents redacted>"
_IMMUTABLE = "field is immutable when `immutable` is set"
# Types with a member that is a JSON object.
_CONFIGURATIONS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}


class SecretStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        data: dict[str, str] = document.get("data") or {}
        errors = [
            invalid(f"data[{key}]", key, problem) for key in sorted(data) for problem in config_map_key_problems(key)
        ]
        if sum(map(decoded_bytes, data.values())) > MAX_BYTES:
            errors.append(FieldError("FieldValueTooLong", "data", f"may not be more than {MAX_BYTES} bytes"))
        return errors + _type_errors(document, data)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = []
        if (old.get("type") or OPAQUE) != (new.get("type") or OPAQUE):
            errors.append(immutable("type", new.get("type") or OPAQUE))
        if old.get("immutable"):
            if not new.get("immutable"):
                errors.append(forbidden("immutable", _IMMUTABLE))
            if (old.get("data") or {}) != (new.get("data") or {}):
                errors.append(forbidden("data", _IMMUTABLE))
        return errors + self.create_errors(new, context)


def _type_errors(document: JsonObject, data: dict[str, str]) -> list[FieldError]:
    match document.get("type") or OPAQUE:
        case "kubernetes.io/service-account-token":
            annotations = document["metadata"].get("annotations") or {}
            return [] if annotations.get(ACCOUNT_NAME) else [required(f"metadata.annotations[{ACCOUNT_NAME}]")]
        case "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson" as type_:
            return _configuration_errors(_CONFIGURATIONS[type_], data)
        case "kubernetes.io/basic-auth" if "username" not in data and "password" not in data:
            return [required("data[username]"), required("data[password]")]
        case "kubernetes.io/ssh-auth" if not data.get("ssh-privatekey"):
            return [required("data[ssh-privatekey]")]
        case "kubernetes.io/tls":
            return [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
    return []


def _configuration_errors(key: str, data: dict[str, str]) -> list[FieldError]:
    if key not in data:
        return [required(f"data[{key}]")]
    try:
        msgspec.json.decode(base64.b64decode(data[key]), type=dict[str, object])
    except msgspec.DecodeError as error:
        return [invalid(f"data[{key}]", _REDACTED, str(error))]
    return []
