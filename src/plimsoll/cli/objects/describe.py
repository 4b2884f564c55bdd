"""`plimsoll describe`: one object with its events; pods and nodes in detail, other kinds as an indented listing.

Text from the cluster is escaped (`inert`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.files import file_options
from plimsoll.cli.objects.owners import owner_lines
from plimsoll.cli.objects.selection import listed, named, selector_options
from plimsoll.cli.printers import message, when
from plimsoll.cli.terminal import hanging, inert, table
from plimsoll.cli.verb import Verb
from plimsoll.codec.lean.lean import read_as_far
from plimsoll.rules.cgroups.reasons import human_bytes, human_cores
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import CPU, MEMORY, Pod
from plimsoll.rules.node.node_object import SIMULATED
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resize.progress import progress
from plimsoll.rules.resources.effective import pod_limits, pod_requests
from plimsoll.rules.timestamps import age

if TYPE_CHECKING:
    from plimsoll.kube.discovery import DiscoveredKind


LABEL = 18
MIB = 1 << 20
_HIDDEN = ("managedFields", "uid", "resourceVersion", "selfLink")
_NOT_LISTED = ("apiVersion", "kind", "metadata")


def described(
    kind: str,
    document: JsonObject,
    events: Sequence[JsonObject] | None,
    pods: Sequence[JsonObject],
    now_s: float,
    owners: Sequence[str] = (),
) -> Iterator[str]:
    """`events` is None if they are not shown. `owners`: lines about what the pods of a node own."""
    if kind == "Pod":
        yield from _pod(document, now_s)
    elif kind == "Node":
        yield from _node(document, pods, now_s)
        yield from owners
    else:
        yield from _heading(document, now_s)
        yield _field("Kind", kind)
        rest = {key: value for key, value in document.items() if key not in _NOT_LISTED}
        yield from _listed(rest, 0)
    if events is not None:
        yield from _event_lines(events, now_s)


def _heading(document: JsonObject, now_s: float) -> Iterator[str]:
    metadata = _part(document, "metadata")
    yield _field("Name", metadata.get("name"))
    if metadata.get("namespace"):
        yield _field("Namespace", metadata["namespace"])
    yield from _map("Labels", metadata.get("labels"))
    yield from _map("Annotations", metadata.get("annotations"))
    yield _field(
        "Created", f"{metadata.get('creationTimestamp')} ({age(metadata.get('creationTimestamp'), now_s)} ago)"
    )
    if metadata.get("deletionTimestamp"):
        grace = metadata.get("deletionGracePeriodSeconds")
        yield _field("Terminating", f"since {age(metadata['deletionTimestamp'], now_s)}, grace period {grace} s")
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            yield _field("Controlled by", f"{owner.get('kind')}/{owner.get('name')}")


# --- pods ---


def _pod(document: JsonObject, now_s: float) -> Iterator[str]:
    spec, status = _part(document, "spec"), _part(document, "status")
    yield from _heading(document, now_s)
    yield _field("Node", spec.get("nodeName") or "<none>")
    phase = status.get("phase")
    yield _field("Status", f"{phase} ({status['reason']})" if status.get("reason") else phase)
    if status.get("message"):
        yield _field("Message", status["message"])
    yield _field("IP", status.get("podIP") or "<none>")
    priority = spec.get("priorityClassName")
    yield _field("Priority", f"{spec.get('priority') or 0}{f' ({priority})' if priority else ''}")
    yield _field("QoS Class", status.get("qosClass"))
    yield from _sums(document)
    yield from _resize(document)
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    enforced = conditions.get("Enforced") != "False"
    for title, kind, statuses in (
        ("Init Containers", "initContainers", "initContainerStatuses"),
        ("Containers", "containers", "containerStatuses"),
    ):
        containers = spec.get(kind) or ()
        if containers:
            yield f"{title}:"
        known = {each.get("name"): each for each in status.get(statuses) or ()}
        for container in containers:
            yield from _container(container, known.get(container.get("name")) or {}, now_s, enforced=enforced)
    yield from _conditions(status)
    if spec.get("volumes"):
        yield "Volumes:"
        for volume in spec["volumes"]:
            kinds = ", ".join(key for key in volume if key != "name")
            yield inert(f"  {volume.get('name')}: {kinds}")


def _sums(document: JsonObject) -> Iterator[str]:
    pod, problems = read_as_far(document, Pod)
    if problems:
        return
    requests, limits = pod_requests(pod), pod_limits(pod)
    for title, amounts in (("Requests", requests), ("Limits", limits)):
        cpu, memory = amounts.get(CPU), amounts.get(MEMORY)
        words = [human_cores(cpu.milli)] if cpu is not None else []
        words += [human_bytes(memory.value)] if memory is not None else []
        yield _field(title, ", ".join(words) or "none")


def _resize(document: JsonObject) -> Iterator[str]:
    if _part(document, "status").get("phase") != "Running":
        return
    found = progress(document)
    if found.stage != "reported":
        yield _field("Resize", f"{found.stage}{f': {found.message}' if found.message else ''}")


def _container(container: JsonObject, status: JsonObject, now_s: float, *, enforced: bool) -> Iterator[str]:
    """`enforced`: whether the node writes limits at all."""
    yield inert(f"  {container.get('name')}:")
    yield _field("Image", container.get("image"), 4)
    if container.get("command"):
        yield _field("Command", " ".join(map(str, container["command"])), 4)
    if container.get("args"):
        yield _field("Args", " ".join(map(str, container["args"])), 4)
    if status.get("containerID"):
        yield _field("Container ID", status["containerID"], 4)
    yield from _state("State", _part(status, "state"), now_s)
    if status.get("lastState"):
        yield from _state("Last State", status["lastState"], now_s)
    if status:
        yield _field("Ready", status.get("ready"), 4)
        yield _field("Restarts", status.get("restartCount"), 4)
    resources = _part(container, "resources")
    for title, amounts in (
        ("Limits", resources.get("limits")),
        ("Requests", resources.get("requests")),
        ("Allocated", status.get("allocatedResources")),
        ("In the kernel" if enforced else "Not enforced", _actual(_part(status, "resources"))),
    ):
        if amounts:
            written = (
                f"{name} {_readable(str(amount)) if str(amount).isdecimal() else amount}"
                for name, amount in amounts.items()
            )
            yield _field(title, ", ".join(written), 4)
    policies = [
        f"{each.get('resourceName')} {each.get('restartPolicy')}" for each in container.get("resizePolicy") or ()
    ]
    if policies:
        yield _field("Resize policy", ", ".join(policies), 4)


def _actual(resources: JsonObject) -> JsonObject:
    limits = {f"{name} limit": amount for name, amount in (resources.get("limits") or {}).items()}
    return {**(resources.get("requests") or {}), **limits}


def _state(title: str, state: JsonObject, now_s: float) -> Iterator[str]:
    for name, about in state.items():
        about = about or {}
        words = name.capitalize()
        if about.get("reason"):
            words += f", {about['reason']}"
        if "exitCode" in about:
            words += f", exit code {about['exitCode']}"
        if about.get("startedAt"):
            words += f", started {age(about['startedAt'], now_s)} ago"
        if about.get("finishedAt"):
            words += f", ended {age(about['finishedAt'], now_s)} ago"
        yield _field(title, words, 4)
        if about.get("message"):
            yield _field("", about["message"], 4)


def _conditions(status: JsonObject) -> Iterator[str]:
    rows = [
        [
            inert(f"  {each.get('type')}"),
            inert(str(each.get("status"))),
            inert(str(each.get("reason") or "")),
            inert(" ".join(str(each.get("message") or "").split())),
        ]
        for each in status.get("conditions") or ()
    ]
    if rows:
        yield "Conditions:"
        yield from table(rows, ("  Type", "Status", "Reason", "Message"))


# --- nodes ---


def _node(document: JsonObject, pods: Sequence[JsonObject], now_s: float) -> Iterator[str]:
    spec, status = _part(document, "spec"), _part(document, "status")
    yield from _heading(document, now_s)
    taints = [f"{each.get('key')}={each.get('value') or ''}:{each.get('effect')}" for each in spec.get("taints") or ()]
    yield _field("Taints", ", ".join(taints) or "<none>")
    yield _field("Unschedulable", bool(spec.get("unschedulable")))
    if (_part(document, "metadata").get("annotations") or {}).get(SIMULATED):
        yield _field("Limits", "not enforced: this node cannot write cgroups")
    for each in status.get("addresses") or ():
        yield _field(str(each.get("type")), each.get("address"))
    yield from _conditions(status)
    for title in ("capacity", "allocatable"):
        yield f"{title.capitalize()}:"
        amounts = _part(status, title)
        yield from table([[inert(f"  {name}"), inert(_readable(str(amount)))] for name, amount in amounts.items()])
    info = _part(status, "nodeInfo")
    for title, key in (
        ("Kubelet", "kubeletVersion"),
        ("Runtime", "containerRuntimeVersion"),
        ("Kernel", "kernelVersion"),
        ("OS", "osImage"),
    ):
        if info.get(key):
            yield _field(title, info[key])
    yield from _allocated(document, pods)


def _allocated(node: JsonObject, pods: Sequence[JsonObject]) -> Iterator[str]:
    """The requests and limits of each pod and in total, compared with the node's allocatable resources."""
    allocatable = read_amounts(_part(_part(node, "status"), "allocatable"))
    rows, sums = [], {(kind, name): ZERO for kind in ("requests", "limits") for name in (CPU, MEMORY)}
    for document in pods:
        pod, problems = read_as_far(document, Pod)
        if problems:
            continue
        cells = [inert(f"  {pod.metadata.namespace}/{pod.metadata.name}"), inert(str(pod.status.qos_class or ""))]
        for name in (CPU, MEMORY):
            for kind, amounts in (("requests", pod_requests(pod)), ("limits", pod_limits(pod))):
                amount = amounts.get(name, ZERO)
                sums[kind, name] += amount
                cells.append(_share(name, amount, allocatable.get(name, ZERO)))
        rows.append(cells)
    yield f"Pods: {len(pods)}"
    if rows:
        total = ["  total", ""]
        for name in (CPU, MEMORY):
            for kind in ("requests", "limits"):
                total.append(_share(name, sums[kind, name], allocatable.get(name, ZERO)))
        head = ("  Pod", "QoS", "CPU requests", "CPU limits", "Memory requests", "Memory limits")
        yield from table([*rows, total], head)


def _readable(amount: str) -> str:
    """`16318480Ki` as `15.5 GiB`, `1073741824` as `1.0 GiB`; -o json has the exact text."""
    whole = read_amounts({"": amount}).get("")
    return human_bytes(whole.value) if whole is not None and (amount.endswith("i") or whole.value >= MIB) else amount


def read_amounts(amounts: JsonObject) -> Any:
    from plimsoll.errors import InvalidQuantityError
    from plimsoll.rules.quantity import QUANTITIES

    found = {}
    for name, text in amounts.items():
        try:
            found[name] = QUANTITIES[str(text)]
        except InvalidQuantityError:
            continue
    return found


def _share(name: str, amount: Any, whole: Any) -> str:
    if not amount:
        return "-"
    percent = f" ({amount.nanos * 100 // whole.nanos} %)" if whole else ""
    return (human_cores(amount.milli) if name == CPU else human_bytes(amount.value)) + percent


# --- anything else ---


def _listed(value: Any, depth: int) -> Iterator[str]:
    blank = "  " * depth
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _HIDDEN:
                continue
            if isinstance(item, dict | list) and item:
                yield f"{blank}{inert(str(key))}:"
                yield from _listed(item, depth + 1)
            else:
                yield f"{blank}{inert(str(key))}: {inert(_scalar(item))}"
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                yield f"{blank}-"
                yield from _listed(item, depth + 1)
            else:
                yield f"{blank}- {inert(_scalar(item))}"


def _event_lines(events: Sequence[JsonObject], now_s: float) -> Iterator[str]:
    if not events:
        yield _field("Events", "<none>")
        return
    yield "Events:"
    rows = [
        [
            f"  {inert(str(each.get('type') or ''))}",
            inert(str(each.get("reason") or "")),
            when(each, now_s),
            inert(str((each.get("source") or {}).get("component") or each.get("reportingComponent") or "")),
            message(each),
        ]
        for each in events
    ]
    yield from table(rows, ("  Type", "Reason", "Age", "From", "Message"))


def _map(title: str, values: Any) -> Iterator[str]:
    pairs = [f"{key}={value}" for key, value in values.items()] if isinstance(values, dict) else []
    for index, pair in enumerate(pairs or ["<none>"]):
        yield _field(title if index == 0 else "", pair)


def _field(title: str, value: Any, indent: int = 0) -> str:
    head = f"{title}:" if title else ""
    start = f"{' ' * indent}{inert(head):<{max(LABEL - indent, 1)}} "
    return f"{start}{hanging(inert(_scalar(value)), len(start))}".rstrip()


def _scalar(value: Any) -> str:
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, dict | list):
        return "<none>" if not value else str(value)
    return str(value)


def _part(document: JsonObject, name: str) -> JsonObject:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


@console.command("describe", cls=Verb)
@console.argument("words", nargs=-1, type=ObjectWords(), metavar="KIND [NAME...] | KIND/NAME...")
@file_options(required=False)
@cluster_options
@selector_options(every=False)
@console.option("--show-events/--no-events", default=True, help="Events of each object.  [default: true]")
def describe(words: tuple[str, ...], **options: Any) -> int:
    """Show details of objects and their events. Exit code 1 if an object does not exist.

    \b
    Examples:
      plimsoll describe pod web
      plimsoll describe node/n1
      plimsoll describe deployments
    """
    return answered(options, lambda cluster: _describe(cluster, words, options))


async def _describe(cluster: ClusterClient, words: tuple[str, ...], options: dict[str, Any]) -> int:
    printed = False
    for kind, document in await _objects(cluster, words, options):
        events = await _events(cluster, kind, document) if options["show_events"] else None
        pods = await _pods_of(cluster, document) if kind.kind == "Node" else []
        if printed:
            console.echo("\n")
        owners = await owner_lines(cluster, document) if kind.kind == "Node" else ()
        for line in described(kind.kind, document, events, pods, time.time(), owners):
            console.echo(line)
        printed = True
    if not printed:
        where = "" if options["all_namespaces"] else f" in {inert(cluster.namespace)} namespace."
        console.echo(f"No resources found{where}", err=True)
    return 0


async def _objects(
    cluster: ClusterClient, words: tuple[str, ...], options: dict[str, Any]
) -> list[tuple[DiscoveredKind, JsonObject]]:
    from plimsoll.kube.request import get

    found: list[tuple[DiscoveredKind, JsonObject]] = []
    for each in await named(cluster, words, options):
        kind = each.kind
        if each.name:
            found.append((kind, await cluster.ask(get(kind.resource, each.name, each.namespace))))
        else:
            kind_fields = {"apiVersion": kind.api_version, "kind": kind.kind}
            found += [(kind, {**kind_fields, **item}) for item in await listed(cluster, each, options)]
    return found


async def _events(cluster: ClusterClient, kind: DiscoveredKind, document: JsonObject) -> list[JsonObject]:
    from plimsoll.cli.printers import event_order
    from plimsoll.kube.request import EVENTS, listing

    metadata = document.get("metadata") or {}
    fields = f"involvedObject.kind={kind.kind},involvedObject.name={metadata.get('name')}"
    if kind.namespaced and metadata.get("uid"):
        fields += f",involvedObject.uid={metadata['uid']}"
    listed = await cluster.ask(listing(EVENTS, namespace=str(metadata.get("namespace") or ""), fields=fields))
    return sorted(listed.get("items") or (), key=event_order)


async def _pods_of(cluster: ClusterClient, node: JsonObject) -> list[JsonObject]:
    from plimsoll.kube.request import PODS, listing

    found = await cluster.ask(listing(PODS, fields=f"spec.nodeName={node['metadata']['name']}"))
    return [each for each in found.get("items") or () if _phase(each) not in ("Succeeded", "Failed")]


def _phase(pod: JsonObject) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
