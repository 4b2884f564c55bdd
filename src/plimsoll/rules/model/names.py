"""Names (01 §2): which texts are valid names, and what a resource name may be used for.

Two families. *Texts*: DNS labels and subdomains, qualified names, label values; each check returns Kubernetes'
messages, none for a valid name (R-4). *Classes*: native, hugepages, extended, overcommittable, integer-only (R-3); they
depend only on the spelling, so an invalid name still has a class, and validation reports both errors.

The same few names occur in every object, so the checks are cached, with a bound.

Kubernetes: staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go, pkg/apis/core/helper/helpers.go.
"""

from __future__ import annotations

import re
from functools import lru_cache

from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.objects import CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, PODS
from plimsoll.rules.quantity import QUANTITIES, Quantity

Problems = tuple[str, ...]

REQUESTS_PREFIX = "requests."
LIMITS_PREFIX = "limits."
STORAGE = "storage"

MAX_LABEL_BYTES = 63
MAX_SUBDOMAIN_BYTES = 253

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_WILDCARD = rf"\*\.{_SUBDOMAIN}"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_CONFIG_MAP_KEY = "[-._a-zA-Z0-9]+"

_EMPTY = "must be non-empty"
_DOTS = "must not contain dots"


def _too_long(bound: int, unit: str = "bytes") -> str:
    """Bytes are counted. Kubernetes says so of label keys and values since 1.35, and "characters" of other names."""
    return f"must be no more than {bound} {unit}"


def _mismatch(rule: str, pattern: str, *examples: str) -> str:
    """Kubernetes' message about a pattern, with its comma before each `or`."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_RULE = _mismatch(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_WILDCARD_RULE = _mismatch(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    _WILDCARD,
    "*.example.com",
)
_SUBDOMAIN_RULE = _mismatch(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_QUALIFIED_RULE = _mismatch(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_SLASHES_RULE = (
    f"a valid label key {_QUALIFIED_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_LABEL_VALUE_RULE = _mismatch(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)


_CONFIG_MAP_KEY_RULE = _mismatch(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_MAP_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)


def size_bytes(text: str) -> int:
    """Kubernetes counts bytes. A lone surrogate (possible in JSON) is stored as three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def path_segment_problems(name: str) -> Problems:
    """Roles and bindings: any name that a path can have."""
    if name in (".", ".."):
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{letter}'" for letter in "/%" if letter in name)


def decoded_bytes(text: str) -> int:
    """Of valid base64: three bytes for four characters, without the padding."""
    return len(text) // 4 * 3 - text[-2:].count("=")


# --- texts (R-4) ---


@lru_cache(4096)
def dns_label_problems(text: str) -> Problems:
    """A container's or namespace's name."""
    found = (_too_long(MAX_LABEL_BYTES, "characters"),) if size_bytes(text) > MAX_LABEL_BYTES else ()
    if re.fullmatch(_LABEL, text):
        return found
    return (*found, _DOTS if re.fullmatch(_SUBDOMAIN, text) else _LABEL_RULE)


@lru_cache(4096)
def dns_subdomain_problems(text: str) -> Problems:
    """A pod's or node's name."""
    return _subdomain_problems(text, "characters")


def _subdomain_problems(text: str, unit: str) -> Problems:
    found = (_too_long(MAX_SUBDOMAIN_BYTES, unit),) if size_bytes(text) > MAX_SUBDOMAIN_BYTES else ()
    return found if re.fullmatch(_SUBDOMAIN, text) else (*found, _SUBDOMAIN_RULE)


def wildcard_subdomain_problems(text: str) -> Problems:
    """`*.example.com`: all hosts of a domain."""
    found = (_too_long(MAX_SUBDOMAIN_BYTES, "characters"),) if size_bytes(text) > MAX_SUBDOMAIN_BYTES else ()
    return found if re.fullmatch(_WILDCARD, text) else (*found, _WILDCARD_RULE)


@lru_cache(4096)
def qualified_name_problems(text: str) -> Problems:
    """`name` or `prefix/name`: resource names, label keys, annotation keys."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (_SLASHES_RULE,)
    found: list[str] = []
    if slash:
        problems = _subdomain_problems(prefix, "bytes") if prefix else (_EMPTY,)
        found.extend(f"prefix part {problem}" for problem in problems)
    if not name:
        found.append(f"name part {_EMPTY}")
    elif size_bytes(name) > MAX_LABEL_BYTES:
        found.append(f"name part {_too_long(MAX_LABEL_BYTES)}")
    if not re.fullmatch(_QUALIFIED, name):
        found.append(f"name part {_QUALIFIED_RULE}")
    return tuple(found)


@lru_cache(4096)
def label_value_problems(text: str) -> Problems:
    found = (_too_long(MAX_LABEL_BYTES),) if size_bytes(text) > MAX_LABEL_BYTES else ()
    return found if re.fullmatch(_LABEL_VALUE, text) else (*found, _LABEL_VALUE_RULE)


@lru_cache(4096)
def config_map_key_problems(text: str) -> Problems:
    """A key of a ConfigMap, which becomes the name of a file."""
    found = [_too_long(MAX_SUBDOMAIN_BYTES, "characters")] if size_bytes(text) > MAX_SUBDOMAIN_BYTES else []
    if not re.fullmatch(_CONFIG_MAP_KEY, text):
        found.append(_CONFIG_MAP_KEY_RULE)
    if text in (".", ".."):
        found.append(f"must not be '{text}'")
    elif text.startswith(".."):
        found.append("must not start with '..'")
    return tuple(found)


def generated_name_problems(prefix: str) -> Problems:
    """`generateName` is a prefix: it may end with a dash, because letters follow."""
    return dns_subdomain_problems(f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix)


# --- classes of resource names (R-3) ---


def event_name(about: str, at_ns: int) -> str:
    """The name of an event about an object of this name, as client-go names them: `web-0.18a7f5c1d2e3f405`.

    The name of the object is cut where the whole would be too long for a name.
    """
    suffix = f".{at_ns:x}"
    return about[: MAX_SUBDOMAIN_BYTES - len(suffix)].rstrip("-.") + suffix


CONTAINER_STANDARD = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
OBJECT_COUNTS = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
# Resource names without a prefix, including quota names (V-2).
_KNOWN = (
    CONTAINER_STANDARD
    | OBJECT_COUNTS
    | {PODS, STORAGE, REQUESTS_PREFIX + STORAGE}
    | {prefix + name for prefix in (REQUESTS_PREFIX, LIMITS_PREFIX) for name in CONTAINER_STANDARD}
)


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES_PREFIX)


@lru_cache(1024)
def is_extended(name: str) -> bool:
    """A resource with a domain; the name must leave room for quota's `requests.` prefix."""
    if is_native(name) or name.startswith(REQUESTS_PREFIX):
        return False
    return not qualified_name_problems(REQUESTS_PREFIX + name)


def is_overcommittable(name: str) -> bool:
    """Whether a limit may exceed its request."""
    return is_native(name) and not is_hugepages(name)


def is_integer_only(name: str) -> bool:
    return name == PODS or name in OBJECT_COUNTS or is_extended(name)


def is_container_standard(name: str) -> bool:
    return name in CONTAINER_STANDARD or is_hugepages(name)


def page_size(name: str) -> Quantity | None:
    """The page size in a hugepages name; None if it is not a positive whole number of bytes (V-7)."""
    try:
        size = QUANTITIES[name.removeprefix(HUGEPAGES_PREFIX)]
    except InvalidQuantityError:
        return None
    return size if size.nanos > 0 and size.milli % 1000 == 0 else None


@lru_cache(1024)
def resource_name_problems(name: str) -> Problems:
    """V-1, V-2: whether it is the name of a resource."""
    problems = qualified_name_problems(name)
    if problems or "/" in name or name in _KNOWN:
        return problems
    if name.startswith((HUGEPAGES_PREFIX, REQUESTS_PREFIX + HUGEPAGES_PREFIX)):
        return ()
    return ("must be a standard resource type or fully qualified",)


@lru_cache(1024)
def container_resource_problems(name: str) -> Problems:
    """V-1 … V-4: whether a container may request it. An invalid name can have two errors."""
    problems = resource_name_problems(name)
    if "/" not in name:
        return problems if is_container_standard(name) else (*problems, "must be a standard resource for containers")
    if is_native(name) or is_extended(name):
        return problems
    return (*problems, "doesn't follow extended resource name standard")
