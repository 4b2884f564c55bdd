"""Manifests for `apply` and `delete`: every object in files, directories or standard input, or everything wrong there.

Nothing is sent while anything is unreadable: a file is applied as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.cli.inputs import MAX_DEPTH, Problem, files_in
from plimsoll.codec.yaml import YamlError, read
from plimsoll.errors import PlimsollError

Document = dict[str, Any]


class UnreadableManifests(PlimsollError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "nothing was sent:\n" + "\n".join(map(str, self.problems))


class Manifest(msgspec.Struct, frozen=True):
    document: Document
    file: str

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace") or "")

    @property
    def api_version(self) -> str:
        return str(self.document["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.document["kind"])


def read_manifests(names: Sequence[str]) -> list[Manifest]:
    """Raises UnreadableManifests with every problem."""
    problems: list[Problem] = []
    found: list[Manifest] = []
    for file, data in files_in(names, problems):
        for index, document in enumerate(read(data, MAX_DEPTH), 1):
            if isinstance(document, YamlError):
                problems.append(Problem(file, document.document or index, document.line, document.message))
                continue
            for each in _objects(document.value):
                wrong = _problem(each)
                if wrong:
                    problems.append(Problem(file, document.index, document.line, wrong))
                else:
                    found.append(Manifest(each, file))
    if not found and not problems:
        raise UnreadableManifests([Problem(", ".join(names), 1, None, "no object in it")])
    if problems:
        raise UnreadableManifests(problems)
    return found


def _objects(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and isinstance(value.get("items"), list) and str(value.get("kind")).endswith("List"):
        for each in value["items"]:
            yield from _objects(each)
    elif value is not None:
        yield value


def _problem(value: Any) -> str:
    if not isinstance(value, dict):
        return "not an object"
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            return f"{field} is missing"
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return "metadata.name is missing: an object is applied and deleted by its name"
    return ""
