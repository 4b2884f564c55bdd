"""What ends a command, with a message for the user."""

from __future__ import annotations

from collections.abc import Iterable

INTERRUPTED = 130  # exit code of shells after Ctrl-C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plimsoll.cli.console.commands import Context
    from plimsoll.cli.console.parameters import Parameter


class CommandError(Exception):
    """The command cannot do what the user wants."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def text(self) -> str:
        return self.message


class UsageError(CommandError):
    """The user must write the command differently. The context, once known, says where to find help."""

    def __init__(self, message: str, ctx: Context | None = None) -> None:
        super().__init__(message)
        self.ctx = ctx


class NoArgumentsError(UsageError):
    """Nothing was specified: the message is the help page."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.command.help_page(ctx), ctx)


class BadParameterError(UsageError):
    """A value is not valid. Either `param` or `param_hint` names the option or argument."""

    def __init__(
        self,
        message: str,
        ctx: Context | None = None,
        param: Parameter | None = None,
        param_hint: str = "",
    ) -> None:
        super().__init__(message, ctx)
        self.param, self.param_hint = param, param_hint

    def text(self) -> str:
        named = self.param_hint or ("" if self.param is None else self.param.quoted())
        return f"Invalid value for {named}: {self.message}" if named else f"Invalid value: {self.message}"


def no_such_option(name: str, known: Iterable[str]) -> UsageError:
    from difflib import get_close_matches

    near = sorted(map(repr, get_close_matches(name, known)))
    advice = {0: "", 1: f" Did you mean {near[0] if near else ''}?"}.get(
        len(near), f" (Did you mean one of: {', '.join(near)}?)"
    )
    return UsageError(f"No such option {name!r}.{advice}")
