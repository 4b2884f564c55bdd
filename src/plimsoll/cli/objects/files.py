"""The options of the verbs that read objects from files: -f, -R and -k."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from plimsoll.cli import console

if TYPE_CHECKING:
    from plimsoll.cli.manifests import Manifest

Command = TypeVar("Command", bound=Callable[..., Any])


def file_options(*, required: bool) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in (
            console.option(
                "-k",
                "--kustomize",
                metavar="DIR",
                expose_value=False,
                callback=_refuse_kustomize,
                help="Not supported: use `kubectl kustomize DIR | plimsoll … -f -`.",
            ),
            console.option("-R", "--recursive", is_flag=True, help="Also read the folders below a directory."),
            console.option(
                "-f",
                "--filename",
                "files",
                multiple=True,
                required=required,
                metavar="FILE|DIR|-",
                help="Objects from files, directories or standard input.",
            ),
        ):
            command = option(command)
        return command

    return add


def _refuse_kustomize(ctx: console.Context, param: console.Parameter, value: str | None) -> None:
    if value is not None:
        name = ctx.command.name
        raise console.UsageError(
            f"-k is not supported: run `kubectl kustomize {value} | plimsoll {name} -f -`, or kustomize build"
        )


def read_files(files: tuple[str, ...], recursive: bool, *, generated_names: bool = False) -> list[Manifest]:
    from plimsoll.cli.manifests import read_manifests

    for file in files:
        if file.startswith(("http://", "https://")):
            raise console.UsageError(f"-f {file}: URLs are not fetched: run `curl -sSfL {file} | plimsoll … -f -`")
    return read_manifests(files, recursive=recursive, generated_names=generated_names)
