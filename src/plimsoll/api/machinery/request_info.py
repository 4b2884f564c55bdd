"""Parse the paths of the Kubernetes API, and the options in the query (05 B1, B6).

    /api/v1                           /{resource}[/{name}[/{subresource}[/rest…]]]
    /apis/{group}/{version}           /namespaces/{namespace}/{resource}[/{name}[/{subresource}[/rest…]]]
                                      /watch/…                                        (the old spelling of ?watch=1)

A path outside the served groups is not parsed (`None`: plain text 404); inside them every error is a Status.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

import msgspec

from plimsoll.api.machinery.catalog import BUILT_IN, Catalog
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.status import bad_request, invalid_options, method_not_allowed, no_such_resource
from plimsoll.errors import FieldError, InvalidConfigError
from plimsoll.rules.gotext import duration_nanos

# Empty: of OPTIONS, which only a proxy passes on.
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", ""]
Query = dict[str, list[str]]

MAX_MANAGER_BYTES = 128
MAX_QUERY_FIELDS = 1000

_VERBS: dict[tuple[str, bool], Verb] = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", True): "create",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}

_PROXIED: dict[str, Verb] = {"HEAD": "get", "OPTIONS": ""}


class RequestInfo(msgspec.Struct, frozen=True):
    """What a request is about, as authorization and audit use it."""

    verb: Verb
    resource: ApiResource
    namespace: str
    name: str
    subresource: str
    rest: str  # below a proxy subresource
    query: Query

    def option(self, name: str) -> str:
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """Given and neither `false` nor `0`; an empty value counts as true."""
        values = self.query.get(name)
        return values is not None and values[0].lower() not in ("false", "0")


def parsed_query(text: bytes) -> Query:
    """Raises 400."""
    query: Query = {}
    if not text:
        return query
    try:
        pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise bad_request(f"the query has more than {MAX_QUERY_FIELDS} parameters") from None
    for key, value in pairs:
        query.setdefault(key, []).append(value)
    return query


def request_info(method: str, path: str, query: Query, catalog: Catalog = BUILT_IN) -> RequestInfo | None:
    """`path` is percent-encoded. Raises StatusError (404, 405) for what a served group does not have."""
    parts = path.removesuffix("/").split("/")[1:] if path != "/" else []
    if "" in parts:
        return None
    if len(parts) > 2 and parts[0] == "api":
        group, version, steps = "", parts[1], parts[2:]
    elif len(parts) > 3 and parts[0] == "apis":
        group, version, steps = parts[1], parts[2], parts[3:]
    else:
        return None
    if not catalog.has_group(group, version):
        return None
    steps = [unquote(step) for step in steps] if "%" in path else steps
    watching = steps[0] == "watch" and len(steps) > 1
    if watching:
        steps = steps[1:]
    namespace = ""
    if steps[0] == "namespaces" and len(steps) > 2 and steps[2] not in ("status", "finalize"):
        namespace, steps = steps[1], steps[2:]
    resource = catalog.at(group, version, steps[0])
    if resource is None or (namespace and not resource.namespaced):
        raise no_such_resource()
    name = steps[1] if len(steps) > 1 else ""
    subresource = steps[2] if len(steps) > 2 else ""
    rest = "/".join(steps[3:])
    if (
        (name and resource.namespaced and not namespace)
        or (subresource and resource.subresource(subresource) is None)
        or (rest and subresource != "proxy")
    ):
        raise no_such_resource()
    proxied = subresource == "proxy" and resource.plural != "nodes"  # whose endpoint has neither method
    verb = _PROXIED[method] if proxied and method in _PROXIED else _verb(method, bool(name))
    info = RequestInfo(verb, resource, namespace, name, subresource, rest, query)
    if info.verb == "list" and (watching or info.flag("watch")):
        info = msgspec.structs.replace(info, verb="watch")
    elif watching and info.verb == "get":
        named = {**query, "fieldSelector": [f"metadata.name={name}"]}
        info = msgspec.structs.replace(info, verb="watch", name="", query=named)
    _check_allowed(info)
    return info


def _verb(method: str, named: bool) -> Verb:
    verb = _VERBS.get((method, named))
    if verb is None:
        raise method_not_allowed()
    return verb


def _check_allowed(info: RequestInfo) -> None:
    resource = info.resource
    if info.subresource:
        known = resource.subresource(info.subresource)
        if known is None or (info.verb and info.verb not in known.verbs):
            raise method_not_allowed()
        return
    if info.verb not in resource.verbs or (info.verb == "create" and info.name):
        raise method_not_allowed()
    # Across all namespaces only reads are possible.
    if resource.namespaced and not info.namespace and info.verb not in ("list", "watch"):
        raise method_not_allowed()


# --- options ---


class WriteOptions(msgspec.Struct, frozen=True):
    """Create, update and patch: `kind` is their name in error messages."""

    kind: str
    dry_run: bool
    field_manager: str
    field_validation: Literal["Ignore", "Warn", "Strict"]
    force: bool | None = None


def write_options(info: RequestInfo, user_agent: str) -> WriteOptions:
    kind = {"create": "CreateOptions", "update": "UpdateOptions"}.get(info.verb, "PatchOptions")
    if not info.query:
        return WriteOptions(kind, False, _agent(user_agent), "Warn")
    check_timeout(info)
    errors = _dry_run_errors(info.query.get("dryRun", []))
    manager = info.option("fieldManager")
    errors += manager_errors(manager)
    validation = info.option("fieldValidation")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        supported = 'supported values: "", "Ignore", "Strict", "Warn"'
        errors.append(FieldError("FieldValueNotSupported", "fieldValidation", supported, validation))
    if errors:
        raise invalid_options(kind, errors)
    force = info.flag("force") if "force" in info.query else None
    return WriteOptions(
        kind,
        bool(info.query.get("dryRun")),
        manager or _agent(user_agent),
        validation or "Warn",  # type: ignore[arg-type]
        force,
    )


def manager_errors(manager: str) -> list[FieldError]:
    if len(manager.encode(errors="surrogatepass")) > MAX_MANAGER_BYTES:
        reason = f"may not be more than {MAX_MANAGER_BYTES} bytes"
        return [FieldError("FieldValueTooLong", "fieldManager", reason)]
    if any(not letter.isprintable() for letter in manager):
        reason = "should only contain printable characters"
        return [FieldError("FieldValueInvalid", "fieldManager", reason, manager)]
    return []


def _dry_run_errors(values: list[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    shown = ",".join(f'"{value}"' for value in values)
    return [FieldError("FieldValueNotSupported", "dryRun", f'[{shown}]: supported values: "All"')]


def _agent(user_agent: str) -> str:
    """The default field manager: the name of the client program."""
    name = user_agent.partition("/")[0][:MAX_MANAGER_BYTES]
    return "".join(letter for letter in name if letter.isprintable()) or "unknown"


class ListOptions(msgspec.Struct, frozen=True):
    label_selector: str
    field_selector: str
    limit: int
    continue_token: str
    resource_version: str
    match: str
    bookmarks: bool
    send_initial: bool | None
    timeout_s: int | None


def list_options(info: RequestInfo) -> ListOptions:
    check_timeout(info, is_watch=info.verb == "watch")
    options = ListOptions(
        info.option("labelSelector"),
        info.option("fieldSelector"),
        _integer(info.option("limit")) or 0,
        info.option("continue"),
        info.option("resourceVersion"),
        info.option("resourceVersionMatch"),
        info.flag("allowWatchBookmarks"),
        info.flag("sendInitialEvents") if "sendInitialEvents" in info.query else None,
        _integer(info.option("timeoutSeconds")),
    )
    errors = _watch_errors(options) if info.verb == "watch" else _list_errors(options)
    if errors:
        raise invalid_options("ListOptions", errors)
    return options


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors = []
    path = "resourceVersionMatch"
    if options.match:
        if not options.resource_version:
            errors.append(_forbidden(path, f"{path} is forbidden unless resourceVersion is provided"))
        if options.continue_token:
            errors.append(_forbidden(path, f"{path} is forbidden when continue is provided"))
        if options.match not in ("Exact", "NotOlderThan"):
            supported = 'supported values: "Exact", "NotOlderThan", ""'
            errors.append(FieldError("FieldValueNotSupported", path, supported, options.match))
        if options.match == "Exact" and options.resource_version == "0":
            errors.append(_forbidden(path, f'{path} "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial is not None:
        errors.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    errors = []
    path = "resourceVersionMatch"
    if options.send_initial is not None and options.match != "NotOlderThan":
        errors.append(_forbidden(path, f"sendInitialEvents requires setting {path} to NotOlderThan"))
    if options.match:
        if options.send_initial is None:
            errors.append(_forbidden(path, f"{path} is forbidden for watch unless sendInitialEvents is provided"))
        if options.match != "NotOlderThan":
            supported = 'supported values: "NotOlderThan"'
            errors.append(FieldError("FieldValueNotSupported", path, supported, options.match))
        if options.continue_token:
            errors.append(_forbidden(path, f"{path} is forbidden when continue is provided"))
    return errors


class DeleteOptions(msgspec.Struct, frozen=True):
    grace_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False


def delete_options(document: dict[str, Any] | None, info: RequestInfo) -> DeleteOptions:
    """From the body (decoded by its schema) if there is one, else from the query, never from both (05 B6 Deletion)."""
    check_timeout(info)
    if document is None:
        dry_run = info.query.get("dryRun", [])
        grace = _integer(info.option("gracePeriodSeconds")) if "gracePeriodSeconds" in info.query else None
        propagation = info.option("propagationPolicy")
        orphan = info.flag("orphanDependents") if "orphanDependents" in info.query else None
        uid = version = ""
    else:
        dry_run = document.get("dryRun") or []
        grace = document.get("gracePeriodSeconds")
        propagation = document.get("propagationPolicy") or ""
        orphan = document.get("orphanDependents")
        preconditions = document.get("preconditions") or {}
        uid, version = preconditions.get("uid") or "", preconditions.get("resourceVersion") or ""
    errors = _dry_run_errors(dry_run)
    if propagation not in ("", "Foreground", "Background", "Orphan"):
        supported = 'supported values: "Foreground", "Background", "Orphan", "nil"'
        errors.append(FieldError("FieldValueNotSupported", "propagationPolicy", supported, propagation))
    if orphan is not None and propagation:
        both = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(FieldError("FieldValueInvalid", "propagationPolicy", both, propagation))
    if errors:
        raise invalid_options("DeleteOptions", errors)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    return DeleteOptions(grace, uid, version, propagation, bool(dry_run))


def check_timeout(info: RequestInfo, *, is_watch: bool = False) -> None:
    """The server answers at once, so only the syntax is checked."""
    if not is_watch:
        check_timeout_text(info.option("timeout"))


def check_timeout_text(text: str) -> None:
    if not text:
        return
    try:
        duration_nanos(text)
    except InvalidConfigError as error:
        raise bad_request(f"invalid timeout specified in the request URL - {error.reason}") from None


def _integer(text: str) -> int | None:
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    number = int(digits) if len(digits) < 25 else 2**64
    if number > 2**63 - 1:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return -number if text[0] == "-" else number


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)
