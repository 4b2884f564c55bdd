"""Dumps: what was read for an audit, in files, so that it can be audited elsewhere.

    DIR/nodes.json, DIR/pods.json   Lists as `kubectl get … -o json` prints them, without secrets
    DIR/records/NODE.json           what was read on the node itself
    DIR/configz/NODE.json           optional: the output of /configz

Plain output of kubectl in any `*.json` of DIR is read too. Files are readable only by their owner.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.codec.lean.audited_pod import audited_pod, redacted
from plimsoll.codec.lean.lean import from_document, json_document
from plimsoll.errors import InvalidObjectError, PlimsollError
from plimsoll.linux.files.safe_tree import closing_fd
from plimsoll.rules.audit.evidence import AuditedPod, KubeletFacts, NodeEvidence, NodeRecord
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node

RECORDS, CONFIGZ = "records", "configz"
MAX_FILE_BYTES = 1 << 30  # 150,000 pods of 7 KB
_SECRET_SETTINGS = ("staticPodURLHeader",)


class DumpError(PlimsollError):
    """A directory that is not a dump, or that cannot be written."""


class _Item(msgspec.Struct):
    kind: str = ""


class _List(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class Dump(msgspec.Struct):
    nodes: dict[str, Node] = {}
    pods: dict[str, list[AuditedPod]] = {}  # by node
    records: dict[str, NodeRecord] = {}
    configs: dict[str, KubeletFacts] = {}
    problems: list[str] = []
    has_pods: bool = False

    def evidence(self) -> Iterator[NodeEvidence]:
        """One per node; pods without a node are left out."""
        names = dict.fromkeys([*self.nodes, *self.records, *(name for name in self.pods if name)])
        for name in names:
            record = self.records.get(name, NodeRecord())
            if record.kubelet is None and name in self.configs:
                record = msgspec.structs.replace(record, kubelet=self.configs[name])
            pods = tuple(self.pods.get(name, ())) if self.has_pods else None
            yield NodeEvidence(name, record, self.nodes.get(name), pods)


def read_dump(directory: Path) -> Dump:
    """Raises DumpError if there is nothing in it. Objects that cannot be read are in `problems`."""
    if not directory.is_dir():
        raise DumpError(f"{directory}: not a directory; `plimsoll audit --dump DIR` makes one")
    dump = Dump()
    for file in sorted(directory.glob("*.json")):
        _add_file(dump, file)
    for file in sorted((directory / RECORDS).glob("*.json")):
        try:
            dump.records[file.stem] = msgspec.json.decode(_content(file), type=NodeRecord)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DumpError(f"{file}: {error}") from None
    for file in sorted((directory / CONFIGZ).glob("*.json")):
        try:
            document = msgspec.json.decode(_content(file))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DumpError(f"{file}: {error}") from None
        shown = document.get("kubeletconfig") if isinstance(document, dict) else None
        if not isinstance(document, dict):
            raise DumpError(f"{file}: expected the output of /configz or a KubeletConfiguration")
        is_shown = isinstance(shown, dict)
        dump.configs[file.stem] = KubeletFacts(shown if isinstance(shown, dict) else document, "/configz", is_shown)
    if not (dump.nodes or dump.pods or dump.records):
        raise DumpError(
            f"{directory}: no Nodes, Pods or records in it; make it with `plimsoll audit --dump DIR`, or with "
            "`kubectl get nodes -o json > DIR/nodes.json` and `kubectl get pods -A -o json > DIR/pods.json`"
        )
    return dump


def _content(file: Path) -> bytes:
    """Dumps come from other people: a FIFO must not block, and no device or huge file fill the memory."""
    with closing_fd(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise DumpError(f"{file}: not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise DumpError(f"{file}: {status.st_size} bytes; a file of a dump has at most {MAX_FILE_BYTES}")
        with os.fdopen(fd, "rb", closefd=False) as opened:
            return opened.read(status.st_size)


def _add_file(dump: Dump, file: Path) -> None:
    data = _content(file)
    try:
        page = msgspec.json.decode(data, type=_List)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DumpError(f"{file}: {error}") from None
    items = [bytes(item) for item in page.items or ()] if page.kind.endswith("List") else [data]
    default = page.kind.removesuffix("List")
    for index, item in enumerate(items):
        try:
            kind = msgspec.json.decode(item, type=_Item).kind or default
            if kind == "Pod":
                add_pod(dump, item)
            elif kind == "Node":
                node = from_document(json_document(item), Node)
                dump.nodes[node.metadata.name] = node
        except (InvalidObjectError, msgspec.MsgspecError, RecursionError) as error:
            dump.problems.append(f"{file.name}: items[{index}]: {error}")
    # kubectl prints a plain List: without items it may be one of pods, with Nodes alone it is not.
    dump.has_pods |= default == "Pod" or (not default and not items) or bool(dump.pods)


def add_pod(dump: Dump, data: bytes) -> None:
    pod = audited_pod(data)
    dump.pods.setdefault(pod.pod.spec.node_name, []).append(pod)
    dump.has_pods = True


# --- writing ---


def write_dump(
    directory: Path, nodes: Iterable[JsonObject], pods: Iterable[JsonObject], records: Mapping[str, NodeRecord]
) -> None:
    """Raises DumpError if the directory is not empty."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise DumpError(f"{directory}: not empty; name a new directory")
        (directory / RECORDS).mkdir(mode=0o700)
        _write(directory / "nodes.json", {"apiVersion": "v1", "kind": "NodeList", "items": [_node(n) for n in nodes]})
        _write(
            directory / "pods.json", {"apiVersion": "v1", "kind": "PodList", "items": [redacted(pod) for pod in pods]}
        )
        for name, record in records.items():
            if "/" in name or name.startswith("."):
                raise DumpError(f"{name!r} cannot be the name of a file")
            _write(directory / RECORDS / f"{name}.json", without_secrets(record))
    except OSError as error:
        raise DumpError(f"{error.filename or directory}: {error.strerror}") from None


def without_secrets(record: NodeRecord) -> NodeRecord:
    kubelet = record.kubelet
    if kubelet is None:
        return record
    document = {key: value for key, value in kubelet.document.items() if key not in _SECRET_SETTINGS}
    flags = {key: value for key, value in kubelet.flags.items() if key not in _SECRET_SETTINGS}
    return msgspec.structs.replace(record, kubelet=msgspec.structs.replace(kubelet, document=document, flags=flags))


def _node(node: JsonObject) -> JsonObject:
    metadata = {
        key: value for key, value in (node.get("metadata") or {}).items() if key not in ("managedFields", "annotations")
    }
    status = {key: value for key, value in (node.get("status") or {}).items() if key != "images"}
    return {**node, "metadata": metadata, "status": status}


def _write(path: Path, value: Any) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(value))
