"""`plimsoll explain` from files to text: exit codes, errors with lines, output formats, hostile input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.console import Ran, run
from tests.unit.strategies import Json, valid_pods

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
NODE = ("--capacity", "cpu=4,memory=8Gi")
HOSTILE = "a\x1b]0;owned\x07\x1b[31m\u202eb"


def pod(name: str = "p", block: Json | None = None, **metadata: Any) -> Json:
    containers = [{"name": "c", "image": "i", "resources": block or {}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": containers},
    }


GOOD = pod("good", {"limits": {"cpu": "1", "memory": "1Gi"}})


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes | Json, name: str = "m.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, dict):
            text = json.dumps(text)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


def stream(*documents: Json) -> str:
    """JSON values one after the other, as kubectl reads them (Y4)."""
    return "\n".join(map(json.dumps, documents))


def explain(*words: str, **options: Any) -> Ran:
    return run("explain", *words, *NODE, **options)


def no_control(ran: Ran) -> None:
    for character in "\x1b\x07":
        assert character not in ran.out + ran.err


# --- input ---


def titles(ran: Ran) -> list[str]:
    return [each["name"] for each in json.loads(ran.out)["pods"]]


def test_documents_lists_and_templates() -> None:
    assert titles(explain(str(EXAMPLES / "three-classes.yaml"), "-o", "json")) == ["gold", "silver", "bronze"]
    assert titles(explain(str(EXAMPLES / "batch-list.yaml"), "-o", "json")) == [
        "job/resize-images",
        "job/checksum",
        "scratch",
    ]
    assert titles(explain(str(EXAMPLES / "cronjob.yaml"), "-o", "json"))[0].startswith("cronjob/")


def test_a_dump_of_kubectl(write) -> None:
    """`kubectl get pods -A -o json`: a List of stored pods, with uid, status and everything."""
    items = [
        {**pod(f"p{i}", {"limits": {"cpu": "1", "memory": "1Gi"}}, uid=f"u-{i}", namespace=f"ns{i}", resourceVersion="5", creationTimestamp="2026-01-01T00:00:00Z", managedFields=[{}]),
         "status": {"phase": "Running", "qosClass": "Guaranteed", "podIP": "10.0.0.1", "containerStatuses": [{"name": "c", "ready": True, "restartCount": 1}]}}
        for i in range(3)
    ]  # fmt: skip
    ran = explain(
        write({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}, "dump.json"),
        "-o",
        "json",
    )
    assert (ran.code, ran.err) == (0, "")
    assert titles(ran) == ["ns0/p0", "ns1/p1", "ns2/p2"]
    assert '"/kubepods/podu-1"' in ran.out


def test_standard_input() -> None:
    ran = explain("-", "-o", "json", stdin=(EXAMPLES / "guaranteed.yaml").read_bytes())
    assert (ran.code, titles(ran)) == (0, ["guaranteed"])
    ran = explain("-", stdin="kind: Pod\nmetadata: {name: p}\nspec: {containers: 1}\n")
    assert ran.code == 2
    assert ran.err.startswith("<stdin>:3: document 1: spec.containers:")


def test_directories(write, tmp_path: Path) -> None:
    write(pod("b"), "b.json")
    write(pod("a"), "a.yaml")
    write(pod("c"), "deep/er/c.yml")
    write("this is no manifest", "notes.txt")
    ran = explain(str(tmp_path), "-o", "json")
    assert (ran.code, titles(ran)) == (0, ["a", "b", "c"])


def test_an_unreadable_file_does_not_stop_the_others(write, tmp_path: Path) -> None:
    """The error names the file, and the following files are still explained."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.yaml").symlink_to("/proc/self/mem")  # there, a regular file, and unreadable even for root
    write(pod("b"), "d/b.yaml")
    ran = explain(str(tmp_path / "d"), "-o", "json")
    assert ran.code == 2
    assert str(tmp_path / "d" / "a.yaml") in ran.err
    assert titles(ran) == ["b"]


def test_several_files_and_a_missing_one(write, tmp_path: Path) -> None:
    ran = explain(write(pod("a"), "a.yaml"), str(tmp_path / "none.yaml"), write(pod("b"), "b.yaml"), "-o", "json")
    assert ran.code == 2
    assert f"{tmp_path}/none.yaml" in ran.err
    assert "No such file or directory" in ran.err
    assert titles(ran) == ["a", "b"]


NOTHING = [
    ("an empty file", ""),
    ("comments only", "# nothing\n---\n# nothing\n"),
    ("no pod", "kind: Service\n"),
    ("an empty List", "kind: List\nitems: []\n"),
]


@pytest.mark.parametrize("text", [row[1] for row in NOTHING], ids=[row[0] for row in NOTHING])
def test_nothing_to_explain(write, text: str) -> None:
    ran = explain(write(text))
    assert ran.code == 2
    assert "the input contains no pods" in ran.err


def test_a_document_without_a_pod_is_a_note(write) -> None:
    ran = explain(write("kind: Service\n---\n" + json.dumps(GOOD)))
    assert ran.code == 0
    assert "Service has no pod template" in ran.err


# --- invalid input ---

SEVERAL = """\
apiVersion: v1
kind: Pod
metadata:
  name: first
spec:
  containers:
  - name: app
    image: nginx
    resources:
      limits:
        cpu: lots
        memory: 1K
---
apiVersion: v1
kind: Pod
metadata:
  name: good
spec:
  containers:
  - name: app
    image: nginx
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: third
spec:
  template:
    spec:
      containers:
      - name: app
        image: nginx
        resources:
          requests: {cpu: 2}
          limits:
            cpu: 1
      - name: App
        image: nginx
---
a: [
---
kind: Pod
"""


def test_all_errors_are_reported_with_their_lines(write) -> None:
    """File, line, document and field path of each; the good document is still explained."""
    file = write(SEVERAL)
    ran = explain(file, "-o", "json")
    assert ran.code == 2
    assert titles(ran) == ["good"]
    lines = ran.err.splitlines()
    expected = [
        (11, 1, 'spec.containers[0].resources.limits[cpu]: Invalid value: "lots": quantities must match'),
        (12, 1, 'spec.containers[0].resources.limits[memory]: Invalid value: "1K": unable to parse quantity\'s suffix'),
        (
            34,
            3,
            'spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (37, 3, 'spec.template.spec.containers[1].name: Invalid value: "App": a lowercase RFC 1123 label'),
        (40, 4, ""),
        (42, 5, "spec.containers: Required value"),
    ]
    for line, document, text in expected:
        place = f"{file}:{line}: document {document}: "
        assert [each for each in lines if place in each and text in each], (line, document, text, ran.err)


def test_errors_of_a_list_name_the_item(write) -> None:
    document = {"kind": "List", "items": [GOOD, pod("bad", {"limits": {"cpu": "-1"}})]}
    ran = explain(write(document), "-o", "json")
    assert ran.code == 2
    assert (
        'items[1].spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'
        in ran.err
    )
    assert titles(ran) == ["good"]


def test_an_invalid_uid_does_not_stop_the_others(write) -> None:
    """02 §2.1: the kubelet aborts on `_` and `/`; the other pods are not affected."""
    for uid in ("a_b", "a/b"):
        ran = explain(write(stream(pod("bad", uid=uid), GOOD)), "-o", "json")
        assert ran.code == 2
        assert "metadata.uid" in ran.err
        assert titles(ran) == ["good"]


CONFIGS = [
    (
        "an unknown field",
        "kind: KubeletConfiguration\nmaxPodz: 5\n",
        ":2: maxPodz: unknown setting; did you mean maxPods?",
    ),
    ("a bad value", "cpuCFSQuotaPeriod: 2s\n", ":1: cpuCFSQuotaPeriod"),
    ("no YAML", "a: [\n", "--config"),
    ("two documents", "maxPods: 1\n---\nmaxPods: 2\n", "2 documents"),
    ("reserved more than there is", "systemReserved: {cpu: 100}\n", "Node Allocatable"),
]


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in CONFIGS], ids=[row[0] for row in CONFIGS])
def test_a_configuration_that_a_kubelet_rejects(write, text: str, words: str) -> None:
    ran = explain(write(GOOD), "--config", write(text, "config.yaml"))
    assert ran.code == 2
    assert words in ran.err
    assert ran.out == ""


NODES = [
    ("missing", None, "No such file or directory"),
    ("no Node", "kind: Pod\n", "status.capacity is missing"),
    ("a bad capacity", "kind: Node\nstatus: {capacity: {cpu: x}}\n", "quantities must match"),
    ("no memory", "kind: Node\nstatus: {capacity: {cpu: 4}}\n", "memory"),
]


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in NODES], ids=[row[0] for row in NODES])
def test_an_object_that_is_not_a_node(write, tmp_path: Path, text: str | None, words: str) -> None:
    node = str(tmp_path / "none.yaml") if text is None else write(text, "node.yaml")
    ran = run("explain", write(GOOD), "--node", node)
    assert ran.code == 2
    assert words in ran.err


def test_allocatable_of_the_node_object_is_compared(write) -> None:
    node = "kind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 4, memory: 8Gi}, allocatable: {cpu: 3, memory: 8092Mi}}\n"
    ran = run("explain", write(GOOD), "--node", write(node, "node.yaml"))
    assert ran.code == 0
    assert "the Node has cpu allocatable 3, this configuration results in 4" in ran.err
    assert "memory allocatable" not in ran.err


# --- hostile input ---

ESCAPED = HOSTILE.replace("\x1b", "\\e").replace("\x07", "\\a").replace("\u202e", "\\u202e")
HOSTILE_MANIFESTS = [
    ("pod name", f'kind: Pod\nmetadata: {{name: "{ESCAPED}"}}\nspec: {{containers: [{{name: c, image: i}}]}}\n', 2),
    ("container name", f'kind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: "{ESCAPED}", image: i}}]}}\n', 2),
    ("namespace", f'kind: Pod\nmetadata: {{name: p, namespace: "{ESCAPED}"}}\nspec: {{containers: [{{name: c, image: i}}]}}\n', 2),
    ("uid", f'kind: Pod\nmetadata: {{name: p, uid: "{ESCAPED}"}}\nspec: {{containers: [{{name: c, image: i}}]}}\n', None),
    ("uid that is no cgroup name", f'kind: Pod\nmetadata: {{name: p, uid: "_{ESCAPED}"}}\nspec: {{containers: [{{name: c, image: i}}]}}\n', 2),
    ("resource name", f'kind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: i, resources: {{limits: {{"{ESCAPED}": 1}}}}}}]}}\n', 2),
    ("amount", f'kind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: i, resources: {{limits: {{cpu: "{ESCAPED}"}}}}}}]}}\n', 2),
    ("kind", f'kind: "{ESCAPED}"\n', 2),
    ("key", f'"{ESCAPED}": [\n', 2),
    ("deployment name", f'kind: Deployment\nmetadata: {{name: "{ESCAPED}"}}\nspec: {{template: {{spec: {{containers: [{{name: c, image: i}}]}}}}}}\n', 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code"), [row[1:] for row in HOSTILE_MANIFESTS], ids=[row[0] for row in HOSTILE_MANIFESTS]
)
@pytest.mark.parametrize("form", ["tree", "table", "json", "yaml", "sh"])
def test_names_in_manifests_are_escaped(write, text: str, code: int | None, form: str) -> None:
    ran = explain(write(text), "-o", form)
    if code is not None:
        assert ran.code == code
    no_control(ran)
    if form in ("tree", "table"):
        assert "\u202e" not in ran.out
    assert "\u202e" not in ran.err


def test_hostile_names_of_the_node(write) -> None:
    node = (
        f'kind: Node\nmetadata: {{name: "{ESCAPED}"}}\nstatus: {{capacity: {{cpu: 4, memory: 8Gi, "{ESCAPED}": 1}}}}\n'
    )
    for form in ("tree", "table", "json", "yaml", "sh"):
        no_control(run("explain", write(GOOD), "--node", write(node, "node.yaml"), "-o", form))
    no_control(run("explain", write(GOOD), "--node", write(node, "node.yaml"), "--diff", "documents,1.36"))


def test_hostile_configurations(write) -> None:
    for text in (
        f'"{ESCAPED}": 1\n',
        f'cgroupRoot: "/{ESCAPED}"\n',
        f'featureGates: {{"{ESCAPED}": true}}\n',
        f'cgroupDriver: "{ESCAPED}"\n',
    ):
        for form in ("tree", "sh"):
            no_control(explain(write(GOOD), "--config", write(text, "config.yaml"), "-o", form))


def test_a_hostile_file_name(write) -> None:
    no_control(explain(write("kind: Pod\n", "a\x1b]0;x\x07.yaml")))
    no_control(explain(write(GOOD), "--config", write("a: [\n", "c\x1b]0;x\x07.yaml")))
    no_control(explain("none\x1b]0;x\x07.yaml"))


# --- output formats ---


@pytest.mark.parametrize(
    "file",
    sorted(path.name for path in EXAMPLES.glob("*.yaml") if path.name not in ("kubelet-config.yaml", "node-48.yaml")),
)
def test_every_example_in_every_form(file: str) -> None:
    path = str(EXAMPLES / file)
    assert explain(path).code == 0
    assert len(explain(path, "-o", "table").out.splitlines()) > 5
    found = json.loads(explain(path, "-o", "json").out)
    assert yaml.safe_load(explain(path, "-o", "yaml").out) == found
    script = explain(path, "-o", "sh").out
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_json_has_everything(write) -> None:
    found = json.loads(explain(write(GOOD), "-o", "json", "--advise").out)
    assert found["node"]["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert found["pods"][0]["qosClass"] == "Guaranteed"
    kubepods = found["tree"]["children"][0]
    container = kubepods["children"][0]["children"][0]
    assert container["oomScoreAdj"] == -997
    assert {file["name"]: file["value"] for file in container["files"]}["cpu.max"] == "100000 100000"
    assert container["files"][0]["reason"]["source"] == "spec.containers[0].resources.requests.cpu"


def test_table_columns(write) -> None:
    lines = explain(write(GOOD), "-o", "table").out.splitlines()
    header = lines[0].split()
    assert set(header) == {"LEVEL", "POD", "NAME", "FILE", "VALUE", "CGROUP"}
    rows = [dict(zip(header, line.split(), strict=False)) for line in lines[1:]]
    found = {(row["LEVEL"], row["POD"], row["NAME"], row["FILE"]): (row["VALUE"], row["CGROUP"]) for row in rows}
    assert found["pod", "good", "-", "memory.max"] == ("1073741824", "/kubepods/pod<uid>")
    assert found["container", "good", "c", "oom_score_adj"] == ("-997", "/kubepods/pod<uid>/<id>")


def test_brief_and_advise(write) -> None:
    file = write(pod("p", {"requests": {"cpu": "1"}}))
    assert "⌊1000 · 1024 / 1000⌋" in explain(file).out
    assert "⌊" not in explain(file, "--brief").out
    assert "advice" not in explain(file).out
    advised = explain(file, "--advise").out
    assert "advice: set spec.containers[0].resources.limits.cpu = 1\n" in advised
    assert "advice: set spec.containers[0].resources.limits.memory (any amount; the request is set to it)" in advised


def test_two_pods_with_the_same_name(write) -> None:
    ran = explain(write(stream(GOOD, GOOD, GOOD)), "-o", "json")
    assert titles(ran) == ["good", "good (2)", "good (3)"]


# --- scripts ---

UIDS = [
    "$(touch owned)",
    "`touch owned`",
    "';touch owned;'",
    '"; touch owned; "',
    "a\nb; touch owned",
    "-rf ~",
    "$HOME",
    "\\",
    "*",
    "a b",
]


@pytest.mark.parametrize("uid", UIDS, ids=[repr(uid) for uid in UIDS])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_nothing_reaches_the_shell_unquoted(write, tmp_path: Path, uid: str, version: str) -> None:
    """The script is run against a directory instead of /sys/fs/cgroup: it only creates files."""
    ran = explain(write(pod("p", {"limits": {"cpu": "1", "memory": "1Gi"}}, uid=uid)), "-o", "sh", "--cgroup", version)
    if ran.code == 2:
        return  # a uid may also be rejected
    assert subprocess.run(["sh", "-n"], input=ran.out, text=True, check=False).returncode == 0
    root = tmp_path / "root"
    root.mkdir()
    done = subprocess.run(
        ["sh"],
        input=ran.out,
        text=True,
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env={"ROOT": str(root), "PATH": "/bin:/usr/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.rglob("owned"))
    values = {
        path.relative_to(root): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and path.name != "cgroup.subtree_control"
    }
    memory = Path("memory/kubepods") if version == "v1" else Path("kubepods")
    name = "memory.limit_in_bytes" if version == "v1" else "memory.max"
    assert values[memory / f"pod{uid}" / name] == "1073741824\n"


@pytest.mark.parametrize(
    "words",
    [[], ["--driver", "systemd"], ["--cgroup", "v1"], ["--runtime", "crio", "--driver", "systemd"]],
    ids=" ".join,
)
def test_the_script_creates_the_tree(tmp_path: Path, words: list[str]) -> None:
    ran = explain(str(EXAMPLES / "three-classes.yaml"), "-o", "sh", *words)
    done = subprocess.run(
        ["sh"],
        input=ran.out,
        text=True,
        check=False,
        capture_output=True,
        env={"ROOT": str(tmp_path), "PATH": "/bin:/usr/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    weights = sorted(path for path in tmp_path.rglob("cpu.*") if path.name in ("cpu.weight", "cpu.shares"))
    assert len(weights) == 3 + 3 + 3, "kubepods and two classes, three pods, three containers"
    assert "<uid>" not in ran.out
    assert "<id>" not in ran.out


# --- colour ---


def test_colour_only_on_a_terminal(write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    file = write(GOOD)
    assert "\x1b[" not in explain(file).out
    assert "\x1b[" in explain(file, terminal=True).out
    assert "\x1b[" not in explain(file, "-o", "json", terminal=True).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in explain(file, terminal=True).out


def test_on_a_terminal_long_lines_are_broken(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    plain, narrow = explain(write(GOOD)).out, explain(write(GOOD), terminal=True).out
    assert len(narrow.splitlines()) > len(plain.splitlines())


# --- diff ---

BURSTABLE = pod(
    "p", {"requests": {"cpu": "255m", "memory": "300Mi"}, "limits": {"cpu": "255m", "memory": "400Mi"}}, uid="u"
)
DIFFS = [
    ("documents,1.36", ["p / c", "cpu weight", "cpu.weight 10", "cpu.weight 35"]),
    ("linear,quadratic", ["p / c", "cpu weight", "cpu.weight 10", "cpu.weight 35"]),
    ("cgroupfs,systemd", ["p", "cpu limit", "cpu.max 25500 100000", "cpu.max 26000 100000"]),
    ("v1,v2", ["p", "memory limit", "memory.limit_in_bytes 419430400", "memory.max 419430400"]),
    ("containerd,crio", ["p / c", "path", "/kubepods/burstable/podu/<id>", "/kubepods/burstable/podu/crio-<id>"]),
]


@pytest.mark.parametrize(("words", "row"), DIFFS, ids=[row[0] for row in DIFFS])
def test_diff(write, words: str, row: list[str]) -> None:
    ran = explain(write(BURSTABLE), "--diff", words)
    assert (ran.code, ran.err) == (0, "")
    header, *lines = ran.out.splitlines()
    assert header.split() == ["WHERE", "WHAT", *words.split(",")]
    assert [line for line in lines if [cell.strip() for cell in line.split("  ") if cell.strip()] == row], ran.out
    found = json.loads(explain(write(BURSTABLE), "--diff", words, "-o", "json").out)
    assert dict(zip(("where", "what", "first", "second"), row, strict=True)) in [
        {k: v for k, v in each.items() if k not in ("note", "formula")} for each in found
    ]


def test_diff_in_the_other_direction(write) -> None:
    file = write(BURSTABLE)
    there = json.loads(explain(file, "--diff", "documents,1.36", "-o", "json").out)
    back = json.loads(explain(file, "--diff", "1.36,documents", "-o", "json").out)
    assert {(each["where"], each["what"], each["first"], each["second"]) for each in there} == {
        (each["where"], each["what"], each["second"], each["first"]) for each in back
    }


def test_diff_notes_where_the_documents_differ_from_the_real_1_27(write) -> None:
    ran = explain(write(pod()), "--diff", "documents,1.36", "--feature-gates", "MemoryQoS=true")
    assert "documented; real 1.27 did not" in ran.out


def test_diff_without_differences(write) -> None:
    ran = explain(write(pod()), "--diff", "process,containerd", "--driver", "cgroupfs")
    assert (ran.code, ran.out) == (0, "no differences between process and containerd\n")


WRONG_DIFFS = ["documents", "documents,documents", "documents,v2", "a,b", "", ",", "documents,1.36,v1", "1.26,1.27"]


@pytest.mark.parametrize("words", WRONG_DIFFS, ids=[repr(words) for words in WRONG_DIFFS])
def test_wrong_diffs(write, words: str) -> None:
    ran = explain(write(GOOD), "--diff", words)
    assert (ran.code, ran.out) == (2, "")
    assert "--diff" in ran.err


def test_diff_with_errors_still_compares_the_rest(write) -> None:
    ran = explain(write(SEVERAL), "--diff", "documents,1.36")
    assert ran.code == 2
    assert "good / app" in ran.out
    assert ran.err.count("spec.containers[0].resources.limits[cpu]") == 1, "each error once, though both sides meet it"


# --- settings from the command line ---


def value(ran: Ran, level: str, name: str) -> Any:
    def find(cgroup: Json) -> list[Any]:
        own = (
            [file["value"] for file in cgroup.get("files", []) if file["name"] == name]
            if cgroup["level"] == level
            else []
        )
        return own + [each for child in cgroup.get("children", []) for each in find(child)]

    (found,) = find(json.loads(ran.out)["tree"])
    return found


OPTIONS = [
    ("--profile", ["--profile", "1.36"], "container", "memory.oom.group", 1),
    ("--feature-gates", ["--feature-gates", "MemoryQoS=true"], "container", "memory.high", 408944640),
    ("--driver", ["--driver", "systemd"], "container", "cpu.max", "26000 100000"),
    ("--container-weight", ["--container-weight", "quadratic"], "container", "cpu.weight", 35),
    ("--system-reserved", ["--system-reserved", "memory=4Gi"], "pods", "memory.max", 4 << 30),
    ("--cgroup v1", ["--cgroup", "v1"], "container", "cpu.cfs_quota_us", 25500),
]


@pytest.mark.parametrize(
    ("words", "level", "name", "expected"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS]
)
def test_options(write, words: list[str], level: str, name: str, expected: Any) -> None:
    assert value(explain(write(BURSTABLE), "-o", "json", *words), level, name) == expected


def test_a_flag_overrides_the_file(write) -> None:
    config = write("memoryThrottlingFactor: 0.5\nfeatureGates: {MemoryQoS: true}\n", "config.yaml")
    from_file = value(explain(write(BURSTABLE), "--config", config, "-o", "json"), "container", "memory.high")
    assert from_file == (300 + 50) << 20
    off = explain(write(BURSTABLE), "--config", config, "--feature-gates", "MemoryQoS=false", "-o", "json")
    assert '"memory.high"' not in off.out


def test_the_node_of_the_documents() -> None:
    """01 §10.5, with a Node and a KubeletConfiguration as files."""
    documents = EXAMPLES / "documents"
    words = ["--node", str(documents / "004-node.yaml"), "--config", str(documents / "004-kubelet-config.yaml")]
    found = json.loads(run("explain", str(documents / "004-busybox.yaml"), *words, "-o", "json").out)
    assert (found["node"]["allocatable"]["cpu"], found["node"]["allocatable"]["memory"]) == ("46", "258486256Ki")


# --- any input ---


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(valid_pods(), min_size=1, max_size=2), st.sampled_from(("tree", "table", "json", "yaml", "sh")), st.data()
)
def test_any_valid_manifest(write, documents: list[Json], form: str, data: st.DataObject) -> None:
    file = write(stream(*documents))
    words = data.draw(
        st.sampled_from(
            (
                [],
                ["--profile", "1.36"],
                ["--cgroup", "v1"],
                ["--driver", "systemd"],
                ["--feature-gates", "MemoryQoS=true"],
                ["--diff", "documents,1.36"],
            )
        )
    )
    ran = explain(file, "-o", form, *words)
    if form == "sh" and "--diff" in words:
        assert ran.code == 2 and "--diff" in ran.err
        return
    assert (ran.code, ran.err) == (0, "")
    if form == "json":
        json.loads(ran.out)
    elif form == "yaml" and "--diff" not in words:
        assert yaml.safe_load(ran.out)["pods"]


def test_huge_pages_of_all_sizes_are_one_line() -> None:
    """A machine with several page sizes had as many lines in each cgroup, before the ones that matter."""
    from plimsoll.cli.explain.tree import _merged
    from plimsoll.rules.cgroups.desired import DesiredFile
    from plimsoll.rules.cgroups.reasons import Reason

    def file(name: str, value: int = 0) -> DesiredFile:
        return DesiredFile(name, value, "", Reason("", "", ""))

    files = [file("cpu.weight", 1), file("hugetlb.2MB.max"), file("hugetlb.1GB.max"), file("hugetlb.64KB.max", 5)]
    assert [each.name for each in _merged(files)] == ["cpu.weight", "hugetlb.{2MB,1GB}.max", "hugetlb.64KB.max"]
