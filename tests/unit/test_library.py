"""The public Python API: every example of docs/library.md, its types, its errors, and that it costs no start-up time."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import plimsoll
from plimsoll import Explanation, PlimsollError, PodPlan, Quantity, explain, plan, qos_class

DOCS = Path(__file__).parents[2] / "docs" / "library.md"
NODE = {"cpu": 4, "memory": "8Gi"}
POD = {
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]},
}
DEPLOYMENT = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {"spec": POD["spec"]}}}


def test_every_example_of_the_documentation_runs() -> None:
    failed, ran = doctest.testfile(str(DOCS), module_relative=False)
    assert ran > 10
    assert failed == 0


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(POD, id="object"),
        pytest.param([POD], id="list of objects"),
        pytest.param(json.dumps(POD), id="text"),
        pytest.param(json.dumps(POD).encode(), id="bytes"),
        pytest.param({"kind": "List", "items": [POD, {"kind": "Service"}]}, id="List, with an object without a pod"),
    ],
)
def test_every_form_of_a_manifest(manifest: plimsoll.library.Manifest) -> None:
    assert qos_class(manifest) == "Guaranteed"
    explained: Explanation = explain(manifest, capacity=NODE)
    planned: list[PodPlan] = plan(manifest, capacity=NODE)
    assert [pod.qos_class for pod in explained.pods] == [pod.qos_class for pod in planned] == ["Guaranteed"]


def test_explain_and_plan_give_the_same_values() -> None:
    (planned,) = plan(POD, capacity=NODE, profile="1.36", cgroup_driver="systemd")
    (pod,) = explain(POD, capacity=NODE, profile="1.36", cgroup_driver="systemd").tree.children[0].children[:1]
    assert (pod.level, pod.path) == ("pod", planned.cgroup)
    assert {file.name: file.value for file in pod.files} == msgspec.to_builtins(planned.files)


def test_a_template_is_named_and_its_fields_are_those_of_the_manifest() -> None:
    assert explain(DEPLOYMENT, capacity=NODE).pods[0].name == "deployment/d"
    broken = json.loads(json.dumps(DEPLOYMENT).replace("1Gi", "1Gx"))
    with pytest.raises(PlimsollError, match=r"^spec\.template\.spec\.containers\[0\]\.resources\.limits\[memory\]: "):
        explain(broken, capacity=NODE)


def test_this_machine_is_the_default_node() -> None:
    assert int(explain(POD).node.capacity["cpu"]) > 0


def test_advice_is_given_on_request() -> None:
    pod = json.loads(json.dumps(POD).replace("limits", "requests"))
    assert explain(pod, capacity=NODE).pods[0].advice == ()
    assert [change.field for change in explain(pod, capacity=NODE, advise=True).pods[0].advice] == [
        "spec.containers[0].resources.limits.cpu",
        "spec.containers[0].resources.limits.memory",
    ]


REFUSED = [
    ("no YAML", lambda: qos_class("a: [")),
    ("no object", lambda: qos_class("[]")),
    ("no kind", lambda: qos_class({})),
    ("no pod", lambda: qos_class([])),
    ("two pods", lambda: qos_class([POD, POD])),
    ("a bad amount", lambda: Quantity.parse("1x")),
    ("a bad capacity", lambda: plan(POD, capacity={"cpu": 1, "memory": "much"})),
    ("an incomplete capacity", lambda: plan(POD, capacity={"cpu": 1})),
    ("a bad configuration", lambda: plan(POD, capacity=NODE, kubelet_config={"maxPods": "many"})),
    ("two configurations", lambda: plan(POD, capacity=NODE, kubelet_config="a: 1\n---\nb: 1")),
]


@pytest.mark.parametrize("call", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_errors_are_plimsoll_errors(call: object) -> None:
    assert callable(call)
    with pytest.raises(PlimsollError):
        call()


def test_an_unknown_profile_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(PlimsollError, match=r"documents, 1\.27, .*, 1\.37"):
        plan(POD, capacity=NODE, profile="1.20")


def test_the_public_names() -> None:
    assert all(hasattr(plimsoll, name) for name in plimsoll.__all__)
    assert set(plimsoll.__all__) <= set(dir(plimsoll))
    with pytest.raises(AttributeError, match="no attribute 'whatever'"):
        getattr(plimsoll, "whatever")  # noqa: B009
    assert (Path(plimsoll.__file__).parent / "py.typed").exists()


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; import plimsoll; print([name for name in sys.modules if name.startswith('plimsoll.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"
