"""`plimsoll audit`: dumps, outputs, exit codes and errors."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.audit.dump import DumpError, read_dump, write_dump
from plimsoll.audit.kubelet import ROOT_DIR, flags_of, kubelet_root
from plimsoll.rules.audit.evidence import KubeletFacts, NodeEvidence, NodeRecord
from plimsoll.rules.audit.table import RULES, audit
from tests.unit.console import run
from tests.unit.rules.audit.nodes import bent, container, healthy, pod, with_file

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "nodeInfo": {"kubeletVersion": "v1.36.1", "containerRuntimeVersion": "containerd://2.1.0"},
    },
}


def dump_of(directory: Path, evidence: NodeEvidence, *pods: dict[str, Any]) -> Path:
    write_dump(directory, [NODE], pods or [pod()], {"n1": evidence.record})
    return directory


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return dump_of(tmp_path / "clean", healthy())


@pytest.fixture
def drifted(tmp_path: Path) -> Path:
    return dump_of(tmp_path / "drifted", bent(healthy(), with_file("container", "memory.max", "1073741824")))


def test_a_clean_node(clean: Path) -> None:
    ran = run("audit", "--from-dump", str(clean))
    assert (ran.code, ran.err) == (0, "")
    assert "0 findings" in ran.out


def test_a_difference(drifted: Path) -> None:
    ran = run("audit", "--from-dump", str(drifted))
    assert ran.code == 1
    assert "A01  a control file differs" in ran.out
    assert "memory.max: 1073741824" in ran.out
    assert "written by the container runtime" in ran.out


def test_one_rule_and_the_others(drifted: Path) -> None:
    assert run("audit", "--from-dump", str(drifted), "--rule", "a02,A03").code == 0
    assert run("audit", "--from-dump", str(drifted), "--ignore", "A01").code == 0
    wrong = run("audit", "--from-dump", str(drifted), "--rule", "A99")
    assert (wrong.code, "unknown rule 'A99'" in wrong.err) == (2, True)


def test_no_rule_is_left(drifted: Path) -> None:
    ran = run("audit", "--from-dump", str(drifted), "--rule", "A01,A02", "--ignore", "A02", "--ignore", "A01")
    assert (ran.code, "--ignore leaves no rule" in ran.err) == (2, True)


def kubectl_list(directory: Path, *items: dict[str, Any]) -> str:
    (directory / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(directory)


def test_nodes_alone_say_nothing_about_pods(tmp_path: Path) -> None:
    """`kubectl get nodes -o json` prints a List of no kind."""
    ran = run("audit", "--from-dump", kubectl_list(tmp_path, NODE), "--rule", "A21,A23")
    assert (ran.code, "the pods of the node were not read" in ran.out) == (2, True), ran.out
    ran = run("audit", "--from-dump", kubectl_list(tmp_path, NODE, pod()), "--rule", "A21,A23")
    assert (ran.code, "2 clean" in ran.out) == (0, True), ran.out


def test_a_windows_node_is_not_audited(tmp_path: Path) -> None:
    info = {**NODE["status"]["nodeInfo"], "operatingSystem": "windows"}
    node = {**NODE, "status": {**NODE["status"], "nodeInfo": info}}
    ran = run("audit", "--from-dump", kubectl_list(tmp_path, node, pod()))
    assert (ran.code, f"{len(RULES)} do not apply" in ran.out) == (0, True), ran.out
    assert "cannot tell" not in ran.out


def test_a_node_without_a_version(tmp_path: Path) -> None:
    ran = run("audit", "--from-dump", kubectl_list(tmp_path, {**NODE, "status": {}}, pod()))
    assert "n1  profile documents: the kubelet's version is not known" in ran.out


def test_how_long_a_resize_waits_needs_the_time_of_the_dump(tmp_path: Path) -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    for given, lacking in (
        (condition | since, "the dump has no time of its own"),
        (condition, "PodResizePending has no time"),
    ):
        listed = pod(status={"conditions": [given]})
        ran = run("audit", "--from-dump", kubectl_list(tmp_path, NODE, listed), "--rule", "A07")
        assert f"{lacking}, so it is not known how long the resize waits" in ran.out


def test_json(drifted: Path) -> None:
    document = json.loads(run("audit", "--from-dump", str(drifted), "-o", "json").out)
    assert document["exitCode"] == 1
    (finding,) = [each for answer in document["nodes"][0]["answers"] for each in answer.get("findings", ())]
    assert {
        "rule",
        "severity",
        "level",
        "subject",
        "field",
        "expected",
        "effective",
        "observed",
        "owner",
        "nextOverwrite",
        "advice",
    } <= finding.keys()
    assert document["rules"].keys() == RULES.keys()


def test_json_names_the_owner_also_if_it_is_the_kubelet() -> None:
    evidence = bent(healthy(), with_file("pod", "memory.max", "max"))
    written = msgspec.json.decode(msgspec.json.encode(audit(evidence, ["A01"])))
    (finding,) = [each for answer in written["answers"] for each in answer["findings"]]
    assert finding["owner"] == "kubelet"


def test_sarif(drifted: Path) -> None:
    (sarif,) = json.loads(run("audit", "--from-dump", str(drifted), "-o", "sarif").out)["runs"]
    assert [each["id"] for each in sarif["tool"]["driver"]["rules"]] == list(RULES)
    assert [each["ruleId"] for each in sarif["results"]] == ["A01"]


def test_metrics_are_prometheus_text(drifted: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    families = {
        each.name: each
        for each in text_string_to_metric_families(run("audit", "--from-dump", str(drifted), "-o", "prom").out)
    }
    (sample,) = families["plimsoll_audit_findings"].samples
    assert (sample.labels["rule"], sample.value) == ("A01", 1)
    assert len(families["plimsoll_audit_rule"].samples) == len(RULES)


def test_plain_outputs_of_kubectl(tmp_path: Path) -> None:
    """Only what the API shows: rules about the manifest answer, the others say what is missing."""
    listed = pod(
        "web",
        container(limits={"memory": "64Mi"}),
        spec={"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
    )
    document = {"apiVersion": "v1", "kind": "List", "items": [NODE, listed]}
    (tmp_path / "all.json").write_text(json.dumps(document))
    ran = run("audit", "--from-dump", str(tmp_path))
    assert ran.code == 1
    assert "A21" in ran.out
    assert "the cgroups of the node were not read" in ran.out
    unsure = run("audit", "--from-dump", str(tmp_path), "--ignore", "A21")
    assert unsure.code == 2


def test_the_configuration_of_a_dump(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "NodeList", "items": [NODE]}))
    (tmp_path / "configz").mkdir()
    (tmp_path / "configz" / "n1.json").write_text(
        json.dumps({"kubeletconfig": {"evictionHard": {"pid.available": "5%"}}})
    )
    ran = run("audit", "--from-dump", str(tmp_path), "--rule", "A13")
    assert ran.code == 1
    assert "the kubelet never evicts for memory" in ran.out


def test_the_configuration_of_a_dump_has_numbers(tmp_path: Path) -> None:
    """Every real /configz has some: memoryThrottlingFactor, maxPods, nested ones."""
    config = {
        "maxPods": 110,
        "memoryThrottlingFactor": 0.9,
        "logging": {"verbosity": 2},
        "evictionHard": {"pid.available": "5%"},
    }
    (tmp_path / "configz").mkdir()
    file = tmp_path / "configz" / "n1.json"
    file.write_text(json.dumps({"kubeletconfig": config}))
    assert read_dump(Path(kubectl_list(tmp_path, NODE))).configs["n1"].document == config
    assert run("audit", "--from-dump", str(tmp_path), "--rule", "A13").code == 1
    file.write_text("{no")
    ran = run("audit", "--from-dump", str(tmp_path))
    assert (ran.code, ran.err.startswith(f"plimsoll: {file}: JSON is malformed")) == (2, True)


def test_a_dump_has_no_secrets(tmp_path: Path) -> None:
    secret = container("app")
    secret |= {
        "env": [{"name": "TOKEN", "value": "hunter2"}],
        "args": ["--password=hunter2"],
        "command": ["x", "hunter2"],
    }
    listed = pod("web", secret, metadata={"annotations": {"note": "hunter2"}})
    listed["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": "hunter2"}}]
    record = NodeRecord(kubelet=KubeletFacts({"staticPodURLHeader": {"Authorization": ["hunter2"]}, "maxPods": 5}))
    write_dump(tmp_path / "d", [NODE], [listed], {"n1": record})
    for file in (tmp_path / "d").rglob("*.json"):
        assert "hunter2" not in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert next(iter(read_dump(tmp_path / "d").evidence())).record.kubelet == KubeletFacts({"maxPods": 5})


def test_a_dump_does_not_overwrite(clean: Path) -> None:
    with pytest.raises(DumpError, match="not empty"):
        write_dump(clean, [], [], {})
    with pytest.raises(DumpError, match="cannot be the name"):
        write_dump(clean / "x", [], [], {"../evil": NodeRecord()})


@pytest.mark.parametrize("data", [b"[]", b"{", b'{"kind": "PodList", "items": 3}', b"\xff\xfe"])
def test_files_that_are_no_dump(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "pods.json").write_bytes(data)
    ran = run("audit", "--from-dump", str(tmp_path))
    assert ran.code == 2
    assert "pods.json" in ran.err


def test_an_empty_directory(tmp_path: Path) -> None:
    ran = run("audit", "--from-dump", str(tmp_path))
    assert (ran.code, "no Nodes, Pods or records" in ran.err) == (2, True)


def test_since_an_earlier_dump(tmp_path: Path, clean: Path) -> None:
    """The value was right and now is not, and nothing was requested: another writer."""
    later = bent(healthy(), with_file("container", "memory.max", "1073741824"))
    later = msgspec.structs.replace(
        later, record=msgspec.structs.replace(later.record, time_s=later.record.time_s + 1800)
    )
    now = dump_of(tmp_path / "later", later)
    ran = run("audit", "--from-dump", str(now), "--since", str(clean), "--rule", "A22")
    assert ran.code == 1
    assert "536870912 → 1073741824" in ran.out
    assert "2.0 times an hour" in ran.out


def test_explain(clean: Path) -> None:
    assert [line.split()[0] for line in run("audit", "explain").out.splitlines()] == list(RULES)
    assert "kubernetes#140267" in run("audit", "explain", "a02").out


@pytest.mark.parametrize(
    "words",
    [("--from-dump", "d", "--all-nodes"), ("--serve", ":1"), ("--from-dump", "d", "--watch", "5")],
    ids=" ".join,
)
def test_options_that_contradict_each_other(words: tuple[str, ...]) -> None:
    ran = run("audit", *words)
    assert ran.code == 2
    assert "--" in ran.err


def test_flags_of_a_running_kubelet() -> None:
    words = ["--config=/etc/k.yaml", "--cgroup-driver", "systemd", "--max-pods=50", "--v=2", "--node-ip", "10.0.0.1"]
    flags, own = flags_of(words)
    assert own == {"--config": "/etc/k.yaml"}
    assert flags == {"cgroupDriver": ["systemd"], "maxPods": ["50"]}


def test_the_state_files_are_where_the_running_kubelet_keeps_them() -> None:
    assert kubelet_root(["--root-dir", "/data/kubelet/", "--v=2"]) == "/data/kubelet"
    assert kubelet_root(["--config=/etc/k.yaml"]) == ROOT_DIR


@pytest.mark.parametrize("place", ["pods.json", "records/n1.json", "configz/n1.json"])
@pytest.mark.parametrize("what", ["a directory", "a FIFO", "a link to a device", "a hole", "deep"])
def test_a_hostile_file_in_a_dump_is_an_error(tmp_path: Path, place: str, what: str) -> None:
    """A dump comes from another machine, often unpacked from an archive: it must neither block nor fill the memory."""
    file = Path(kubectl_list(tmp_path, NODE)) / place
    file.parent.mkdir(exist_ok=True)
    reason = "not a regular file"
    match what:
        case "a directory":
            file.mkdir()
        case "a FIFO":
            os.mkfifo(file)
        case "a link to a device":
            file.symlink_to("/dev/zero")
        case "a hole":
            file.touch()
            os.truncate(file, 1 << 40)
            reason = "1099511627776 bytes; a file of a dump has at most 1073741824"
        case _:
            file.write_text('{"kubelet":{"document":' + '{"a":' * 50_000 + "1" + "}" * 50_002)
            reason = "maximum recursion depth exceeded"
    ran = run("audit", "--from-dump", str(tmp_path))
    assert ran.code == 2 and f"plimsoll: {file}: {reason}" in ran.err, ran.err
