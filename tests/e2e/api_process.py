"""`plimsoll api` as a process of its own, to be called, killed and restarted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from tests.e2e.etcd_process import store_options

STOP_S = 60
_PLIMSOLL = str(Path(sys.executable).with_name("plimsoll"))


class ApiProcess:
    """Runs from the moment it is created; `url` is set when `ready` has returned."""

    def __init__(self, state: Path, log: Path, *options: str, before: Sequence[str] = ()) -> None:
        """`before`: words in front of the command, such as those of another network namespace."""
        self.state, self.log = state, log
        self.url = ""
        place = ["--state-dir", str(state), *(() if "--store-key-file" in options else store_options(state))]
        listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
        command = [*before, _PLIMSOLL, "api", *place, *listen, *options]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    @property
    def kubeconfig(self) -> Path:
        return self.state / "admin.kubeconfig"

    def ready(self) -> ApiProcess:
        """Waits until it reports its address; an AssertionError with its log if it never does."""
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("https://"), f"{self.url!r}\n{self.log.read_text()}"
        assert self.process.stdout.readline().startswith("KUBECONFIG=")
        return self

    def transport(self) -> HttpTransport:
        """As admin."""
        return HttpTransport(load(self.kubeconfig))

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """By SIGTERM; its exit code."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        finally:
            self.kill()
        return self.process.returncode

    def _reap(self) -> None:
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
