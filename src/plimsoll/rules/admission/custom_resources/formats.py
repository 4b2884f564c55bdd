"""The formats of strings in the schemas of custom kinds; unknown formats are ignored, as in Kubernetes."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlsplit

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.gotext import duration_nanos

_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")


def _is_address(version: int) -> Callable[[str], bool]:
    return lambda text: _parses(lambda: ipaddress.ip_address(text)) and ipaddress.ip_address(text).version == version


def _parses(parse: Callable[[], object]) -> bool:
    try:
        parse()
    except (ValueError, binascii.Error, InvalidConfigError):
        return False
    return True


def _is_date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    return _parses(lambda: datetime.fromisoformat(text[:19].replace("t", "T")))


def _is_uuid(version: str) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        match = _UUID.fullmatch(text)
        return match is not None and (not version or match[1] == version)

    return check


FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": lambda text: _parses(lambda: base64.b64decode(text, validate=True)),
    "cidr": lambda text: "/" in text and _parses(lambda: ipaddress.ip_interface(text)),
    "date": lambda text: len(text) == 10 and _parses(lambda: date.fromisoformat(text)),
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "duration": lambda text: _parses(lambda: duration_nanos(text)),
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: len(text) < 254 and _HOST.fullmatch(text) is not None,
    "ipv4": _is_address(4),
    "ipv6": _is_address(6),
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uri": lambda text: _parses(lambda: urlsplit(text)) and bool(urlsplit(text).scheme or text.startswith("/")),
    "uuid": _is_uuid(""),
    "uuid3": _is_uuid("3"),
    "uuid4": _is_uuid("4"),
    "uuid5": _is_uuid("5"),
}
