"""Documents and JSON → lean objects: the fast and the tolerant decoder agree, and every error has its path."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import NumberText, from_document, json_document, lean_pod, pod_from_json, quantity_text
from plimsoll.errors import FieldError, InvalidObjectError
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.quantity import parse
from tests.examples import examples
from tests.unit.strategies import Json, valid_pods


def pod(**resources: Any) -> Json:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def problems(document: Any, kind: Any = Pod) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidObjectError) as caught:
        from_document(document, kind)
    return [(error.type, error.field, error.message()) for error in caught.value.errors]


# --- values ---

QUANTITIES = [
    ("Q-1 a string", '"250m"', "250m"),
    ("Q-1 blanks around it", '" 1Gi\\t"', "1Gi"),
    ("Q-1 a number", "2", "2"),
    ("Q-1 a fraction", "0.5", "500m"),
    ("Q-1 a number's own text", "1.123", "1.123"),
    ("Q-1 with an exponent", "1e3", "1e3"),
    ("Q-1 with a capital exponent", "1E3", "1E3"),
    ("Q-1 negative", "-1", "-1"),
    ("Q-1 null is zero", "null", "0"),
]


@pytest.mark.parametrize(("literal", "text"), [row[1:] for row in QUANTITIES], ids=[row[0] for row in QUANTITIES])
def test_quantities(literal: str, text: str) -> None:
    data = json.dumps(pod(requests={"cpu": "@"})).replace('"@"', literal)
    for found in (pod_from_json(data), from_document(json_document(data), Pod)):
        (container,) = found.spec.containers
        assert str(container.resources.requests["cpu"]) == text


FROM_YAML = [
    ("int", 2, "2"),
    ("float", 0.5, "0.5"),
    ("whole float", 2.0, "2"),
    ("small", 1e-7, "1e-7"),
    ("large", 1e21, "1e+21"),
    ("between", 123456789012345680.0, "123456789012345680"),
    ("zero", 0.0, "0"),
    ("text", " 1Gi ", "1Gi"),
    ("a boolean is none", True, None),
    ("a list is none", [1], None),
    ("a giant is none", 10**40, None),
]


@pytest.mark.parametrize(("value", "text"), [row[1:] for row in FROM_YAML], ids=[row[0] for row in FROM_YAML])
def test_quantity_text(value: Any, text: str | None) -> None:
    """A number as Go prints it: that is the text Kubernetes parses."""
    assert quantity_text(value) == text


def test_numbers_keep_their_text() -> None:
    document = json_document('{"a": 1.10, "b": [2], "c": true, "d": null}')
    assert document == {"a": "1.10", "b": ["2"], "c": True, "d": None}
    assert type(document["a"]) is NumberText


def test_null_is_absent_and_empty_is_empty() -> None:
    """Q-1, D-1, QC-2: the three states of a mapping."""
    absent = from_document({"spec": {"containers": None, "resources": None, "overhead": None}}, Pod)
    assert (absent.spec.containers, absent.spec.resources, absent.spec.overhead) == ((), None, None)
    empty = from_document({"spec": {"resources": {}, "overhead": {}}}, Pod)
    assert (empty.spec.resources.requests, empty.spec.overhead) == (None, {})
    (container,) = from_document({"spec": {"containers": [None]}}, Pod).spec.containers
    assert container.name == ""
    assert from_document({"metadata": {"labels": {"a": None}}}, Pod).metadata.labels == {"a": ""}


def test_unknown_fields_are_passed_over() -> None:
    found = from_document(
        {"kind": "Pod", "x": [1], "spec": {"y": {}, "containers": [{"name": "c", "env": [{"name": "A"}]}]}}, Pod
    )
    assert found.spec.containers[0].name == "c"


def test_a_running_pod_is_decoded_by_the_fast_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status and volumes have parts that are not decoded further, and texts there that are no quantities."""
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    document = pod(requests={"cpu": "1"})
    document["spec"]["volumes"] = [{"name": "v", "hostPath": {"path": "/srv", "type": "Directory"}}]
    document["status"] = {
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}],
        "containerStatuses": [{"name": "c", "state": state, "resources": {"requests": {"cpu": "1"}}}],
    }
    expected = from_document(document, Pod)
    monkeypatch.setattr("plimsoll.codec.lean.lean.from_document", None)
    assert pod_from_json(json.dumps(document)) == lean_pod(document) == expected
    assert expected.status.container_statuses[0].state.running == state["running"]


def test_names_on_the_wire() -> None:
    document = {
        "spec": {"initContainers": [{"name": "i", "restartPolicy": "Always"}], "priorityClassName": "x"},
        "status": {"qosClass": "Burstable"},
    }
    found = from_document(document, Pod)
    assert (found.spec.init_containers[0].restart_policy, found.spec.priority_class_name, found.status.qos_class) == (
        "Always",
        "x",
        "Burstable",
    )
    node = from_document({"status": {"capacity": {"cpu": 4}}}, Node)
    assert node.status.capacity == {"cpu": parse("4")}


# --- problems ---

FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
PROBLEMS = [
    ("a bad quantity", pod(limits={"cpu": "x"}), "spec.containers[0].resources.limits[cpu]", f'Invalid value: "x": {FORMAT}'),
    ("a bad suffix", pod(limits={"cpu": "1K"}), "spec.containers[0].resources.limits[cpu]", 'Invalid value: "1K": unable to parse quantity\'s suffix'),
    ("no quantity at all", pod(limits={"cpu": []}), "spec.containers[0].resources.limits[cpu]", 'Invalid value: "[]": must be a quantity'),
    ("a boolean quantity", pod(limits={"cpu": True}), "spec.containers[0].resources.limits[cpu]", 'Invalid value: "true": must be a quantity'),
    ("a number for a name", {"spec": {"containers": [{"name": 5}]}}, "spec.containers[0].name", 'Invalid value: "5": must be a string'),
    ("a list for an object", {"spec": []}, "spec", 'Invalid value: "[]": must be an object'),
    ("an object for a list", {"spec": {"containers": {}}}, "spec.containers", 'Invalid value: "{}": must be a list'),
    ("a text for a number", {"spec": {"priority": "1"}}, "spec.priority", 'Invalid value: "1": must be an integer'),
    ("a fraction for a number", {"spec": {"priority": 1.5}}, "spec.priority", 'Invalid value: "1.5": must be an integer'),
    ("true for a number", {"spec": {"priority": True}}, "spec.priority", 'Invalid value: "true": must be an integer'),
    ("a number for a switch", {"spec": {"hostNetwork": 1}}, "spec.hostNetwork", 'Invalid value: "1": must be true or false'),
    ("an unknown class", {"status": {"qosClass": "Gold"}}, "status.qosClass",
     'Unsupported value: "Gold": supported values: "Guaranteed", "Burstable", "BestEffort"'),
    ("no object", [], "(document)", 'Invalid value: "[]": must be an object'),
    ("nothing", None, "(document)", 'Invalid value: "null": must be an object'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "field", "message"), [row[1:] for row in PROBLEMS], ids=[row[0] for row in PROBLEMS]
)
def test_problems(document: Any, field: str, message: str) -> None:
    found = problems(document)
    assert [each[1:] for each in found] == [(field, message)]
    with pytest.raises(InvalidObjectError) as caught:
        pod_from_json(json.dumps(document))
    assert [error.field for error in caught.value.errors] == [field]


def test_all_problems_at_once() -> None:
    document = {
        "spec": {"containers": [{"name": 1, "resources": {"limits": {"cpu": "x", "memory": "y"}}}, 7], "priority": "z"},
        "status": {"qosClass": "?"},
    }
    assert [field for _, field, _ in problems(document)] == [
        "spec.containers[0].name",
        "spec.containers[0].resources.limits[cpu]",
        "spec.containers[0].resources.limits[memory]",
        "spec.containers[1]",
        "spec.priority",
        "status.qosClass",
    ]


def test_paths_below_another() -> None:
    with pytest.raises(InvalidObjectError) as caught:
        from_document({"spec": 1}, Pod, "items[3]")
    assert [error.field for error in caught.value.errors] == ["items[3].spec"]


def test_a_long_value_is_shortened() -> None:
    (problem,) = problems({"spec": {"containers": "x" * 1000}})
    assert len(problem[2]) < 150


NOT_JSON = [
    b"",
    b"{",
    b"{} x",
    b"\xff",
    b"nul",
    b'{"a": NaN}',
    b"[" * 100_000,
    b'"\\ud800',
    b"1e",
    b'{"spec": {"priority": Infinity}}',
]


@pytest.mark.parametrize("data", NOT_JSON, ids=[repr(data[:12]) for data in NOT_JSON])
def test_no_json(data: bytes) -> None:
    with pytest.raises(InvalidObjectError):
        pod_from_json(data)
    with pytest.raises(InvalidObjectError):
        json_document(data)


DEEP = [
    ("metadata", lambda deep: {"metadata": deep}),
    ("a name", lambda deep: {"metadata": {"name": deep}}),
    ("a quantity", lambda deep: pod(limits={"cpu": deep})),
    ("a label", lambda deep: {"metadata": {"labels": {"a": deep}}}),
    ("an unknown field", lambda deep: {"x": deep, "spec": {"containers": 1}}),
]


@pytest.mark.parametrize("make", [row[1] for row in DEEP], ids=[row[0] for row in DEEP])
def test_a_deep_value_in_a_wrong_place(make: Any) -> None:
    """The YAML reader takes a nesting of 10000; saying what is wrong must not break by it."""
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidObjectError):
        from_document(make(deep), Pod)


# --- the two ways ---


def outcome(read: Any) -> tuple[str, Any]:
    """The object with every quantity as its text, or the problems."""
    try:
        return "ok", msgspec.to_builtins(read(), enc_hook=str)
    except InvalidObjectError as error:
        return "refused", [(each.type, each.field, each.message()) for each in error.errors]


def check_both_ways(data: str) -> None:
    assert outcome(lambda: pod_from_json(data)) == outcome(lambda: from_document(json_document(data), Pod))


@settings(max_examples=examples(200), deadline=None)
@given(valid_pods())
def test_both_ways_agree_on_valid_pods(document: Json) -> None:
    check_both_ways(json.dumps(document))
    assert outcome(lambda: pod_from_json(json.dumps(document))) == outcome(lambda: from_document(document, Pod))


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        (
            "",
            " 1 ",
            "1Gi",
            "x",
            "1e3",
            "Always",
            "Burstable",
            2**63,
            2**64,
            -(2**63) - 1,
            1.0,
            -0.0,
            1e300,
            [],
            {},
            [None],
            {"a": None},
        )
    ),
    st.text(max_size=4),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*path, key))
    return found


def replaced(document: Json, path: tuple[Any, ...], value: Any) -> Json:
    result = copy.deepcopy(document)
    holder: Any = result
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return result


@settings(max_examples=examples(400), deadline=None)
@given(valid_pods(), st.data())
def test_both_ways_agree_on_odd_pods(document: Json, data: st.DataObject) -> None:
    """One value anywhere replaced by anything: numbers, nulls, wrong types."""
    path = data.draw(st.sampled_from(places(document)))
    value = data.draw(odd_values)
    check_both_ways(json.dumps(replaced(document, path, value)))


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(("priority", "terminationGracePeriodSeconds")), st.sampled_from(("0", "1", "-1", "1.0", "1e2", "1E2", "-0", "0.0", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1e400", "123456789012345678901234567890")))  # fmt: skip
def test_both_ways_agree_on_literal_numbers(field: str, literal: str) -> None:
    check_both_ways(f'{{"spec": {{"{field}": {literal}}}}}')


@settings(max_examples=examples(200), deadline=None)
@given(st.recursive(odd_values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("metadata", "spec", "status", "name", "containers", "resources", "limits", "cpu")), inner, max_size=4), max_leaves=12))  # fmt: skip
@example({"spec": {"containers": [None, {}]}})
def test_both_ways_agree_on_any_json(document: Any) -> None:
    check_both_ways(json.dumps(document))


@settings(max_examples=examples(100), deadline=None)
@given(valid_pods())
def test_documents_are_not_changed(document: Json) -> None:
    before = copy.deepcopy(document)
    from_document(document, Pod)
    assert document == before


def test_errors_are_kubernetes_errors() -> None:
    with pytest.raises(InvalidObjectError) as caught:
        from_document(pod(limits={"cpu": "x"}), Pod)
    assert isinstance(caught.value.errors[0], FieldError)
    assert str(caught.value).startswith("spec.containers[0].resources.limits[cpu]: Invalid value")
