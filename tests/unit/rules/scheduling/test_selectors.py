"""Tolerations, node affinity and label selectors: spec 05 A2 and the API's own grammar."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import LabelSelector, Node, Pod, SelectorTerm, Taint, Toleration
from plimsoll.rules.scheduling.selectors import matches_affinity, matches_label, required_node_names, selects, tolerates

LABELS = {"disk": "ssd", "cores": "16", "empty": "", "word": "many"}


def node(name: str = "n1", labels: dict[str, str] | None = None) -> Node:
    return from_document({"metadata": {"name": name, "labels": LABELS if labels is None else labels}}, Node)


def pod_with_terms(*terms: dict[str, Any], selector: dict[str, str] | None = None) -> Pod:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}
    return from_document({"spec": {"affinity": affinity, "nodeSelector": selector}}, Pod)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        pytest.param("disk", "In", ("hdd", "ssd"), True, id="In, one of them"),
        pytest.param("disk", "In", ("hdd",), False, id="In, another value"),
        pytest.param("gpu", "In", ("a",), False, id="In, no such label"),
        pytest.param("disk", "In", (), False, id="In without values is malformed"),
        pytest.param("disk", "NotIn", ("hdd",), True, id="NotIn, another value"),
        pytest.param("disk", "NotIn", ("ssd",), False, id="NotIn, that value"),
        pytest.param("gpu", "NotIn", ("a",), True, id="NotIn, no such label"),
        pytest.param("disk", "NotIn", (), False, id="NotIn without values is malformed"),
        pytest.param("empty", "Exists", (), True, id="Exists, empty value"),
        pytest.param("gpu", "Exists", (), False, id="Exists, no such label"),
        pytest.param("disk", "Exists", ("ssd",), False, id="Exists with values is malformed"),
        pytest.param("gpu", "DoesNotExist", (), True, id="DoesNotExist"),
        pytest.param("empty", "DoesNotExist", (), False, id="DoesNotExist, empty value"),
        pytest.param("cores", "Gt", ("15",), True, id="Gt"),
        pytest.param("cores", "Gt", ("16",), False, id="Gt is strict"),
        pytest.param("cores", "Lt", ("17",), True, id="Lt"),
        pytest.param("cores", "Lt", ("9",), False, id="Lt compares numbers, not text"),
        pytest.param("cores", "Gt", ("-3",), True, id="Gt, negative bound"),
        pytest.param("word", "Gt", ("1",), False, id="Gt, label no integer"),
        pytest.param("cores", "Gt", ("1.5",), False, id="Gt, bound no integer"),
        pytest.param("cores", "Gt", ("1", "2"), False, id="Gt wants one value"),
        pytest.param("cores", "Lt", ("9223372036854775808",), False, id="Lt, beyond 64 bits"),
        pytest.param("gpu", "Lt", ("1",), False, id="Lt, no such label"),
        pytest.param("disk", "Like", ("ssd",), False, id="unknown operator"),
    ],
)
def test_matches_label(key: str, operator: str, values: tuple[str, ...], matches: bool) -> None:
    assert matches_label(SelectorTerm(key, operator, values), LABELS) is matches


SSD = expression("disk", "In", "ssd")
HDD = expression("disk", "In", "hdd")
GPU = expression("gpu", "Exists")
THIS = expression("metadata.name", "In", "n1")
OTHER = expression("metadata.name", "In", "n2")


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        pytest.param([{"matchExpressions": [SSD]}], True, id="one term"),
        pytest.param([{"matchExpressions": [SSD, GPU]}], False, id="expressions are ANDed"),
        pytest.param([{"matchExpressions": [GPU]}, {"matchExpressions": [SSD]}], True, id="terms are ORed"),
        pytest.param([{}], False, id="an empty term matches nothing"),
        pytest.param([{}, {"matchExpressions": [SSD]}], True, id="an empty term does not spoil the others"),
        pytest.param([], False, id="no terms match nothing"),
        pytest.param([{"matchFields": [THIS]}], True, id="field metadata.name"),
        pytest.param([{"matchFields": [OTHER]}], False, id="field metadata.name, another node"),
        pytest.param([{"matchFields": [expression("metadata.name", "NotIn", "n2")]}], True, id="field NotIn"),
        pytest.param(
            [{"matchFields": [expression("metadata.name", "In", "n1", "n2")]}], False, id="fields take one value"
        ),
        pytest.param(
            [{"matchFields": [expression("metadata.name", "Exists")]}], False, id="fields know In and NotIn only"
        ),
        pytest.param(
            [{"matchFields": [THIS], "matchExpressions": [HDD]}], False, id="fields and expressions are ANDed"
        ),
        pytest.param(
            [{"matchExpressions": [expression("disk", "In")]}, {"matchExpressions": [SSD]}],
            True,
            id="a malformed term is skipped",
        ),
    ],
)
def test_required_affinity(terms: list[dict[str, Any]], matches: bool) -> None:
    assert matches_affinity(pod_with_terms(*terms), node()) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param({"disk": "ssd"}, True, id="equal"),
        pytest.param({"disk": "ssd", "cores": "8"}, False, id="all must be equal"),
        pytest.param({"gpu": ""}, False, id="an absent label is not an empty one"),
        pytest.param({"empty": ""}, True, id="empty value"),
    ],
)
def test_node_selector(selector: dict[str, str], matches: bool) -> None:
    assert matches_affinity(pod_with_terms({"matchExpressions": [SSD]}, selector=selector), node()) is matches


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        pytest.param([{"matchFields": [THIS]}], {"n1"}, id="a DaemonSet's pod"),
        pytest.param([{"matchFields": [THIS]}, {"matchFields": [OTHER]}], {"n1", "n2"}, id="terms add up"),
        pytest.param([{"matchFields": [THIS, OTHER]}], set(), id="requirements exclude one another"),
        pytest.param([{"matchFields": [THIS]}, {"matchExpressions": [SSD]}], None, id="one term without a name"),
        pytest.param([{"matchFields": [expression("metadata.name", "NotIn", "n2")]}], None, id="NotIn names no node"),
        pytest.param([], None, id="no terms"),
    ],
)
def test_required_node_names(terms: list[dict[str, Any]], names: set[str] | None) -> None:
    assert required_node_names(pod_with_terms(*terms)) == names


TAINT = Taint("dedicated", "db", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(Toleration("dedicated", "Equal", "db", "NoSchedule"), True, id="Equal"),
        pytest.param(Toleration("dedicated", "", "db", "NoSchedule"), True, id="the empty operator is Equal"),
        pytest.param(Toleration("dedicated", "Equal", "web", "NoSchedule"), False, id="another value"),
        pytest.param(Toleration("dedicated", "Exists", "", "NoSchedule"), True, id="Exists needs no value"),
        pytest.param(Toleration("dedicated", "Exists"), True, id="no effect is every effect"),
        pytest.param(Toleration("dedicated", "Exists", "", "NoExecute"), False, id="another effect"),
        pytest.param(Toleration("", "Exists"), True, id="Exists without a key tolerates everything"),
        pytest.param(Toleration("", "Exists", "", "NoExecute"), False, id="but only its effect"),
        pytest.param(Toleration("other", "Exists"), False, id="another key"),
        pytest.param(Toleration("dedicated", "Gt", "db"), False, id="an operator of a gate that is off"),
    ],
)
def test_tolerates(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, TAINT) is tolerated


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param(None, False, id="absent"),
        pytest.param(LabelSelector(), False, id="empty"),
        pytest.param(LabelSelector({"disk": "ssd"}), True, id="labels"),
        pytest.param(
            LabelSelector({"disk": "ssd"}, (SelectorTerm("gpu", "Exists"),)), False, id="labels and expressions"
        ),
        pytest.param(LabelSelector(None, (SelectorTerm("gpu", "DoesNotExist"),)), True, id="expressions"),
        pytest.param(LabelSelector(None, (SelectorTerm("cores", "Gt", ("1",)),)), False, id="Gt is for nodes only"),
    ],
)
def test_selects(selector: LabelSelector | None, selected: bool) -> None:
    assert selects(selector, LABELS) is selected
    assert not selects(selector, None)
