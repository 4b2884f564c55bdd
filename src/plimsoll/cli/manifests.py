"""Manifests from files, directories and standard input, with every problem by file, document and line.

`read_inputs` reads pods for the verbs that explain. `apply` and `delete` read every object; they send nothing unless
all of it is readable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import read_as_far
from plimsoll.codec.manifests.manifests import FoundPod, Passed, found_pods, path_steps, written_path
from plimsoll.codec.manifests.unknown_fields import unknown_fields
from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read
from plimsoll.errors import FieldError, StructuredError
from plimsoll.rules.explain.refusal import refusal_errors
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.defaulting import admitted, defaulted

SUFFIXES = (".yaml", ".yml", ".json")
MAX_DEPTH = 1000  # kubectl allows 10000; real manifests have less than 100, and depth costs time


class ManifestProblem(msgspec.Struct, frozen=True):
    file: str
    document: int
    line: int | None
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: document {self.document}: {self.text}"


class GivenManifest(msgspec.Struct, frozen=True):
    """One pod from a manifest."""

    found: FoundPod
    pod: Pod
    unreadable: tuple[FieldError, ...]
    file: str
    document: YamlDocument


class Inputs(msgspec.Struct, frozen=True):
    pods: list[GivenManifest]
    problems: list[ManifestProblem]
    passed: list[str]  # documents without a pod, one line each


def read_inputs(names: Sequence[str]) -> Inputs:
    """All pods and all problems in the named files."""
    inputs = Inputs([], [], [])
    for file, data in files_in(names, inputs.problems):
        read_input(file, data, inputs)
    return inputs


def read_input(file: str, data: bytes, inputs: Inputs) -> None:
    """Add the pods and problems in `data`, which is the content of `file`."""
    before = len(inputs.pods) + len(inputs.problems) + len(inputs.passed)
    for index, document in enumerate(read(data, MAX_DEPTH), 1):
        if isinstance(document, YamlError):
            inputs.problems.append(ManifestProblem(file, document.document or index, document.line, document.message))
        else:
            for path, line in document.duplicates:
                inputs.passed.append(f"{file}:{line}: {written_path(path)} is set twice; the last value is used")
            _read_document(file, document, inputs)
    if before == len(inputs.pods) + len(inputs.problems) + len(inputs.passed):
        inputs.passed.append(f"{file}: empty")


def files_in(
    names: Sequence[str], problems: list[ManifestProblem], *, recursive: bool = True
) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if name == "-":
            yield "<stdin>", sys.stdin.buffer.read()
            continue
        for path in _manifests_below(name, recursive) if os.path.isdir(name) else [name]:
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except OSError as error:
                problems.append(ManifestProblem(path, 1, None, error.strerror or str(error)))
            else:
                yield path, data


def _manifests_below(directory: str, recursive: bool) -> list[str]:
    return sorted(
        os.path.join(folder, file)
        for folder, _, files in os.walk(directory)
        for file in files
        if file.endswith(SUFFIXES) and (recursive or folder == directory)
    )


def _read_document(file: str, document: YamlDocument, inputs: Inputs) -> None:
    for found in found_pods(document.value):
        if isinstance(found, Passed):
            if found.is_error:
                inputs.problems.append(ManifestProblem(file, document.index, document.line_of(found.at), found.reason))
            else:
                inputs.passed.append(f"{file}: {found.reason}")
            continue
        pod, unreadable = read_as_far(found.document, Pod)
        for unknown in unknown_fields(found.document):
            if unknown.is_error:
                unreadable.append(FieldError("FieldValueForbidden", unknown.field, unknown.message()))
            else:
                field = found.written(unknown.field)
                line = document.line_of(path_steps(field))
                inputs.passed.append(f"{file}:{line}: {field}: {unknown.message()}")
        inputs.pods.append(GivenManifest(found, admitted(pod), tuple(unreadable), file, document))


def on_node(inputs: Inputs, node: Node | None) -> Inputs:
    """The pods that use resources of the node: not those that have ended or are bound to another node."""
    pods, ended, elsewhere = [], 0, 0
    for given in inputs.pods:
        bound = given.pod.spec.node_name
        if given.pod.status.phase in ("Succeeded", "Failed"):
            ended += 1
        elif node is not None and bound and bound != node.metadata.name:
            elsewhere += 1
        else:
            pods.append(given)
    passed = list(inputs.passed)
    if ended:
        passed.append(f"{ended} pods have ended and use no resources")
    if elsewhere and node is not None:
        passed.append(f"{elsewhere} pods are bound to nodes other than {node.metadata.name}")
    nodes = {given.pod.spec.node_name for given in pods} - {""}
    if node is None and len(nodes) > 1:
        passed.append(
            f"pods of {len(nodes)} nodes are explained as if on one node; --node FILE selects those of one node"
        )
    return Inputs(pods, inputs.problems, passed)


def refused(given: GivenManifest, setting: NodeConfig, desired: Pod | None = None) -> list[ManifestProblem]:
    """The fields of the pod that cannot be read, and what an API server would reject about the rest."""
    gates = setting.policy.gates
    pod = defaulted(given.pod, gates=gates) if desired is None else desired
    return problems_of(refusal_errors(pod, given.unreadable, gates), given.found, given.file, given.document)


def problems_of(
    errors: Sequence[FieldError], found: FoundPod, file: str, document: YamlDocument
) -> list[ManifestProblem]:
    problems = []
    for error in errors:
        field = found.written(error.field)
        line = document.line_of(path_steps(field))
        text = f"{field}: {error.message()}" if field else error.message()
        problems.append(ManifestProblem(file, document.index, line, text))
    return sorted(problems, key=lambda problem: problem.line or 0)


class ManifestsError(StructuredError):
    problems: Sequence[ManifestProblem]
    consequence: str = "nothing was sent"

    def __str__(self) -> str:
        return f"{self.consequence}:\n" + "\n".join(map(str, self.problems))


class Manifest(msgspec.Struct, frozen=True):
    document: JsonObject
    file: str

    @property
    def name(self) -> str:
        """Empty if the server generates it."""
        return str(self.document["metadata"].get("name") or "")

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace") or "")

    @property
    def api_version(self) -> str:
        return str(self.document["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.document["kind"])


def read_manifests(names: Sequence[str], *, recursive: bool = False, generated_names: bool = False) -> list[Manifest]:
    """All objects; raises ManifestsError with all problems. `generated_names`: the server may choose the name."""
    problems: list[ManifestProblem] = []
    found: list[Manifest] = []
    for file, data in files_in(names, problems, recursive=recursive):
        for index, document in enumerate(read(data, MAX_DEPTH), 1):
            if isinstance(document, YamlError):
                problems.append(ManifestProblem(file, document.document or index, document.line, document.message))
                continue
            for each in _objects(document.value):
                wrong = _problem(each, generated_names)
                if wrong:
                    problems.append(ManifestProblem(file, document.index, document.line, wrong))
                else:
                    found.append(Manifest(each, file))
    if not found and not problems:
        raise ManifestsError([ManifestProblem(", ".join(names), 1, None, "contains no object")])
    if problems:
        raise ManifestsError(problems)
    return found


def _objects(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and isinstance(value.get("items"), list) and str(value.get("kind")).endswith("List"):
        for each in value["items"]:
            yield from _objects(each)
    elif value is not None:
        yield value


def _problem(value: Any, generated_names: bool) -> str:
    if not isinstance(value, dict):
        return "not an object"
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            return f"{field} is missing"
    metadata = value.get("metadata")
    if generated_names and isinstance(metadata, dict) and isinstance(metadata.get("generateName"), str):
        return ""
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return "metadata.name is missing: apply and delete need a name"
    return ""
