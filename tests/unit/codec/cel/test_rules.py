"""Rules of custom kinds: what a definition may have, and how a write is answered, with Kubernetes' messages."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.cel.evaluator import Allowance
from plimsoll.codec.cel.policies import condition_programs, failed_conditions
from plimsoll.codec.cel.rules import compiled_rules, definition_rule_errors, rule_errors

INT = {"type": "integer"}


def schema(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    fields = properties or {"x": INT, "y": INT}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": list(rules)}
    return {"type": "object", "properties": {"spec": spec}}


def said(document: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    place = compiled_rules(document)
    assert place is not None
    before = None if old is None else {"spec": old}
    return [str(each) for each in rule_errors(place, {"spec": new}, before)]


def test_a_rule_that_fails() -> None:
    rules = schema({"rule": "self.x + self.y > 0"})
    assert said(rules, {"x": 1, "y": 0}) == []
    assert said(rules, {"x": 0, "y": 0}) == ['spec: Invalid value: "object": failed rule: self.x + self.y > 0']
    assert said(rules, {"x": 0}) == [
        'spec: Invalid value: "object": no such key: y evaluating rule: failed rule: self.x + self.y > 0'
    ]


MESSAGES = [
    ({"message": "too small"}, 'spec: Invalid value: "object": too small'),
    ({"messageExpression": "'x is ' + string(self.x)"}, 'spec: Invalid value: "object": x is 0'),
    ({"messageExpression": "string(1 / 0)", "message": "m"}, 'spec: Invalid value: "object": m'),
    ({"message": "m", "fieldPath": ".x"}, 'spec.x: Invalid value: "object": m'),
    ({"message": "m", "reason": "FieldValueForbidden"}, "spec: Forbidden: m"),
    ({"message": "m", "reason": "FieldValueRequired", "fieldPath": ".y"}, "spec.y: Required value: m"),
]


@pytest.mark.parametrize(("fields", "expected"), MESSAGES, ids=[str(each[0])[:40] for each in MESSAGES])
def test_how_a_write_is_answered(fields: dict[str, Any], expected: str) -> None:
    assert said(schema({"rule": "self.x > 0", **fields}), {"x": 0}) == [expected]


def test_transition_rules_need_an_old_value() -> None:
    rules = schema({"rule": "self.x >= oldSelf.x", "message": "may not shrink"})
    assert said(rules, {"x": 1}) == []
    assert said(rules, {"x": 2}, {"x": 1}) == []
    assert said(rules, {"x": 0}, {"x": 1}) == ['spec: Invalid value: "object": may not shrink']
    optional = schema({"rule": "oldSelf.hasValue() || self.x == 1", "optionalOldSelf": True, "message": "starts at 1"})
    assert said(optional, {"x": 2}) == ['spec: Invalid value: "object": starts at 1']
    assert said(optional, {"x": 2}, {"x": 1}) == []


def test_what_an_update_does_not_change_is_not_judged_again() -> None:
    rules = schema({"rule": "self.x > 0"}, x=INT, inner={"type": "object", "properties": {"y": INT}})
    assert said(rules, {"x": 0}, {"x": 0}) == []
    assert len(said(rules, {"x": 0, "inner": {"y": 1}}, {"x": 0})) == 1


def test_members_of_lists_and_maps() -> None:
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "n": INT},
        "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "shrinks"}],
    }
    keyed = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "maxItems": 10,
    }
    limits = {"type": "object", "additionalProperties": {**INT, "x-kubernetes-validations": [{"rule": "self > 1"}]}}
    rules = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"l": keyed, "m": limits}}}}
    old = {"l": [{"name": "a", "n": 1}, {"name": "b", "n": 5}]}
    assert said(rules, {"l": [{"name": "b", "n": 4}, {"name": "a", "n": 1}, {"name": "c", "n": 0}]}, old) == [
        'spec.l[0]: Invalid value: "object": shrinks'
    ]
    assert said(rules, {"m": {"a": 2, "b": 1}}) == ['spec.m[b]: Invalid value: "integer": failed rule: self > 1']


def test_values_have_the_types_of_their_schema() -> None:
    rules = schema(
        {"rule": "self.when > timestamp('2020-01-01T00:00:00Z')"},
        {"rule": "self.span < duration('1h')"},
        {"rule": "self.data == b'hi'"},
        {"rule": "self.ratio == 1.0"},
        {"rule": "self.__namespace__ == 'a' && self.a__dash__b == 1"},
        {"rule": "type(self.port) == int || self.port == 'http'"},
        when={"type": "string", "format": "date-time"},
        span={"type": "string", "format": "duration"},
        data={"type": "string", "format": "byte"},
        ratio={"type": "number"},
        namespace={"type": "string"},
        port={"x-kubernetes-int-or-string": True},
        **{"a-b": INT},
    )
    assert definition_rule_errors(rules, "p") == []
    good = {
        "when": "2021-01-01T00:00:00Z",
        "span": "59m",
        "data": "aGk=",
        "ratio": 1,
        "namespace": "a",
        "a-b": 1,
        "port": "http",
    }
    assert said(rules, good) == []
    bad = {**good, "when": "2019-01-01T00:00:00Z", "span": "2h", "data": "aGg=", "ratio": 2, "a-b": 2, "port": "x"}
    assert len(said(rules, bad)) == 6


def test_rules_of_one_write_share_a_budget() -> None:
    numbers = {"type": "array", "items": INT}

    def errors_of(count: int, *rules: str) -> list[str]:
        place = compiled_rules(schema(*[{"rule": each} for each in rules], l=numbers))
        assert place is not None
        found = rule_errors(place, {"spec": {"l": list(range(count))}}, None, budget=5_000, per_call=2_000)
        return [str(each) for each in found]

    assert errors_of(500, "self.l.all(a, a >= 0)", "true") == [
        'spec: Invalid value: "object": call cost exceeds limit for rule: self.l.all(a, a >= 0)'
    ]
    assert errors_of(200, *[f"self.l.all(a, a >= -{index})" for index in range(9)]) == [
        'spec: Invalid value: "object": validation failed due to running out of cost budget, no further validation '
        "rules will be run"
    ]


TEXTS = {"type": "array", "items": {"type": "string"}}
DEFINITIONS: list[tuple[dict[str, Any], str]] = [
    (schema({"rule": "self.z == 100"}), "compilation failed: ERROR: <input>:1:5: undefined field 'z'"),
    (schema({"rule": "self.x"}), "cel expression must evaluate to a bool"),
    (schema({"rule": "dyn(self.x)"}), "cel expression must evaluate to a bool"),
    (schema({"rule": "self = 42"}), "Syntax error: token recognition error at: '= '"),
    (schema({"rule": "true", "messageExpression": "self.x"}), "messageExpression must evaluate to a string"),
    (schema({"rule": "true", "messageExpression": "self.z"}), "messageExpression compilation failed: ERROR"),
    (schema({"rule": "true", "optionalOldSelf": True}), "may not be set if oldSelf is not used in rule"),
    (
        schema({"rule": "self.l.all(x, self.l.all(y, x == y))"}, l=TEXTS),
        "rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, "
        "or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
    ),
    (
        # (⌈3145727 · 0.1⌉ · ⌈70 · 0.25⌉ + 2) · 2 = 11324630
        schema({"rule": f"self.s.matches('{'a' * 70}') && self.s.matches('{'b' * 70}')"}, s={"type": "string"}),
        "estimated rule cost exceeds budget by factor of 1.132463x",
    ),
]


@pytest.mark.parametrize(("document", "message"), DEFINITIONS, ids=[each[1][:40] for each in DEFINITIONS])
def test_definitions_that_are_refused(document: dict[str, Any], message: str) -> None:
    errors = [str(each) for each in definition_rule_errors(document, "p")]
    assert any(message in each for each in errors), errors
    assert errors[0].startswith("p.properties[spec].x-kubernetes-validations[0]")


def test_transition_rules_below_lists_without_keys_are_refused() -> None:
    item = {"type": "object", "properties": {"n": INT}, "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n"}]}
    document = {"type": "object", "properties": {"l": {"type": "array", "items": item, "maxItems": 5}}}
    (error,) = definition_rule_errors(document, "p")
    assert error.detail.endswith(
        "oldSelf cannot be used on the uncorrelatable portion of the schema within p.properties[l]"
    )


def test_a_bounded_list_is_cheap_enough() -> None:
    bounded = {"type": "array", "maxItems": 50, "items": {"type": "string", "maxLength": 20}}
    assert definition_rule_errors(schema({"rule": "self.l.all(x, self.l.all(y, x == y))"}, l=bounded), "p") == []


def test_match_conditions_share_a_budget() -> None:
    """RuntimeCELCostBudgetMatchConditions: what the conditions before it cost is missing for the last one."""
    programs = condition_programs(tuple((f"c{n}", "object.l.all(x, x >= 0)") for n in range(3)))
    variables = {"object": {"l": list(range(100))}, "oldObject": None}
    assert failed_conditions(programs, variables) == (True, "")
    holds, problem = failed_conditions(programs, variables, budget=1_000)
    assert not holds and problem.startswith("validation failed due to running out of cost budget")


def test_what_fails_counts_too() -> None:
    """Else a rule on each member that costs much and then fails would never use up the budget of a write."""
    members = {"type": "array", "items": {"type": "integer"}}
    inner = {"type": "object", "properties": {"l": members}, "x-kubernetes-validations": []}
    inner["x-kubernetes-validations"] = [{"rule": "self.l.all(x, x >= 0) && self.l[1000] == 0"}]
    place = compiled_rules({"type": "object", "properties": {"each": {"type": "array", "items": inner}}})
    assert place is not None
    found = rule_errors(place, {"each": [{"l": list(range(100))}] * 50}, None, budget=3_000)
    assert [each.detail.startswith("validation failed due to running out") for each in found[-2:]] == [False, True]
    assert len(found) < 10
    conditions = tuple((f"c{n}", "object.l.all(x, x >= 0) && object.l[1000] == 0") for n in range(50))
    variables = {"object": {"l": list(range(100))}, "oldObject": None}
    allowance = Allowance()
    failed_conditions(condition_programs(conditions), variables, allowance, budget=3_000)
    assert allowance.spent < 4_000
