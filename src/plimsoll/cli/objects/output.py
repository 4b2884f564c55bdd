"""The values of `-o` that print objects: json, yaml, name, jsonpath and custom-columns, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from plimsoll.cli import console
from plimsoll.cli.failure import FailedError
from plimsoll.cli.printers import Columns, shown, without_managed_fields
from plimsoll.cli.terminal import inert, on_terminal
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import QUANTITIES

if TYPE_CHECKING:
    from plimsoll.codec.jsonpath.template import JsonPath

Command = TypeVar("Command", bound=Callable[..., Any])
PLAIN = ("json", "yaml", "name")
TEMPLATES = ("jsonpath", "jsonpath-as-json", "jsonpath-file", "custom-columns", "custom-columns-file")


class OutputFormat(msgspec.Struct, frozen=True):
    form: str
    argument: str = ""


class OutputParam(console.ParamType[OutputFormat]):
    """`json`, or a form with an argument such as `jsonpath={.metadata.name}`; `forms` are those that the verb has."""

    name = "output"

    def __init__(self, *forms: str) -> None:
        self._forms = forms

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> OutputFormat:
        if isinstance(value, OutputFormat):
            return value
        form, equals, argument = str(value).partition("=")
        if form not in self._forms:
            if form.startswith("go-template"):
                self.fail("go-template is not supported: use jsonpath or custom-columns", param, ctx)
            self.fail(f"{form!r} is not one of {', '.join(self._forms)}", param, ctx)
        if bool(equals) != (form in TEMPLATES):
            self.fail(f"write {form}=…" if not equals else f"{form} has no argument", param, ctx)
        return OutputFormat(form, argument)


def output_option(*forms: str) -> Callable[[Command], Command]:
    shown = "|".join(f"{form}=…" if form in TEMPLATES else form for form in forms)
    return console.option("-o", "--output", type=OutputParam(*forms), metavar=shown, help="[default: text]")


class ObjectPrinter:
    """Prints whole objects in one format; columns of `custom-columns` are as wide as the widest cell so far."""

    def __init__(
        self, output: OutputFormat, *, headers: bool = True, allow_missing: bool = True, managed: bool = False
    ) -> None:
        self._form, argument = output.form, output.argument
        self._managed, self._headers, self._columns = managed, headers, Columns()
        self._fields: list[tuple[str, JsonPath]] = []
        if self._form.endswith("-file"):
            argument = _content(argument)
        if self._form.startswith("jsonpath"):
            self._template, self._path = argument, _parsed(argument, allow_missing)
        elif self._form.startswith("custom-columns"):
            specs = _from_file(argument) if self._form.endswith("-file") else _from_option(argument)
            self._fields = [(head, _relaxed(path)) for head, path in specs]

    @property
    def each(self) -> bool:
        """Whether every object is printed by itself, not the list of them."""
        return self._form == "name" or bool(self._fields)

    def document(self, document: JsonObject) -> None:
        """One object, or a list as one document."""
        if not self._form.startswith("jsonpath"):
            console.echo(shown(document if self._managed else without_managed_fields(document), self._form))
            return
        text = self._executed(document)
        console.echo("\n".join(map(inert, text.split("\n"))) if on_terminal() else text, nl=False)

    def objects(self, documents: Sequence[tuple[str, JsonObject]]) -> None:
        """Objects, each with its title such as `pod/web`."""
        if self._form == "name":
            for title, _ in documents:
                console.echo(inert(title))
            return
        cells = [[_cell(path, document) for _, path in self._fields] for _, document in documents]
        if self._headers:
            cells.insert(0, [inert(head) for head, _ in self._fields])
            self._headers = False
        for line in self._columns.lines(cells):
            console.echo(line)

    def _executed(self, document: JsonObject) -> str:
        from plimsoll.codec.jsonpath.parser import TemplateError

        try:
            if self._form != "jsonpath-as-json":
                return self._path.printed(document)
            return "".join(shown(values, "json") + "\n" for values in self._path.results(document))
        except TemplateError as error:
            raise FailedError(f'error: error executing jsonpath "{self._template}": {error}') from None


def _parsed(template: str, allow_missing: bool) -> JsonPath:
    from plimsoll.codec.jsonpath.parser import TemplateError
    from plimsoll.codec.jsonpath.template import JsonPath

    try:
        return JsonPath(template, allow_missing=allow_missing)
    except TemplateError as error:
        raise FailedError(f"error: error parsing jsonpath {template}, {error}") from None


def _relaxed(path: str) -> JsonPath:
    from plimsoll.codec.jsonpath.parser import TemplateError, relaxed

    try:
        template = relaxed(path)
    except TemplateError as error:
        raise FailedError(f"error: {error}") from None
    return _parsed(template, allow_missing=True)


def _content(file: str) -> str:
    with console.open_file(file) as stream:
        return str(stream.read())


def _from_option(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        head, colon, path = part.partition(":")
        if not colon:
            expected = "expected <header>:<json-path-expr>"
            raise FailedError(f"error: unexpected custom-columns spec: {part}, {expected}")
        yield head, path


def _from_file(text: str) -> Iterator[tuple[str, str]]:
    """Headers in the first line, paths in the second."""
    lines = text.splitlines()
    heads, paths = lines[0].split() if lines else [], lines[1].split() if len(lines) > 1 else []
    if not heads:
        line = (
            "missing header line. Expected format is one line of space separated headers, one line of space separated"
        )
        raise FailedError(f"error: invalid template, {line} column specs.")
    if len(heads) != len(paths):
        raise FailedError(
            f"error: number of headers ({len(heads)}) and field specifications ({len(paths)}) don't match"
        )
    return zip(heads, paths, strict=True)


def _cell(path: JsonPath, document: JsonObject) -> str:
    from plimsoll.codec.golang.fmt import go_printed
    from plimsoll.codec.jsonpath.parser import TemplateError

    try:
        results = path.results(document)
    except TemplateError as error:
        raise FailedError(f"error: {error}") from None
    texts = [] if results and results[0] else ["<none>"]
    return inert(",".join([*texts, *(go_printed(value) for values in results for value in values)]))


def sort_key(path: str, documents: Sequence[JsonObject]) -> Callable[[JsonObject], Any]:
    """A key for `sorted`: numbers and quantities by amount; objects without the field come first."""
    template = _relaxed(path)

    def value_of(document: JsonObject) -> Any:
        results = template.results(document)
        return results[0][0] if results and results[0] else None

    if documents and all(value_of(each) is None for each in documents):
        raise FailedError(f'error: couldn\'t find any field with path "{path}" in the list of objects')
    key = cmp_to_key(_order)
    return lambda document: key(value_of(document))


def _order(one: Any, other: Any) -> int:
    return _is_less(other, one) - _is_less(one, other)


def _is_less(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is None and other is not None
    if isinstance(one, str) and isinstance(other, str):
        try:
            return QUANTITIES[one] < QUANTITIES[other]
        except InvalidQuantityError:
            return one < other
    if type(one) is not type(other) or isinstance(one, dict | list):
        raise FailedError("error: unsortable type: the values of --sort-by must be all numbers or all texts")
    return bool(one < other)
