"""`plimsoll label` and `plimsoll annotate`: change or list the labels and annotations of objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.failure import FailedError
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.files import file_options
from plimsoll.cli.objects.output import PLAIN, ObjectPrinter, output_option
from plimsoll.cli.objects.selection import ObjectName, selected, selector_options
from plimsoll.cli.terminal import inert
from plimsoll.cli.verb import Verb, dry_run_option, dry_run_query, dry_run_words
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHANGE_CAUSE = "kubernetes.io/change-cause"  # kubectl always overwrites it


class Change(msgspec.Struct, frozen=True):
    """`key=value` and `key-` of the command line."""

    values: dict[str, str]
    removed: tuple[str, ...]

    def of(self, before: Mapping[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in before.items() if key not in self.removed}
        return {**kept, **self.values}

    def patch(self) -> dict[str, str | None]:
        return {**dict.fromkeys(self.removed), **self.values}


def parted(words: tuple[str, ...]) -> tuple[tuple[str, ...], Change]:
    """The objects, and the changes that follow them."""
    first = next((index for index, word in enumerate(words) if "=" in word or word.endswith("-")), len(words))
    pairs = words[first:]
    values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    removed = tuple(pair.removesuffix("-") for pair in pairs if "=" not in pair and pair.endswith("-"))
    wrong = [pair for pair in pairs if pair.startswith("=") or ("=" not in pair and not pair.endswith("-"))]
    if wrong:
        raise console.UsageError(f"{wrong[0]!r}: a change is KEY=VALUE or KEY-, after the objects")
    if both := sorted(set(values) & set(removed)):
        raise console.UsageError(f"{both[0]!r} cannot be both set and removed")
    return words[:first], Change(values, removed)


def _options(command: Any) -> Any:
    for option in reversed(
        (
            console.argument("words", nargs=-1, type=ObjectWords(), metavar="KIND NAME... KEY=VALUE|KEY-..."),
            file_options(required=False),
            cluster_options,
            selector_options(),
            console.option("--overwrite", is_flag=True, help="Replace a value that exists."),
            console.option("--list", "listing", is_flag=True, help="List them instead."),
            dry_run_option(),
            output_option(*PLAIN),
        )
    ):
        command = option(command)
    return command


@console.command("label", cls=Verb)
@_options
def label(words: tuple[str, ...], **options: Any) -> int:
    """Set, replace or remove labels.

    \b
    Examples:
      plimsoll label pod web tier=front
      plimsoll label pod web tier=back --overwrite
      plimsoll label pods --all tier-
      plimsoll label pod web --list
    """
    return _run("label", words, options)


@console.command("annotate", cls=Verb)
@_options
def annotate(words: tuple[str, ...], **options: Any) -> int:
    """Set, replace or remove annotations.

    \b
    Examples:
      plimsoll annotate pod web owner=shop
      plimsoll annotate pod web owner-
      plimsoll annotate pod web --list
    """
    return _run("annotation", words, options)


def _run(what: str, words: tuple[str, ...], options: dict[str, Any]) -> int:
    objects, change = parted(words)
    if not options["listing"] and not change.patch():
        raise FailedError(f"error: at least one {what} update is required")
    printer = None if options["output"] is None else ObjectPrinter(options["output"])
    work = _list if options["listing"] else _change

    async def each(cluster: ClusterClient) -> int:
        for name in await selected(cluster, objects, options):
            await work(cluster, name, what, change, printer, options)
        return 0

    return answered(options, each)


async def _list(cluster: ClusterClient, name: ObjectName, what: str, *_: object) -> None:
    for key, value in sorted(_values(await _read(cluster, name), what).items()):
        console.echo(
            inert(f"{key}={value}") if "\n" not in value else "\n".join(map(inert, f"{key}={value}".split("\n")))
        )


async def _change(
    cluster: ClusterClient,
    name: ObjectName,
    what: str,
    change: Change,
    printer: ObjectPrinter | None,
    options: dict[str, Any],
) -> None:
    from plimsoll.kube.request import MERGE, patch, with_query

    before = await _read(cluster, name)
    values = _values(before, what)
    if not options["overwrite"]:
        REFUSALS[what](values, change)
    if what == "label":
        for key in change.removed:
            if key not in values:
                console.echo(f'label "{inert(key)}" not found.')
    changed = {**before, "metadata": {**before["metadata"], f"{what}s": change.of(values)}}
    if options["dry_run"] != "client":
        body = {"metadata": {f"{what}s": change.patch()}}
        request = patch(name.kind.resource, name.name, body, name.namespace, content_type=MERGE)
        path = with_query(request.path, [("fieldManager", "plimsoll"), *dry_run_query(options["dry_run"]).items()])
        changed = await cluster.ask(msgspec.structs.replace(request, path=path))
    if printer is None:
        done = "annotated" if what == "annotation" else _labelled(values, change.of(values), options["overwrite"])
        console.echo(f"{inert(str(name))} {done}{dry_run_words(options['dry_run'])}")
    elif printer.each:
        printer.objects([(str(name), changed)])
    else:
        printer.document(changed)


async def _read(cluster: ClusterClient, name: ObjectName) -> JsonObject:
    from plimsoll.kube.request import get

    return await cluster.ask(get(name.kind.resource, name.name, name.namespace))


def _values(document: JsonObject, what: str) -> dict[str, str]:
    return (document.get("metadata") or {}).get(f"{what}s") or {}


def _labelled(before: dict[str, str], after: dict[str, str], overwrite: bool) -> str:
    """kubectl compares the lengths of both objects."""
    if before == after:
        return "not labeled"
    shorter = len(msgspec.json.encode(after)) < len(msgspec.json.encode(before))
    return "unlabeled" if shorter and not overwrite else "labeled"


def _refuse_labels(before: Mapping[str, str], change: Change) -> None:
    for key, value in change.values.items():
        if before.get(key, value) != value:
            raise FailedError(f"error: '{key}' already has a value ({before[key]}), and --overwrite is false")


def _refuse_annotations(before: Mapping[str, str], change: Change) -> None:
    wrong = [
        f"'{key}' already has a value ({before[key]})"
        for key, value in change.values.items()
        if key != CHANGE_CAUSE and before.get(key, value) != value
    ]
    if wrong:
        found = "--overwrite is false but found the following declared annotation(s)"
        raise FailedError(f"error: {found}: {'; '.join(wrong)}")


REFUSALS: dict[str, Callable[[Mapping[str, str], Change], None]] = {
    "label": _refuse_labels,
    "annotation": _refuse_annotations,
}
