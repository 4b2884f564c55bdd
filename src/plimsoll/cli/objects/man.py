"""`plimsoll man`: manual pages, generated from the commands themselves."""

from __future__ import annotations

import importlib

from plimsoll import __version__
from plimsoll.cli import console
from plimsoll.cli.main import ABOUT, OPTIONS, VERBS

NAME = "plimsoll"
MAIN_FORMS = {"explain": ("manifests",), "audit": ("node",)}  # of commands whose first argument may be a subcommand


@console.command("man")
@console.argument("verb", required=False, metavar="[COMMAND]")
@console.option("--dir", "directory", type=console.Path(), help="Write all pages to this directory.")
def man(verb: str | None, directory: object) -> None:
    """Print the manual page of plimsoll, or of one of its commands, in roff.

    \b
    Examples:
      plimsoll man explain | man -l -
      plimsoll man --dir /usr/local/share/man/man1
    """
    pages = manual_pages()
    if directory is not None:
        from pathlib import Path

        place = Path(str(directory))
        place.mkdir(parents=True, exist_ok=True)
        for name, page in pages.items():
            (place / f"{name}.1").write_text(page, encoding="utf-8")
        console.echo(f"{len(pages)} pages written to {place}")
        return
    name = f"{NAME}-{verb}" if verb else NAME
    if name not in pages:
        raise console.UsageError(f"unknown command {verb!r}; the commands are: {', '.join(VERBS)}")
    console.echo(pages[name], nl=False)


def manual_pages() -> dict[str, str]:
    """Name of the page → its text."""
    pages = {NAME: _main_page()}
    for verb, (module, attribute, line) in VERBS.items():
        command: console.Command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, console.Group):
            command = next(filter(None, map(command.get_command, MAIN_FORMS.get(verb, ()))), command)
        pages[f"{NAME}-{verb}"] = _page(verb, line, command)
    return pages


def _main_page() -> str:
    listed = "".join(f".TP\n.BR {NAME}\\-{_safe(verb)} (1)\n{_safe(line)}\n" for verb, (_, _, line) in VERBS.items())
    options = "".join(f".TP\n.B {_safe(name)}\n{_safe(line)}\n" for name, line in OPTIONS)
    about, _, examples = ABOUT.partition("\b\n")
    return (
        _head(NAME, "Kubernetes' node-level resource management, explained and enforced")
        + f".SH SYNOPSIS\n.B {NAME}\n[OPTIONS] COMMAND [ARGS]...\n.SH DESCRIPTION\n{_paragraphs(about)}"
        + f".SH OPTIONS\n{options}.SH COMMANDS\n{listed}.SH EXAMPLES\n.nf\n{_safe(examples)}\n.fi\n"
    )


def _page(verb: str, line: str, command: console.Command) -> str:
    name = f"{NAME}-{verb}"
    parts = [_head(name, line), f".SH SYNOPSIS\n.B {NAME} {_safe(verb)}\n{_safe(' '.join(command.usage_pieces()))}\n"]
    parts.append(".SH DESCRIPTION\n")
    for paragraph in command.text.split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            kept = paragraph.partition("\n")[2]
            parts.append(f".nf\n{_safe(kept)}\n.fi\n.PP\n")
        elif paragraph.strip():
            parts.append(f"{_safe(' '.join(paragraph.split()))}\n.PP\n")
    for title, rows in command.help_sections():
        parts.append(f".SH {title.upper()}\n")
        parts += [f".TP\n.B {_safe(word)}\n{_safe(about)}\n" for word, about in rows]
    return "".join(parts)


def _head(name: str, line: str) -> str:
    return f'.TH {name.upper()} 1 "" "plimsoll {__version__}" "Plimsoll"\n.SH NAME\n{_safe(name)} \\- {_safe(line)}\n'


def _paragraphs(text: str) -> str:
    return "".join(f"{_safe(' '.join(part.split()))}\n.PP\n" for part in text.split("\n\n") if part.strip())


def _safe(text: str) -> str:
    """A line that begins with a dot or a quote is a request in roff; a minus must be escaped."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in plain.split("\n"))
