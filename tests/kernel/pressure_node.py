"""A real control plane and a real node of a declared, small size, to be brought under pressure: here or in a guest.

Pods are eaters: they hold or take memory at a given pace, and end at once on SIGTERM. What they take
stays inside the kubepods of this node, which has at most a gigabyte. Questions go to the API over one kept connection,
so that frequent reads cost little.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from plimsoll.cgroups.drivers.detect import this_host
from tests.e2e.api_client import ApiClient
from tests.e2e.real_node import NODE, RealNode
from tests.e2e.waiting import until
from tests.kernel.guest import GUEST_VARIABLE

MIB = 1 << 20
CAPACITY_MIB = 512
IN_GUEST = GUEST_VARIABLE in os.environ
Document = dict[str, Any]
Found = TypeVar("Found")

# Takes memory at a pace, in hundredths of a second and pieces of 64 KiB (a guest takes 0.1 s for a whole MiB, and Python
# handles no signal meanwhile); prints what it has done with its times, and ends on SIGTERM.
EATER = """
import os, signal, sys, time
def term(*_):
    os.write(1, b"term %f\\n" % time.monotonic()); os._exit(143)
signal.signal(signal.SIGTERM, term)
have, want, pace = [], int(sys.argv[1]) * 16, float(sys.argv[2]) * 16
os.write(1, b"up %f\\n" % time.monotonic())
begin, taken = time.monotonic(), 0
while taken < want:
    due = want if not pace else min(want, int((time.monotonic() - begin) * pace) + 1)
    while taken < due:
        have.append(bytearray(b"x") * (1 << 16)); taken += 1
    if pace: time.sleep(min(0.01, 8 / pace))
os.write(1, b"full %f\\n" % time.monotonic())
while True: time.sleep(1000)
"""


def eater(mib: int, mib_per_s: float = 0.0, then: str = "") -> list[str]:
    """The command of a container that takes so much, at once where no pace is given."""
    words = ["/usr/bin/python3", "-S", "-I", "-c", EATER + then, str(mib), str(mib_per_s)]
    return words


def stubborn(mib: int, mib_per_s: float = 0.0) -> list[str]:
    """One that prints that it got SIGTERM, and does not end."""
    words = eater(mib, mib_per_s)
    words[4] = EATER.replace("; os._exit(143)", "")
    assert words[4] != EATER
    return words


def container(name: str, command: Sequence[str], **more: Any) -> Document:
    return {"name": name, "image": "busybox", "command": list(command), **more}


def memory(request: str = "", limit: str = "", **more: str) -> Document:
    """A container's resources; `more`: other requests."""
    requests = {**({"memory": request} if request else {}), **{k.replace("_", "-"): v for k, v in more.items()}}
    limits = {"memory": limit} if limit else {}
    return {
        "resources": {"requests": requests, "limits": limits}
        if requests and limits
        else {"requests": requests}
        if requests
        else {"limits": limits}
        if limits
        else {}
    }


def pod(name: str, *containers: Document, metadata: Document | None = None, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 2, "containers": list(containers), **spec},
    }


class PressureNode(RealNode):
    """`settings`: of the KubeletConfiguration; `extras`: our own, beside it."""

    def __init__(
        self, directory: Path, settings: Document, extras: Document, profile: str, capacity_mib: int = CAPACITY_MIB
    ) -> None:
        super().__init__(directory, f"/plimsoll-test-{secrets.token_hex(4)}", profile)
        self.capacity_mib = capacity_mib
        self.configure(settings, extras)

    def configure(self, settings: Document, extras: Document) -> None:
        """Holds from the next start of the node on."""
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
            **settings,
        }
        ours = {"apiVersion": "plimsoll.dev/v1", "kind": "NodeExtras", **extras}
        self.config.write_text(f"{_yaml(config)}---\n{_yaml(ours)}")

    def start(self) -> None:
        self.start_api()
        self.make_identity()
        self.start_again()
        self.ask = ApiClient(self.kubeconfig)

    def start_again(self) -> None:
        """Without a declared size the node is the whole machine: only for guests."""
        words = ["node", "--kubeconfig", str(self.node_kubeconfig), "--name", NODE, "--listen", "127.0.0.1:0"]
        words += ["--state-dir", str(self.state), "--cgroup-root", self.cgroup_root, "--config", str(self.config)]
        words += ["--profile", self.profile, "--end-pods", *self.node_options]
        if self.capacity_mib:
            words += ["--capacity", f"cpu=8,memory={self.capacity_mib}Mi,pods=110"]
        self.node, _ = self._started(words, "node.log", "ready", self.before_node)

    # --- asking ---

    def create(self, *pods: Document) -> None:
        for each in pods:
            self.ask("POST", "/api/v1/namespaces/default/pods", each)

    def pod(self, name: str) -> Document:
        status, found = self.ask.answer("GET", f"/api/v1/namespaces/default/pods/{name}")
        return found if status == 200 else {}

    def pods(self) -> list[Document]:
        return list(self.ask("GET", "/api/v1/namespaces/default/pods")["items"])

    def status(self, name: str) -> Document:
        return dict(self.pod(name).get("status", {}))

    def container(self, name: str, container: str = "c") -> Document:
        every = self.status(name).get("containerStatuses", [])
        return next((dict(each) for each in every if each["name"] == container), {})

    def is_evicted(self, name: str) -> bool:
        found = self.status(name)
        return (found.get("phase"), found.get("reason")) == ("Failed", "Evicted")

    def events(self, reason: str = "", about: str = "") -> list[Document]:
        found = self.ask("GET", "/api/v1/events")["items"]
        return [
            each
            for each in found
            if (not reason or each["reason"] == reason) and (not about or each["involvedObject"]["name"] == about)
        ]

    def node_document(self) -> Document:
        return self.ask("GET", f"/api/v1/nodes/{NODE}")

    def condition(self, kind: str) -> str:
        found = self.node_document()["status"].get("conditions", [])
        return next((str(each["status"]) for each in found if each["type"] == kind), "")

    def taints(self) -> set[str]:
        return {f"{each['key']}:{each['effect']}" for each in self.node_document()["spec"].get("taints", [])}

    def page(self, name: str) -> Document:
        return self.ask("GET", f"/api/v1/nodes/{NODE}/proxy/{name}")

    def kills(self) -> list[Document]:
        return list(self.page("oom")["kills"])

    def kills_of(self, name: str) -> list[Document]:
        return [each for each in self.kills() if each.get("pod") == name]

    def running(self, *names: str) -> None:
        """Until all containers of these pods are ready."""

        def all_ready() -> bool:
            every = [each for name in names for each in self.status(name).get("containerStatuses", [])]
            return len(every) >= len(names) and all(each["ready"] for each in every)

        self.until(all_ready)

    def full(self, name: str, container: str = "c") -> float:
        """When an eater had all that it wanted, by the monotonic clock."""
        return self.said(name, "full", container)

    def said(self, name: str, word: str, container: str = "c") -> float:
        def read() -> float:
            for line in self.log(name, container).splitlines():
                if line.startswith(f"{word} "):
                    return float(line.split()[1])
            return 0.0

        return self.until(read)

    def log(self, name: str, container: str = "c") -> str:
        found = sorted(self.state.glob(f"node/logs/default_{name}_*/{container}/*.log"))
        lines = found[-1].read_text().splitlines() if found else []
        return "\n".join(line.split(" ", 3)[3] for line in lines if line.count(" ") >= 3)

    def until(self, read: Callable[[], Found]) -> Found:
        return until(read, self.diagnosis, 0.05)

    def diagnosis(self) -> str:
        """The containers' states and the end of the agent's log."""
        file = self.directory / "node.log"
        pods = "\n".join(
            f"{each['metadata']['name']}: {json.dumps(each.get('status', {}).get('containerStatuses', []))[:300]}"
            for each in self.pods()
        )
        return f"{pods}\n{file.read_text()[-3000:] if file.exists() else ''}"

    def empty(self) -> None:
        """All pods and their memory are gone."""
        for each in self.pods():
            name = each["metadata"]["name"]
            self.ask.answer("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
        self.until(lambda: not self.pods() and not self.pod_cgroups())

    # --- the kernel's side ---

    @property
    def memory_root(self) -> Path:
        return Path("/sys/fs/cgroup/memory" if this_host().version == 1 else "/sys/fs/cgroup")

    @property
    def kubepods(self) -> Path:
        return Path(f"{self.memory_root}{self.cgroup_root}/kubepods")

    def pod_cgroups(self) -> list[Path]:
        """Of all classes; one that goes meanwhile is left out."""
        places = (self.kubepods, self.kubepods / "burstable", self.kubepods / "besteffort")
        found = []
        for place in places:
            try:
                found += [place / name for name in os.listdir(place) if name.startswith("pod")]
            except FileNotFoundError:
                continue
        return [path for path in found if path.is_dir()]

    def cgroup_files(self, uid: str, file: str) -> list[Path]:
        """Of a pod's cgroup and those below it, as far as they are there."""
        found = [path for path in self.pod_cgroups() if uid in path.name]
        return [each for path in found for each in path.rglob(file)]

    def cgroup(self, name: str, container: str = "") -> Path:
        uid = self.pod(name)["metadata"]["uid"]
        path = next(each for each in self.pod_cgroups() if uid in each.name)
        if not container:
            return path
        return path / self.container(name, container)["containerID"].removeprefix("plimsoll://")

    def close(self) -> None:
        if hasattr(self, "ask"):
            self.ask.close()
        super().close()


def _yaml(document: Document) -> str:
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in document.items())


@contextmanager
def pressure_node(
    directory: Path,
    settings: Document,
    extras: Document | None = None,
    *,
    profile: str = "documents",
    capacity_mib: int = CAPACITY_MIB,
    options: tuple[str, ...] = (),
    before: tuple[str, ...] = (),
) -> Iterator[PressureNode]:
    """`options`, `before`: of and for the node, as `real_node` has them."""
    directory.mkdir(parents=True)
    made = PressureNode(directory, settings, extras or {}, profile, capacity_mib)
    made.node_options, made.before_node = options, before
    try:
        made.start()
        yield made
    finally:
        made.close()
    until(lambda: not made.kubepods.exists(), lambda: f"cgroups were left behind: {made.kubepods}")
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(made.directory) not in mounts, "a mount was left behind"
    for hierarchy in Path("/sys/fs/cgroup").iterdir():
        left = hierarchy / made.cgroup_root.strip("/")
        if left.is_dir():
            left.rmdir()
    if (left := Path(f"/sys/fs/cgroup{made.cgroup_root}")).is_dir():
        left.rmdir()
