"""`plimsoll explain`: what it reads, and the errors of what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.explain.explain_command import EXAMPLES, GOOD, SEVERAL, explain, pod, stream, titles
from tests.unit.console import Ran, run

HOSTILE = "a\x1b]0;owned\x07\x1b[31m\u202eb"


def no_control(ran: Ran) -> None:
    for character in "\x1b\x07":
        assert character not in ran.out + ran.err


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
