"""How an audit is printed: a table for people, JSON, SARIF for code scanning, and metrics for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from plimsoll import __version__
from plimsoll.cli.terminal import Paint, colourful, hanging, inert
from plimsoll.rules.audit.finding import Finding, NodeReport, Rule, exit_code
from plimsoll.rules.audit.table import RULES

SHOWN = 5  # findings of one rule, unless all are wanted
INDENT = 13
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COLOURS = {"error": ("red",), "warning": ("yellow",), "note": ("cyan",)}
_SARIF_LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def table_lines(reports: Sequence[NodeReport], *, everything: bool = False) -> Iterator[str]:
    paint = Paint(colourful())
    for index, report in enumerate(reports):
        if index:
            yield ""
        yield from _node(report, paint, everything=everything)


def _node(report: NodeReport, paint: Paint, *, everything: bool) -> Iterator[str]:
    verdicts: Counter[str] = Counter(answer.verdict for answer in report.answers)
    facts = [f"profile {report.profile}: {report.profile_reason}", f"{report.pods} pods"]
    yield f"{paint(inert(report.node), 'bold')}  {paint(' · '.join(map(inert, facts)), 'dim')}"
    for answer in report.answers:
        if not answer.findings:
            continue
        rule = RULES[answer.rule]
        yield ""
        count = f"  ×{len(answer.findings)}" if len(answer.findings) > 1 else ""
        yield f"{paint(rule.id, 'bold', *_COLOURS[answer.findings[0].severity])}  {rule.title}{paint(count, 'dim')}"
        shown = answer.findings if everything else answer.findings[:SHOWN]
        for _, group in groupby(shown, key=lambda each: (each.subject, each.path)):
            yield from _findings(list(group), paint)
        if len(answer.findings) > len(shown):
            yield paint(f"  and {len(answer.findings) - len(shown)} more (--all shows them)", "dim")
        for advice in dict.fromkeys(each.advice for each in shown if each.advice):
            yield f"  {paint('to do', 'bold'):<10} {hanging(inert(advice), INDENT)}"
    unsure = [answer for answer in report.answers if answer.verdict == "cannot tell"]
    if unsure:
        yield ""
        yield paint("cannot tell", "bold")
        reasons: dict[tuple[str, ...], list[str]] = {}
        for answer in unsure:
            reasons.setdefault(answer.reasons, []).append(answer.rule)
        for why, rules in reasons.items():
            text = f"{', '.join(rules)}: {inert('; '.join(why))}"
            yield f"  {hanging(text, 2)}"
    yield ""
    counts = (
        ("found", "found"),
        ("clean", "clean"),
        ("cannot tell", "cannot tell"),
        ("does not apply", "do not apply"),
    )
    yield f"{len(report.findings)} findings; rules: " + ", ".join(
        f"{verdicts[verdict]} {words}" for verdict, words in counts if verdicts[verdict]
    )


def _findings(group: list[Finding], paint: Paint) -> Iterator[str]:
    """The findings about one subject."""
    first = group[0]
    yield f"  {paint(inert(first.subject), 'bold')}  {paint(inert(first.path), 'dim')}"
    for each in group:
        effective = f", effective {each.effective}" if each.effective and each.effective != each.observed else ""
        text = f"{each.field}: {each.observed}{effective}; expected {each.expected}"
        yield f"    {hanging(inert(text), 6)}"
        if each.note:
            yield f"      {paint(hanging(inert(each.note), 6), 'dim')}"
        if each.next_overwrite:
            owner = f"written by the {each.owner}" if each.owner != "person" else "written by another program or person"
            yield f"      {paint(hanging(inert(f'{owner}; again {each.next_overwrite}'), 6), 'dim')}"


def json_lines(reports: Sequence[NodeReport]) -> Iterator[str]:
    rules = {id: {"title": rule.title, "severity": rule.severity} for id, rule in RULES.items()}
    document = {"exitCode": exit_code(reports), "nodes": reports, "rules": rules}
    yield msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def sarif_lines(reports: Sequence[NodeReport]) -> Iterator[str]:
    """SARIF 2.1.0. A rule that cannot decide is a notification of the run, not a result."""
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": rule.advice},
            "defaultConfiguration": {"level": _SARIF_LEVELS[rule.severity]},
        }
        for rule in RULES.values()
    ]
    results = [
        {
            "ruleId": each.rule,
            "level": _SARIF_LEVELS[each.severity],
            "message": {
                "text": f"{each.subject}: {each.field}: {each.observed}; expected {each.expected}. {each.advice}"
            },
            "locations": [
                {"logicalLocations": [{"fullyQualifiedName": f"{each.node}: {each.subject}", "kind": "resource"}]}
            ],
            "properties": msgspec.to_builtins(each),
        }
        for report in reports
        for each in report.findings
    ]
    unsure = [
        {
            "level": "warning",
            "message": {"text": f"{report.node}: {answer.rule} cannot tell: {'; '.join(answer.reasons)}"},
        }
        for report in reports
        for answer in report.answers
        if answer.verdict == "cannot tell"
    ]
    run = {
        "tool": {"driver": {"name": "plimsoll audit", "version": __version__, "rules": rules}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": unsure}],
        "results": results,
    }
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    yield msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def prometheus_text(reports: Sequence[NodeReport], time_s: float) -> str:
    from plimsoll.metrics.exposition import Gauge

    findings = Gauge("plimsoll_audit_findings", "Differences by rule.", ("node", "rule", "severity", "level"))
    verdicts = Gauge("plimsoll_audit_rule", "1 for the answer of each rule.", ("node", "rule", "verdict"))
    pods = Gauge("plimsoll_audit_pods", "Pods that were audited.", ("node",))
    last = Gauge("plimsoll_audit_last_run_timestamp_seconds", "When the audit ended.", ())
    for report in reports:
        pods.set(report.pods, report.node)
        for answer in report.answers:
            verdicts.set(1, report.node, answer.rule, answer.verdict)
            counts = Counter((each.severity, each.level) for each in answer.findings)
            for (severity, level), count in sorted(counts.items()):
                findings.set(count, report.node, answer.rule, severity, level)
    last.set(time_s)
    return "".join(metric.text() for metric in (findings, verdicts, pods, last))


PRINTERS: dict[str, Callable[[Sequence[NodeReport]], Iterator[str]]] = {"json": json_lines, "sarif": sarif_lines}


def rule_lines(rule: Rule, paint: Paint) -> Iterator[str]:
    """`plimsoll audit explain A02`."""
    yield f"{paint(rule.id, 'bold', *_COLOURS[rule.severity])}  {paint(rule.title, 'bold')}"
    for title, text in (
        ("why", rule.why),
        ("to do", rule.advice),
        ("severity", rule.severity),
        ("levels", ", ".join(rule.levels)),
        ("needs", ", ".join(rule.needs)),
        ("sources", ", ".join(rule.sources)),
    ):
        yield f"  {paint(f'{title:<9}', 'dim')} {hanging(text, INDENT - 1)}"
