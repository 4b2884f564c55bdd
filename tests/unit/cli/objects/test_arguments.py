"""Arguments of the verbs, without a server: flags as kubectl reads them, changes of labels, conditions, containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli import console
from plimsoll.cli.failure import FailedError
from plimsoll.cli.objects.logs import chosen, log_query
from plimsoll.cli.objects.metadata import parted
from plimsoll.cli.objects.output import sort_key
from plimsoll.cli.objects.wait import read_condition
from plimsoll.cli.parameters import DurationParam
from plimsoll.cli.verb import Verb, dry_run_option
from tests.unit.console import run


@console.command(cls=Verb)
@console.argument("words", nargs=-1)
@console.option("--wait/--no-wait", default=True)
@console.option("--all", "every", is_flag=True)
@console.option("-n", "--name")
@dry_run_option("server")
def probe(**options: Any) -> dict[str, Any]:
    return options


FLAGS: list[tuple[str, dict[str, Any]]] = [
    ("--wait pod", {"wait": True, "words": ("pod",)}),
    ("--wait=false pod", {"wait": False}),
    ("--wait=true --no-wait", {"wait": False}),
    ("--all=false", {"every": False}),
    ("--all=true x", {"every": True, "words": ("x",)}),
    ("--dry-run pod", {"dry_run": "server", "words": ("pod",)}),
    ("--dry-run=client", {"dry_run": "client"}),
    ("-n --all x", {"name": "--all", "every": False}),
    ("-n=shop x", {"name": "shop", "words": ("x",)}),
    ("-n=a=b", {"name": "a=b"}),
    ("-- --dry-run", {"dry_run": "none", "words": ("--dry-run",)}),
]


@pytest.mark.parametrize(("words", "wanted"), FLAGS, ids=[row[0] for row in FLAGS])
def test_flags_have_values_as_in_kubectl(words: str, wanted: dict[str, Any]) -> None:
    found = probe.main("probe", words.split())
    assert {name: found[name] for name in wanted} == wanted


def test_a_flag_is_true_or_false() -> None:
    with pytest.raises(console.UsageError, match="--wait=maybe: must be true or false"):
        probe.main("probe", ["--wait=maybe"])


def test_changes_follow_the_objects() -> None:
    objects, change = parted(("pod", "web", "a=b=c", "d-", "e="))
    assert objects == ("pod", "web")
    assert change.patch() == {"d": None, "a": "b=c", "e": ""}
    assert change.of({"a": "x", "d": "y", "z": "1"}) == {"a": "b=c", "e": "", "z": "1"}


@pytest.mark.parametrize("words", [("pod", "web", "a=b", "c"), ("pod", "web", "a=b", "a-"), ("pod", "web", "=b")])
def test_changes_that_are_none(words: tuple[str, ...]) -> None:
    with pytest.raises(console.UsageError):
        parted(words)


POD: dict[str, Any] = {
    "metadata": {"name": "web", "generation": 3},
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 3},
            {"type": "Old", "status": "True", "observedGeneration": 2},
        ],
        "containers": [{"name": "a=b", "ready": True}],
    },
}
CONDITIONS = [
    ("condition=Ready", True),
    ("condition=ready=true", True),
    ("condition=Ready=False", False),
    ("condition=Nothing", False),
    ("condition=Old", False),  # about a former generation
    ("jsonpath={.status.phase}=Running", True),
    ("jsonpath='{.status.phase}'=Running".replace("'", ""), True),
    ('jsonpath={.status.phase}="Running"', True),
    ("jsonpath=.status.phase=Running", True),
    ("jsonpath={.status.phase}", True),
    ("jsonpath={.status.nothing}", False),
    ('jsonpath={.status.containers[?(@.name=="a=b")].ready}=true', True),
    ("create", True),
    ("delete", False),
]


@pytest.mark.parametrize(("text", "met"), CONDITIONS, ids=[row[0] for row in CONDITIONS])
def test_conditions(text: str, met: bool) -> None:
    assert read_condition(text).met(POD) is met


@pytest.mark.parametrize("text", ["ready", "jsonpath={.a}=", "jsonpath={.a", "jsonpath={.a}x"])
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(FailedError, match=r"^error: "):
        read_condition(text)


TWO: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"containers": [{"name": "app"}, {"name": "side"}], "initContainers": [{"name": "init"}]},
}


def test_containers_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.container for each in chosen(TWO, "", everything=False)] == ["app"]
    assert capsys.readouterr().err == 'Defaulted container "app" out of: app, side, init (init)\n'
    assert [each.prefix for each in chosen(TWO, "init", everything=False)] == ["[pod/web/init] "]
    assert [each.container for each in chosen(TWO, "", everything=True)] == ["init", "app", "side"]
    named = {**TWO, "metadata": {**TWO["metadata"], "annotations": {"kubectl.kubernetes.io/default-container": "side"}}}
    assert [each.container for each in chosen(named, "", everything=False)] == ["side"]
    assert capsys.readouterr().err == ""
    with pytest.raises(FailedError, match="container x is not valid for pod web out of: app, side, init"):
        chosen(TWO, "x", everything=False)


def test_options_of_a_log() -> None:
    nothing = dict.fromkeys(("follow", "previous", "timestamps"), False)
    unset = {**nothing, "tail": None, "since_s": None, "since_time": "", "limit_bytes": None, "selector": ""}
    assert log_query(unset) == {}
    assert log_query({**unset, "selector": "a=b"}) == {"tailLines": "10"}
    assert log_query({**unset, "tail": -1, "selector": "a=b"}) == {}
    timed = {**unset, "since_s": 5400.0, "tail": 0, "follow": True}
    assert log_query(timed) == {"sinceSeconds": "5400", "tailLines": "0", "follow": "true"}
    assert log_query({**unset, "since_time": "2026-01-01T01:00:00+01:00"}) == {"sinceTime": "2026-01-01T00:00:00Z"}
    with pytest.raises(FailedError, match='parsing time "then" as "2006-01-02T15:04:05Z07:00"'):
        log_query({**unset, "since_time": "then"})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("0.5", 0.5), ("1m30s", 90), ("1.5h", 5400), ("0", 0), ("-1s", -1)]
)
def test_durations(text: str, seconds: float) -> None:
    assert DurationParam().convert(text, None, None) == seconds


def test_sorting() -> None:
    documents = [{"v": "1Gi"}, {"v": "900Mi"}, {}, {"v": "2"}]
    assert sorted(documents, key=sort_key(".v", documents)) == [{}, {"v": "2"}, {"v": "900Mi"}, {"v": "1Gi"}]
    texts = [{"v": "b"}, {"v": "a10"}, {"v": "a9"}]
    assert sorted(texts, key=sort_key("{.v}", texts)) == [{"v": "a10"}, {"v": "a9"}, {"v": "b"}]
    with pytest.raises(FailedError, match="couldn't find any field"):
        sort_key(".nothing", documents)


MISTAKES = [
    ("objects twice", ["delete", "pod", "x", "-f", "y"], "specify objects or -f FILE"),
    ("kustomize", ["apply", "-k", "dir"], "kubectl kustomize dir | plimsoll apply -f -"),
    ("a URL", ["apply", "-f", "https://example.com/a.yaml"], "curl -sSfL https://example.com/a.yaml"),
    ("a template", ["get", "pods", "-o", "go-template={{.}}"], "use jsonpath or custom-columns"),
    ("no argument", ["get", "pods", "-o", "jsonpath"], "write jsonpath=…"),
    ("a form", ["get", "pods", "-o", "xml"], "'xml' is not one of wide, json, yaml, name"),
    ("now", ["delete", "pod", "x", "--now", "--grace-period", "3"], "exclude each other"),
    ("logs of nothing", ["logs"], "specify POD, KIND/NAME or -l LABELS"),
    ("no file", ["create"], "specify -f FILE"),
]


@pytest.mark.parametrize(("words", "text"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_mistakes_say_what_to_do(words: list[str], text: str) -> None:
    ran = run(*words, "--kubeconfig", "/nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert len(ran.err.splitlines()) == 2, ran.err  # the error, and the hint


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert "_PLIMSOLL_COMPLETE" in ran.out


def test_commands_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PLIMSOLL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "plimsoll unc")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run().out == "plain,uncordon\n"


def test_the_version_of_the_client() -> None:
    from plimsoll import __version__

    assert run("version", "--client").out == f"Client Version: v{__version__}\n"


@pytest.mark.parametrize(("output", "shown"), [((), "Client Version: v"), (("-o", "json"), '"clientVersion": {')])
def test_the_version_of_the_client_without_a_server(tmp_path: Path, output: tuple[str, ...], shown: str) -> None:
    """As kubectl: what is known, then the error."""
    ran = run("version", "--kubeconfig", str(tmp_path / "none"), *output)
    assert (ran.code, shown in ran.out, "serverVersion" in ran.out) == (2, True, False), ran
    assert str(tmp_path / "none") in ran.err


def test_man_pages_escape_once() -> None:
    r"""`\-` is a minus; escaped twice it shows a backslash."""
    from plimsoll.cli.objects.man import manual_pages

    for name, page in manual_pages().items():
        assert "\\e\\-" not in page, name
    assert "Kubernetes' node\\-level resource management" in manual_pages()["plimsoll"].splitlines()[2]


def test_options_of_a_cluster_may_precede_the_verb() -> None:
    first = run("-n", "shop", "--kubeconfig=/nowhere", "get", "pods")
    assert (first.code, first.err) == (2, run("get", "-n", "shop", "--kubeconfig=/nowhere", "pods").err)
    assert "specify a command after -n" in run("-n", "shop").err
    assert "No such option '-n'" in run("-n", "shop", "tree").err
