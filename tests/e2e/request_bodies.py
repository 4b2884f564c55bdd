"""Bodies for requests that no client would send: objects that follow the schema, then spoiled field by field and byte by
byte, in each of the three encodings.

`valid` makes a small object that the server accepts; `random_object` fills in any field of the schema with a value of
its type; `spoiled` puts odd values, depths and repetitions into it; `damaged` works on bytes. All of it comes from the
given random numbers alone.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import yaml

from plimsoll.codec.schema.schema import SchemaKind, StructType, Type, struct
from tests.unit.codec.protobuf.test_kube import envelope, field, varint
from tests.unit.mutation import NAMES as ODD_NAMES
from tests.unit.mutation import ODD_VALUES, TOKENS

Document = dict[str, Any]

NAMESPACES = ("default", "a")
NAMES = ("x", "y", "n1", "w.v")
NODES = ("n1", "n2")
# Where the server may really call: always this machine, and a port on which no server listens.
_ADDRESSES = ("127.0.0.1", "::1", "", "127.0.0.1 ", "127.0.0.1/x", "[::1", "127.0.0.1:1", "\r\n")
_PORTS = (1, 1, 1, 0, -1, 70_000, 2**31 - 1)

_TEXTS: dict[str, tuple[str, ...]] = {
    "name": NAMES,
    "namespace": NAMESPACES,
    "nodeName": NODES,
    "address": _ADDRESSES,
    "image": ("busybox", "nginx:1.27", "a/b:latest"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "operator": ("Exists", "Equal", "In", "NotIn", "DoesNotExist", "Gt", "Lt"),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule"),
    "key": ("app", "node.kubernetes.io/not-ready", "a.b/c"),
    "resourceVersion": ("1", "0", "17", "99999"),
    "uid": ("", "1", "00000000-0000-4000-8000-000000000000"),
    "phase": ("Pending", "Running", "Succeeded", "Failed"),
    "status": ("True", "False", "Unknown"),
    "type": ("Normal", "Warning", "Ready", "Container", "Pod", "InternalIP", "Hostname", "Recreate", "PodScheduled"),
    "priorityClassName": ("", "x", "system-node-critical"),
    "propagationPolicy": ("Foreground", "Background", "Orphan"),
    "dryRun": ("All",),
    "scopes": ("BestEffort", "NotBestEffort", "Terminating"),
    "finalizers": ("a.io/b", "kubernetes", "foregroundDeletion", "orphan"),
    "managedFields": ("x",),
    "kind": ("Pod", "Node", "ReplicaSet"),
}
_ANY_TEXT = ("", "a", "app", "web", "true", "10", "Always", "a/b", "é", "x" * 64, "1h", "*")
_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-2Mi", "limits.cpu", "requests.memory", "a.b/c")
_QUANTITIES: tuple[Any, ...] = ("1", "100m", "1Gi", "128Mi", "0", "0.5", 2, 1.5, "4", "8Gi", "2Mi", "1e3", "-1")
_TIMES = ("2026-11-15T20:30:00Z", "2026-11-15T20:30:00.123456Z", "1970-01-01T00:00:00Z", None, "9999-12-31T23:59:59Z")
_NUMBERS = (0, 1, 2, 3, 5, 80, 300, -1, 2**31 - 1)
_MOST_REPLICAS = 3  # a loop that makes pods is to make few of them


def valid(rng: random.Random, kind: SchemaKind) -> Document:
    """A small object that is most likely accepted."""
    metadata: Document = {"name": rng.choice(NAMES)}
    if rng.randrange(3) == 0:
        metadata["labels"] = {"app": rng.choice(("web", "db"))}
    if rng.randrange(12) == 0:
        metadata["finalizers"] = ["a.io/b"]
    if rng.randrange(30) == 0:
        metadata = {"generateName": "g-"}
    document: Document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    return document | _rest(rng, kind.name)


def _rest(rng: random.Random, kind: str) -> Document:
    match kind:
        case "Pod":
            return {"spec": _pod_spec(rng)}
        case "Node":
            return _node(rng)
        case "ConfigMap":
            return {"data": {"k": "v" * rng.choice((0, 1, 3000)), "n": "1"}}
        case "LimitRange":
            return {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}}]}}
        case "ResourceQuota":
            return {"spec": {"hard": {"cpu": "100", "pods": "200"}}}
        case "PriorityClass":
            return {"value": rng.randrange(1000)}
        case "Lease":
            return {"spec": {"holderIdentity": rng.choice(NODES), "leaseDurationSeconds": 40, "renewTime": _TIMES[1]}}
        case "Deployment" | "ReplicaSet" | "Job":
            return {"spec": _workload(rng, kind)}
        case "PodDisruptionBudget":
            return {"spec": {"minAvailable": rng.choice((1, "50%")), "selector": {"matchLabels": {"app": "web"}}}}
        case "Binding":
            return {"target": {"kind": "Node", "name": rng.choice(NODES)}}
        case "Event":
            return _event(rng)
        case "Scale":
            return {"spec": {"replicas": rng.randrange(_MOST_REPLICAS)}}
        case "SelfSubjectAccessReview":
            return {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}
        case _:
            return {}


def _pod_spec(rng: random.Random, **more: Any) -> Document:
    amount = {"cpu": rng.choice(("100m", "1", "2")), "memory": "64Mi"}
    resources = rng.choice(({}, {"requests": amount}, {"limits": amount}, {"limits": amount, "requests": amount}))
    spec: Document = {"containers": [{"name": "c", "image": "busybox", "resources": resources}], **more}
    if rng.randrange(4) == 0:
        spec["nodeName"] = rng.choice(NODES)
    if rng.randrange(8) == 0:
        spec["initContainers"] = [{"name": "i", "image": "busybox", "restartPolicy": "Always"}]
    if rng.randrange(8) == 0:
        spec["priorityClassName"] = rng.choice(_TEXTS["priorityClassName"])
    return spec


def _node(rng: random.Random) -> Document:
    status: Document = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    status["conditions"] = [{"type": "Ready", "status": rng.choice(_TEXTS["status"])}]
    if rng.randrange(3) == 0:
        status["addresses"] = [{"type": "InternalIP", "address": rng.choice(_ADDRESSES)}]
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": rng.choice(_PORTS)}}
    return {"status": status}


def _workload(rng: random.Random, kind: str) -> Document:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(rng)}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        return {"template": template, "completions": 1}
    return {"replicas": rng.randrange(_MOST_REPLICAS), "selector": {"matchLabels": labels}, "template": template}


def _event(rng: random.Random) -> Document:
    about = {"kind": "Pod", "name": rng.choice(NAMES), "namespace": rng.choice(NAMESPACES)}
    if rng.randrange(2):
        return {"involvedObject": about, "reason": "Because", "message": "m", "type": "Normal"}
    return {
        "regarding": about,
        "reason": "Because",
        "note": "n",
        "type": "Normal",
        "eventTime": _TIMES[1],
        "action": "Do",
        "reportingController": "a.io/b",
        "reportingInstance": "i",
    }


# --- anything that the schema allows ---


def random_object(rng: random.Random, kind: SchemaKind) -> Document:
    """`valid`, and beside it any other fields of the kind."""
    document = valid(rng, kind)
    for _ in range(rng.choice((1, 2, 4))):
        _fill(rng, document, kind.root, depth=0)
    return document


def _fill(rng: random.Random, document: Document, of: StructType, depth: int) -> None:
    """One more field, perhaps far inside."""
    name = rng.choice(list(of.fields))
    if name in ("kind", "apiVersion"):
        return
    type_ = of.fields[name].type
    inside = document.get(name)
    if type_.form == "object" and isinstance(inside, dict) and depth < 8:
        _fill(rng, inside, struct(type_.struct), depth + 1)
    elif type_.form == "list" and isinstance(inside, list) and inside and rng.randrange(2):
        item = type_.item
        if item is not None and item.form == "object" and isinstance(inside[0], dict):
            _fill(rng, inside[0], struct(item.struct), depth + 1)
    else:
        document[name] = random_value(rng, type_, name, depth + 1)


def random_value(rng: random.Random, type_: Type, name: str, depth: int) -> Any:
    match type_.form:
        case "object":
            of = struct(type_.struct)
            chosen = [
                each for each in of.fields.values() if each.required or rng.random() < 1.5 / (depth + len(of.fields))
            ]
            return {each.name: random_value(rng, each.type, each.name, depth + 1) for each in chosen if depth < 12}
        case "list":
            assert type_.item is not None
            return [random_value(rng, type_.item, name, depth + 1) for _ in range(rng.choice((0, 1, 1, 2)))]
        case "map":
            assert type_.item is not None
            keys = _RESOURCES if type_.item.form == "Quantity" else ("app", "a.b/c", "k")
            return {rng.choice(keys): random_value(rng, type_.item, name, depth + 1) for _ in range(rng.randrange(3))}
        case "Quantity":
            return rng.choice(_QUANTITIES)
        case "bool":
            return rng.randrange(2) == 0
        case "int32" | "int64":
            if name in ("replicas", "parallelism", "completions"):
                return rng.randrange(_MOST_REPLICAS)
            return rng.choice(_PORTS) if name == "Port" else rng.choice(_NUMBERS)
        case "IntOrString":
            return rng.choice((1, "50%", "80", 0, "http", -1))
        case "Time" | "MicroTime":
            return rng.choice(_TIMES)
        case "bytes":
            return rng.choice(("", "YQ==", "YWI="))
        case "Duration":
            return rng.choice(("20s", "1m30s"))
        case "FieldsV1":
            return rng.choice(({}, {"f:data": {".": {}, "f:k": {}}}, {"f:spec": {'k:{"name":"c"}': {}}}))
        case _:
            return rng.choice(_TEXTS.get(name, _ANY_TEXT))


# --- broken ---


def spoiled(rng: random.Random, value: Any) -> Any:
    """The value with a few odd things in it; it may become something else altogether."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = [(holder, at) for holder, at in _places(value) if at not in ("replicas", "parallelism", "address")]
        if not places or rng.randrange(60) == 0:
            return copy.deepcopy(rng.choice(ODD_VALUES))
        holder, at = rng.choice(places)
        match rng.randrange(8):
            case 0 | 1 | 2:
                holder[at] = _safe(at, copy.deepcopy(rng.choice(ODD_VALUES)))
            case 3:
                del holder[at]
            case 4 if isinstance(holder, dict):
                holder[rng.choice(ODD_NAMES)] = holder[at]
            case 5 if isinstance(holder, list):
                holder.extend([holder[at]] * rng.choice((1, 3, 100)))
            case 6:
                holder[at] = [holder[at]] if rng.randrange(2) else {"a": holder[at]}
            case _:
                holder[at] = deep(rng.choice((3, 60, 600)), rng.choice(("list", "map")))
    return value


def _safe(at: Any, odd: Any) -> Any:
    return 1 if at == "Port" else odd


def deep(depth: int, how: str) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value] if how == "list" else {"spec": value}
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (holder, key or index) inside, not too deep."""
    found: list[tuple[Any, Any]] = []
    waiting = [(value, 0)]
    while waiting:
        inner, depth = waiting.pop()
        if depth > 30:
            continue
        keys = list(inner) if isinstance(inner, dict) else range(min(len(inner), 20)) if isinstance(inner, list) else ()
        found += [(inner, key) for key in keys]
        waiting += [(inner[key], depth + 1) for key in keys]
    return found


_RAW = (
    b"", b"null", b"[]", b"5", b'"x"', b"{", b"}", b"{}", b"\0", b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"NaN", b'{"a":1e999999999}',
    b'{"metadata":{"name":"x","name":"y"}}', b"[" * 20_000, b'{"a":' * 20_000, b"- " * 5_000, b"a: &a [*a]\n", b"&a [" * 3_000,
    b"9" * 5_000, b'{"spec":{"replicas":' + b"9" * 400 + b"}}", b"k8s\0", b"k8s\0\x12\xff\xff\xff\xff\x0f", b"--- \n---\n",
    b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12" + b"\x0a" * 300, b'{"kind":"Status"}', b'{"kind":1,"apiVersion":[]}', b" " * 50_000,
)  # fmt: skip


def damaged(rng: random.Random, data: bytes) -> bytes:
    if rng.randrange(4) == 0:
        return rng.choice(_RAW)
    broken = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        here = rng.randrange(len(broken) + 1)
        there = min(len(broken), here + rng.choice((1, 2, 8, 40)))
        match rng.randrange(5):
            case 0 if here < len(broken):
                broken[here] = rng.randrange(256)
            case 1:
                del broken[here:there]
            case 2:
                broken[here:here] = rng.choice(TOKENS)
            case 3:
                broken[here:there] = rng.choice(TOKENS)
            case _:
                del broken[here:]
    return bytes(broken)


# --- encodings ---


def as_json(rng: random.Random, value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=rng.randrange(4) > 0)
    except RecursionError:
        return b"[" * 1_000
    return text.encode("utf-8", "surrogatepass")


def as_yaml(rng: random.Random, value: Any) -> bytes:
    try:
        return yaml.safe_dump(value, allow_unicode=rng.randrange(2) == 0).encode("utf-8", "surrogatepass")
    except (RecursionError, yaml.YAMLError):
        return b"a: [" * 500


def as_protobuf(kind: SchemaKind, value: Any) -> bytes:
    """What of the value fits the schema; the rest is left out, as no client could write it."""
    raw = _message(kind.root, value) if isinstance(value, dict) else b""
    return envelope(kind.api_version, kind.name, raw)


def _message(of: StructType, value: Document) -> bytes:
    parts = []
    for name, each in value.items():
        known = of.fields.get(name)
        if known is None or len(known.number) != 1:
            continue
        number, type_ = known.number[0], known.type
        if type_.form == "list" and isinstance(each, list) and type_.item is not None:
            parts += [_member(number, type_.item, item) for item in each]
        elif type_.form == "map" and isinstance(each, dict) and type_.item is not None:
            for key, item in each.items():
                parts.append(field(number, _member(1, Type("string", "string"), key) + _member(2, type_.item, item)))
        else:
            parts.append(_member(number, type_, each))
    return b"".join(parts)


def _member(number: int, type_: Type, value: Any) -> bytes:
    if isinstance(value, bool | int) and type_.form in ("bool", "int32", "int64"):
        return varint(number << 3) + varint(int(value) & (2**64 - 1))
    if isinstance(value, str) and type_.form in ("string", "bytes"):
        return field(number, value.encode("utf-8", "surrogatepass"))
    if type_.form == "Quantity" and isinstance(value, str | int | float):
        return field(number, field(1, str(value).encode("utf-8", "surrogatepass")))
    if type_.form == "object" and isinstance(value, dict):
        return field(number, _message(struct(type_.struct), value))
    if type_.form in ("Time", "MicroTime") and isinstance(value, str):
        return field(number, field(1, 1_794_787_200))
    return b""
