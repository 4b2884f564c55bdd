"""Kubernetes' own libraries: quantities, URLs, addresses, versions, named formats, and the authorizer."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from plimsoll.codec.cel.overloads import overload, text_cost
from plimsoll.codec.cel.values import NONE, EvaluationError, Opaque, Optional
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.admission.custom_resources.formats import FORMATS
from plimsoll.rules.model.names import (
    dns_label_problems,
    dns_subdomain_problems,
    generated_name_problems,
    label_value_problems,
    qualified_name_problems,
)
from plimsoll.rules.quantity import Quantity, from_units

# --- quantities ---


def _quantity_of(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except InvalidQuantityError as error:
        raise EvaluationError(str(error)) from None


def _parses(read: Callable[[], object]) -> bool:
    try:
        read()
    except (EvaluationError, ValueError):
        return False
    return True


@overload("quantity(string) quantity", cost=text_cost)
def _quantity(text: str) -> Opaque:
    return Opaque("quantity", _quantity_of(text))


@overload("isQuantity(string) bool", cost=text_cost)
def _is_quantity(text: str) -> bool:
    return _parses(lambda: _quantity_of(text))


@overload("quantity.isGreaterThan(quantity) bool")
def _is_greater(left: Opaque, right: Opaque) -> bool:
    return bool(left.value > right.value)


@overload("quantity.isLessThan(quantity) bool")
def _is_less(left: Opaque, right: Opaque) -> bool:
    return bool(left.value < right.value)


@overload("quantity.compareTo(quantity) int")
def _compare(left: Opaque, right: Opaque) -> int:
    return int(left.value > right.value) - int(left.value < right.value)


@overload("sign(quantity) int")  # Kubernetes declares it as a function, not as a method
def _sign(value: Opaque) -> int:
    return int(value.value.nanos > 0) - int(value.value.nanos < 0)


@overload("quantity.isInteger() bool")
def _is_integer(value: Opaque) -> bool:
    nanos: int = value.value.nanos
    return nanos % 1_000_000_000 == 0 and abs(nanos) < 2**63 * 1_000_000_000


@overload("quantity.asInteger() int")
def _as_integer(value: Opaque) -> int:
    if not _is_integer(value):
        raise EvaluationError("cannot convert value to integer")
    return int(value.value.nanos // 1_000_000_000)


@overload("quantity.asApproximateFloat() double")
def _as_float(value: Opaque) -> float:
    return float(value.value.nanos / 1_000_000_000)


def _as_quantity(value: Any) -> Quantity:
    return value.value if isinstance(value, Opaque) else from_units(value)


@overload("quantity.add(quantity) quantity", "quantity.add(int) quantity")
def _add(left: Opaque, right: Any) -> Opaque:
    return Opaque("quantity", left.value + _as_quantity(right))


@overload("quantity.sub(quantity) quantity", "quantity.sub(int) quantity")
def _sub(left: Opaque, right: Any) -> Opaque:
    return Opaque("quantity", left.value - _as_quantity(right))


# --- URLs ---


def _parsed_url(text: str) -> Any:
    try:
        found = urlsplit(text)
        _ = found.port
    except ValueError:
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": invalid URI') from None
    if not (found.scheme and found.netloc) and not text.startswith("/"):
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    return found


@overload("url(string) url", cost=text_cost)
def _url(text: str) -> Opaque:
    return Opaque("url", _parsed_url(text))


@overload("isURL(string) bool", cost=text_cost)
def _is_url(text: str) -> bool:
    return _parses(lambda: _parsed_url(text))


@overload("url.getScheme() string")
def _scheme(url: Opaque) -> str:
    return str(url.value.scheme)


@overload("url.getHost() string")
def _host(url: Opaque) -> str:
    return str(url.value.netloc.rpartition("@")[2])


@overload("url.getHostname() string")
def _hostname(url: Opaque) -> str:
    host = _host(url)
    return host[1:].partition("]")[0] if host.startswith("[") else str(host.partition(":")[0])


@overload("url.getPort() string")
def _port(url: Opaque) -> str:
    return "" if url.value.port is None else str(url.value.port)


@overload("url.getEscapedPath() string")
def _path(url: Opaque) -> str:
    return str(url.value.path)


@overload("url.getQuery() map<string, list<string>>")
def _query(url: Opaque) -> dict[str, list[str]]:
    return parse_qs(url.value.query, keep_blank_values=True)


# --- addresses ---


def _parsed_ip(text: str) -> Any:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise EvaluationError(f"IP Address '{text}' parse error during conversion from string") from None
    if isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped or found.scope_id):
        what = "IPv4-mapped IPv6 address is not allowed" if found.ipv4_mapped else "IP address with zone is not allowed"
        raise EvaluationError(f"{what}: {text}")
    return found


@overload("ip(string) ip", cost=text_cost)
def _ip(text: str) -> Opaque:
    return Opaque("ip", _parsed_ip(text))


@overload("isIP(string) bool", cost=text_cost)
def _is_ip(text: str) -> bool:
    return _parses(lambda: _parsed_ip(text))


@overload("ip::isCanonical(string) bool", cost=text_cost)
def _is_canonical(text: str) -> bool:
    return str(_parsed_ip(text)) == text


@overload("string(ip) string", "string(cidr) string")
def _address_text(address: Opaque) -> str:
    return str(address.value)


@overload("ip.family() int")
def _family(address: Opaque) -> int:
    return int(address.value.version)


@overload("ip.isUnspecified() bool")
def _is_unspecified(address: Opaque) -> bool:
    return bool(address.value.is_unspecified)


@overload("ip.isLoopback() bool")
def _is_loopback(address: Opaque) -> bool:
    return bool(address.value.is_loopback)


@overload("ip.isLinkLocalMulticast() bool")
def _is_link_local_multicast(address: Opaque) -> bool:
    value = address.value
    return value in ipaddress.ip_network("224.0.0.0/24") if value.version == 4 else value.packed[:2] == b"\xff\x02"


@overload("ip.isLinkLocalUnicast() bool")
def _is_link_local(address: Opaque) -> bool:
    return bool(address.value.is_link_local)


@overload("ip.isGlobalUnicast() bool")
def _is_global(address: Opaque) -> bool:
    value = address.value
    return not (
        value.is_unspecified
        or value.is_loopback
        or value.is_multicast
        or value.is_link_local
        or str(value) == "255.255.255.255"
    )


def _parsed_cidr(text: str) -> Any:
    try:
        if "/" not in text or not text.rpartition("/")[2].isdigit():
            raise ValueError(text)
        return ipaddress.ip_interface(text)
    except ValueError:
        raise EvaluationError(f"network address parse error during conversion from string: {text}") from None


@overload("cidr(string) cidr", cost=text_cost)
def _cidr(text: str) -> Opaque:
    return Opaque("cidr", _parsed_cidr(text))


@overload("isCIDR(string) bool", cost=text_cost)
def _is_cidr(text: str) -> bool:
    return _parses(lambda: _parsed_cidr(text))


@overload("cidr.containsIP(ip) bool", "cidr.containsIP(string) bool")
def _contains_ip(network: Opaque, address: Any) -> bool:
    value = _parsed_ip(address) if isinstance(address, str) else address.value
    return value.version == network.value.version and value in network.value.network


@overload("cidr.containsCIDR(cidr) bool", "cidr.containsCIDR(string) bool")
def _contains_cidr(network: Opaque, other: Any) -> bool:
    value = (_parsed_cidr(other) if isinstance(other, str) else other.value).network
    return bool(value.version == network.value.version and value.subnet_of(network.value.network))


@overload("cidr.ip() ip")
def _cidr_ip(network: Opaque) -> Opaque:
    return Opaque("ip", network.value.ip)


@overload("cidr.masked() cidr")
def _masked(network: Opaque) -> Opaque:
    return Opaque("cidr", ipaddress.ip_interface(network.value.network.with_prefixlen))


@overload("cidr.prefixLength() int")
def _prefix_length(network: Opaque) -> int:
    return int(network.value.network.prefixlen)


# --- semantic versions ---

_SEMVER = re.compile(
    r"(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


class Semver(msgspec.Struct, frozen=True):
    numbers: tuple[int, int, int]
    pre: tuple[str, ...]

    def rank(self) -> tuple[Any, ...]:
        pre = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in self.pre)
        return self.numbers, not self.pre, pre


def _parsed_semver(text: str, *, normalize: bool = False) -> Semver:
    if normalize:
        core, mark, rest = text.removeprefix("v").partition("-")
        parts = [each.lstrip("0") or "0" for each in core.split(".")]
        text = ".".join([*parts, "0", "0"][:3] if len(parts) < 3 else parts) + mark + rest
    match = _SEMVER.fullmatch(text) if len(text) < 256 else None
    if match is None:
        raise EvaluationError(f'semver parse error during conversion from string: "{text}"')
    numbers = (int(match[1]), int(match[2]), int(match[3]))
    return Semver(numbers, tuple(match[4].split(".")) if match[4] else ())


@overload("semver(string) semver", "semver(string, bool) semver", cost=text_cost)
def _semver(text: str, normalize: bool = False) -> Opaque:
    return Opaque("semver", _parsed_semver(text, normalize=normalize))


@overload("isSemver(string) bool", "isSemver(string, bool) bool", cost=text_cost)
def _is_semver(text: str, normalize: bool = False) -> bool:
    return _parses(lambda: _parsed_semver(text, normalize=normalize))


@overload("semver.isGreaterThan(semver) bool")
def _semver_greater(left: Opaque, right: Opaque) -> bool:
    return bool(left.value.rank() > right.value.rank())


@overload("semver.isLessThan(semver) bool")
def _semver_less(left: Opaque, right: Opaque) -> bool:
    return bool(left.value.rank() < right.value.rank())


@overload("semver.compareTo(semver) int")
def _semver_compare(left: Opaque, right: Opaque) -> int:
    one, other = left.value.rank(), right.value.rank()
    return int(one > other) - int(one < other)


def _semver_part(index: int) -> Callable[[Opaque], int]:
    return lambda version: int(version.value.numbers[index])


for _index, _name in enumerate(("major", "minor", "patch")):
    overload(f"semver.{_name}() int")(_semver_part(_index))

# --- named formats ---


def _prefixed(check: Callable[[str], Any]) -> Callable[[str], list[str]]:
    return lambda text: [*check(text)] if not text.endswith("-") else [*check(text[:-1] + "a")]


def _by_pattern(name: str, words: str) -> Callable[[str], list[str]]:
    return lambda text: [] if FORMATS[name](text) else [words]


_LABEL_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


def _label_1035_problems(text: str) -> list[str]:
    if len(text) <= 63 and _LABEL_1035.fullmatch(text):
        return []
    return [
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
        "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
        "is '[a-z]([-a-z0-9]*[a-z0-9])?')"
    ]


_FORMATS: dict[str, Callable[[str], Any]] = {
    "dns1123Label": dns_label_problems,
    "dns1123Subdomain": dns_subdomain_problems,
    "dns1035Label": _label_1035_problems,
    "dns1123LabelPrefix": _prefixed(dns_label_problems),
    "dns1123SubdomainPrefix": _prefixed(generated_name_problems),
    "dns1035LabelPrefix": _prefixed(_label_1035_problems),
    "qualifiedName": qualified_name_problems,
    "labelValue": label_value_problems,
    "uri": lambda text: [] if _is_url(text) else ["invalid URI"],
    "uuid": _by_pattern("uuid", "does not match the UUID format"),
    "byte": _by_pattern("byte", "invalid base64"),
    "date": _by_pattern("date", "invalid date"),
    "datetime": _by_pattern("datetime", "invalid datetime"),
}


@overload("format::named(string) optional<format>")
def _named(name: str) -> Optional:
    return Optional(True, Opaque("format", name)) if name in _FORMATS else NONE


def _constant(name: str) -> Callable[[], Opaque]:
    return lambda: Opaque("format", name)


for _name in _FORMATS:
    overload(f"format::{_name}() format")(_constant(_name))


@overload("format.validate(string) optional<list<string>>", cost=text_cost)
def _validate(form: Opaque, text: str) -> Optional:
    problems = list(_FORMATS[form.value](text))
    return Optional(True, problems) if problems else NONE
