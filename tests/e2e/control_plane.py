"""Kubernetes' own control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

The programs are not part of the project. `KUBE_APISERVER` names the first (the two others are beside it), `ETCD` names
etcd unless it is in PATH; without them the tests that need a real control plane are skipped. It is set up as kubeadm
does: Node and RBAC authorization, NodeRestriction, bootstrap tokens whose client certificates are approved by
themselves, and nodes whose serving certificates are verified.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.api.auth.ca import Authority, Issued, kubeconfig
from plimsoll.linux.files.state_dir import private_directory, write_private

START_S = 180.0
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
ADMIN_GROUP, TOKEN = "system:masters", "abcdef.0123456789abcdef"
BOOTSTRAPPERS = "system:bootstrappers:kubeadm:default-node-token"


def programs() -> tuple[str, Path]:
    """etcd, and the directory of the others; skips where one is missing."""
    server = os.environ.get("KUBE_APISERVER", "")
    if not server:
        pytest.skip("no real control plane: set KUBE_APISERVER to the program, with the others beside it, and ETCD")
    etcd = os.environ.get("ETCD") or shutil.which("etcd")
    missing = [name for name in PROGRAMS if not Path(server).with_name(name).exists()]
    if not etcd or missing:
        pytest.skip(f"no real control plane: {', '.join(missing) or 'etcd'} not found")
    return etcd, Path(server).parent


class ControlPlane:
    def __init__(self, directory: Path, etcd: str, programs: Path) -> None:
        self.directory, self._etcd, self._programs = directory, etcd, programs
        self.authority = Authority(private_directory(directory / "state"))
        self.authority.prepare(("127.0.0.1", "localhost", "kubernetes.default.svc", "10.97.0.1"))
        self._ports = _free_ports(3)
        self.url = f"https://127.0.0.1:{self._ports[2]}"
        self.kubeconfig = self.client_kubeconfig("admin", (ADMIN_GROUP,))
        self.api_options: tuple[str, ...] = ()  # further ones, of kube-apiserver
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def ca(self) -> Path:
        return self.authority.ca_file

    def start_servers(self) -> None:
        """Only etcd and kube-apiserver."""
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports[:2])
        self._run(
            self._etcd,
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        self.start_api()

    def start(self) -> None:
        self.start_servers()
        pki = self.authority.directory
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.client_kubeconfig('system:kube-controller-manager')}",
            f"--cluster-signing-cert-file={self.ca}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            f"--root-ca-file={self.ca}",
            f"--service-account-private-key-file={pki / 'server.key'}",
            "--use-service-account-credentials",
            "--controllers=*,bootstrapsigner,tokencleaner",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
        )
        scheduler = self.client_kubeconfig("system:kube-scheduler")
        self._run("kube-scheduler", f"--kubeconfig={scheduler}", "--leader-elect=false", "--secure-port=0")

    def start_api(self) -> None:
        pki = self.authority.directory
        caller = self._pair("kube-apiserver-kubelet-client", (ADMIN_GROUP,))
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports[0]}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[2]}",
            "--endpoint-reconciler-type=none",  # it refuses loopback addresses
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-bootstrap-token-auth",
            f"--client-ca-file={self.ca}",
            f"--tls-cert-file={pki / 'server.crt'}",
            f"--tls-private-key-file={pki / 'server.key'}",
            f"--kubelet-certificate-authority={self.ca}",
            f"--kubelet-client-certificate={caller}.crt",
            f"--kubelet-client-key={caller}.key",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={pki / 'server.key'}",
            f"--service-account-key-file={pki / 'server.crt'}",
            "--service-cluster-ip-range=10.97.0.0/16",
            "--allow-privileged",
            *self.api_options,
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            process = self._processes["kube-apiserver"]
            assert process.poll() is None and time.monotonic() < deadline, self.log("kube-apiserver")
            time.sleep(0.2)

    def stop_api(self) -> None:
        self._end("kube-apiserver")

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()[-4000:]

    def close(self) -> None:
        for name in reversed(list(self._processes)):
            self._end(name)

    def bootstrap_kubeconfig(self) -> Path:
        """As kubeadm writes it: the server, the CA, and a bootstrap token."""
        return self._written("bootstrap", kubeconfig(self.url, self.ca.read_bytes(), "tls-bootstrap-token-user", TOKEN))

    def _answers(self) -> bool:
        """Ready, its roles and bindings included."""
        pair = self._pair("admin", (ADMIN_GROUP,))
        words = ["curl", "-sf", "--cacert", self.ca, "--cert", f"{pair}.crt", "--key", f"{pair}.key"]
        return subprocess.run([*words, f"{self.url}/readyz"], capture_output=True, check=False).returncode == 0

    def _run(self, program: str, *options: str) -> None:
        path = program if "/" in program else str(self._programs / program)
        name = Path(program).name
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [path, *options], stdout=log, stderr=log, cwd=self.directory, env={"HOME": str(self.directory)}
            )

    def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _issued(self, user: str, groups: Sequence[str]) -> Issued:
        return self.authority.issue(user, groups)

    def _pair(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Path of a client certificate and its key, without the suffix."""
        path = self.directory / user.replace(":", "-")
        if not path.with_suffix(".crt").exists():
            issued = self._issued(user, groups)
            write_private(path.with_suffix(".crt"), issued.certificate)
            write_private(path.with_suffix(".key"), issued.key)
        return path

    def client_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        return self._written(user, kubeconfig(self.url, self.ca.read_bytes(), user, self._issued(user, groups)))

    def _written(self, name: str, text: bytes) -> Path:
        path = self.directory / f"{name.replace(':', '-')}.kubeconfig"
        write_private(path, text)
        return path


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    found = programs()
    directory.mkdir(parents=True)
    plane = ControlPlane(directory, *found)
    try:
        plane.start()
        yield plane
    finally:
        plane.close()
