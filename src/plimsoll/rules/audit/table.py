"""The table of all rules, and one audit of one node."""

from __future__ import annotations

from collections.abc import Collection

from plimsoll.errors import PlimsollError
from plimsoll.rules.audit import applications, cpu, node, overwrites, placement, protection, resizes, values, volumes
from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.evidence import NodeEvidence
from plimsoll.rules.audit.finding import Finding, NodeReport, Rule, RuleAnswer, Unknown, Verdict
from plimsoll.rules.profile import UNKNOWN_VERSION, ChosenProfile

_FAMILIES = (applications, values, protection, resizes, cpu, placement, node, volumes, overwrites)
RULES: dict[str, Rule] = {
    rule.id: rule for rule in sorted((rule for family in _FAMILIES for rule in family.RULES), key=lambda rule: rule.id)
}
MOST_REASONS = 5


def audit(evidence: NodeEvidence, rules: Collection[str] = RULES) -> NodeReport:
    return audited(ComparedNode(evidence), rules)


def audited(view: ComparedNode, rules: Collection[str] = RULES) -> NodeReport:
    chosen = view.chosen
    notes = []
    if chosen is UNKNOWN_VERSION:
        notes.append("the kubelet's version is not known: values are expected as the documents describe 1.27")
        chosen = ChosenProfile(chosen.profile, "the kubelet's version is not known")
    answers = tuple(_answer(rule, view) for id, rule in RULES.items() if id in rules)
    return NodeReport(view.evidence.name, chosen.profile.name, chosen.reason, len(view.pods), answers, tuple(notes))


def _answer(rule: Rule, view: ComparedNode) -> RuleAnswer:
    name, node = view.evidence.name, view.evidence.node
    if node is not None and node.status.node_info.operating_system == "windows":
        return RuleAnswer(rule.id, name, "does not apply", ("the node runs Windows, which has no cgroups",))
    reasons_by_part = {part: view.evidence.lacks(part) for part in rule.needs}
    lacking = list(dict.fromkeys(filter(None, reasons_by_part.values())))
    if not (reasons_by_part.get("configuration") or reasons_by_part.get("kernel")):  # which `applies` looks at
        try:
            inapplicable = rule.applies(view)
        except PlimsollError as error:
            return RuleAnswer(rule.id, name, "cannot tell", (str(error),))
        if inapplicable:
            return RuleAnswer(rule.id, name, "does not apply", (inapplicable,))
    if lacking:
        return RuleAnswer(rule.id, name, "cannot tell", tuple(lacking))
    findings: list[Finding] = []
    reasons: list[str] = []
    try:
        for each in rule.check(view):
            if isinstance(each, Unknown):
                reasons.append(f"{each.subject}: {each.reason}")
            else:
                findings.append(each)
    except PlimsollError as error:
        reasons.append(str(error))
    if len(reasons) > MOST_REASONS:
        reasons = [*reasons[:MOST_REASONS], f"and {len(reasons) - MOST_REASONS} more"]
    verdict: Verdict = "found" if findings else "cannot tell" if reasons else "clean"
    return RuleAnswer(rule.id, name, verdict, tuple(reasons), tuple(findings))
