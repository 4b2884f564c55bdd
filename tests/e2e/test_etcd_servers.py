"""Two API servers on one etcd: what one acknowledges the other reads; lists, watches, identities and leadership move."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from plimsoll.api.machinery.users import Tokens
from plimsoll.store.etcd.client import EtcdClient
from plimsoll.store.etcd.location import location
from plimsoll.store.etcd.messages import RANGE, RangeRequest, RangeResponse
from tests.e2e.api_process import ApiProcess
from tests.e2e.etcd_process import EtcdProcess, NoEtcdError
from tests.e2e.raw_http import admin_tls
from tests.e2e.waiting import DEADLINE_S, until

pytestmark = pytest.mark.xdist_group("etcd servers")  # one set-up for all
PLIMSOLL = str(Path(sys.executable).with_name("plimsoll"))
MAPS = "/api/v1/namespaces/default/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
PASSPHRASE = "a secret of the operator\n"


class Servers:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.etcd = EtcdProcess(directory).start()
        self.key = directory / "store.key"
        self.key.write_text(PASSPHRASE)
        self.processes: list[ApiProcess] = []
        self.admins: list[httpx.Client] = []

    def start(self) -> None:
        words = ("join", self.etcd.url) if self.processes else ("--store", self.etcd.url)
        number = len(self.processes)
        place, log = self.directory / f"state{number}", self.directory / f"{number}.log"
        server = ApiProcess(place, log, *words, "--store-key-file", str(self.key)).ready()
        self.processes.append(server)
        tls = admin_tls(server.kubeconfig)
        self.admins.append(httpx.Client(base_url=server.url, verify=tls, timeout=DEADLINE_S))

    def close(self) -> None:
        for admin in self.admins:
            admin.close()
        for server in self.processes:
            server.stop()
        self.etcd.kill()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory = tmp_path_factory.mktemp("etcd")
    try:
        made = Servers(directory)
    except NoEtcdError as error:
        pytest.skip(str(error))
    try:
        made.start()
        made.start()
        yield made
    finally:
        made.close()


def test_what_one_acknowledges_the_other_reads(servers: Servers) -> None:
    one, two = servers.admins
    for number in range(12):
        name = f"seen-{number}"
        made = one.post(MAPS, json={"metadata": {"name": name}, "data": {"n": "1"}})
        assert made.status_code == 201
        read = two.get(f"{MAPS}/{name}")
        assert read.status_code == 200 and read.json()["metadata"] == made.json()["metadata"]
        patch = {"data": {"n": "2"}}
        merge = {"content-type": "application/merge-patch+json"}
        assert two.patch(f"{MAPS}/{name}", json=patch, headers=merge).status_code == 200
        assert one.get(f"{MAPS}/{name}").json()["data"] == {"n": "2"}
        assert one.delete(f"{MAPS}/{name}").status_code == 200
        assert two.post(MAPS, json={"metadata": {"name": name}}).status_code == 201  # and not 409
        assert one.post(MAPS, json={"metadata": {"name": name}}).status_code == 409
        assert one.delete(f"{MAPS}/{name}").status_code == 200
        assert two.delete(f"{MAPS}/{name}").status_code == 404


def test_a_new_namespace_is_known_to_both(servers: Servers) -> None:
    one, two = servers.admins
    for number in range(5):
        assert one.post("/api/v1/namespaces", json={"metadata": {"name": f"n{number}"}}).status_code == 201
        path = f"/api/v1/namespaces/n{number}/configmaps"
        assert two.post(path, json={"metadata": {"name": "m"}}).status_code == 201
        assert one.get(f"/api/v1/namespaces/n{number}/serviceaccounts/default").status_code == 200


def test_lists_and_watches_move_from_one_to_the_other(servers: Servers) -> None:
    one, two = servers.admins
    names = [f"page-{number}" for number in range(6)]
    for name in names:
        assert one.post(MAPS, json={"metadata": {"name": name, "labels": {"page": "y"}}}).status_code == 201
    first = one.get(MAPS, params={"limit": "2"}).json()
    found, page, side = list(first["items"]), first, 0
    one.delete(f"{MAPS}/page-5")
    while token := page["metadata"].get("continue"):
        side = 1 - side
        page = servers.admins[side].get(MAPS, params={"limit": "2", "continue": token}).json()
        found += page["items"]
    assert set(names) <= {each["metadata"]["name"] for each in found}  # the deleted one was there at that version
    version = first["metadata"]["resourceVersion"]
    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "1"}
    with two.stream("GET", MAPS, params=query) as watch:
        events = [json.loads(line) for line in watch.iter_lines()]
    shown = [(each["type"], each["object"]["metadata"]["name"]) for each in events]
    assert shown == [("DELETED", "page-5")]
    for name in names:
        one.delete(f"{MAPS}/{name}")


def test_both_have_the_same_identities(servers: Servers) -> None:
    one, two = servers.admins
    states = [server.state for server in servers.processes]
    for name in ("pki/ca.crt", "pki/ca.key", "pki/sa.key", "pki/secrets.key"):
        assert (states[0] / name).read_bytes() == (states[1] / name).read_bytes()
        assert (states[1] / name).stat().st_mode & 0o777 == 0o600
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = one.post(path, json={"spec": {"expirationSeconds": 600}}).json()["status"]["token"]
    review = {"spec": {"token": token}}
    answer = two.post("/apis/authentication.k8s.io/v1/tokenreviews", json=review).json()
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:default"
    words = [PLIMSOLL, "api", "--state-dir", str(states[0]), "token", "create", "--user", "eve"]
    kubeconfig = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    bearer = kubeconfig.split("token:")[1].split()[0].strip('"')
    tls = ssl.create_default_context(cafile=states[1] / "pki" / "ca.crt")
    with httpx.Client(base_url=servers.processes[1].url, verify=tls, timeout=DEADLINE_S) as eve:
        until(lambda: eve.get(MAPS, headers={"authorization": f"Bearer {bearer}"}).status_code == 200)


def test_tokens_that_change_on_both_at_once(servers: Servers) -> None:
    """What either one creates or revokes in the same moment counts on both."""
    states = [server.state for server in servers.processes]
    Tokens(states[0]).create("left", ())
    until(lambda: all("left" in Tokens(each).names() for each in states))
    Tokens(states[0]).revoke("left")
    for number, state in enumerate(states):
        Tokens(state).create(f"new-{number}", ())
    until(lambda: all({"new-0", "new-1"} <= set(Tokens(each).names()) for each in states))
    until(lambda: not any("left" in Tokens(each).names() for each in states))


def test_secrets_and_keys_are_encrypted_in_etcd(servers: Servers) -> None:
    one, two = servers.admins
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "correct horse battery"}}
    path = "/api/v1/namespaces/default/secrets"
    assert one.post(path, json=secret).status_code == 201
    assert two.get(f"{path}/s").json()["data"] == {"password": "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5"}

    async def everything() -> bytes:
        client = EtcdClient(location(servers.etcd.url))
        try:
            read = await client.read(RANGE, RangeRequest(b"/plimsoll/", b"/plimsoll0"), RangeResponse)
            return b"".join(each.value for each in read.kvs)
        finally:
            client.close()

    stored = asyncio.run(everything())
    assert b"default" in stored
    key = (servers.processes[0].state / "pki" / "ca.key").read_bytes()
    for text in (b"Y29ycmVjdCBob3JzZSBiYXR0ZXJ5", b"PRIVATE KEY", key[40:80]):
        assert text not in stored


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--store", "etcd://127.0.0.1:1"), "needs --store-key-file"),
        (("join", "{etcd}?prefix=/none", "--store-key-file", "{key}"), "has no control plane yet"),
        (("join", "{etcd}", "--store-key-file", "{wrong}"), "cannot be decrypted with"),
        (("--store", "{etcd}?prefix=/plimsoll/objects", "--store-key-file", "{key}"), "was not written by Plimsoll"),
        (("--store", "etcd://127.0.0.1:1", "--store-key-file", "{key}"), "does not answer"),
    ],
)
def test_bad_input_is_refused(servers: Servers, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("not the secret of the operator")
    values = {"etcd": servers.etcd.url, "key": servers.key, "wrong": wrong}
    command = [PLIMSOLL, "api", "--state-dir", str(tmp_path / "state"), "--listen", "127.0.0.1:0"]
    command += [word.format(**values) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode in (1, 2) and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and PASSPHRASE.strip() not in done.stderr


def test_backups_move_between_sqlite_and_etcd(servers: Servers, tmp_path: Path) -> None:
    passphrase, etcd = tmp_path / "passphrase", f"{servers.etcd.url}?prefix=/moved"
    passphrase.write_text("another secret of the operator")
    shared = ("--store", etcd, "--store-key-file", str(servers.key))
    places = {name: tmp_path / name for name in ("sqlite", "etcd", "again")}
    words: dict[str, tuple[str, ...]] = {"sqlite": ("--no-scheduler",), "etcd": shared, "again": ("--no-scheduler",)}
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "correct horse"}}
    paths = ("/api/v1/namespaces/default/secrets", MAPS, "/api/v1/nodes")
    found: list[object] = []
    for number, (name, state) in enumerate(places.items()):
        options = () if name != "etcd" else shared
        if number:
            restored = ["restore", str(tmp_path / f"backup{number - 1}"), "--passphrase-file", str(passphrase)]
            _plimsoll("api", "--state-dir", str(state), *options, *restored)
        server = ApiProcess(state, tmp_path / f"{name}.log", *words[name]).ready()
        try:
            tls = admin_tls(server.kubeconfig)
            with httpx.Client(base_url=server.url, verify=tls, timeout=DEADLINE_S) as admin:
                if not number:
                    assert admin.post(paths[0], json=secret).status_code == 201
                    assert admin.post(MAPS, json={"metadata": {"name": "m"}, "data": {"a": "b"}}).status_code == 201
                found.append([admin.get(path).json()["items"] for path in paths])
            saved = ["backup", str(tmp_path / f"backup{number}"), "--passphrase-file", str(passphrase)]
            _plimsoll("api", "--state-dir", str(state), *options, *saved)
        finally:
            server.stop()
    assert found[0] == found[1] == found[2]
    assert (places["sqlite"] / "pki" / "ca.key").read_bytes() == (places["again"] / "pki" / "ca.key").read_bytes()


def _plimsoll(*words: str) -> None:
    done = subprocess.run([PLIMSOLL, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_of_another_cluster_is_refused(servers: Servers, tmp_path: Path) -> None:
    state = tmp_path / "state"
    own = ApiProcess(state, tmp_path / "own.log", "--no-scheduler")
    own.ready().stop()
    words = ["api", "--state-dir", str(state), "join", servers.etcd.url, "--store-key-file", str(servers.key)]
    done = subprocess.run([PLIMSOLL, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert "belongs to another cluster" in done.stderr, done.stderr


def test_another_server_leads_when_the_leader_is_killed(servers: Servers) -> None:
    """The last test here: it ends one of the servers."""
    pid = int(servers.admins[0].get(LEASE).json()["spec"]["holderIdentity"].split("_")[-2])
    leader = next(server for server in servers.processes if server.process.pid == pid)
    side = 1 - servers.processes.index(leader)
    other = servers.admins[side]
    paused = {"spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {}}}
    paused["spec"]["template"] = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    os.kill(pid, signal.SIGKILL)
    made = other.post("/apis/apps/v1/namespaces/default/deployments", json={"metadata": {"name": "d"}, **paused})
    assert made.status_code == 201

    def pods() -> list[str]:
        found = other.get("/api/v1/namespaces/default/pods", params={"labelSelector": "a=b"}).json()
        return [each["metadata"]["name"] for each in found["items"]]

    until(lambda: len(pods()) == 2)
    spec = other.get(LEASE).json()["spec"]
    assert int(spec["holderIdentity"].split("_")[-2]) == servers.processes[side].process.pid
    assert spec["leaseTransitions"] >= 1
