"""From inside a pod: what holds the cluster together, the machine and the other pods are out of reach.

`plimsoll up` runs with its state where the container's view of the machine would show it, were it not hidden. A hostile
program (`hostile.py`) goes through what root in a container can try; the rest is tried from the outside: hostPaths,
links in volumes, capabilities as they are declared.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.kube.request import Request
from plimsoll.linux.machine import has_selinux, kernel_version
from tests.e2e.manifests import shell
from tests.e2e.up_process import Up, problem
from tests.e2e.waiting import until

PODS = "/api/v1/namespaces/default/pods"
HOSTILE = Path(__file__).with_name("hostile.py")
DEFAULT_CAPABILITIES = 0x00000000A80425FB  # containerd's default set
NET_ADMIN, CHOWN = 12, 0
SECRET = "no other pod may read this"
Document = dict[str, Any]


class Place:
    def __init__(self, up: Up, outside: Path) -> None:
        self.up, self.outside = up, outside

    def ask(self, method: str, path: str, body: Document | None = None) -> tuple[int, bytes]:
        async def once() -> tuple[int, bytes]:
            transport = self.up.transport()
            try:
                content = b"" if body is None else json.dumps(body).encode()
                answer = await transport.send(Request(method, path, content, "application/json"))
                return answer.status, answer.body
            finally:
                await transport.close()

        return asyncio.run(once())

    def create(self, name: str, *containers: Document, **spec: Any) -> str:
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec, "containers": list(containers)}
        code, body = self.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        assert code == 201, body
        uid: str = msgspec.json.decode(body)["metadata"]["uid"]
        return uid

    def status(self, name: str) -> Document:
        found: Document = msgspec.json.decode(self.ask("GET", f"{PODS}/{name}")[1]).get("status", {})
        return found

    def phase(self, name: str, *wanted: str) -> Document:
        def read() -> Document:
            found = self.status(name)
            return found if found.get("phase") in wanted else {}

        return until(read)

    def log(self, name: str) -> str:
        return self.ask("GET", f"{PODS}/{name}/log")[1].decode()

    def ended(self, name: str) -> str:
        """What it has said until it ended."""
        self.phase(name, "Succeeded", "Failed")
        return self.log(name)

    def events(self, name: str) -> list[str]:
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}"
        return [each["message"] for each in msgspec.json.decode(self.ask("GET", path)[1])["items"]]


@pytest.fixture(scope="module")
def place(exercised: Callable[[str, str], None]) -> Iterator[Place]:
    if why := problem():
        pytest.skip(why)
    outside = Path(
        tempfile.mkdtemp(prefix="plimsoll-test-", dir="/usr/local")
    )  # seen in containers, but for what is hidden
    up = Up(outside)
    try:
        exercised("pod security", "this machine, embedded runtime")
        yield Place(up.ready(), outside)
    finally:
        up.close()
        shutil.rmtree(outside)


def own(volume: Document | None = None) -> Document:
    return {"volumes": [{"name": "own", **(volume or {"emptyDir": {}})}]}


MOUNT = {"volumeMounts": [{"name": "own", "mountPath": "/own"}]}


def test_nothing_of_the_cluster_the_machine_or_other_pods_is_in_reach(place: Place) -> None:
    place.create("victim", shell("c", f"echo {SECRET} > /own/secret; exec sleep 1000.4242", **MOUNT), **own())
    place.phase("victim", "Running")
    volume = until(lambda: list(place.up.state.glob("**/secret")))
    files = [str(path) for path in place.up.state.rglob("*") if path.is_file()]
    names = {Path(each).name for each in files}
    assert {"admin.kubeconfig", "ca.key"} <= names or any("key" in name for name in names), sorted(names)
    assert str(volume[0]) in files
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place.outside / "host.sock"))
    listening.listen()
    sockets = [str(path) for path in place.outside.rglob("*") if path.is_socket()]
    assert len(sockets) >= 2, sockets  # ours, and the supervisor's
    disk = os.stat("/").st_dev
    given = {
        "files": [*files, "/etc/shadow", "/proc/kcore"],
        "sockets": sockets,
        "marks": ["1000.4242", "plimsoll"],
        "disks": [(os.major(disk), os.minor(disk)), (254, 0), (8, 0), (7, 0)],
    }
    command = ["python3", "-c", HOSTILE.read_text(), json.dumps(given)]
    try:
        place.create("hostile", {"name": "c", "image": "busybox", "command": command, **MOUNT}, **own())
        said = place.ended("hostile")
    finally:
        listening.close()
    assert said == "done\n", said
    assert place.status("victim")["phase"] == "Running"


def test_the_hosts_files_cannot_be_changed(place: Place) -> None:
    script = "for f in /etc/passwd /usr/bin/env; do echo x >> $f; done; touch /etc/mine /usr/mine; ls /etc/mine; rm -rf /usr/games"
    before = Path("/etc/passwd").read_bytes()
    place.create("writer", shell("c", script))
    place.ended("writer")
    assert Path("/etc/passwd").read_bytes() == before
    assert not Path("/etc/mine").exists()
    assert not Path("/usr/mine").exists()


@pytest.mark.parametrize(
    ("security", "capabilities", "user"),
    [
        ({}, DEFAULT_CAPABILITIES, 0),
        ({"capabilities": {"drop": ["ALL"]}}, 0, 0),
        ({"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}, 1 << CHOWN, 0),
        ({"capabilities": {"add": ["NET_ADMIN"]}}, DEFAULT_CAPABILITIES | 1 << NET_ADMIN, 0),
        ({"runAsUser": 1234, "runAsGroup": 99}, 0, 1234),
    ],
    ids=["default", "none", "one", "one-more", "user"],
)
def test_capabilities_are_as_declared(
    place: Place, security: Document, capabilities: int, user: int, request: pytest.FixtureRequest
) -> None:
    name = f"caps-{request.node.callspec.id}"
    place.create(name, shell("c", "cat /proc/self/status", securityContext=security))
    found = dict(line.split(":\t") for line in place.ended(name).splitlines() if ":\t" in line)
    assert int(found["CapEff"], 16) == capabilities, hex(int(found["CapEff"], 16))
    if user == 0:
        assert int(found["CapBnd"], 16) == capabilities
    assert int(found["CapAmb"], 16) == 0
    assert int(found["Uid"].split()[0]) == user
    assert found["NoNewPrivs"].strip() == "0"


@pytest.mark.parametrize("which", ["above", "root"])
def test_a_host_path_may_be_any_directory_and_shows_no_files_of_the_agent(place: Place, which: str) -> None:
    """As node-exporter and `kubectl debug node/NAME` mount the root of the machine."""
    path = {"above": str(place.outside), "root": "/"}[which]
    inside = {"above": "/own", "root": f"/own{place.outside}"}[which]
    place.create(
        f"shown-{which}",
        shell("c", f"ls -d {inside}/state && ls -A {inside}/state | wc -l", **MOUNT),
        **own({"hostPath": {"path": path}}),
    )
    said = place.ended(f"shown-{which}")
    assert said == f"{inside}/state\n0\n", (place.status(f"shown-{which}"), place.events(f"shown-{which}"))


@pytest.mark.parametrize("which", ["state", "key"])
def test_a_host_path_never_shows_what_is_secret(place: Place, which: str) -> None:
    state = place.up.state
    path = {"state": state, "key": next(state.rglob("admin.kubeconfig"))}[which]
    name = f"path-{which}"
    place.create(
        name,
        shell("c", "ls -R /own; cat /own/state/admin.kubeconfig", **MOUNT),
        **own({"hostPath": {"path": str(path)}}),
    )
    until(lambda: any("which the embedded runtime hides from pods" in each for each in place.events(name)))
    assert place.status(name)["phase"] == "Pending"


def test_a_host_path_read_only_is_read_only_and_ends_where_it_says(place: Place) -> None:
    shown = place.outside / "shown"
    shown.mkdir()
    (shown / "file").write_text("of the host\n")
    (shown / "link").symlink_to(place.up.state)
    mount = {"volumeMounts": [{"name": "own", "mountPath": "/own", "readOnly": True}]}
    place.create(
        "reader",
        shell("c", "cat /own/file; echo x > /own/file; ls /own/link/; true", **mount),
        **own({"hostPath": {"path": str(shown)}}),
    )
    said = place.ended("reader")
    assert said.startswith("of the host\n")
    assert "admin.kubeconfig" not in said
    assert (shown / "file").read_text() == "of the host\n"


@pytest.mark.parametrize(
    "link", ["state", "/etc", "../../../../../..", "/proc/1/root"], ids=["state", "etc", "up", "proc"]
)
def test_a_link_in_a_volume_leads_nowhere_as_a_sub_path(
    place: Place, link: str, request: pytest.FixtureRequest
) -> None:
    target = str(place.up.state) if link == "state" else link
    name = f"link-{request.node.callspec.id}"
    sub = {"volumeMounts": [{"name": "own", "mountPath": "/seen", "subPath": "link"}]}
    place.create(
        name,
        shell("c", "ls -a /seen", **sub),
        initContainers=[shell("i", f"ln -s {target} /own/link", **MOUNT)],
        **own(),
    )
    found = until(
        lambda: (
            (state := (place.status(name).get("containerStatuses") or [{}])[0].get("state", {}))
            and (
                state.get("terminated")
                or state.get("waiting", {}).get("reason") == "CreateContainerConfigError"
                or state.get("waiting", {}).get("reason") == "CreateContainerError"
            )
            and state
        ),
    )
    if "terminated" in found:
        said = place.log(name)
        assert not {"admin.kubeconfig", "passwd", "usr", "node"} & set(said.split()), said


def test_a_link_in_a_volume_is_not_followed_when_the_volume_goes(place: Place) -> None:
    kept = place.outside / "kept"
    kept.mkdir()
    (kept / "file").write_text("stays\n")
    place.create(
        "linked", shell("c", f"ln -s {kept} /own/link; mkdir -p /own/a/b; ln -s / /own/a/b/root", **MOUNT), **own()
    )
    place.ended("linked")
    place.ask("DELETE", f"{PODS}/linked")
    until(lambda: place.ask("GET", f"{PODS}/linked")[0] == 404)
    assert (kept / "file").read_text() == "stays\n"


def test_a_link_for_its_log_or_message_is_not_followed(place: Place) -> None:
    """The message is read by the agent, as root of the machine."""
    target = next(place.up.state.rglob("admin.kubeconfig"))
    script = f"rm -f /dev/termination-log; ln -s {target} /dev/termination-log; ln -s /etc/shadow /tmp/x; exit 1"
    place.create("message", shell("c", script, terminationMessagePolicy="FallbackToLogsOnError"))
    place.phase("message", "Failed")
    message = place.status("message")["containerStatuses"][0]["state"]["terminated"].get("message", "")
    assert "client-key" not in message
    assert "root:" not in message


def test_settings_of_windows_mean_nothing_here(place: Place) -> None:
    place.create("windows", shell("c", "true", securityContext={"windowsOptions": {"runAsUserName": "x"}}))
    place.phase("windows", "Succeeded")


def test_sysctls(place: Place) -> None:
    """Safe ones are set in the pod's namespaces, others are refused as by a kubelet."""
    name = "net.ipv4.ip_unprivileged_port_start"
    show = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start"
    place.create("sysctl", shell("c", show), securityContext={"sysctls": [{"name": name, "value": "82"}]})
    assert place.ended("sysctl") == "82\n"
    unsafe = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
    place.create("unsafe-sysctl", shell("c", "true"), securityContext=unsafe)
    refused = place.phase("unsafe-sysctl", "Failed")
    assert refused["reason"] == "SysctlForbidden"
    assert refused["message"] == 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted'


def test_the_mode_of_a_sub_path_in_memory(place: Place) -> None:
    """As the suite of Kubernetes asks: `dgtrwxrwxrwx`, with the group of the volumes."""
    mount = {"volumeMounts": [{"name": "own", "mountPath": "/sub", "subPath": "new/dir"}]}
    place.create(
        "sub-path-mode",
        shell("c", "stat -c '%A %a %g' /sub", **mount),
        securityContext={"fsGroup": 123},
        **own({"emptyDir": {"medium": "Memory"}}),
    )
    assert place.ended("sub-path-mode") == "drwxrwsrwt 3777 123\n"


def test_a_program_sees_its_limits(place: Place) -> None:
    """In its own cgroup at /sys/fs/cgroup, as the JVM, Go and Node.js look for them."""
    read = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null"
    place.create("limited", shell("c", read, resources={"limits": {"memory": "64Mi"}}))
    assert place.ended("limited") == f"{64 << 20}\n"


def test_a_pod_with_users_of_its_own(place: Place) -> None:
    """`hostUsers: false`: two pods have different users of the host; volumes belong to the group inside."""
    if kernel_version() < (6, 3):
        pytest.skip("idmapped tmpfs: Linux 6.3")

    def whole(name: str) -> list[str]:
        said = place.log(name).split()
        return said if len(said) == 4 else []

    script = "cat /proc/self/uid_map; touch /own/file && stat -c '%u:%g' /own/file; exec sleep 1000"
    ranges = []
    for name in ("users-one", "users-two"):
        context = {"fsGroup": 5555}
        place.create(name, shell("c", script, **MOUNT), hostUsers=False, securityContext=context, **own())
        place.phase(name, "Running")
        inside, outside, length, owner = until(partial(whole, name))
        assert (inside, length, owner) == ("0", "65536", "0:5555")
        ranges.append(int(outside))
    assert len(set(ranges)) == 2 and min(ranges) >= 65536


def test_a_secret_and_a_token(place: Place) -> None:
    """In one projected volume; the token is the pod's own and belongs to its only user."""
    secret = {"metadata": {"name": "login"}, "stringData": {"user": "alice"}}
    code, body = place.ask("POST", "/api/v1/namespaces/default/secrets", secret)
    assert code == 201, body
    sources = [
        {"secret": {"name": "login", "items": [{"key": "user", "path": "who", "mode": 0o444}]}},
        {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"secret": {"name": "none", "optional": True}},
    ]
    env = {"env": [{"name": "USER_NAME", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}]}
    script = (
        "cat /own/who /own/name; echo; echo $USER_NAME; stat -L -c '%a %u' /own/who /own/token; "
        "cut -d. -f2 /own/token; ls -A /own | sort"
    )
    uid = place.create(
        "tokens",
        shell("c", script, **MOUNT, **env),
        securityContext={"runAsUser": 1000},
        **own({"projected": {"sources": sources}}),
    )
    both, name, who, token, claims, *names = place.ended("tokens").splitlines()
    assert (both, name, who, token) == ("alicetokens", "alice", "444 0", "600 1000")
    assert [name for name in names if not name.startswith("..")] == ["name", "token", "who"]
    claim = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert claim["aud"] == ["vault"]
    assert claim["kubernetes.io"]["pod"] == {"name": "tokens", "uid": uid}


def test_the_exact_host_name(place: Place) -> None:
    place.create("named", shell("c", "hostname"), hostname="short", hostnameOverride="exact.example.com")
    assert place.ended("named") == "exact.example.com\n"


def test_a_label_of_selinux(place: Place) -> None:
    """As with a kubelet it has no effect where SELinux is not enabled, and an event says so; elsewhere it is refused."""
    place.create("labelled", shell("c", "true", securityContext={"seLinuxOptions": {"level": "s0"}}))
    field = "spec.containers[0].securityContext.seLinuxOptions"
    said = until(lambda: [each for each in place.events("labelled") if field in each])
    if has_selinux():
        assert place.status("labelled")["phase"] in ("Pending", "Failed")
    else:
        assert said == [f"{field}: no effect, SELinux is not enabled on this node"]
        place.phase("labelled", "Succeeded")


def seccomp_of(log: str) -> str:
    return next(line.split()[1] for line in log.splitlines() if line.startswith("Seccomp:"))


@pytest.mark.parametrize(
    ("name", "context", "mode"),
    [
        pytest.param("unset", {}, "2", id="the default is a filter"),
        pytest.param("runtime-default", {"seccompProfile": {"type": "RuntimeDefault"}}, "2", id="RuntimeDefault"),
        pytest.param("unconfined", {"seccompProfile": {"type": "Unconfined"}}, "0", id="Unconfined"),
        pytest.param("escalating", {"allowPrivilegeEscalation": True}, "2", id="with privilege escalation"),
        pytest.param("privileged", {"privileged": True}, "0", id="privileged"),
    ],
)
def test_seccomp_profiles(place: Place, name: str, context: Document, mode: str) -> None:
    place.create(f"seccomp-{name}", shell("c", "cat /proc/self/status", securityContext=context))
    assert seccomp_of(place.ended(f"seccomp-{name}")) == mode


def test_a_restricted_pod_runs(place: Place) -> None:
    """Every field that the Pod Security level `restricted` asks for."""
    shared = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    place.create("restricted", shell("c", "cat /proc/self/status", securityContext=own), securityContext=shared)
    assert seccomp_of(place.ended("restricted")) == "2"


def test_localhost_profiles(place: Place) -> None:
    profiles = next(path for path in place.up.state.rglob("node") if path.is_dir()) / "seccomp"
    profiles.mkdir(exist_ok=True)
    refused = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}
    (profiles / "no-mkdir.json").write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}))

    def context(profile: str) -> Document:
        return {"seccompProfile": {"type": "Localhost", "localhostProfile": profile}}

    command = "mkdir /tmp/x; echo code $?"
    place.create("localhost", shell("c", command, securityContext=context("no-mkdir.json")))
    log = place.ended("localhost")
    assert "code 1" in log and "No space left" in log
    place.create("missing-profile", shell("c", command, securityContext=context("missing.json")))
    until(lambda: any("seccomp profile" in message for message in place.events("missing-profile")))


ESCAPE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
flags = 0x10000000 | 0x00020000  # CLONE_NEWUSER | CLONE_NEWNS
print("unshare", libc.unshare(flags), os.strerror(ctypes.get_errno()))
os.makedirs("/tmp/cgroup", exist_ok=True)
for options in (b"memory", b"cpu", b"cpu,cpuacct"):
    print("mount", libc.mount(b"none", b"/tmp/cgroup", b"cgroup", 0, options), os.strerror(ctypes.get_errno()))
print("mount2", libc.mount(b"none", b"/tmp/cgroup", b"cgroup2", 0, None), os.strerror(ctypes.get_errno()))
for folder, _, names in os.walk("/tmp/cgroup"):
    for name, value in (("memory.limit_in_bytes", "-1"), ("cpu.cfs_quota_us", "-1"), ("memory.max", "max"), ("cpu.max", "max")):
        if name in names:
            with open(os.path.join(folder, name), "w") as file:
                file.write(value)
            print("LIFTED", folder, name)
"""


def test_a_container_cannot_take_off_its_own_limits(place: Place) -> None:
    """Without a filter, root could make a user and mount namespace, mount a hierarchy of its own, and write there."""
    limits = {"limits": {"cpu": "100m", "memory": "64Mi"}}
    command = ["python3", "-c", ESCAPE]
    place.create("escape", {"name": "c", "image": "busybox", "command": command, "resources": limits})
    log = place.ended("escape")
    assert "unshare -1 Operation not permitted" in log
    assert log.count("mount -1 Operation not permitted") == 3
    assert "LIFTED" not in log
