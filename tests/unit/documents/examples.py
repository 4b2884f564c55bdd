"""The examples of the documents, the node they are explained for, and short names for what Plimsoll makes of them.

Everything here takes a file name (below examples/documents, or `examples/…`) or a document that a check has changed. The
node is document 004's with its kubelet configuration, unless a check asks for another.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.main import main
from plimsoll.codec.lean.lean import from_document
from plimsoll.codec.yaml.reader import YamlDocument, read
from plimsoll.errors import FieldError, InvalidConfigsError
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.cgroups.desired import Cgroup, Workload, desired_tree, workload
from plimsoll.rules.config.parse import ParsedConfig, reading
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import Node, Pod, ResourceList
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.resources.defaulting import defaulted

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
DOCUMENTS = EXAMPLES / "documents"
EXPECTED = DOCUMENTS / "expected.yaml"

VERSIONS: tuple[CgroupVersion, ...] = (1, 2)
DRIVERS = ("cgroupfs", "systemd")
UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"  # document 002's


@cache
def documents_in(file: Path) -> tuple[Any, ...]:
    found = []
    for each in read(file.read_bytes()):
        assert isinstance(each, YamlDocument), f"{file.name}: {each}"
        found.append(each.value)
    return tuple(found)


def manifest(name: str) -> Any:
    """One document, to be changed at will: of `documents/`, or of `examples/` if it says so."""
    folder = EXAMPLES if name.startswith("examples/") else DOCUMENTS
    (document,) = documents_in(folder / name.removeprefix("examples/"))
    return copy.deepcopy(document)


def container(document: Any, name: str) -> Any:
    return next(each for each in document["spec"]["containers"] if each["name"] == name)


def lean(document: Any) -> Pod:
    return from_document(document, Pod)


def one_container(requests: Json | None = None, limits: Json | None = None) -> Any:
    return {
        "metadata": {"name": "one", "uid": UID},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}}]},
    }


def read_config(
    name: str | None, profile: str = "documents", gates: Json | None = None, settings: Json | None = None
) -> ParsedConfig:
    document = {} if name is None else manifest(name)
    document = {**document, **(settings or {}), "featureGates": {**document.get("featureGates", {}), **(gates or {})}}
    return reading(document, profile_named(profile))


def node(
    name: str = "004-node.yaml",
    config: str | None = "004-kubelet-config.yaml",
    *,
    profile: str = "documents",
    version: CgroupVersion = 2,
    driver: Any = None,
    runtime: Any = "containerd",
    gates: Json | None = None,
    settings: Json | None = None,
    capacity: Json | None = None,
) -> NodeConfig:
    """The node of document 004 by default."""
    described = from_document(manifest(name), Node)
    return resolved(
        machine_from_capacity({**(described.status.capacity or {}), **amount_list(capacity or {})}),
        read_config(config, profile, gates, settings).config,
        profile_named(profile),
        cgroup_version=version,
        driver=driver,
        runtime=runtime,
    )


def amount(text: Any) -> Quantity:
    return QUANTITIES[str(text)]


def amount_list(texts: Json) -> ResourceList:
    return {name: amount(text) for name, text in texts.items()}


def work(document: Any, setting: NodeConfig | None = None) -> Workload:
    return workload(lean(manifest(document) if isinstance(document, str) else document), setting or node())


def tree(setting: NodeConfig, *documents: Any) -> Cgroup:
    """The node with these pods on it, named by file or given as documents."""
    return desired_tree([work(each, setting) for each in documents], setting)


def cgroups(top: Cgroup) -> Iterator[Cgroup]:
    yield top
    for child in top.children:
        yield from cgroups(child)


def at(top: Cgroup, level: str, name: str = "") -> Cgroup:
    """The one cgroup of this level (and name)."""
    (found,) = (each for each in cgroups(top) if each.level == level and name in ("", each.name))
    return found


def written(top: Cgroup) -> list[tuple[str, str, int | str]]:
    """Path, file and value. Pods that have no uid yet share a path, so this is no mapping."""
    return [(each.path, file.name, file.value) for each in cgroups(top) for file in each.files]


def path_of_container(file: str, driver: str, runtime: str = "containerd") -> str:
    return at(tree(node(driver=driver, runtime=runtime), file), "container").path


def explained(*arguments: str) -> str:
    """What `plimsoll explain` prints; it must succeed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["explain", *arguments])
    assert code == 0, err.getvalue()
    return out.getvalue()


def refusal(document: Any) -> list[FieldError]:
    return create_errors(defaulted(lean(document)))


def config_problems(settings: Json) -> dict[str, str]:
    with pytest.raises(InvalidConfigsError) as raised:
        read_config(None, settings=settings)
    return {each.path: each.reason for each in raised.value.errors}
