"""Images built from one static busybox, under the names that manifests use, for runtimes without a registry.

They share one layer: busybox with its applets as links, and a few usual files. They differ in their command: a shell, a
web server, or a sleep (`pause`). The archive has docker's format, which every containerd can import.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

BUSYBOX = "/bin/busybox"
PAUSE = "localhost/pause:1"
WEB_ROOT = "usr/share/nginx/html"
_LIBRARY = "docker.io/library"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_DIRECTORIES = ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "usr/share", "usr/share/nginx", WEB_ROOT)
_PAGE = (
    b"<!DOCTYPE html>\n<title>Welcome to nginx!</title>\n<h1>Welcome to nginx!</h1>\n<p>busybox httpd answers.</p>\n"
)
# busybox has no applet `bash`, but manifests call it.
_BASH = b'#!/bin/sh\nexec /bin/sh "$@"\n'


class LocalImage(msgspec.Struct, frozen=True):
    names: tuple[str, ...]  # in full, as CRI normalises them
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""


# The names of the documents and of the examples.
IMAGES = (
    LocalImage((PAUSE, "registry.k8s.io/pause:3.9"), ("/bin/sleep", "2147483647")),
    LocalImage(
        (
            *(f"{_LIBRARY}/busybox:{tag}" for tag in ("latest", "1.36")),
            *(f"{_LIBRARY}/ubuntu:{tag}" for tag in ("latest", "18.04")),
            f"{_LIBRARY}/debian:latest",
            "localhost/busybox:1",
        ),
        command=("/bin/sh",),
    ),
    LocalImage(
        tuple(f"{_LIBRARY}/nginx:{tag}" for tag in ("latest", "1.27")),
        command=("/bin/httpd", "-f", "-v", "-p", "80", "-h", f"/{WEB_ROOT}"),
    ),
)


def write_images(
    archive: Path,
    images: Sequence[LocalImage] = IMAGES,
    busybox: str = BUSYBOX,
    programs: Mapping[str, bytes] = {},
) -> None:
    """A docker-archive; OSError where there is no busybox. `programs`: further files of the layer, by their paths."""
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    layer = _layer(Path(busybox).read_bytes(), applets, programs)
    digest = hashlib.sha256(layer).hexdigest()
    manifest = []
    with tarfile.open(archive, "w") as written:
        _add(written, f"{digest}/layer.tar", layer)
        # An image per name: a runtime reports only the first name of an image.
        for image, tag in [(entry, name) for entry in images for name in entry.names]:
            data = json.dumps(_config(image, tag, digest)).encode()
            name = hashlib.sha256(data).hexdigest() + ".json"
            _add(written, name, data)
            manifest.append({"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]})
        _add(written, "manifest.json", json.dumps(manifest).encode())


def _config(image: LocalImage, tag: str, digest: str) -> Mapping[str, object]:
    machine = os.uname().machine
    runs = {"Entrypoint": list(image.entrypoint), "Cmd": list(image.command), "User": image.user}
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {**{name: value for name, value in runs.items() if value}, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": tag}],
    }


def _layer(busybox: bytes, applets: Sequence[str], programs: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in _DIRECTORIES:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(entry)
        _add(layer, "bin/busybox", busybox, 0o755)
        for applet in applets:
            if applet not in ("busybox", "bash"):
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                layer.addfile(link)
        _add(layer, "bin/bash", _BASH, 0o755)
        _add(layer, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add(layer, "etc/group", b"root:x:0:\n")
        _add(layer, f"{WEB_ROOT}/index.html", _PAGE)
        for name, data in programs.items():
            _add(layer, name.lstrip("/"), data, 0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))
