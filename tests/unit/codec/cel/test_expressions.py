"""Expressions and their values; the expectations are those of the language's specification and of Kubernetes' pages."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.cel.environment import compile_expression, unescaped
from plimsoll.codec.cel.syntax import CompilationError
from plimsoll.codec.cel.types import DYN
from plimsoll.codec.cel.values import CostError, EvaluationError


def value(expression: str, /, **variables: Any) -> Any:
    program = compile_expression(expression, dict.fromkeys(variables, DYN))
    return program.evaluate(variables, 50_000)[0]


VALUES = [
    ("1 + 2 * 3", 7),
    ("-7 / 2", -3),
    ("-7 % 2", -1),
    ("7.0 / 2.0", 3.5),
    ("'a' + 'b'", "ab"),
    ("[1] + [2]", [1, 2]),
    ("1 < 2u && 2u < 2.5", True),
    ("dyn(1) == 1.0", True),
    ("dyn('1') == 1", False),
    ("'a' in {'a': 1} && !(3 in [1, 2])", True),
    ("true || 1 / 0 == 1", True),
    ("1 / 0 == 1 || true", True),
    ("false && 1 / 0 == 1", False),
    ("has({'a': 1}.a) && !has({'a': 1}.b)", True),
    ("[1, 2, 3].all(x, x > 0)", True),
    ("[1, 0].exists(x, 1 / x == 1)", True),
    ("[1, 2, 2].exists_one(x, x == 2)", False),
    ("[1, 2, 3].filter(x, x > 1).map(x, x * 2)", [4, 6]),
    ("[1, 2, 3].map(x, x > 1, x * 2)", [4, 6]),
    ("{'a': 1, 'b': 2}.all(k, k != '')", True),
    ("{'a': 1}.transformMap(k, v, v + 1)", {"a": 2}),
    ("[5, 6].transformList(i, v, i + v)", [5, 7]),
    ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", True),
    ("size('äb') + size([1]) + 'abc'.size()", 6),
    ("type(1) == int && type('') == string", True),
    ("int('12') + int(3.9) + int(2u)", 17),
    ("string(1.5) + string(true) + string(b'x')", "1.5truex"),
    ("string(duration('1h1ms'))", "3600.001s"),
    ("timestamp('2023-05-01T10:00:00+02:00') == timestamp('2023-05-01T08:00:00Z')", True),
    ("timestamp('2023-05-01T10:00:00Z').getDayOfWeek('-11:00')", 0),
    ("(timestamp('2023-05-02T00:00:00Z') - timestamp('2023-05-01T00:00:00Z')).getHours()", 24),
    ("'abc'.matches('^a.c$') && 'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b')", True),
    ("'a1b22'.find('[0-9]+') + 'a1b22'.findAll('[0-9]+')[1]", "122"),
    ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
    ("['a', 'b'].join('-')", "a-b"),
    ("'TacoCat'.lowerAscii().upperAscii()", "TACOCAT"),
    ("' x '.trim() + 'tacocat'.substring(4) + 'tacocat'.charAt(3)", "xcato"),
    ("'tacocat'.indexOf('ac') + 'tacocat'.lastIndexOf('c')", 5),
    ("'a b a'.replace('a', 'c', 1)", "c b a"),
    ("'%s has %d of %.2f, %x'.format(['a', 3, 1.5, 255])", "a has 3 of 1.50, ff"),
    ("'%s'.format([[1, 'a', {'k': null}]])", "[1, a, {k: null}]"),
    ("quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('50k').asInteger() == 50000", True),
    ("quantity('50k').add('20k' == '' ? quantity('0') : quantity('20k')).compareTo(quantity('70k'))", 0),
    ("isQuantity('1.3Gi') && !isQuantity('Three')", True),
    ("url('https://u@example.com:80/a?k=v').getHost()", "example.com:80"),
    ("url('https://example.com:80/a?k=v').getQuery()['k'][0]", "v"),
    ("isURL('/absolute') && !isURL('relative/path')", True),
    ("ip('::1').isLoopback() && ip('10.0.0.1').family() == 4 && !isIP('256.1.1.1')", True),
    ("cidr('192.168.0.0/24').containsIP('192.168.0.1') && cidr('10.0.0.0/8').prefixLength() == 8", True),
    ("ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8:0::abcd')", True),
    ("semver('1.2.3').isLessThan(semver('1.10.0')) && semver('v1.2', true).minor() == 2", True),
    ("format.dns1123Label().validate('my-name').hasValue()", False),
    ("format.named('uuid').value().validate('x').hasValue()", True),
    ("sets.contains([1, 2, 3], [2]) && sets.equivalent([1, 1], [1]) && !sets.intersects([1], [2])", True),
    ("[1, 2, 3].isSorted() && [1, 3].sum() == 4 && [3, 1].min() == 1 && [3, 1].max() == 3", True),
    ("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", 2),
    ("optional.of(1).orValue(2) + optional.none().orValue(2)", 3),
    ("{'a': {'b': 1}}.?a.?c.orValue(5) + {'a': 1}[?'a'].value()", 6),
    ("{'a': ['x', 'y']}[?'a'][1].orValue('') + {'a': ['x']}[?'b'][0].orValue('-')", "y-"),
    ("{'a': ['x']}[?'a'][7].orValue('none') + {'a': {'b': 'c'}}[?'a']['b'].value()", "nonec"),
    ("{'a': {'b': 'c'}}[?'a'][?'x'].hasValue() || [[1]][?0][1].hasValue()", False),
    ("{'a': [[1, 2]]}.?a[0][1].orValue(0) + optional.of([3])[0].value()", 5),
    ("[1, ?optional.none(), ?optional.of(3)]", [1, 3]),
    ("{?'a': optional.none(), 'b': 1}", {"b": 1}),
    ("optional.of(2).optMap(x, x * 2).value()", 4),
    ("-9223372036854775808 + 0x10", -9223372036854775792),
    (r"r'\d' + '\u00e9\n'", "\\dé\n"),
    ("'''a'b''' // comment", "a'b"),
    ("true ? 1 : 2", 1),
    ("[[1, 2], [3]].flatten()", [1, 2, 3]),
    ("[[[1]], [[2, 3]]].flatten(2)", [1, 2, 3]),
    ("[dyn([[1], [2]]), dyn(3)].flatten(1)", [[1], [2], 3]),
    ("['bb', 'a', 'ccc'].sortBy(x, -size(x))", ["ccc", "bb", "a"]),
    ("[{'a': 2}, {'a': 1}].sortBy(x, x.a).map(x, x.a)", [1, 2]),
    ("[3, 4].first().value() + [3, 4].last().value() + dyn([]).first().orValue(5)", 12),
    ("optional.unwrap([optional.of(1), optional.none()]) + [optional.of(2)].unwrapOpt()", [1, 2]),
    ("sign(quantity('-1')) + sign(quantity('5'))", 0),
    ("[1, 2, 2].exists_one(i, x, x == 1)", True),
    ("{'if': 1}.`if`", 1),
]


@pytest.mark.parametrize(("text", "expected"), VALUES, ids=[each[0][:40] for each in VALUES])
def test_values(text: str, expected: Any) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


REFUSED = [
    ("self = 42", "ERROR: <input>:1:6: Syntax error: token recognition error at: '= '\n | self = 42\n | .....^"),
    ("foo", "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^"),
    ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
    ("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
    ("'a'.foo()", "undeclared reference to 'foo'"),
    ("'a'.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
    ("'a'.all(x, true)", "expression of type 'string' cannot be range of a comprehension"),
    ("has(1)", "invalid argument to has() macro"),
    ("[1].map(x.y, x)", "argument must be a simple name"),
    ("namespace", "reserved identifier: namespace"),
    ("1 ? 2 : 3", "found no matching overload for '_?_:_' applied to '(int, int, int)'"),
    ("(" * 300 + "1" + ")" * 300, "expression recursion limit exceeded"),
    ("1" + " + 1" * 300, "expression recursion limit exceeded"),
    ("9223372036854775808", "invalid int literal"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[each[0][:40] for each in REFUSED])
def test_expressions_that_do_not_compile(text: str, message: str) -> None:
    with pytest.raises(CompilationError) as found:
        compile_expression(text, {})
    assert message in str(found.value)


FAILING = [
    ("1 / 0", "division by zero"),
    ("9223372036854775807 + 1", "integer overflow"),
    ("{'a': 1}['b']", "no such key: b"),
    ("{'a': 1}.b", "no such key: b"),
    ("[1][5]", "index out of bounds: 5"),
    ("dyn('a') + 1", "no such overload"),
    ("dyn('a') && true", "no such overload"),
    ("'a'.matches('[' + '')", "error parsing regexp: missing closing ]"),
    ("timestamp('x' + '')", "parsing time"),
    ("[dyn(1), dyn('a')].sortBy(x, x)", "no such overload"),
    ("optional.unwrap([dyn(1)])", "no such overload"),
    ("quantity('x')", "quantities must match the regular expression"),
    ("optional.none().value()", "optional.none() dereference"),
]


@pytest.mark.parametrize(("text", "message"), FAILING, ids=[each[0] for each in FAILING])
def test_expressions_without_a_value(text: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message.replace("(", r"\(").replace(")", r"\)").replace("[", r"\[")):
        value(text)


@pytest.mark.parametrize("call", ["distinct()", "sort()", "sortBy(x, x)"])
def test_comparing_all_members_costs_their_square(call: str) -> None:
    """2 · 200² is more than the 50,000 units of this evaluation."""
    assert len(value(f"lists.range(100).{call}")) == 100
    with pytest.raises(CostError):
        value(f"lists.range(200).{call}")


@pytest.mark.parametrize(
    "text",
    [
        "items.all(a, items.all(b, items.all(c, a + b + c > 0)))",
        "items.map(a, items.map(b, a + b)).size() > 0",
        "[text].exists(t, items.all(i, t.matches('^(a|b)*$') || true) && items.all(j, t.contains('zz') || true))",
    ],
)
def test_no_expression_runs_beyond_its_limit(text: str) -> None:
    variables = {"items": list(range(1, 2000)), "text": "ab" * 4000}
    with pytest.raises(CostError, match="actual cost limit exceeded"):
        value(text, **variables)


def test_names_of_properties_are_escaped() -> None:
    pairs = {
        "__namespace__": "namespace",
        "a__dash__b": "a-b",
        "a__dot__b": "a.b",
        "a__slash__b": "a/b",
        "x__underscores__y": "x__y",
        "plain_name": "plain_name",
        "a__b": "a__b",
    }
    assert {name: unescaped(name) for name in pairs} == pairs
