"""Which cluster a verb uses, and the errors if there is none."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest

from plimsoll import __version__
from plimsoll.cli.client import ClusterClient, default_kubeconfigs, found_access
from plimsoll.cli.node_info import AmbiguousNodeError, chosen_node
from plimsoll.kube.kubeconfig import KubeconfigError
from plimsoll.kube.request import Request
from tests.unit.console import run

CONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:PORT"}}]
users: [{name: u, user: {}}]
"""
PLACES = [
    ("the user's, then ours", {"HOME": "/h"}, 1000, ["/h/.kube/config", "/h/.local/state/plimsoll/admin.kubeconfig"]),
    ("of root", {"HOME": "/root"}, 0, ["/root/.kube/config", "/var/lib/plimsoll/admin.kubeconfig"]),
    ("another state", {"HOME": "/h", "PLIMSOLL_HOME": "/p"}, 0, ["/h/.kube/config", "/p/admin.kubeconfig"]),
    ("nothing at all", {}, 1000, []),
]


@pytest.mark.parametrize(("environment", "uid", "places"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_kubeconfig_paths(environment: dict[str, str], uid: int, places: list[str]) -> None:
    assert default_kubeconfigs(environment, uid) == [Path(each) for each in places]


def test_the_first_existing_kubeconfig_is_used(tmp_path: Path) -> None:
    (tmp_path / "admin.kubeconfig").write_text(CONFIG)
    environment = {"PLIMSOLL_HOME": str(tmp_path), "HOME": f"{tmp_path}/none"}
    assert found_access(None, "", environment, 0).namespace == "shop"
    with pytest.raises(KubeconfigError, match=r"tried .*/none/.kube/config, .*admin.kubeconfig\nStart a cluster with"):
        found_access(None, "", {**environment, "PLIMSOLL_HOME": "/nowhere"}, 0)


@pytest.mark.parametrize("command", ["oom", "pressure"])
def test_commands_that_need_no_cluster_say_so(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "PLIMSOLL_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    said = run("get", "pods").err
    assert "no kubeconfig found" in said
    assert "--here" not in said
    assert "use --kubeconfig FILE. Use --here to read this machine without a cluster." in run(command).err


def test_a_missing_kubeconfig_never_means_another_cluster(tmp_path: Path) -> None:
    """Neither ~/.kube/config, nor the cluster of `plimsoll up`, nor the pod's service account."""
    (tmp_path / ".kube").mkdir()
    for place in (tmp_path / "admin.kubeconfig", tmp_path / ".kube/config"):
        place.write_text(CONFIG)
    environment = {"HOME": str(tmp_path), "PLIMSOLL_HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for named in ("/no/a", "/no/a:/no/b"):
        with pytest.raises(
            KubeconfigError, match=f"KUBECONFIG: {named.replace(':', ', ')}: no such file: correct or unset"
        ):
            found_access(None, "", {**environment, "KUBECONFIG": named}, 0)
    with pytest.raises(KubeconfigError, match="/no/c: No such file or directory: use --kubeconfig"):
        found_access(Path("/no/c"), "", environment, 0)
    some = f"/no/a:{tmp_path}/admin.kubeconfig"
    assert found_access(None, "", {**environment, "KUBECONFIG": some}, 0).namespace == "shop"


@pytest.mark.parametrize("words", [["get", "pods"], ["events"], ["scheduler"], ["pressure"], ["oom"]])
def test_every_verb_names_the_missing_file(words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "admin.kubeconfig").write_text(CONFIG)
    monkeypatch.setenv("PLIMSOLL_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "/no/such/config")
    done = run(*words)
    assert done.code != 0 and "/no/such/config" in done.err, (done.out, done.err)


VERBS = [
    ("get", ["get", "pods"]),
    ("describe", ["describe", "pod", "x"]),
    ("delete", ["delete", "pod", "x"]),
    ("logs", ["logs", "x"]),
    ("exec", ["exec", "x", "--", "true"]),
    ("events", ["events"]),
    ("label", ["label", "pod", "x", "a=b"]),
    ("annotate", ["annotate", "pod", "x", "a=b"]),
    ("scale", ["scale", "deployment/x", "--replicas=1"]),
    ("wait", ["wait", "--for=delete", "pod/x"]),
    ("top", ["top", "pods"]),
    ("cordon", ["cordon", "x"]),
    ("drain", ["drain", "x"]),
    ("create", ["create", "namespace", "x"]),
    ("version", ["version"]),
    ("resize", ["resize", "x", "--cpu", "1"]),
    ("pressure", ["pressure"]),
    ("oom", ["oom"]),
    ("eviction-order", ["explain", "eviction-order"]),
]


@pytest.mark.parametrize("words", [row[1] for row in VERBS], ids=[row[0] for row in VERBS])
def test_a_server_that_is_not_reachable(tmp_path: Path, words: list[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        config = tmp_path / "config"
        config.write_text(CONFIG.replace("PORT", str(port)))
        if words[0] == "exec":
            words = ["exec", "--kubeconfig", str(config), *words[1:]]
        else:
            words = [*words, "--kubeconfig", str(config)]
        ran = run(*words)
    known = f"Client Version: v{__version__}\n" if words[0] == "version" else ""  # as kubectl prints it
    assert (ran.code, ran.out) == (2, known)
    assert f"127.0.0.1:{port}" in ran.err
    assert "Is the server running? `plimsoll up` starts one" in ran.err


WRONG = [
    ("get: nothing", ["get"], "specify a kind"),
    ("apply: nothing", ["apply"], "Missing option '-f'"),
    ("delete: nothing", ["delete"], "specify objects or -f FILE"),
    ("delete: both", ["delete", "pod", "x", "-f", "y"], "specify objects or -f FILE"),
    ("exec: no command", ["exec", "x"], "Missing argument"),
    (
        "resize: no time",
        ["resize", "x", "--cpu", "1", "--timeout", "soon"],
        "'soon' is not a duration such as 90s, 5m or 1h30m",
    ),
    ("resize: no time left", ["resize", "x", "--cpu", "1", "--timeout", "0s"], "'0s' is not more than 0"),
    ("resize: no amount", ["resize", "x"], "specify --cpu, --memory or both"),
    ("resize: neither", ["resize", "x", "--cpu", "1", "--limits-only", "--requests-only"], "exclude each other"),
    ("resize: no quantity", ["resize", "x", "--cpu", "lots"], "'lots'"),
    ("events: no name", ["events", "--for", "web"], "KIND/NAME"),
]


@pytest.mark.parametrize(("words", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_mistakes(words: list[str], text: str) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


MANIFESTS = [
    ("no YAML", "a: [", "did not find expected"),
    ("no kind", "apiVersion: v1\nmetadata: {name: a}", "kind is missing"),
    ("no name", "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}", "metadata.name is missing"),
    ("nothing", "# only words\n", "contains no object"),
    ("one bad of two", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n", "document 2: apiVersion"),
    ("in a list", '{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Pod"}]}', "apiVersion is missing"),
]


@pytest.mark.parametrize(("text", "problem"), [row[1:] for row in MANIFESTS], ids=[row[0] for row in MANIFESTS])
@pytest.mark.parametrize("verb", ["apply", "delete"])
def test_nothing_is_sent_if_a_manifest_is_invalid(tmp_path: Path, verb: str, text: str, problem: str) -> None:
    """This needs no server."""
    (tmp_path / "m.yaml").write_text(text)
    ran = run(verb, "-f", str(tmp_path / "m.yaml"), "--kubeconfig", "/nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert "nothing was sent" in ran.err
    assert problem in ran.err


class Played:
    """A cluster with these nodes."""

    def __init__(self, *names: str) -> None:
        self._names = names

    async def ask(self, _request: Request) -> dict[str, Any]:
        return {"items": [{"metadata": {"name": each}} for each in self._names]}


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), "the cluster has no nodes; see `plimsoll node --help`"),
        (("a", "b"), r"name a node, the cluster has 2: a, b$"),
    ],
    ids=["none", "two"],
)
async def test_a_node_must_be_named_unless_there_is_one(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(AmbiguousNodeError, match=text):
        await chosen_node(cast(ClusterClient, Played(*names)), "")
