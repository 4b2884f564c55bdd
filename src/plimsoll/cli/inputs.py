"""Files, directories, standard input → pods, and everything that is wrong with them, with file, document and line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from plimsoll.codec.lean import from_document
from plimsoll.codec.manifests import FoundPod, Passed, found_pods, path_steps
from plimsoll.codec.yaml import Document, YamlError, read
from plimsoll.errors import FieldError, InvalidObject
from plimsoll.rules.defaulting import defaulted
from plimsoll.rules.objects import Pod
from plimsoll.rules.setting import Setting
from plimsoll.rules.validation import create_errors

SUFFIXES = (".yaml", ".yml", ".json")


class Problem(msgspec.Struct, frozen=True):
    file: str
    document: int
    line: int | None
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: document {self.document}: {self.text}"


class Given(msgspec.Struct, frozen=True):
    """One pod as the user wrote it."""

    found: FoundPod
    pod: Pod
    file: str
    document: Document


class Inputs(msgspec.Struct, frozen=True):
    pods: list[Given]
    problems: list[Problem]
    passed: list[str]  # what holds no pod, one line each


def read_inputs(names: Sequence[str]) -> Inputs:
    """Everything readable in the named files; nothing stops at the first error."""
    inputs = Inputs([], [], [])
    for file, data in _files(names, inputs.problems):
        before = len(inputs.pods) + len(inputs.problems) + len(inputs.passed)
        for index, document in enumerate(read(data), 1):
            if isinstance(document, YamlError):
                inputs.problems.append(Problem(file, document.document or index, document.line, document.message))
            else:
                _read_document(file, document, inputs)
        if before == len(inputs.pods) + len(inputs.problems) + len(inputs.passed):
            inputs.passed.append(f"{file}: empty")
    return inputs


def _files(names: Sequence[str], problems: list[Problem]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if name == "-":
            yield "<stdin>", sys.stdin.buffer.read()
            continue
        path = Path(name)
        try:
            if path.is_dir():
                paths = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
            else:
                paths = [path]
            for each in paths:
                yield str(each), each.read_bytes()
        except OSError as error:
            problems.append(Problem(name, 1, None, error.strerror or str(error)))


def _read_document(file: str, document: Document, inputs: Inputs) -> None:
    for found in found_pods(document.value):
        if isinstance(found, Passed):
            if found.is_error:
                inputs.problems.append(Problem(file, document.index, document.line_of(found.at), found.reason))
            else:
                inputs.passed.append(f"{file}: {found.reason}")
            continue
        try:
            pod = from_document(found.document, Pod)
        except InvalidObject as error:
            inputs.problems.extend(problems_of(error.errors, found, file, document))
            continue
        inputs.pods.append(Given(found, pod, file, document))


def refused(given: Given, setting: Setting) -> list[Problem]:
    """What an API server would refuse about the pod."""
    gated = setting.policy.pod_level
    errors = create_errors(defaulted(given.pod, pod_level=gated), pod_level=gated)
    return problems_of(errors, given.found, given.file, given.document)


def problems_of(errors: Sequence[FieldError], found: FoundPod, file: str, document: Document) -> list[Problem]:
    problems = []
    for error in errors:
        field = found.written(error.field)
        line = document.line_of(path_steps(field))
        text = f"{field}: {error.message()}" if field else error.message()
        problems.append(Problem(file, document.index, line, text))
    return problems
