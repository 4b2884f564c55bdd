"""Label and field selectors: what matches, and Kubernetes' own errors (05 B6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.machinery.catalog import BUILT_IN
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.selectors import FieldTerm, field_tests, selection
from plimsoll.api.machinery.status import StatusError


def resource(plural: str, group: str = "") -> ApiResource:
    found = BUILT_IN.at(group, "v1", plural)
    assert found is not None
    return found


def holds(labels: str = "", fields: str = "", plural: str = "pods", group: str = "", **document: Any) -> bool:
    document.setdefault("metadata", {"name": "x", "namespace": "ns", "labels": {"a": "b", "n": "5", "e": ""}})
    return selection(resource(plural, group), labels, fields).matches(msgspec.json.encode(document))


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("a=b", True), ("a==b", True), ("a!=b", False), ("a = b", True), ("a!=c", True), ("z!=c", True), ("a in (x,b)", True),
        ("a in (x)", False), ("a notin (x)", True), ("z notin (x)", True), ("a notin (b)", False), ("a", True), ("z", False),
        ("!z", True), ("!a", False), ("! z", True), ("n>4", True), ("n>5", False), ("n<6", True), ("a>1", False), ("z<1", False),
        ("a=b,n=5", True), ("a=b,n=6", False), ("e=", True), ("a=", False), ("a in ()", False), ("e in ()", True),
        ("e in (,x)", True), ("a in (x,,b)", True), ("", True), ("in=b", False), ("a notin ()", True),
    ],
)  # fmt: skip
def test_labels(text: str, matches: bool) -> None:
    assert holds(text) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("!=b", "found '!=', expected: !, identifier, or 'end of string'"),
        ("!,", "unable to parse requirement: found ',', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a>x", 'unable to parse requirement: values[0]: Invalid value: "x": for \'Gt\', \'Lt\' operators, the value must be an integer'),
    ],
)  # fmt: skip
def test_label_errors(text: str, message: str) -> None:
    with pytest.raises(StatusError) as refusal:
        selection(resource("pods"), text, "")
    assert (refusal.value.code, refusal.value.message) == (400, message)


def test_bad_label_names_are_explained() -> None:
    with pytest.raises(
        StatusError, match=r'^unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key '
    ):
        selection(resource("pods"), "a/b/c", "")
    with pytest.raises(
        StatusError, match=r'^unable to parse requirement: values\[0\]\[a\]: Invalid value: "-": a valid label must be'
    ):
        selection(resource("pods"), "a=-", "")


POD: dict[str, Any] = {
    "spec": {
        "nodeName": "n1",
        "restartPolicy": "Always",
        "schedulerName": "s",
        "serviceAccountName": "sa",
        "hostNetwork": True,
    },
    "status": {
        "phase": "Running",
        "podIP": "1.2.3.4",
        "podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}],
        "nominatedNodeName": "n2",
    },
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("metadata.name=x", True), ("metadata.name==x", True), ("metadata.name!=x", False), ("metadata.namespace=ns", True),
        ("spec.nodeName=n1", True), ("spec.host=n1", True), ("spec.nodeName=", False), ("spec.nodeName!=", True), ("status.phase!=Failed,status.phase!=Succeeded", True),
        ("spec.restartPolicy=Always", True), ("spec.schedulerName=s", True), ("spec.serviceAccountName=sa", True), ("spec.hostNetwork=true", True),
        ("status.podIP=1.2.3.4", True), ("status.podIPs=1.2.3.4\\,::1", True), ("status.nominatedNodeName=n2", True),
        ("metadata.name= x", False), ("metadata.name=x,", True), ("=", True), ("metadata.name=x,metadata.namespace=other", False),
    ],
)  # fmt: skip
def test_pod_fields(text: str, matches: bool) -> None:
    assert holds(fields=text, **POD) is matches


def test_fields_of_other_kinds() -> None:
    assert holds(fields="spec.unschedulable=false", plural="nodes")
    assert holds(fields="spec.unschedulable=true", plural="nodes", spec={"unschedulable": True})
    assert holds(fields="status.phase=Active", plural="namespaces", status={"phase": "Active"})
    about = {"kind": "Node", "name": "n1", "uid": "n1"}
    event: dict[str, Any] = {
        "involvedObject": about,
        "reason": "R",
        "type": "Normal",
        "reportingComponent": "k",
        "source": {"component": "k"},
    }
    core = "involvedObject.kind=Node,involvedObject.name=n1,involvedObject.namespace=,involvedObject.uid=n1,reason=R,type=Normal,source=k,reportingComponent=k"
    assert holds(fields=core, plural="events", **event)
    assert holds(fields="regarding.name=n1,reportingController=k", plural="events", group="events.k8s.io", **event)
    assert not holds(fields="regarding.name=n2", plural="events", group="events.k8s.io", **event)


@pytest.mark.parametrize(
    ("plural", "group", "text", "message"),
    [
        ("pods", "", "foo.bar=1", "field label not supported: foo.bar"),
        ("nodes", "", "metadata.namespace=x", "field label not supported: metadata.namespace"),
        ("namespaces", "", "metadata.namespace=x", "field label not supported: metadata.namespace"),
        ("events", "events.k8s.io", "involvedObject.name=x", "field label not supported: involvedObject.name"),
        ("configmaps", "", "foo.bar=1", '"foo.bar" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("leases", "coordination.k8s.io", "a=", '"a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("pods", "", "a", "invalid selector: 'a'; can't understand 'a'"),
        ("pods", "", "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("pods", "", "metadata.name=a\\b", "invalid field selector: invalid escape sequence: \\b"),
    ],
)  # fmt: skip
def test_field_errors(plural: str, group: str, text: str, message: str) -> None:
    with pytest.raises(StatusError) as refusal:
        selection(resource(plural, group), "", text)
    assert (refusal.value.code, refusal.value.reason, refusal.value.details, refusal.value.message) == (
        400,
        "BadRequest",
        None,
        message,
    )


@given(st.text("ab=!(),<> in\\.-", max_size=12), st.text("metadata.name=!,\\ x", max_size=20))
def test_any_text_is_a_selector_or_a_400(labels: str, fields: str) -> None:
    try:
        holds(labels, fields)
    except StatusError as refusal:
        assert refusal.code == 400


TERMS = st.lists(st.builds(FieldTerm, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", ""]), st.booleans()))


@given(TERMS, st.fixed_dictionaries({"a": st.sampled_from(["x", "y", "z", ""]), "b": st.sampled_from(["x", ""])}))
def test_terms_about_one_field_are_one_test(terms: list[FieldTerm], texts: dict[str, str]) -> None:
    expected = all((texts[term.field] == term.value) == term.is_equal for term in terms)
    tests = field_tests(terms)
    assert all(test.matches(texts[test.field]) for test in tests) == expected
    assert len(tests) == len({term.field for term in terms})
