"""`plimsoll explain`: what it prints: formats, scripts, colour, differences and options."""

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
from tests.unit.cli.explain.explain_command import EXAMPLES, GOOD, SEVERAL, explain, pod, stream, titles
from tests.unit.console import Ran, run
from tests.unit.strategies import Json, valid_pods

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


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_values_of_a_container_end_in_one_column(write, version: str) -> None:
    lines = explain(write(GOOD), "--cgroup", version, "--brief").out.splitlines()
    files = json.loads(explain(write(GOOD), "--cgroup", version, "-o", "json").out)
    container = files["tree"]["children"][0]["children"][0]["children"][0]
    wanted = [file for file in container["files"] if not file["name"].startswith("hugetlb.")]
    title = next(number for number, line in enumerate(lines) if line.endswith("pod<uid>/<id>"))
    rows = [next(line for line in lines[title:] if f" {file['name']} " in line) for file in wanted]
    values = [f" {file['value']}" for file in wanted]
    assert len({row.index(value) + len(value) for row, value in zip(rows, values, strict=True)}) == 1


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
