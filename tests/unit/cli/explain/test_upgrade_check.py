"""`plimsoll upgrade-check`: inputs, forms of output and exit codes."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.console import Ran, run
from tests.unit.strategies import Json

ROOM = ("--capacity", "cpu=8,memory=16Gi")
AMOUNTS = {"cpu": "500m", "memory": "512Mi"}


def pod(name: str, node: str = "", **spec: Any) -> Json:
    resources = {"requests": dict(AMOUNTS), "limits": dict(AMOUNTS)}
    fields = {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec}
    if node:
        fields["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": fields}


def node(name: str, version: str = "v1.36.4") -> Json:
    status = {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}, "nodeInfo": {"kubeletVersion": version}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


PLANTED = pod("planted", "n1", resources={})
DUMP = {"apiVersion": "v1", "kind": "List", "items": [node("n1"), node("n2"), PLANTED, pod("plain", "n2")]}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(content: Any, name: str = "dump.json") -> str:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(file)

    return written


def answer(ran: Ran) -> Json:
    found: Json = json.loads(ran.out)
    assert found["exitCode"] == ran.code
    return found


def classes(found: Json) -> list[tuple[str, str, str]]:
    return [(each["subject"], each["old"], each["new"]) for each in found["changes"] if each["kind"] == "class"]


def test_a_dump(write: Any) -> None:
    found = answer(run("upgrade-check", write(DUMP), "--to", "1.37", "-o", "json"))
    assert (found["from"], found["to"]) == ("1.36", "1.37")
    assert classes(found) == [("shop/planted", "BestEffort", "Guaranteed")]
    assert (found["summary"]["pods"], found["summary"]["nodes"], found["summary"]["classChanges"]) == (2, 2, 1)
    assert {each["node"] for each in found["changes"] if each.get("pod") == "shop/planted"} == {"n1"}
    assert all(cause in found["causes"] for each in found["changes"] for cause in each["causes"])
    formula = next(each["formula"] for each in found["changes"] if each["what"] == "oom_score_adj")
    assert "Guaranteed" in formula


def test_the_same_as_yaml_and_from_standard_input(write: Any) -> None:
    dumped = answer(run("upgrade-check", write(DUMP), "--to", "1.37", "-o", "json"))
    text = yaml.safe_dump_all([{**DUMP, "kind": "List"}])
    assert answer(run("upgrade-check", write(text, "dump.yaml"), "--to", "1.37", "-o", "json")) == dumped
    assert answer(run("upgrade-check", "-", "--to", "1.37", "-o", "json", stdin=json.dumps(DUMP))) == dumped


def test_manifests_with_templates_and_limit_ranges(write: Any) -> None:
    limits = [{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}]
    ranges = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "shop"},
              "spec": {"limits": limits}}  # fmt: skip
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "resources": {}}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "shop"},
                  "spec": {"template": template}}  # fmt: skip
    file = write(yaml.safe_dump_all([deployment, ranges]), "m.yaml")
    found = answer(run("upgrade-check", file, "--from", "1.36", "--to", "1.37", *ROOM, "-o", "json"))
    # The LimitRange gives the container limits; only the new release looks at them.
    assert classes(found) == [("shop/deployment/d", "BestEffort", "Guaranteed")]
    named = [note for note in found["notes"] if "LimitRange" in note]
    assert named == ["LimitRange l fills in what containers in manifests of namespace shop lack"]


EXITS = [
    ("nothing", ["--from", "1.30", "--to", "1.31"], 0, "1.30 → 1.31: nothing changes for 1 pod on 1 node"),
    ("something", ["--from", "1.36", "--to", "1.37"], 1, "1 of 1 pod changes"),
    (
        "breaks",
        ["--from", "1.33", "--to", "1.34", "--feature-gates", "NodeSwap=false"],
        2,
        "1 of 1 node will not start",
    ),
    ("v1 to v2", ["--from", "v1", "--to", "v2"], 1, "cgroup version: v1 → v2"),
    ("drivers", ["--from", "cgroupfs", "--to", "systemd"], 1, "cgroup driver: cgroupfs → systemd"),
    ("runc", ["--from", "runc 1.1", "--to", "runc 1.3"], 1, "cpu.weight of containers: linear → quadratic"),
    ("runc, same formula", ["--from", "runc 1.1", "--to", "runc 1.3.1"], 0, "nothing changes"),
    ("crun", ["--from", "crun 1.22", "--to", "crun 1.23"], 1, "linear → quadratic"),
]


@pytest.mark.parametrize(("words", "code", "text"), [row[1:] for row in EXITS], ids=[row[0] for row in EXITS])
def test_exit_codes(write: Any, words: list[str], code: int, text: str) -> None:
    ran = run("upgrade-check", write(pod("plain")), *ROOM, *words)
    assert ran.code == code, ran
    assert text in ran.out


WRONG = [
    ("no release known", ["--to", "1.37"], "specify --from"),
    ("no such release", ["--from", "1.36", "--to", "1.99"], "--to"),
    ("two kinds", ["--from", "v1", "--to", "1.37"], "of one kind"),
    ("the same", ["--from", "1.37", "--to", "1.37"], "different"),
    ("only --to v2", ["--to", "v2"], "needs --from"),
    ("a profile beside", ["--from", "1.36", "--to", "1.37", "--profile", "1.36"], "--profile"),
    ("a missing file of rules", ["--from", "1.36", "--to", "1.37", "--rules", "/no/such"], "/no/such"),
]


@pytest.mark.parametrize(("words", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_questions(write: Any, words: list[str], text: str) -> None:
    ran = run("upgrade-check", write(pod("plain")), *ROOM, *words)
    assert (ran.code, ran.out) == (2, "") and text in ran.err


def test_an_unreadable_pod_is_reported_and_the_others_compared(write: Any) -> None:
    broken = pod("broken", "n1")
    broken["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "much"
    ran = run("upgrade-check", write({**DUMP, "items": [*DUMP["items"], broken]}), "--to", "1.37")
    assert ran.code == 2
    assert "items[4].spec.containers[0].resources.limits[cpu]" in ran.err
    assert "shop/planted" in ran.out


def test_a_pod_that_was_refused_already_is_left_out_with_a_note(write: Any) -> None:
    wrong = pod("wrong", "n1")
    wrong["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"  # above its limit
    ran = run("upgrade-check", write({**DUMP, "items": [*DUMP["items"], wrong]}), "--to", "1.37")
    assert ran.code == 1
    assert "shop/wrong is left out: the old release refuses it: spec.containers[0].resources.requests" in ran.err


def test_quotas_count_the_pods_of_their_namespace_that_can_be_created(write: Any) -> None:
    """Without a namespace all are in `default`. Pod-level requests count in 1.37, not in 1.27."""
    whole = {"requests": {"cpu": "3"}}
    own = {"name": "app", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    refused = {**own, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        for name, spec in {
            "web": {"resources": whole, "containers": [own]},
            "refused": {"resources": whole, "containers": [refused]},
        }.items()
    ]
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"},
             "spec": {"hard": {"requests.cpu": "9"}}}  # fmt: skip
    documents = "\n".join(map(json.dumps, (*pods, quota)))
    found = answer(run("upgrade-check", write(documents), "--from", "1.27", "--to", "1.37", "-o", "json"))
    used = [(each["old"], each["new"]) for each in found["changes"] if each["what"] == "used requests.cpu"]
    assert used == [("2", "3")]


def test_configz_flags_and_rules(write: Any, tmp_path: Path) -> None:
    write({"kubeletconfig": {"failCgroupV1": False, "featureGates": {"NodeSwap": False}}}, "configz/n1.json")
    flags = write("ExecStart=/usr/bin/kubelet --pod-infra-container-image=pause\n", "kubelet.service")
    rules = write("groups:\n- rules:\n  - expr: container_tasks_state > 0\n", "rules.yaml")
    dump = write({**DUMP, "items": [node("n1", "v1.33.1"), node("n2", "v1.35.0"), PLANTED, pod("plain", "n2")]})
    words = ["--configz", str(tmp_path / "configz"), "--kubelet-flags", flags, "--rules", rules, "--cgroup", "v1"]
    found = answer(run("upgrade-check", dump, "--to", "1.37", *words, "-o", "json"))
    breaks = {(each["subject"], each["what"]) for each in found["changes"] if each.get("breaks")}
    assert breaks == {
        ("n1", "featureGates[NodeSwap]"),
        ("n1", "cgroup v1"),
        ("n1", "--pod-infra-container-image"),
        (f"{rules}:3", "container_tasks_state"),
    }
    assert found["summary"]["stoppedNodes"] == 1 and found["exitCode"] == 2
    assert found["from"] == "now", "the nodes have different releases"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        assert not {"src", "href"} & {name for name, _ in attributes}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_one_page_without_scripts(write: Any) -> None:
    evil = "<script>alert(1)</script>"
    ran = run(
        "upgrade-check",
        write({**DUMP, "items": [node(evil), pod("p", resources={})]}),
        "--to",
        "1.37",
        "-o",
        "html",
    )
    page = _Page()
    page.feed(ran.out)
    page.close()
    assert (ran.code, page.open) == (1, [])
    assert "script" not in page.seen and {"html", "style", "table"} <= page.seen
    assert "BestEffort → Guaranteed" in page.text and f"{evil}: all pods" in page.text


def test_sarif_has_its_required_fields(write: Any) -> None:
    rules = write("a: container_tasks_state\n", "rules.yaml")
    ran = run("upgrade-check", write(DUMP), "--to", "1.37", "--rules", rules, "-o", "sarif")
    document = json.loads(ran.out)
    assert document["version"] == "2.1.0" and document["$schema"].endswith("sarif-2.1.0.json")
    (only,) = document["runs"]
    driver = only["tool"]["driver"]
    ids = {rule["id"] for rule in driver["rules"]}
    assert driver["name"] and len(ids) == len(driver["rules"])
    assert only["results"]
    for result in only["results"]:
        assert result["ruleId"] in ids and result["message"]["text"]
        assert result["level"] in ("none", "note", "warning", "error")
        for location in result["locations"]:
            assert location.keys() <= {"physicalLocation", "logicalLocations"}
    errors = [each for each in only["results"] if each["level"] == "error"]
    region = errors[0]["locations"][0]["physicalLocation"]
    assert (region["artifactLocation"]["uri"], region["region"]["startLine"]) == (rules, 1)


def test_text_says_the_summary_first_then_cause_fact_and_advice(write: Any) -> None:
    ran = run("upgrade-check", write(DUMP), "--to", "1.37")
    lines = ran.out.splitlines()
    assert lines[0].startswith("1.36 → 1.37: 2 of 2 pods change") and "1 of 2 pods changes class" in lines[0]
    title = next(line for line in lines if line.startswith("feature gate PodLevelResourcesFixKubeletQOSClass"))
    after = lines[lines.index(title) + 1 :]
    assert "An empty `spec.resources`" in after[0] and "to do: remove the empty spec.resources" in after[1]
