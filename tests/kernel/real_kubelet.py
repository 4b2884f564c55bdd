"""A node that a real kubelet runs: etcd, kube-apiserver, containerd with NRI and the kubelet, all on this machine.

The programs are not part of the project: `KUBELET` and `KUBE_APISERVER` name them, `ETCD` names etcd unless it is in
PATH. The process that starts it must be in network and mount namespaces of its own (`OWN_PLACE`), or in a guest: the kubelet
sets sysctls, so those it would change are covered with files, and it makes chains of iptables.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from plimsoll.linux.files.state_dir import write_private
from tests.e2e.api_client import ApiClient
from tests.e2e.control_plane import ControlPlane, programs
from tests.e2e.waiting import until
from tests.kernel.attach_bench import NriFiles
from tests.kernel.containerd import IMAGE, cgroup_mounts, remove_tree

NODE, ADDRESS, PORT = "n1", "10.77.0.1", 10250
OWN_PLACE = ("unshare", "--net", "--mount", "--propagation", "private")
# What the kubelet would write to each sysctl, unless it has the value already.
SYSCTLS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
# All signals, so that none of the defaults is lost; low, because others use this disk too.
EVICTION = {
    "memory.available": "32Mi",
    "nodefs.available": "1%",
    "nodefs.inodesFree": "1%",
    "imagefs.available": "1%",
    "imagefs.inodesFree": "1%",
}
PODS = "/api/v1/namespaces/default/pods"
Document = dict[str, Any]


def kubelet_program() -> str:
    """Skips where it, or what it needs, is missing."""
    path = os.environ.get("KUBELET", "")
    if not path or not os.access(path, os.X_OK):
        pytest.skip("no real kubelet: set KUBELET, KUBE_APISERVER and ETCD to the programs")
    programs()
    return path


class KubeletNode:
    def __init__(self, directory: Path, cgroup_root: str, *, systemd: bool = False) -> None:
        """`directory`: short, because of sockets. `cgroup_root`: of the kubelet; `/` in a guest."""
        self.directory, self.cgroup_root, self.systemd = directory, cgroup_root, systemd
        self.daemon = NriFiles(directory / "c", systemd=systemd)
        (directory / "plane").mkdir(parents=True)
        self.plane = ControlPlane(directory / "plane", *programs())
        self.plane.api_options = (f"--advertise-address={ADDRESS}",)  # there is no default route to find one by
        self.root, self.config = directory / "kubelet", directory / "kubelet.yaml"
        self.settings: Document = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._api: ApiClient | None = None

    @property
    def api(self) -> ApiClient:
        if self._api is None:
            self._api = ApiClient(self.plane.kubeconfig)
        return self._api

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    def start(self) -> None:
        _own_place(self.directory)
        self.daemon.prepare()
        self.daemon.start()
        self.daemon.load_images()
        self.plane.start_servers()
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.api("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        for root in self._roots():
            root.mkdir(exist_ok=True)
        self.start_kubelet()

    def start_kubelet(self, **settings: Any) -> None:
        """`settings`: further fields of its configuration, which stay."""
        self.settings |= settings
        issued = self.plane.authority.issue(f"system:node:{NODE}", ("system:nodes",), (ADDRESS, NODE))
        for name, data in (("serving.crt", issued.certificate), ("serving.key", issued.key)):
            write_private(self.directory / name, data)
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "port": PORT,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.plane.ca)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": str(self.directory / "serving.crt"),
            "tlsPrivateKeyFile": str(self.directory / "serving.key"),
            "cgroupDriver": "systemd" if self.systemd else "cgroupfs",
            "cgroupRoot": self.cgroup_root,
            "failCgroupV1": False,
            "containerRuntimeEndpoint": self.daemon.endpoint,
            "podLogsDir": str(self.directory / "logs"),
            "volumePluginDir": str(self.directory / "volume-plugins"),
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "evictionHard": EVICTION,
            "nodeStatusUpdateFrequency": "2s",
            **self.settings,
        }
        self.config.write_text(json.dumps(document))
        kubeconfig = self.plane.client_kubeconfig(f"system:node:{NODE}", ("system:nodes",))
        words = [f"--config={self.config}", f"--kubeconfig={kubeconfig}", f"--root-dir={self.root}"]
        words += [f"--hostname-override={NODE}", f"--node-ip={ADDRESS}", "--v=2"]
        with open(self.directory / "kubelet.log", "ab") as log:
            self.process = subprocess.Popen(
                [*_in_a_cgroup(), kubelet_program(), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self.is_ready, self.log)

    def is_ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()
        nodes = self.api("GET", "/api/v1/nodes")["items"]
        conditions = [each for node in nodes for each in node["status"].get("conditions", [])]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def stop_kubelet(self, number: signal.Signals = signal.SIGTERM) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)

    def log(self) -> str:
        lines = (self.directory / "kubelet.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-30:])

    # pods

    @staticmethod
    def container(given: Document) -> Document:
        return {"image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "100000"], **given}

    def make(self, name: str, *containers: Document, **spec: Any) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": NODE,
                "containers": [self.container(each) for each in containers],
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        }
        self.api("POST", PODS, body)

    def pod(self, name: str) -> Document:
        return dict(self.api("GET", f"{PODS}/{name}"))

    def running(self, name: str) -> Document:
        def found() -> Document | None:
            pod = self.pod(name)
            states = pod["status"].get("containerStatuses", [])
            return pod if states and all("running" in each["state"] for each in states) else None

        return until(found, lambda: f"{json.dumps(self.pod(name)['status'])}\n{self.log()}") or {}

    def delete(self, name: str) -> None:
        self.api("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    # Plimsoll beside it

    def plimsoll(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "plimsoll", *words], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode in codes, f"plimsoll {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop_kubelet()
        if self.process is not None:
            self.process.kill()
        if self._api is not None:
            self._api.close()
        self.plane.close()
        left = self.daemon.end()
        for root in self._roots():
            remove_tree(root)
        assert left == []

    def _roots(self) -> list[Path]:
        """Its cgroupRoot in every hierarchy; none in a guest, where it has the whole tree."""
        name = self.cgroup_root.strip("/")
        return [mount / name for mount in cgroup_mounts()] if name else []


def _own_place(directory: Path) -> None:
    """An address that is not of 127/8, which the kubelet would refuse; and sysctls that are only files."""
    for words in (["link", "set", "lo", "up"], ["addr", "add", f"{ADDRESS}/32", "dev", "lo"]):
        subprocess.run(["ip", *words], check=True, capture_output=True)
    for name, value in SYSCTLS.items():
        cover = directory / name.replace("/", ".")
        cover.write_text(f"{value}\n")
        subprocess.run(["mount", "--bind", cover, f"/proc/sys/{name}"], check=True)
    known = Path("/proc/cpuinfo").read_text()
    if "cpu MHz" not in known:  # user-mode Linux; the kubelet does not start without it
        (directory / "cpuinfo").write_text(known.replace("model name", "cpu MHz\t\t: 2000.000\nmodel name"))
        subprocess.run(["mount", "--bind", directory / "cpuinfo", "/proc/cpuinfo"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/log"], check=True)  # it makes links in /var/log/containers


def _in_a_cgroup() -> list[str]:
    """Words that put the kubelet into a cgroup, as a service is. In the root of v2 it finds no memory.swap.max, takes
    the swap controller for absent, and writes no swap limits.
    """
    own = Path("/proc/self/cgroup").read_text().strip()
    if own != "0::/":  # v1, or a service of systemd
        return []
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+memory +cpu +pids")
    place = Path("/sys/fs/cgroup/kubelet")
    place.mkdir(exist_ok=True)
    return ["/bin/sh", "-c", f'echo $$ > {place}/cgroup.procs && exec "$@"', "-"]


@contextlib.contextmanager
def kubelet_node(directory: Path, cgroup_root: str, *, systemd: bool = False) -> Iterator[KubeletNode]:
    kubelet_program()
    directory.mkdir(parents=True, exist_ok=True)
    node = KubeletNode(directory, cgroup_root, systemd=systemd)
    try:
        node.start()
        yield node
    finally:
        node.close()


def hold() -> None:
    """By hand: `unshare … python -m tests.kernel.real_kubelet DIR`; ends when DIR/hold is removed."""
    directory = Path(sys.argv[1])
    systemd = "systemd" in sys.argv[2:]
    with kubelet_node(directory, "/" if systemd else f"/plimsoll-test-{os.getpid()}", systemd=systemd):
        (directory / "hold").write_text(str(os.getpid()))
        while (directory / "hold").exists():
            time.sleep(0.5)


if __name__ == "__main__":
    hold()
