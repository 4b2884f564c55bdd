"""From when to when a certificate is valid, read from its bytes: all that an agent must know of its own certificate.

A certificate is nested DER: { tbs { [0] version, serial, algorithm, issuer, validity { from, to } … } … }.
Times come as `YYMMDDhhmmssZ` (UTCTime) or `YYYYMMDDhhmmssZ` (GeneralizedTime); they are given as the latter.
"""

from __future__ import annotations

import base64
import binascii
import re

from plimsoll.errors import PlimsollError

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_TIME = re.compile(r"[0-9]{14}Z", re.ASCII)


class CertificateFormatError(PlimsollError):
    """Bytes that are no certificate."""


def validity(pem: bytes) -> tuple[str, str]:
    """`20261116000000Z`, from and to, of the first certificate in the text."""
    found = _PEM.search(pem)
    if found is None:
        raise CertificateFormatError("there is no certificate in it")
    try:
        _, certificate, _ = _element(base64.b64decode(found[1]), _SEQUENCE)
        _, rest, _ = _element(certificate, _SEQUENCE)
        if rest[:1] == bytes([_VERSION]):
            _, _, rest = _element(rest)
        for _ in range(3):  # serial number, signature algorithm, issuer
            _, _, rest = _element(rest)
        _, both, _ = _element(rest, _SEQUENCE)
        begin, rest = _time(both)
        end, _ = _time(rest)
    except (IndexError, ValueError, binascii.Error) as error:
        raise CertificateFormatError(f"it cannot be read: {error}") from None
    return begin, end


def _time(data: bytes) -> tuple[str, bytes]:
    tag, content, rest = _element(data)
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"element {tag:#x} is no time")
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r} is no time")
    return text, rest


def _element(data: bytes, expected: int | None = None) -> tuple[int, bytes, bytes]:
    """Tag, content and what follows."""
    tag, length, start = data[0], data[1], 2
    if expected is not None and tag != expected:
        raise ValueError(f"element {tag:#x} where {expected:#x} should be")
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start], "big")
    if len(data) < start + length:
        raise ValueError("it is cut short")
    return tag, data[start : start + length], data[start + length :]
