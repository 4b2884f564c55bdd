"""/logs/: files of the machine's log directory and lists of its directories, as Go's file server writes them.

Pods may write there through a hostPath, so a link is followed only while it stays in the directory: the kubelet reads
any file of the machine for whoever may read `nodes/log`.
"""

from __future__ import annotations

import html
import os
import stat
from collections.abc import AsyncGenerator, Sequence
from urllib.parse import quote

from plimsoll.linux.files.safe_tree import closing_fd, open_within
from plimsoll.node.server.http import HttpResponse, HttpStream, Reply, text

PIECE_BYTES = 1 << 16
HTML = "text/html; charset=utf-8"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # a FIFO must not block the agent


def host_logs(top: str, names: Sequence[str], *, is_directory: bool) -> HttpResponse:
    """`top`: the directory that is served. `is_directory`: the request ends with a slash."""
    path = "/".join(names)
    if "\0" in path:
        return text(404, "404 page not found")
    try:
        with closing_fd(os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
            found = open_within(directory, path or ".", _FLAGS)
    except PermissionError:
        return text(403, "403 Forbidden")
    except OSError:
        return text(404, "404 page not found")
    mode = os.fstat(found).st_mode
    if stat.S_ISREG(mode):
        return HttpStream(_pieces(found))
    with closing_fd(found):
        if not stat.S_ISDIR(mode):
            return text(404, "404 page not found")
        if not is_directory:  # the links of its list are relative
            return Reply(301, b"", headers=(("Location", f"{quote(names[-1] if names else 'logs')}/"),))
        return Reply(200, _listed(found).encode("utf-8", "surrogateescape"), HTML)


async def _pieces(file: int) -> AsyncGenerator[bytes, None]:
    """As much as the file has now: a log that grows must have an end."""
    with closing_fd(file):
        left = os.fstat(file).st_size
        while left > 0 and (piece := os.read(file, min(left, PIECE_BYTES))):
            left -= len(piece)
            yield piece


def _listed(directory: int) -> str:
    with os.scandir(directory) as entries:
        names = sorted(f"{each.name}/" if each.is_dir(follow_symlinks=False) else each.name for each in entries)
    links = "".join(f'<a href="{_link(name)}">{html.escape(name)}</a>\n' for name in names)
    return f'<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n{links}</pre>\n'


def _link(name: str) -> str:
    """A name with a colon would be read as a scheme."""
    shown = quote(name, errors="surrogateescape")
    return f"./{shown}" if ":" in name.split("/", 1)[0] else shown
