"""CertificateSigningRequests, whose request never changes, and ClusterTrustBundles."""

from __future__ import annotations

import re

from plimsoll.api.strategies.base import Strategy, WriteContext, with_old, without
from plimsoll.codec.kernel.x509 import CertificateFormatError, validity
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_subdomain_problems

USAGES = (
    "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment",
    "cert sign", "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing",
    "email protection", "s/mime", "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing",
    "microsoft sgc", "netscape sgc",
)  # fmt: skip
_SIGNER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9._/]{0,200}[A-Za-z0-9])?")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n(.*?)-----END \1-----", re.DOTALL)
LEAST_S = 600
MOST_BUNDLE_BYTES = 1 << 20


class CertificateRequestStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return without(document, "status")

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        errors = []
        if not spec.get("request"):
            errors.append(FieldError("FieldValueRequired", "spec.request"))
        signer = spec.get("signerName") or ""
        if not signer:
            errors.append(FieldError("FieldValueRequired", "spec.signerName"))
        elif not _SIGNER.fullmatch(signer):
            reason = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            errors.append(FieldError("FieldValueInvalid", "spec.signerName", reason, signer))
        usages = spec.get("usages") or []
        if not usages:
            errors.append(FieldError("FieldValueRequired", "spec.usages", "usages must not be empty"))
        for index, usage in enumerate(usages):
            if usage not in USAGES:
                listed = ", ".join(f'"{each}"' for each in sorted(USAGES))
                reason = f"supported values: {listed}"
                errors.append(FieldError("FieldValueNotSupported", f"spec.usages[{index}]", reason, usage))
        life_s = spec.get("expirationSeconds")
        if life_s is not None and life_s < LEAST_S:
            reason = f"may not specify a duration less than {LEAST_S} seconds (10 minutes)"
            errors.append(FieldError("FieldValueInvalid", "spec.expirationSeconds", reason, life_s))
        return errors

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return with_old(with_old(new, old, "spec"), old, "status")

    def prepared_for_status(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        """The certificate, and conditions other than Approved and Denied."""
        before, after = old.get("status") or {}, dict(new.get("status") or {})
        kept = [each for each in before.get("conditions") or [] if each.get("type") in ("Approved", "Denied")]
        others = [each for each in after.get("conditions") or [] if each.get("type") not in ("Approved", "Denied")]
        if before.get("certificate"):
            after["certificate"] = before["certificate"]
        return {**old, "metadata": new["metadata"], "status": {**after, "conditions": kept + others}}

    def prepared_for_approval(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        """Only conditions."""
        conditions = [_timed(each, context.now) for each in (new.get("status") or {}).get("conditions") or []]
        status = {**(old.get("status") or {}), "conditions": conditions}
        return {**old, "metadata": new["metadata"], "status": status}

    def approval_errors(self, old: JsonObject, new: JsonObject) -> list[FieldError]:
        types = [each.get("type") for each in (new.get("status") or {}).get("conditions") or []]
        if "Approved" in types and "Denied" in types:
            reason = "Approved and Denied conditions are mutually exclusive"
            return [FieldError("FieldValueInvalid", "status.conditions", reason)]
        for each in (old.get("status") or {}).get("conditions") or []:
            if each.get("type") in ("Approved", "Denied") and each["type"] not in types:
                reason = f"updates may not remove a condition of type {each['type']}"
                return [FieldError("FieldValueForbidden", "status.conditions", reason)]
        return []


class TrustBundleStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec, name = document.get("spec") or {}, document["metadata"].get("name") or ""
        signer = spec.get("signerName") or ""
        errors = []
        if signer and not _SIGNER.fullmatch(signer):
            reason = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            errors.append(FieldError("FieldValueInvalid", "spec.signerName", reason, signer))
        prefix = f"{signer.replace('/', ':')}:" if signer else ""
        if not signer and ":" in name:
            reason = 'ClusterTrustBundle without signer name must not have ":" in its name'
            errors.append(FieldError("FieldValueInvalid", "metadata.name", reason, name))
        elif not name.startswith(prefix):
            reason = f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
            errors.append(FieldError("FieldValueInvalid", "metadata.name", reason, name))
        elif problems := dns_subdomain_problems(name.removeprefix(prefix)):
            errors.append(FieldError("FieldValueInvalid", "metadata.name", problems[0], name))
        return errors + _bundle_errors(spec.get("trustBundle") or "")

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        before, after = ((each.get("spec") or {}).get("signerName") or "" for each in (old, new))
        errors = self.create_errors(new, context)
        if before != after:
            errors.append(FieldError("FieldValueInvalid", "spec.signerName", "field is immutable", after))
        return errors


def _bundle_errors(text: str) -> list[FieldError]:
    """At least one certificate, each once, and no other blocks. That they are of authorities is not checked."""
    path, reasons, seen = "spec.trustBundle", [], dict[str, list[int]]()
    if len(text.encode()) > MOST_BUNDLE_BYTES:
        return [FieldError("FieldValueTooLong", path, f"may not be more than {MOST_BUNDLE_BYTES} bytes")]
    for index, block in enumerate(_BLOCK.finditer(text)):
        kind, content = block.groups()
        if kind != "CERTIFICATE":
            reasons.append(f"entry {index} has bad block type: {kind}")
        elif ":" in content:
            reasons.append(f"entry {index} has PEM block headers")
        else:
            try:
                validity(block[0].encode())
            except CertificateFormatError as error:
                reasons.append(f"entry {index} does not parse as X.509: {error}")
                continue
            seen.setdefault("".join(content.split()), []).append(index)
    reasons += [f"duplicate trust anchor (indices {each})" for each in seen.values() if len(each) > 1]
    if not seen and not reasons:
        reasons.append("at least one trust anchor must be provided")
    return [FieldError("FieldValueInvalid", path, reason, "<value omitted>") for reason in reasons]


def _timed(condition: JsonObject, now: str) -> JsonObject:
    return {
        **condition,
        "lastUpdateTime": condition.get("lastUpdateTime") or now,
        "lastTransitionTime": condition.get("lastTransitionTime") or now,
    }
