"""A registry on the loopback with one image, which only a user with a password may pull."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from plimsoll.runtime.cri.private_containerd.images import LocalImage, write_images

USER, PASSWORD = "puller", "open sesame"
NAME = "team/private"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_TYPES = {
    "config": "application/vnd.docker.container.image.v1+json",
    "layer": "application/vnd.docker.image.rootfs.diff.tar",
}


@contextmanager
def private_registry(directory: Path) -> Iterator[str]:
    """The name of the image, which no runtime has."""
    pages = _pages(directory)
    allowed = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = pages.get(self.path)
            if self.headers.get("Authorization") != allowed:
                self._send(401, b"", "text/plain", ("WWW-Authenticate", 'Basic realm="private"'))
            elif found is None:
                self._send(404, b"", "text/plain")
            else:
                kind, body = found
                self._send(200, body, kind, ("Docker-Content-Digest", _digest(body)))

        do_HEAD = do_GET

        def _send(self, status: int, body: bytes, kind: str, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}/{NAME}:1"
    finally:
        server.shutdown()
        server.server_close()


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _pages(directory: Path) -> dict[str, tuple[str, bytes]]:
    archive = directory / "private.tar"
    write_images(archive, (LocalImage(("localhost/private:1",), command=("sleep", "1000")),))
    with tarfile.open(archive) as written:

        def read(name: str) -> bytes:
            found = written.extractfile(name)
            assert found is not None
            return found.read()

        (image,) = json.loads(read("manifest.json"))
        config, layer = read(image["Config"]), read(image["Layers"][0])
    parts = {
        kind: {"mediaType": _TYPES[kind], "size": len(body), "digest": _digest(body)}
        for kind, body in (("config", config), ("layer", layer))
    }
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts["config"], "layers": [parts["layer"]]}
    manifest = json.dumps(document).encode()
    return {
        "/v2/": ("application/json", b"{}"),
        f"/v2/{NAME}/manifests/1": (MANIFEST, manifest),
        f"/v2/{NAME}/manifests/{_digest(manifest)}": (MANIFEST, manifest),
        f"/v2/{NAME}/blobs/{_digest(config)}": (_TYPES["config"], config),
        f"/v2/{NAME}/blobs/{_digest(layer)}": (_TYPES["layer"], layer),
    }
