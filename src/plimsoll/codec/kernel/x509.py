"""The validity period and the common name of an X.509 certificate, read from its bytes.

A certificate is nested DER: { tbs { [0] version, serial, algorithm, issuer, validity { from, to }, subject … } … }.
Times are `YYMMDDhhmmssZ` (UTCTime) or `YYYYMMDDhhmmssZ` (GeneralizedTime).
A subject is a list of sets of { type, text }.
"""

from __future__ import annotations

import base64
import re

from plimsoll.errors import PlimsollError
from plimsoll.rules.timestamps import unix_seconds

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_COMMON_NAME = b"\x55\x04\x03"  # 2.5.4.3
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z", re.ASCII)


class CertificateFormatError(PlimsollError):
    """The bytes are not a certificate."""


def validity(pem: bytes) -> tuple[int, int]:
    """notBefore and notAfter of the first certificate in the text, in seconds since 1970."""
    try:
        _, both, _ = _element(_from_validity(pem), _SEQUENCE)
        begin, rest = _time(both)
        end, _ = _time(rest)
    except (IndexError, ValueError) as error:
        raise CertificateFormatError(f"not a readable certificate: {error}") from None
    return begin, end


def common_name(pem: bytes) -> str:
    """Of the subject of the first certificate in the text; "" where it has none."""
    try:
        _, _, rest = _element(_from_validity(pem), _SEQUENCE)
        _, names, _ = _element(rest, _SEQUENCE)
        while names:
            _, name, names = _element(names)
            _, pair, _ = _element(name, _SEQUENCE)
            _, kind, rest = _element(pair)
            if kind == _COMMON_NAME:
                return _element(rest)[1].decode()
    except (IndexError, ValueError) as error:
        raise CertificateFormatError(f"not a readable certificate: {error}") from None
    return ""


def _from_validity(pem: bytes) -> bytes:
    """The certificate's data from its validity period on."""
    found = _PEM.search(pem)
    if found is None:
        raise CertificateFormatError("it contains no certificate")
    _, certificate, _ = _element(base64.b64decode(found[1]), _SEQUENCE)
    _, rest, _ = _element(certificate, _SEQUENCE)
    if rest[:1] == bytes([_VERSION]):
        _, _, rest = _element(rest)
    for _ in range(3):  # serial number, signature algorithm, issuer
        _, _, rest = _element(rest)
    return rest


def _time(data: bytes) -> tuple[int, bytes]:
    tag, content, rest = _element(data)
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"element {tag:#x} is not a time")
    if (match := _TIME.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a time")
    return unix_seconds(*map(int, match.groups())), rest


def _element(data: bytes, expected: int | None = None) -> tuple[int, bytes, bytes]:
    """Tag, content, and the data that follows."""
    tag, length, start = data[0], data[1], 2
    if expected is not None and tag != expected:
        raise ValueError(f"found element {tag:#x} where {expected:#x} is expected")
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start], "big")
    if len(data) < start + length:
        raise ValueError("unexpected end of data")
    return tag, data[start : start + length], data[start + length :]
