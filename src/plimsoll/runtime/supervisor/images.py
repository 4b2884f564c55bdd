"""Images without a registry: what a name means on this machine. The only I/O checks that a directory exists.

A container with a command runs it on the view of the host, whatever its image says. Without one, the name decides: what
the user has mapped it to, or one of the bundled images. `dir:PATH` (as an image, or as what a name is mapped to,
then also with a command behind it) runs in that root directory.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import NamedTuple

HOST, DIRECTORY, BUNDLED = "host", "dir:", "plimsoll:"

_WEB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_web.py")
_PAUSE = 'trap "exit 0" TERM INT; while :; do sleep 86400 & wait $!; done'


class Program(NamedTuple):
    """An image's own root, entry point and arguments; a `root` of "" is the view of the host."""

    root: str = ""
    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    expose: tuple[str, ...] = ()  # host paths that the view would hide: the interpreter it needs

    def argv(self, command: tuple[str, ...], args: tuple[str, ...]) -> tuple[str, ...]:
        """As Kubernetes combines them: a command replaces both, args replace the image's arguments."""
        if command:
            return (*command, *args)
        return (*self.entrypoint, *(args or self.arguments))


class Resolved(NamedTuple):
    ref: str
    note: str = ""
    runs: str = ""


class NoImageError(Exception):
    """No such image; the message says what to do."""


def short_name(image: str) -> str:
    """`docker.io/library/nginx:1.25@sha256:…` → `nginx`; `registry.k8s.io/pause:3.9` → `pause`."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    last = last.partition(":")[0]
    parts = head.split("/") if slash else []
    if parts and ("." in parts[0] or ":" in parts[0] or parts[0] == "localhost"):
        parts = parts[1:]
    if parts[:1] == ["library"]:
        parts = parts[1:]
    return "/".join([*parts, last])


def bundled() -> dict[str, Program]:
    shell = Program("", (), ("/bin/sh",))
    interpreter = os.path.realpath(sys.executable)
    web = (interpreter, "-I", "-S", "-B", _WEB)
    return {
        "nginx": Program("", web, (), tuple(dict.fromkeys((os.path.realpath(sys.base_prefix), interpreter, _WEB)))),
        "busybox": shell,
        "ubuntu": shell,
        "debian": shell,
        "pause": Program("", ("/bin/sh", "-c", _PAUSE)),
    }


def resolved(image: str, images: Mapping[str, str], *, has_command: bool) -> Resolved:
    """What will run; NoImageError where nothing can. `program` needs only the `ref`."""
    mapped = _mapped(image, images)
    if mapped.startswith(DIRECTORY):
        root, *own = shlex.split(mapped)
        path = root.removeprefix(DIRECTORY)
        if not os.path.isabs(path) or not os.path.isdir(path):
            raise NoImageError(
                f"image {image!r}: there is no directory {path!r}; give an absolute path to a root file system"
            )
        if not has_command and not own:
            raise NoImageError(
                f"image {image!r}: a directory has no command of its own; give the container a `command`"
            )
        return Resolved(mapped, "", shlex.join(own))
    if has_command:
        note = f"image {image!r} is not pulled: the command runs on a read-only view of this machine's files"
        return Resolved(HOST, note)
    name = short_name(image)
    if mapped:
        return Resolved(f"{HOST}:{mapped}", f"image {image!r} runs {mapped!r} of this machine", mapped)
    if name in (known := bundled()):
        program = known[name]
        shown = "a small HTTP server" if name == "nginx" else shlex.join(program.argv((), ()))
        return Resolved(BUNDLED + name, f"image {image!r} is a stand-in of Plimsoll's: it runs {shown}", shown)
    raise NoImageError(
        f"image {image!r} can't be pulled: the embedded runtime has no registry. Give the container a `command`, "
        f"map the name under `images:` in the configuration (to a command or dir:PATH), or use one of "
        f"{', '.join(sorted(known))}, or dir:PATH"
    )


def program(ref: str) -> Program:
    """The program of a `Resolved.ref`."""
    if ref.startswith(DIRECTORY):
        root, *own = shlex.split(ref)
        return Program(root.removeprefix(DIRECTORY), tuple(own))
    if ref.startswith(BUNDLED):
        return bundled()[ref.removeprefix(BUNDLED)]
    if ref.startswith(f"{HOST}:"):
        return Program("", tuple(shlex.split(ref.removeprefix(f"{HOST}:"))))
    return Program()


def _mapped(image: str, images: Mapping[str, str]) -> str:
    if image.startswith(DIRECTORY):
        return DIRECTORY + shlex.quote(image.removeprefix(DIRECTORY))
    for name in (image, image.partition("@")[0], short_name(image)):
        if name in images:
            return images[name]
    return ""
