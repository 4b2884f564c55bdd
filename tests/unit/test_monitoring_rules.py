"""deploy/monitoring without a node: rules and dashboard are valid, and each alert has a test of promtool."""

from __future__ import annotations

import json
import re

import yaml

from plimsoll.api.server.object_metrics import FAMILIES
from plimsoll.node.metric_reference import node_metrics
from tests.prometheus import MONITORING, promtool


def test_rules_and_configuration_are_valid() -> None:
    for words in (("check", "rules", "rules.yml"), ("check", "config", "--syntax-only", "prometheus.yml")):
        done = promtool(*words)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_and_does_not_fire() -> None:
    done = promtool("test", "rules", "rules_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    rules = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"][0]["rules"]
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    tests = [
        case
        for test in yaml.safe_load((MONITORING / "rules_test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert {case["alertname"] for case in tests if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in tests if not case.get("exp_alerts")} == alerts


def test_dashboard_uses_metrics_that_exist() -> None:
    known = {family.name for page in node_metrics().values() for family in page}
    known |= {family.name for family in FAMILIES}
    rules = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"][0]["rules"]
    known |= {rule["record"] for rule in rules if "record" in rule}
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for rule in rules]
    for expression in expressions:
        for name in re.findall(r"([a-z_:][a-z0-9_:]*)\{", expression):
            assert re.sub(r"_bucket$", "", name) in known, name
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) and dashboard["uid"] == "plimsoll-lines"
