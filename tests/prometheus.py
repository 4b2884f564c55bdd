"""A real Prometheus for tests: promtool, and a server that scrapes what a test gives it.

`./dev test` unpacks Debian's package into .cache/debian; without it, tests are skipped with the reason.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.waiting import until

ROOT = Path(__file__).resolve().parents[1]
MONITORING = ROOT / "deploy" / "monitoring"


def program(name: str) -> str:
    unpacked = ROOT / ".cache/debian/prometheus/usr/bin" / name
    found = shutil.which(name) or (str(unpacked) if unpacked.exists() else None)
    if found is None:
        pytest.skip(f"{name} is missing: ./dev test unpacks Debian's prometheus into .cache")
    return found


def promtool(*words: str, stdin: str = "", cwd: Path = MONITORING) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *words], input=stdin, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


class Prometheus:
    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self._url, self.process, self._log = f"http://127.0.0.1:{port}/api/v1", process, log

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get(f"query?query={urllib.parse.quote(expression)}")["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("targets?state=active")["activeTargets"]
        return found

    def log(self) -> str:
        return self._log.read_text()[-3000:]

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(self._url.removesuffix("/api/v1") + "/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def prometheus(directory: Path, config: str) -> Iterator[Prometheus]:
    """A server with this configuration; its rule files lie in the same directory."""
    file, log = directory / "prometheus.yml", directory / "prometheus.log"
    file.write_text(config)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [program("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={directory}/data"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with open(log, "wb") as output:
        process = subprocess.Popen(words, cwd=directory, stdout=output, stderr=output)
    try:
        made = Prometheus(port, process, log)
        until(made.is_ready)
        yield made
    finally:
        process.terminate()
        process.wait(60)
