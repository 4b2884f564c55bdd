"""Completion in shells: the words that may follow, and the scripts that ask for them.

A script calls the program with the line in $COMP_WORDS, the place of the cursor in $COMP_CWORD, and the name of the
shell in $_PLIMSOLL_COMPLETE. The answer is one line per word: its kind, a comma, the word.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from plimsoll.cli.console.commands import Command, Context, Group
from plimsoll.cli.console.parameters import Argument, Completion

VARIABLE = "_PLIMSOLL_COMPLETE"
SCRIPTS = {
    "bash": """\
_plimsoll_complete() {
    local kind word
    COMPREPLY=()
    while IFS=, read -r kind word; do
        case $kind in
            plain) COMPREPLY+=("$word") ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _PLIMSOLL_COMPLETE=bash_complete "$1")
}
complete -o nosort -F _plimsoll_complete plimsoll
""",
    "zsh": """\
#compdef plimsoll
_plimsoll() {
    local -a found
    local line
    local -x COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) _PLIMSOLL_COMPLETE=zsh_complete
    for line in "${(@f)$(plimsoll)}"; do
        case $line in
            plain,*) found+=("${line#plain,}") ;;
            file,*) _path_files -f ;;
            dir,*) _path_files -/ ;;
        esac
    done
    (( $#found )) && _describe -V plimsoll found -U
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _plimsoll "$@"
else
    compdef _plimsoll plimsoll
fi
""",
    "fish": """\
function _plimsoll_complete
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -t)
    set -lx _PLIMSOLL_COMPLETE fish_complete
    for line in (plimsoll)
        set -l parts (string split -m 1 , -- $line)
        switch $parts[1]
            case plain
                echo $parts[2]
            case file
                __fish_complete_path $parts[2]
            case dir
                __fish_complete_directories $parts[2]
        end
    end
end
complete --no-files --command plimsoll --arguments "(_plimsoll_complete)"
""",
}


def asked(environment: Mapping[str, str]) -> tuple[str, list[str], str]:
    """The shell, the words before the cursor without the program, and the incomplete word."""
    shell = environment[VARIABLE].partition("_")[0]
    words, place = _split(environment.get("COMP_WORDS", "")), environment.get("COMP_CWORD", "")
    if shell == "fish":  # has the incomplete word itself
        before = words[1:-1] if place and words[-1:] == [place] else words[1:]
        return shell, before, place
    number = int(place) if place.isdecimal() else len(words)
    return shell, words[1:number], words[number] if number < len(words) else ""


def _split(line: str) -> list[str]:
    """As a shell splits it; a quote may still be open."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words += lexer
    except ValueError:
        words.append(lexer.token)
    return words


def printed(found: Completion, shell: str) -> str:
    if shell == "zsh":  # a colon separates the help
        word = found.word.replace(":", "\\:")
        return f"{found.kind},{word}{f':{found.help}' if found.help else ''}"
    return f"{found.kind},{found.word}{f'	{found.help}' if shell == 'fish' and found.help else ''}"


def completed(command: Command, name: str, words: list[str], incomplete: str) -> list[Completion]:
    """What may follow the words of a command."""
    ctx = _reached(command.make_context(name, words, resilient=True))
    if words[-1:] == ["="]:  # bash makes three words of --name=value
        words = words[:-1]
    if incomplete == "=":
        incomplete = ""
    elif incomplete.startswith("-") and "=" in incomplete:
        option, _, incomplete = incomplete.partition("=")
        words = [*words, option]
    if "--" not in words and incomplete.startswith("-"):
        return ctx.command.shell_complete(ctx, incomplete)
    for each in ctx.command.options():
        if not each.is_flag and words and words[-1] in each.opts and "--" not in words:
            return each.type.shell_complete(ctx, each, incomplete)
    for param in ctx.command.params:
        if isinstance(param, Argument) and (param.multiple or param.name not in ctx.given):
            return param.type.shell_complete(ctx, param, incomplete)
    return ctx.command.shell_complete(ctx, incomplete)


def _reached(ctx: Context) -> Context:
    """The context of the innermost command."""
    while isinstance(ctx.command, Group) and ctx.rest:
        name, *words = ctx.rest
        command = ctx.command.get_command(name)
        if command is None:
            break
        ctx = command.make_context(name, words, ctx, resilient=True)
    return ctx
