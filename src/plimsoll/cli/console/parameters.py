"""Options and arguments of commands, and the types of their values."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from plimsoll.cli.console.errors import BadParameterError, UsageError

if TYPE_CHECKING:
    from pathlib import Path as FilePath

    from plimsoll.cli.console.commands import Context

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)
Callback = Callable[["Context", "Parameter", Any], Any]
UNSET: Any = object()


class Completion:
    """One word that a shell may insert; `kind` is `file` or `dir` if the shell completes paths itself."""

    __slots__ = ("help", "kind", "word")

    def __init__(self, word: str, help: str = "", kind: str = "plain") -> None:
        self.word, self.help, self.kind = word, help, kind


class ParamType(Generic[Value]):
    """How the text of a value is read. `convert` also gets defaults, which may be converted already."""

    name = "text"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Value:
        raise NotImplementedError

    def fail(self, message: str, param: Parameter | None = None, ctx: Context | None = None) -> NoReturn:
        raise BadParameterError(message, ctx, param)

    def metavar(self, param: Parameter) -> str:
        return self.name.upper()

    def choices_if_missing(self) -> str:
        """What to add to the message if the value is missing."""
        return ""

    def shell_complete(self, ctx: Context, param: Parameter, incomplete: str) -> list[Completion]:
        return []


class Text(ParamType[str]):
    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> str:
        return str(value)


class Choice(ParamType[str]):
    name = "choice"

    def __init__(self, choices: Iterable[str]) -> None:
        self.choices = tuple(choices)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> str:
        if value in self.choices:
            return str(value)
        listed = ", ".join(map(repr, self.choices))
        self.fail(f"{value!r} is not {'one of ' if len(self.choices) > 1 else ''}{listed}.", param, ctx)

    def metavar(self, param: Parameter) -> str:
        listed = "|".join(self.choices)
        return f"{{{listed}}}" if param.required and isinstance(param, Argument) else f"[{listed}]"

    def choices_if_missing(self) -> str:
        return f" Choose from: {', '.join(self.choices)}"

    def shell_complete(self, ctx: Context, param: Parameter, incomplete: str) -> list[Completion]:
        return [Completion(each) for each in self.choices if each.startswith(incomplete)]


class NumberRange(ParamType[Number]):
    """A number from `least` to `most`; `min_open`: more than `least`."""

    number: type[Number]

    def __init__(self, least: Number | None = None, most: Number | None = None, *, min_open: bool = False) -> None:
        self.least: Number | None = least
        self.most: Number | None = most
        self.min_open = min_open

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Number:
        try:
            number: Number = self.number(value)
        except ValueError:
            self.fail(f"{value!r} is not a {'whole ' if self.number is int else ''}number.", param, ctx)
        below = self.least is not None and (number <= self.least if self.min_open else number < self.least)
        if below or (self.most is not None and number > self.most):
            self.fail(f"{number} is not in the range {self.described()}.", param, ctx)
        return number

    def described(self) -> str:
        """`0<=x<=10`; empty for any number."""
        if self.least is None:
            return "" if self.most is None else f"x<={self.most}"
        if self.most is None:
            return f"x{'>' if self.min_open else '>='}{self.least}"
        return f"{self.least}{'<' if self.min_open else '<='}x<={self.most}"


class IntRange(NumberRange[int]):
    name, number = "integer range", int


class FloatRange(NumberRange[float]):
    name, number = "float range", float


class Integer(NumberRange[int]):
    name, number = "integer", int


class Path(ParamType["FilePath"]):
    """A path; what exists there must be of the right kind and readable."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True) -> None:
        self.exists, self.file_okay, self.dir_okay = exists, file_okay, dir_okay
        self.name = "path" if file_okay and dir_okay else "file" if file_okay else "directory"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> FilePath:
        from pathlib import Path as FilePath

        named = f"{self.name.title()} {os.fspath(value)!r}"
        try:
            mode = os.stat(value).st_mode
        except (OSError, ValueError):
            if self.exists:
                self.fail(f"{named} does not exist.", param, ctx)
            return FilePath(value)
        if not self.file_okay and stat.S_ISREG(mode):
            self.fail(f"{named} is a file.", param, ctx)
        if not self.dir_okay and stat.S_ISDIR(mode):
            self.fail(f"{named} is a directory.", param, ctx)
        if not os.access(value, os.R_OK):
            self.fail(f"{named} is not readable.", param, ctx)
        return FilePath(value)

    def shell_complete(self, ctx: Context, param: Parameter, incomplete: str) -> list[Completion]:
        return [Completion(incomplete, kind="file" if self.file_okay else "dir")]


TEXT, INTEGER = Text(), Integer()


class Parameter:
    """What an option and an argument have in common. `multiple`: the value is a tuple."""

    def __init__(
        self,
        name: str,
        *,
        type: ParamType[Any] | type[int] | None = None,
        default: Any = UNSET,
        multiple: bool = False,
        required: bool = False,
        metavar: str = "",
        help: str = "",
        callback: Callback | None = None,
        expose_value: bool = True,
    ) -> None:
        self.name = name
        self.type: ParamType[Any] = TEXT if type is None else type if isinstance(type, ParamType) else INTEGER
        self.default = (() if multiple else None) if default is UNSET else default
        self.multiple, self.required, self.help = multiple, required, help
        self.given_metavar, self.callback, self.expose_value = metavar, callback, expose_value

    def quoted(self) -> str:
        """Its name in messages."""
        raise NotImplementedError

    def missing(self) -> str:
        raise NotImplementedError

    def converted(self, raw: Any, ctx: Context) -> Any:
        """The value of `raw`, which is UNSET if the user has not specified any."""
        value = self.default if raw is UNSET else raw
        try:
            if self.multiple:
                value = tuple(self._one(each, ctx) for each in value or ())
            elif value is not None:
                value = self._one(value, ctx)
            if self.required and value in (None, ()) and not ctx.resilient:
                raise UsageError(f"{self.missing()}{self.type.choices_if_missing()}")
            return value if self.callback is None or ctx.resilient else self.callback(ctx, self, value)
        except UsageError as error:
            if ctx.resilient:
                return None
            error.ctx = error.ctx or ctx
            if isinstance(error, BadParameterError):
                error.param = error.param or self
            raise

    def _one(self, value: Any, ctx: Context) -> Any:
        return self.type.convert(value, self, ctx)


class Option(Parameter):
    """`--name`, `-n`, a flag `--wait/--no-wait`; a declaration without dashes is the name of the value."""

    def __init__(
        self,
        *declarations: str,
        is_flag: bool = False,
        default: Any = UNSET,
        show_default: bool | str = False,
        hidden: bool = False,
        **attributes: Any,
    ) -> None:
        name, self.opts, self.secondary_opts = "", list[str](), list[str]()
        for declaration in declarations:
            if not declaration.startswith("-"):
                name = declaration
                continue
            on, slash, off = declaration.partition("/")
            self.opts.append(on)
            if slash:
                self.secondary_opts.append(off)
        self.is_flag = is_flag or bool(self.secondary_opts)
        self.show_default, self.hidden = show_default, hidden
        if self.is_flag and default is UNSET:
            default = False
        longest_dash = max(self.opts, key=lambda each: each.startswith("--"))
        super().__init__(name or longest_dash.lstrip("-").replace("-", "_"), default=default, **attributes)

    def quoted(self) -> str:
        return " / ".join(map(repr, self.opts))

    def missing(self) -> str:
        return f"Missing option {self.quoted()}."

    def _one(self, value: Any, ctx: Context) -> Any:
        return bool(value) if self.is_flag else self.type.convert(value, self, ctx)

    def term(self) -> str:
        """The left column of the help page."""
        names = ", ".join(sorted(self.opts, key=lambda each: each.startswith("--")))
        if self.is_flag:
            return " / ".join([names, *self.secondary_opts])
        return f"{names} {self.given_metavar or self.type.metavar(self)}"

    def definition(self) -> str:
        extra = [f"default: {shown}"] if (shown := self._shown_default()) else []
        if isinstance(self.type, NumberRange) and (described := self.type.described()):
            extra.append(described)
        if self.required:
            extra.append("required")
        return "  ".join(filter(None, (self.help, f"[{'; '.join(extra)}]" if extra else "")))

    def _shown_default(self) -> str:
        if isinstance(self.show_default, str):
            return f"({self.show_default})"
        if not self.show_default or self.default is None:
            return ""
        if self.is_flag:
            return next(iter(self.opts if self.default else self.secondary_opts), "").lstrip("-")
        return str(self.default) or '""'


class Argument(Parameter):
    """Required unless it has a default or takes any number of words (`nargs=-1`)."""

    def __init__(
        self, name: str, *, nargs: int = 1, required: bool | None = None, default: Any = UNSET, **attributes: Any
    ) -> None:
        needed = (nargs == 1 and default is UNSET) if required is None else required
        super().__init__(name, multiple=nargs != 1, required=needed, default=default, **attributes)

    def metavar(self) -> str:
        if self.given_metavar:
            return self.given_metavar
        text = self.type.metavar(self) if isinstance(self.type, Choice) else self.name.upper()
        text = text if self.required or text.startswith("[") else f"[{text}]"
        return f"{text}..." if self.multiple else text

    def quoted(self) -> str:
        return f"'{self.metavar()}'"

    def missing(self) -> str:
        return f"Missing argument {self.quoted()}."
