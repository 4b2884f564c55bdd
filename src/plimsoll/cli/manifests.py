"""Manifests from files, directories and standard input, with every problem by file, document and line.

`read_inputs` reads pods as they are written, `stored_inputs` as an API server stores them. `apply` and `delete` read
every object; they send nothing unless all of it is readable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.codec.manifests.admitted_pods import AdmittedPod, Classes, admitted_pod, found_classes
from plimsoll.codec.manifests.fragments import Completed, fragment, named, with_list_items
from plimsoll.codec.manifests.manifests import FoundPod, found_pods, path_steps, written_path
from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read
from plimsoll.errors import FieldError, StructuredError
from plimsoll.rules.explain.refusal import refusal_errors
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.model.policies import RuntimeClass
from plimsoll.rules.resources.defaulting import defaulted

SUFFIXES = (".yaml", ".yml", ".json")
_KUBELET_SETTINGS = "; these are settings of the kubelet: use --config FILE"
MAX_DEPTH = 1000  # kubectl allows 10000; real manifests have less than 100, and depth costs time


class ManifestProblem(msgspec.Struct, frozen=True):
    file: str
    document: int | None  # None: the file as a whole
    line: int | None
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.text}" if self.document is None else f"{where}: document {self.document}: {self.text}"


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


def read_inputs(names: Sequence[str], *, fragments: bool = False, patched: FoundPod | None = None) -> Inputs:
    """All pods and all problems in the named files.

    `fragments`: also parts of pods, with notes of what is assumed. `patched`: a document without a kind is a strategic
    merge patch of this pod.
    """
    inputs = Inputs([], [], [])
    add_inputs(inputs, files_in(names, inputs.problems), fragments=fragments, patched=patched)
    return inputs


def add_inputs(
    inputs: Inputs, files: Iterable[tuple[str, bytes]], *, fragments: bool = False, patched: FoundPod | None = None
) -> None:
    """Add the pods and problems of these files, each a name and its content."""
    found: list[tuple[str, YamlDocument, FoundPod]] = []
    classes = Classes()
    for file, data in files:
        before = len(found) + len(classes) + len(inputs.problems) + len(inputs.passed)
        for index, document in enumerate(_documents(file, data, fragments, inputs.passed), 1):
            if isinstance(document, YamlError):
                inputs.problems.append(
                    ManifestProblem(file, document.document or index, document.line, document.message)
                )
            else:
                for path, line in document.duplicates:
                    inputs.passed.append(f"{file}:{line}: {written_path(path)} is set twice; the last value is used")
                found += [(file, document, each) for each in _pods_in(file, document, inputs, fragments, patched)]
                _add_classes(classes, file, document, inputs)
        if before == len(found) + len(classes) + len(inputs.problems) + len(inputs.passed):
            inputs.passed.append(f"{file}: empty")
    for file, document, each in found:  # after all files: a class may follow its pods
        inputs.pods.append(_given(file, document, admitted_pod(each, classes), inputs.passed))


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
                problems.append(ManifestProblem(path, None, None, error.strerror or str(error)))
            else:
                yield path, data


def _manifests_below(directory: str, recursive: bool) -> list[str]:
    return sorted(
        os.path.join(folder, file)
        for folder, _, files in os.walk(directory)
        for file in files
        if file.endswith(SUFFIXES) and (recursive or folder == directory)
    )


def _is_kubelet_part(value: JsonObject) -> bool:
    from plimsoll.rules.config.table import BY_NAME

    return "kind" not in value and bool(value) and value.keys() <= {name.partition(".")[0] for name in BY_NAME}


def _patched(pod: FoundPod, patch: JsonObject) -> FoundPod:
    from plimsoll.codec.patch.strategic import apply_strategic
    from plimsoll.codec.schema.schema import schema

    return msgspec.structs.replace(pod, document=apply_strategic(schema("v1", "Pod"), pod.document, patch))


def _documents(
    file: str, data: bytes, fragments: bool, passed: list[str]
) -> Iterator[YamlDocument] | list[YamlDocument | YamlError]:
    documents = list(read(data, MAX_DEPTH))
    if fragments and any(isinstance(each, YamlError) for each in documents):
        text, changed = with_list_items(data.decode(errors="replace"))
        repaired = list(read(text.encode(), MAX_DEPTH))
        if changed and not any(isinstance(each, YamlError) for each in repaired):
            lines = ", ".join(map(str, changed))
            passed.append(f"{file}: no YAML: `- ` is assumed before `name:` in line {lines}")
            return repaired
    return documents


def _pods_in(
    file: str, document: YamlDocument, inputs: Inputs, fragments: bool, patched: FoundPod | None
) -> Iterator[FoundPod]:
    if patched is not None and "kind" not in document.value:
        inputs.passed.append(f"{file}: no kind: taken as a patch of {patched.title}")
        yield _patched(patched, document.value)
        return
    part = fragment(document.value) if fragments else None
    for found in found_pods(document.value) if part is None else [part.found]:
        if isinstance(found, FoundPod):
            completed = part or (named(found) if fragments else Completed(found, ()))
            if completed.assumed:
                inputs.passed.append(f"{file}: assumed: {', '.join(completed.assumed)}")
            yield completed.found
        elif found.is_error:
            reason = found.reason + (_KUBELET_SETTINGS if fragments and _is_kubelet_part(document.value) else "")
            inputs.problems.append(ManifestProblem(file, document.index, document.line_of(found.at), reason))
        else:
            where = f"{file}:{document.line_of(found.at)}" if found.is_field else file
            inputs.passed.append(f"{where}: {found.reason}")


def _add_classes(classes: Classes, file: str, document: YamlDocument, inputs: Inputs) -> None:
    for each in found_classes(document.value):
        for error in each.errors:
            line = document.line_of((*each.at, *path_steps(error.field)))
            inputs.problems.append(ManifestProblem(file, document.index, line, str(error)))
        if not each.errors or isinstance(each.found, RuntimeClass):  # a wrong value is no priority
            classes.add(each.found)


def _given(file: str, document: YamlDocument, read: AdmittedPod, passed: list[str]) -> GivenManifest:
    for unknown in read.ignored:
        field = read.found.written(unknown.field)
        passed.append(f"{file}:{document.line_of(path_steps(field))}: {field}: {unknown.message()}")
    passed += [f"{file}: {note}" for note in read.notes]
    return GivenManifest(read.found, read.pod, read.unreadable, file, document)


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


def refused(given: GivenManifest, desired: Pod, gates: Gates, also: Sequence[FieldError] = ()) -> list[ManifestProblem]:
    """The fields of the pod that cannot be read, and what an API server would reject about the defaulted rest.

    `also`: what the node would reject."""
    errors = [*refusal_errors(desired, given.unreadable, gates), *also]
    return problems_of(errors, given.found, given.file, given.document)


class InvalidManifestsError(StructuredError):
    problems: Sequence[ManifestProblem]

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def stored_inputs(
    names: Sequence[str],
    gates: Gates,
    *,
    fragments: bool = False,
    patched: FoundPod | None = None,
    also: Callable[[Pod], Sequence[FieldError]] = lambda _pod: (),
) -> Inputs:
    """The pods as an API server stores them: admitted, defaulted and valid. `also`: what the node would reject.

    For every verb that computes with them: the requests of a pod with limits only exist after defaulting (01 D-1).
    Raises InvalidManifestsError with all problems.
    """
    inputs = read_inputs(names, fragments=fragments, patched=patched)
    problems, pods = list(inputs.problems), []
    for given in inputs.pods:
        stored = defaulted(given.pod, gates=gates)
        problems += refused(given, stored, gates, also(stored))
        pods.append(msgspec.structs.replace(given, pod=stored))
    if problems:
        raise InvalidManifestsError(problems)
    return Inputs(pods, [], inputs.passed)


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
        raise ManifestsError([ManifestProblem(", ".join(names), None, None, "contains no object")])
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
