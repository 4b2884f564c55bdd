"""Commands and groups of commands: declared with decorators, run with the words of a command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import update_wrapper
from types import TracebackType
from typing import Any, TypeVar

from plimsoll.cli.console.errors import NoArgumentsError, UsageError
from plimsoll.cli.console.parameters import UNSET, Argument, Completion, Option, Parameter
from plimsoll.cli.console.words import Parsed, parse
from plimsoll.cli.help import first_sentence, page, unindented

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made", bound="Command")
Resource = TypeVar("Resource")
_PARAMETERS = "__parameters__"
_current: list[Context] = []


class Context:
    """One run of a command: its name as typed, the values of its parameters, and what to release at the end."""

    def __init__(
        self, command: Command, name: str = "", parent: Context | None = None, *, resilient: bool = False
    ) -> None:
        self.command, self.name, self.parent = command, name, parent
        self.resilient = resilient  # for completion: nothing is refused, and no callback runs
        self.params: dict[str, Any] = {}
        self.given: frozenset[str] = frozenset()  # the parameters that the user has specified
        self.rest: list[str] = []
        self.obj: Any = None if parent is None else parent.obj
        self.invoked_subcommand: str | None = None
        self._resources = ExitStack()

    @property
    def command_path(self) -> str:
        """`plimsoll api token`."""
        return " ".join(filter(None, ("" if self.parent is None else self.parent.command_path, self.name)))

    def with_resource(self, resource: AbstractContextManager[Resource]) -> Resource:
        """Open a resource until the command ends."""
        return self._resources.enter_context(resource)

    def __enter__(self) -> Context:
        _current.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, UsageError) and error.ctx is None:
            error.ctx = self
        _current.pop()
        self._resources.__exit__(kind, error, trace)


def get_current_context() -> Context:
    return _current[-1]


class Command:
    """A function whose keyword arguments are options and arguments.

    `ignore_unknown_options`: they are arguments. `allow_interspersed_args`: options may follow arguments.
    """

    def __init__(
        self,
        name: str,
        callback: Callable[..., Any] | None = None,
        params: Sequence[Parameter] = (),
        *,
        short_help: str = "",
        ignore_unknown_options: bool = False,
        allow_interspersed_args: bool = True,
    ) -> None:
        self.name, self.callback = name, callback
        self.help_option = Option("-h", "--help", is_flag=True, help="Show this message and exit.", expose_value=False)
        self.params = [*params, self.help_option]
        self._short_help = short_help
        self.ignore_unknown_options, self.allow_interspersed_args = ignore_unknown_options, allow_interspersed_args

    @property
    def short_help(self) -> str:
        """Its line in the help page of the group."""
        return self._short_help or first_sentence(self.text)

    @property
    def text(self) -> str:
        return unindented(getattr(self.callback, "__doc__", None) or "")

    def main(self, name: str, words: Sequence[str]) -> Any:
        """Run it; the result of the function."""
        with self.make_context(name, list(words)) as ctx:
            return self.invoke(ctx)

    def make_context(
        self, name: str, args: list[str], parent: Context | None = None, *, resilient: bool = False
    ) -> Context:
        """Parse the words."""
        ctx = Context(self, name, parent, resilient=resilient)
        try:
            self.parse_args(ctx, args)
        except UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        return ctx

    def parse_args(self, ctx: Context, args: list[str]) -> None:
        self.take_values(ctx, parse(self, args, resilient=ctx.resilient))
        if ctx.rest and not ctx.resilient:
            raise UsageError(
                f"Got unexpected extra argument{'s' if len(ctx.rest) > 1 else ''} ({' '.join(ctx.rest)})", ctx
            )

    def take_values(self, ctx: Context, parsed: Parsed) -> None:
        """What the user has specified is converted first, in that order: so the first mistake is reported first."""
        if self.help_option.name in parsed.values and not ctx.resilient:
            print(self.help_page(ctx))
            raise SystemExit(0)
        ctx.given, ctx.rest = frozenset(parsed.values), parsed.rest
        by_name = {each.name: each for each in self.params}
        for name in (*parsed.values, *(each for each in by_name if each not in parsed.values)):
            param = by_name[name]
            value = param.converted(parsed.values.get(name, UNSET), ctx)
            if param.expose_value:
                ctx.params[name] = value

    def invoke(self, ctx: Context) -> Any:
        return None if self.callback is None else self.callback(**ctx.params)

    def help_page(self, ctx: Context) -> str:
        return page(ctx.command_path, self.usage_pieces(), self.text, self.help_sections())

    def usage_pieces(self) -> list[str]:
        return ["[OPTIONS]", *(each.metavar() for each in self.params if isinstance(each, Argument))]

    def help_sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        return [("Options", [(each.term(), each.definition()) for each in self.options() if not each.hidden])]

    def options(self) -> list[Option]:
        return [each for each in self.params if isinstance(each, Option)]

    def shell_complete(self, ctx: Context, incomplete: str) -> list[Completion]:
        """The options that are not yet used."""
        if not incomplete.startswith("-"):
            return []
        return [
            Completion(name, each.help)
            for each in self.options()
            if not each.hidden and (each.multiple or each.name not in ctx.given)
            for name in (*each.opts, *each.secondary_opts)
            if name.startswith(incomplete)
        ]


class Group(Command):
    """Commands below a name. Its own function runs first; `invoke_without_command`: also without a command."""

    def __init__(
        self,
        name: str,
        callback: Callable[..., Any] | None = None,
        params: Sequence[Parameter] = (),
        *,
        invoke_without_command: bool = False,
    ) -> None:
        super().__init__(name, callback, params, allow_interspersed_args=False)
        self.commands: dict[str, Command] = {}
        self.invoke_without_command = invoke_without_command

    def command(
        self, name: str = "", *, cls: type[Command] = Command, **attributes: Any
    ) -> Callable[[Callable[..., Any]], Command]:
        return lambda function: self._added(_made(cls, name, function, attributes))

    def group(self, name: str = "", **attributes: Any) -> Callable[[Callable[..., Any]], Group]:
        return lambda function: self._added(_made(Group, name, function, attributes))

    def _added(self, made: Made) -> Made:
        self.commands[made.name] = made
        return made

    def get_command(self, name: str) -> Command | None:
        return self.commands.get(name)

    def parse_args(self, ctx: Context, args: list[str]) -> None:
        if not args and not self.invoke_without_command and not ctx.resilient:
            raise NoArgumentsError(ctx)
        self.take_values(ctx, parse(self, args, resilient=ctx.resilient))

    def invoke(self, ctx: Context) -> Any:
        if not ctx.rest:
            if not self.invoke_without_command:
                raise UsageError("Missing command.", ctx)
            return super().invoke(ctx)
        name, *words = ctx.rest
        found = self.get_command(name)
        if found is None:
            raise UsageError(f"No such command {name!r}.", ctx)
        ctx.invoked_subcommand = name
        super().invoke(ctx)
        with found.make_context(name, words, ctx) as inner:
            return found.invoke(inner)

    def usage_pieces(self) -> list[str]:
        return [*super().usage_pieces(), "[COMMAND]" if self.invoke_without_command else "COMMAND", "[ARGS]..."]

    def help_sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        listed = [(name, each.short_help) for name, each in sorted(self.commands.items())]
        return [*super().help_sections(), *([("Commands", listed)] if listed else [])]

    def shell_complete(self, ctx: Context, incomplete: str) -> list[Completion]:
        commands = sorted(self.commands.items())
        found = [Completion(name, each.short_help) for name, each in commands if name.startswith(incomplete)]
        return [*found, *super().shell_complete(ctx, incomplete)]


def command(
    name: str = "", *, cls: type[Command] = Command, **attributes: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function; the parameters are those that the decorators below have added."""
    return lambda function: _made(cls, name, function, attributes)


def group(name: str = "", *, cls: type[Group] = Group, **attributes: Any) -> Callable[[Callable[..., Any]], Group]:
    return lambda function: _made(cls, name, function, attributes)


def _made(cls: type[Made], name: str, function: Callable[..., Any], attributes: dict[str, Any]) -> Made:
    params = list(reversed(getattr(function, _PARAMETERS, ())))
    return cls(name or function.__name__.replace("_", "-"), function, params, **attributes)


def option(*declarations: str, cls: type[Option] = Option, **attributes: Any) -> Callable[[Function], Function]:
    return _adding(lambda: cls(*declarations, **attributes))


def argument(name: str, **attributes: Any) -> Callable[[Function], Function]:
    return _adding(lambda: Argument(name, **attributes))


def _adding(make: Callable[[], Parameter]) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        function.__dict__.setdefault(_PARAMETERS, []).append(make())
        return function

    return add


def pass_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """The first argument of the function is the context."""

    def with_context(*args: Any, **options: Any) -> Any:
        return function(get_current_context(), *args, **options)

    return update_wrapper(with_context, function)


def pass_obj(function: Callable[..., Any]) -> Callable[..., Any]:
    """The first argument of the function is what a group has stored in its context."""

    def with_obj(*args: Any, **options: Any) -> Any:
        return function(get_current_context().obj, *args, **options)

    return update_wrapper(with_obj, function)
