"""Requests to everything that the discovery documents name, most of them wrong in some way.

`served` reads the documents into paths and verbs; `asked(seed, number, offers)` makes one request out of a seed and a
number alone, so that a failed one can be sent again. About a third is well-formed, so that there are objects to break.
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from plimsoll.codec.schema.schema import SchemaKind, schema
from tests.e2e.request_bodies import (
    NAMES,
    NAMESPACES,
    NODES,
    as_json,
    as_protobuf,
    as_yaml,
    damaged,
    deep,
    random_object,
    spoiled,
    valid,
)
from tests.unit.mutation import ODD_VALUES

Document = dict[str, Any]
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_ACCEPTS = (
    JSON, JSON, JSON, "", "*/*", _TABLE, _TABLE, YAML, f"{PROTOBUF},application/json", PROTOBUF,
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "text/html", "application/json;as=Nothing;v=v1;g=meta.k8s.io", ";;;,=", "a" * 3000, "application/json;q=0", AGGREGATED,
)  # fmt: skip
_CONTENT_TYPES = (
    "",
    "text/plain",
    "application/xml",
    "application/json; charset=utf-8",
    "a/b;;=",
    JSON,
    YAML,
    PROTOBUF,
    MERGE,
    "\xff",
)
_STRANGE_NAMES = (
    "", "%00", "a%2Fb", "..", ".", "%2e%2e", "%ff", "%F0%9F%98%80", "A", "a_b", "x" * 300, "x%20y", "%0d%0aHost:x", "status", "watch", "%", "*",
)  # fmt: skip
_PAGES = (
    "/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/livez?verbose", "/readyz", "/readyz/etcd", "/metrics",
    "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/openapi/v2", "/openapi/v3/%00", "/foo", "//", "/api//v1", "/apis/nope/v1/x",
    "/api/v2/pods", "/debug/pprof", "/api/v1/watch", "/api/v1/watch/pods", "/api/v1/namespaces/default", "/swagger.json", "/api/v1/nodes/n1/proxy/a%0d%0ab",
)  # fmt: skip
_SELECTORS = (
    "app=web", "app", "!app", "app in (web,db)", "app notin (x)", "a>1", "a=", "=", ",", "a in", "a in (", "()", "a b", "a=b=c", "x" * 400, "a>z", "\0", "é=1", "a!=",
)  # fmt: skip
_FIELDS = (
    "metadata.name=x", "metadata.namespace=default", "spec.nodeName=n1", "spec.nodeName!=", "status.phase=Running", "involvedObject.name=x", "a", "a=b", "=", ",",
    "metadata.name=a\\", "metadata.name=\\x", "metadata.name= x", "metadata.name=a=b", "type=Normal", "\0=\0", "status.replicas=1", "status.successful=x",
)  # fmt: skip
_VERSIONS = ("0", "1", "5", "-1", "abc", "1.5", " ", "18446744073709551616", "00", "+1", "é", "1e3")
_COUNTS = ("1", "2", "500", "0", "-1", "abc", "9" * 30, "1.5", " 1", "+3")
_FLAGS = ("true", "false", "0", "1", "", "x")
_MANAGERS = ("m", "kubectl", "", "x" * 129, "a\0b", "é")
MOST_SECONDS_OF_A_WATCH = "1"
_WEIGHTS = {"create": 3, "update": 2, "patch": 4}  # what makes objects, or is hard to get right, is asked more often


class Offer(msgspec.Struct, frozen=True):
    """One thing that can be asked for: a verb of a resource or of a subresource."""

    base: str
    plural: str
    namespaced: bool
    subresource: str
    verb: str
    kind: tuple[str, str]  # apiVersion and kind of the body


class Asked(msgspec.Struct, frozen=True):
    method: str
    target: str  # path and query, as it goes over the wire
    headers: tuple[tuple[str, str], ...]
    body: bytes
    user: str  # admin, viewer, node or anonymous

    def __str__(self) -> str:
        return f"{self.user}: {self.method} {self.target[:300]} {dict(self.headers)} {self.body[:600]!r}"


def served(documents: Sequence[Document]) -> list[Offer]:
    """Every verb of the aggregated discovery documents (05 B3), some more than once."""
    found = []
    for group in (item for document in documents for item in document["items"]):
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            group_version = f"{name}/{version['version']}" if name else version["version"]
            base = f"/apis/{group_version}" if name else f"/api/{group_version}"
            for resource in version["resources"]:
                place = (base, resource["resource"], resource["scope"] == "Namespaced")
                own = (group_version, resource["responseKind"]["kind"])
                found += [Offer(*place, "", verb, own) for verb in resource["verbs"]]
                for sub in resource.get("subresources", ()):
                    kind = sub["responseKind"]
                    of = f"{kind['group']}/{kind['version']}" if kind["group"] else group_version
                    found += [Offer(*place, sub["subresource"], verb, (of, kind["kind"])) for verb in sub["verbs"]]
    return [offer for offer in found for _ in range(_WEIGHTS.get(offer.verb, 1))]


def asked(seed: int, number: int, offers: Sequence[Offer]) -> Asked:
    rng = random.Random(f"{seed} {number}")
    if rng.randrange(25) == 0:
        method = rng.choice(("GET", "GET", "POST", "HEAD", "OPTIONS", "DELETE", "FOO"))
        return Asked(method, rng.choice(_PAGES), _headers(rng, ""), b"", _user(rng))
    offer = rng.choice(offers)
    wild = rng.randrange(3)  # 0: all as it should be
    name = rng.choice(NAMES)
    content_type, body = _body(rng, offer, name, wild) if offer.verb in _METHODS else ("", b"")
    target = _path(rng, offer, name, wild) + _query(rng, offer, wild)
    method = _METHODS.get(offer.verb, "GET")
    if rng.randrange(60) == 0:
        method = rng.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"))
    return Asked(method, target, _headers(rng, content_type, wild), body, _user(rng))


def _user(rng: random.Random) -> str:
    return rng.choice(("admin",) * 27 + ("viewer", "node", "anonymous"))


def _headers(rng: random.Random, content_type: str, wild: int = 1) -> tuple[tuple[str, str], ...]:
    headers = []
    accept = rng.choice(_ACCEPTS) if wild and rng.randrange(3) == 0 else JSON
    if accept:
        headers.append(("accept", accept))
    if wild and rng.randrange(12) == 0:
        content_type = rng.choice(_CONTENT_TYPES)
    if content_type:
        headers.append(("content-type", content_type))
    if rng.randrange(10) == 0:
        headers.append(("user-agent", rng.choice(("kubectl/v1.32", "", "\xe9" * 200, "/", "a" * 4000))))
    if wild and rng.randrange(30) == 0:
        headers.append((rng.choice(("x-odd", "kubectl-session", "if-none-match", "impersonate-user")), "y" * 8000))
    return tuple(headers)


def _path(rng: random.Random, offer: Offer, name: str, wild: int) -> str:
    namespace = rng.choice(NAMESPACES)
    if wild and rng.randrange(12) == 0:
        name = rng.choice(_STRANGE_NAMES)
    if wild and rng.randrange(30) == 0:
        namespace = rng.choice(_STRANGE_NAMES)
    parts = [offer.base]
    if wild and offer.verb in ("list", "watch", "get") and rng.randrange(20) == 0:
        parts.append("watch")
    across = offer.verb in ("list", "watch") and rng.randrange(3) == 0
    if offer.namespaced and not across:
        parts += ["namespaces", namespace]
    parts.append(offer.plural)
    if offer.subresource or offer.verb in ("get", "update", "patch", "delete"):
        parts.append(name)
    if offer.subresource:
        parts.append(offer.subresource)
    if wild and rng.randrange(40) == 0:
        parts.insert(rng.randrange(1, len(parts) + 1), rng.choice(_STRANGE_NAMES))
    return "/".join(parts) + ("/" if rng.randrange(40) == 0 else "")


def _query(rng: random.Random, offer: Offer, wild: int) -> str:
    terms: list[tuple[str, str]] = []
    verb = offer.verb
    if verb == "watch":
        terms.append(("watch", rng.choice(("true", "1", "", "x")) if wild else "true"))
        terms.append(("timeoutSeconds", MOST_SECONDS_OF_A_WATCH))
    if verb == "patch" and (wild == 0 or rng.randrange(2)):
        terms.append(("fieldManager", rng.choice(_MANAGERS) if wild else "m"))
    if verb in ("list", "watch", "deletecollection"):
        terms += _chosen(rng, wild, labelSelector=_SELECTORS, fieldSelector=_FIELDS)
        terms += _chosen(rng, wild, limit=_COUNTS, resourceVersion=_VERSIONS, sendInitialEvents=_FLAGS)
        terms += _chosen(rng, wild, resourceVersionMatch=("Exact", "NotOlderThan", "x"), allowWatchBookmarks=_FLAGS)
        if wild and rng.randrange(10) == 0:
            terms.append(("continue", _token(rng)))
        if wild and rng.randrange(300) == 0:
            terms.append(("resourceVersion", "9" * rng.choice((9, 18))))
    elif wild:
        terms += _chosen(rng, wild, dryRun=("All", "x", ""), fieldValidation=("Strict", "Warn", "Ignore", "x"))
        terms += _chosen(rng, wild, gracePeriodSeconds=_COUNTS, propagationPolicy=("Orphan", "Foreground", "x"))
        terms += _chosen(rng, wild, force=_FLAGS, resourceVersion=("0", "1", "abc"), timeout=("5s", "abc", "-1s"))
        terms += _chosen(
            rng, wild, container=("c", "zz", "\0"), tailLines=_COUNTS, sinceSeconds=_COUNTS, command=("ls",)
        )
    if wild:
        terms += _chosen(rng, wild, pretty=_FLAGS, includeObject=("Metadata", "Object", "None", "x"), odd=("\0", "é"))
    if not terms:
        return ""
    if wild and rng.randrange(60) == 0:
        return "?" + rng.choice(
            ("&&&", "%", "%ff=%ff", "=", "a" * 3000, "a=1&" * 900, "watch=1&timeoutSeconds=1&watch=0")
        )
    return "?" + urlencode(terms)


def _chosen(rng: random.Random, wild: int, **options: Sequence[str]) -> list[tuple[str, str]]:
    """Some of the options, each seldom; only what is right where nothing is wild."""
    return [
        (name, rng.choice(values if wild else values[:2])) for name, values in options.items() if rng.randrange(9) == 0
    ]


def _token(rng: random.Random) -> str:
    version, start = (
        rng.choice((1, 5, 17, -1, 0, -5, 2**70, "x", None)),
        rng.choice(("/x\0", "/", "", "x", "/../", "/default/x\0", 5)),
    )
    token = {"v": rng.choice(("meta.k8s.io/v1", "v1", 1)), "rv": version, "start": start}
    text = base64.urlsafe_b64encode(json.dumps(token).encode()).rstrip(b"=").decode()
    return rng.choice((text, text, text, text[:-3], "!", "é", text + "==", "A" * 5000))


# --- bodies ---


def _kind(offer: Offer) -> SchemaKind:
    if offer.verb in ("delete", "deletecollection"):
        return schema("v1", "DeleteOptions")
    try:
        return schema(*offer.kind)
    except KeyError:  # options of a node's endpoint: they have no body
        return schema("v1", "DeleteOptions")


def _body(rng: random.Random, offer: Offer, name: str, wild: int) -> tuple[str, bytes]:
    kind = _kind(offer)
    document: Any
    if kind.name == "DeleteOptions":
        document = {} if rng.randrange(3) else {"gracePeriodSeconds": rng.choice((0, 1, 30, -1))}
        if wild and rng.randrange(3) == 0:
            document = random_object(rng, kind)
            document.pop("metadata")
    else:
        document = valid(rng, kind) if rng.randrange(2) else random_object(rng, kind)
        if offer.subresource or offer.verb != "create":
            document["metadata"]["name"] = name
    if offer.verb == "patch":
        return _patch(rng, document, wild)
    if wild == 2:
        document = spoiled(rng, document)
    content_type = rng.choice((JSON, JSON, JSON, JSON, "", YAML, PROTOBUF))
    if content_type == YAML:
        body = as_yaml(rng, document)
    else:
        body = as_protobuf(kind, document) if content_type == PROTOBUF else as_json(rng, document)
    if wild == 2 and rng.randrange(4) == 0:
        body = damaged(rng, body)
    if wild == 2 and rng.randrange(400) == 0:
        body = b'{"a":"' + b"x" * rng.choice((1_000_000, 3_200_000)) + b'"}'
    return content_type, body


def _patch(rng: random.Random, document: Document, wild: int) -> tuple[str, bytes]:
    content_type = rng.choice((JSON_PATCH, MERGE, STRATEGIC, STRATEGIC, APPLY, APPLY))
    body: Any = document
    if content_type == JSON_PATCH:
        body = [_operation(rng, document) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
        if wild == 2 and rng.randrange(50) == 0:
            body = body * 10_001
    elif content_type != APPLY:
        body = {key: value for key, value in document.items() if key in ("metadata", "spec", "status", "data")}
        body.get("metadata", {}).pop("name", None)
        if content_type == STRATEGIC and rng.randrange(3) == 0:
            _add_directives(rng, body)
    if wild == 2:
        body = spoiled(rng, body)
    data = as_yaml(rng, body) if content_type == APPLY and rng.randrange(2) else as_json(rng, body)
    return content_type, damaged(rng, data) if wild == 2 and rng.randrange(4) == 0 else data


_POINTERS = (
    "/metadata/labels", "/metadata/labels/app", "/metadata/annotations/a~1b", "/spec/containers/0/image", "/spec/containers/-", "/spec/containers/9", "/spec/containers/00",
    "/status/phase", "/spec/replicas", "", "/", "x", "/~", "/metadata/name", "/metadata/finalizers/0", "/spec", "/data/k", "/metadata/resourceVersion", "/metadata/managedFields",
    "/metadata", "/spec/containers/-1", "/spec/containers/99999999999999999999", "/kind", "/metadata/uid", "/metadata/creationTimestamp",
)  # fmt: skip


def _operation(rng: random.Random, document: Document) -> Any:
    operation: Document = {"op": rng.choice(("add", "remove", "replace", "move", "copy", "test", "nope"))}
    operation["path"] = rng.choice(_POINTERS)
    if operation["op"] in ("move", "copy"):
        operation["from"] = rng.choice(_POINTERS)
    elif rng.randrange(6):
        operation["value"] = rng.choice(
            ("v", {"app": "web"}, document.get("spec"), None, *copy.deepcopy(rng.sample(ODD_VALUES, 3)))
        )
    if rng.randrange(30) == 0:
        return rng.choice((operation["op"], None, {}, {"op": 1, "path": 2}, [operation]))
    return operation


def _add_directives(rng: random.Random, body: Document) -> None:
    holders = [body, *(each for each in body.values() if isinstance(each, dict))]
    for _ in range(rng.choice((1, 1, 2))):
        holder = rng.choice(holders)
        match rng.randrange(7):
            case 0:
                holder["$patch"] = rng.choice(("replace", "delete", "merge", "frob", 1, None))
            case 1:
                holder["$retainKeys"] = rng.choice((["containers"], [], "x", [1], ["name", "labels"]))
            case 2:
                field = rng.choice(("containers", "finalizers", "taints", "zzz", "conditions", "labels"))
                holder[f"$setElementOrder/{field}"] = rng.choice(([{"name": "c"}], ["a.io/b"], [], "x", [1], [None]))
            case 3:
                field = rng.choice(("finalizers", "containers", "zzz"))
                holder[f"$deleteFromPrimitiveList/{field}"] = rng.choice((["a.io/b"], [], "x", [{}], None))
            case 4:
                holder["containers"] = [rng.choice(({"$patch": "delete", "name": "c"}, {"image": "x"}, None, "x", {}))]
            case 5:
                holder["conditions"] = rng.choice(
                    ([{"status": "x"}], [{"type": "Ready", "status": "True"}], {}, [None])
                )
            case _:
                holder["$" + rng.choice(("x", "patch/x", "setElementOrder", "retainKeys/y"))] = deep(3, "map")


def sweep(offers: Sequence[Offer]) -> list[Asked]:
    """Removes what has collected, so that a run of any length holds about as many objects."""
    found = []
    for offer in dict.fromkeys(offers):
        if offer.verb != "deletecollection":
            continue
        places = [f"/namespaces/{each}" for each in NAMESPACES] if offer.namespaced else [""]
        body = b'{"gracePeriodSeconds":0}'
        headers = (("accept", JSON), ("content-type", JSON))
        found += [
            Asked("DELETE", f"{offer.base}{quote(each)}/{offer.plural}", headers, body, "admin") for each in places
        ]
    return found


def furniture() -> list[Asked]:
    """What most well-formed requests need: their namespaces, and nodes to run on."""
    headers = (("accept", JSON), ("content-type", JSON))
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": {"cpu": "64", "memory": "64Gi", "pods": "500"}, "conditions": ready}
    found: list[tuple[str, Document]]
    found = [("/api/v1/namespaces", {"metadata": {"name": name}}) for name in NAMESPACES]
    found += [("/api/v1/nodes", {"metadata": {"name": name}, "status": status}) for name in NODES]
    return [Asked("POST", path, headers, json.dumps(body).encode(), "admin") for path, body in found]
