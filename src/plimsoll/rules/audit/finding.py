"""Rules and what they find: a finding, an answer "cannot tell" with its reason, or "does not apply"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from plimsoll.rules.audit.evidence import Part

if TYPE_CHECKING:
    from plimsoll.rules.audit.differences import ComparedNode

Level = Literal["node", "class", "pod", "container", "process"]
Severity = Literal["error", "warning", "note"]
Verdict = Literal["found", "clean", "cannot tell", "does not apply"]
Owner = Literal["kubelet", "container runtime", "systemd", "kernel", "application", "person"]
KUBELET: Owner = "kubelet"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One difference. `field`: a control file, a field of an object, or a setting."""

    rule: str
    severity: Severity
    level: Level
    subject: str  # namespace/pod, `namespace/pod / container`, a class or the node
    field: str
    declared: str = ""
    expected: str = ""
    effective: str = ""
    observed: str = ""
    path: str = ""  # of the cgroup
    owner: Owner = msgspec.field(default_factory=lambda: KUBELET)  # so that it is in the output in any case
    next_overwrite: str = ""
    advice: str = ""
    note: str = ""
    node: str = ""


class Unknown(msgspec.Struct, frozen=True):
    """A rule cannot tell about one subject."""

    subject: str
    reason: str


Check = Callable[["ComparedNode"], Iterable[Finding | Unknown]]


class Rule(msgspec.Struct, frozen=True):
    """`applies`: why the rule does not apply to this node; empty if it does."""

    id: str
    severity: Severity
    levels: tuple[Level, ...]
    title: str
    why: str
    advice: str
    sources: tuple[str, ...]
    needs: tuple[Part, ...]
    check: Check
    applies: Callable[[ComparedNode], str] = lambda _view: ""


class RuleAnswer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What one rule says about one node."""

    rule: str
    node: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()  # why it cannot tell, or does not apply
    findings: tuple[Finding, ...] = ()


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    node: str
    profile: str
    profile_reason: str
    pods: int
    answers: tuple[RuleAnswer, ...]
    notes: tuple[str, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        return [finding for answer in self.answers for finding in answer.findings]


CLEAN, DRIFT, UNDECIDED = 0, 1, 2


def exit_code(reports: Iterable[NodeReport]) -> int:
    """1 if anything differs (a note alone does not count), else 2 if a rule cannot tell, else 0."""
    answers = [answer for report in reports for answer in report.answers]
    if any(finding.severity != "note" for answer in answers for finding in answer.findings):
        return DRIFT
    return UNDECIDED if not answers or any(answer.verdict == "cannot tell" for answer in answers) else CLEAN
