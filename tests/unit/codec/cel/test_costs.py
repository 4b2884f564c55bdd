"""Costs of rules before they are evaluated, compared with what kube-apiserver's own code answered (costs.json).

`costs`: of a rule in `spec`, whose schema has `properties`; `exceeded`: the errors where that schema is in a map in a
list, both without limits; `refused`: the messages for rules that do not compile.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.cel.environment import compile_expression
from plimsoll.codec.cel.rules import definition_rule_errors
from plimsoll.codec.cel.schemas import type_of
from plimsoll.codec.cel.syntax import CompilationError
from plimsoll.codec.cel.types import Type

ANSWERS = json.loads((Path(__file__).parent / "costs.json").read_text())
SPEC = {"type": "object", "properties": ANSWERS["properties"]}
SELF = type_of(SPEC)
SELVES: dict[str, Type] = {"self": SELF, "oldSelf": SELF}


@pytest.mark.parametrize(("rule", "cost"), ANSWERS["costs"].items(), ids=list(ANSWERS["costs"]))
def test_cost(rule: str, cost: int) -> None:
    assert compile_expression(rule, SELVES, escaped=True).cost == cost


@pytest.mark.parametrize(("rule", "messages"), ANSWERS["exceeded"].items(), ids=list(ANSWERS["exceeded"]))
def test_rules_that_exceed_the_limits(rule: str, messages: list[str]) -> None:
    spec: dict[str, Any] = {**SPEC, "x-kubernetes-validations": [{"rule": rule, "message": "m"}]}
    listed = {
        "type": "array",
        "items": {"type": "object", "properties": {"in": {"type": "object", "additionalProperties": spec}}},
    }
    found = definition_rule_errors({"type": "object", "properties": {"q": listed}}, "p")
    assert [each.detail.partition(" (try")[0] for each in found] == messages


@pytest.mark.parametrize(("rule", "message"), ANSWERS["refused"].items(), ids=list(ANSWERS["refused"]))
def test_rules_that_do_not_compile(rule: str, message: str) -> None:
    with pytest.raises(CompilationError) as found:
        compile_expression(rule, SELVES, escaped=True)
    assert str(found.value) == message
