"""Command lines: commands with options and arguments, their help pages, and completion in shells.

In place of a library, because most of the time of a short command was its import.
"""

from __future__ import annotations

from plimsoll.cli.console.commands import (
    Command,
    Context,
    Group,
    argument,
    command,
    get_current_context,
    group,
    option,
    pass_context,
    pass_obj,
)
from plimsoll.cli.console.errors import INTERRUPTED, BadParameterError, CommandError, NoArgumentsError, UsageError
from plimsoll.cli.console.output import confirm, echo, open_file
from plimsoll.cli.console.parameters import (
    Argument,
    Choice,
    Completion,
    FloatRange,
    IntRange,
    Option,
    Parameter,
    ParamType,
    Path,
)

__all__ = [
    "INTERRUPTED",
    "Argument",
    "BadParameterError",
    "Choice",
    "Command",
    "CommandError",
    "Completion",
    "Context",
    "FloatRange",
    "Group",
    "IntRange",
    "NoArgumentsError",
    "Option",
    "ParamType",
    "Parameter",
    "Path",
    "UsageError",
    "argument",
    "command",
    "confirm",
    "echo",
    "get_current_context",
    "group",
    "open_file",
    "option",
    "pass_context",
    "pass_obj",
]
