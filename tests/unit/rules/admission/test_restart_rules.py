"""What the API server accepts as restart policy and restart rules of containers (1.35+)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod

OFF, RULES, ALL = Gates(restart_rules=False, restart_all=False), Gates(restart_all=False), Gates()
C, INIT = "spec.containers[0]", "spec.initContainers[0]"
IN = {"operator": "In", "values": [42]}
RESTART, RESTART_ALL = {"action": "Restart", "exitCodes": IN}, {"action": "RestartAllContainers", "exitCodes": IN}


def errors(gates: Gates, *, init: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i", **fields}]}
    if init is not None:
        spec["initContainers"] = [{"name": "i", "image": "i", **init}]
    pod = from_document({"metadata": {"name": "p", "namespace": "default"}, "spec": spec}, Pod)
    return [str(error) for error in create_errors(pod, gates=gates)]


@pytest.mark.parametrize(
    ("gates", "fields", "expected"),
    [
        pytest.param(OFF, {"restartPolicy": "Always"},
                     [f"{C}.restartPolicy: Forbidden: may not be set for non-init containers"], id="off"),
        pytest.param(RULES, {"restartPolicy": "Never", "restartPolicyRules": [RESTART]}, [], id="a rule"),
        pytest.param(RULES, {"restartPolicyRules": [RESTART]},
                     [f"{C}.restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
                     id="rules without a policy"),
        pytest.param(RULES, {"restartPolicy": "Sometimes"},
                     [f'{C}.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"'],
                     id="unknown policy"),
        pytest.param(RULES, {"restartPolicy": "Never", "restartPolicyRules": [RESTART_ALL]},
                     [f'{C}.restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"'],
                     id="all, off"),
        pytest.param(ALL, {"restartPolicy": "Never", "restartPolicyRules": [RESTART_ALL]}, [], id="all"),
        pytest.param(ALL, {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]},
                     [f"{C}.restartPolicyRules[0].exitCodes: Required value: must be specified"], id="no codes"),
        pytest.param(ALL, {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "=", "values": [1]}}]},
                     [f'{C}.restartPolicyRules[0].exitCodes.operator: Unsupported value: "=": supported values: "In", "NotIn"'],
                     id="unknown operator"),
        pytest.param(ALL, {"restartPolicy": "Never", "restartPolicyRules": [RESTART] * 21},
                     [f"{C}.restartPolicyRules: Too many: 21: must have at most 20 items"], id="many rules"),
        pytest.param(ALL, {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": list(range(256))}}]},
                     [f"{C}.restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items"], id="many codes"),
    ],
)  # fmt: skip
def test_ordinary_containers(gates: Gates, fields: dict[str, Any], expected: list[str]) -> None:
    assert errors(gates, **fields) == expected


@pytest.mark.parametrize(
    ("gates", "init", "expected"),
    [
        pytest.param(OFF, {"restartPolicy": "Always"}, [], id="a sidecar"),
        pytest.param(OFF, {"restartPolicy": "Never"},
                     [f'{INIT}.restartPolicy: Unsupported value: "Never": supported values: "Always"'], id="off"),
        pytest.param(RULES, {"restartPolicy": "OnFailure", "restartPolicyRules": [RESTART]}, [], id="a rule"),
        pytest.param(RULES, {"restartPolicy": "Always", "restartPolicyRules": [RESTART]},
                     [f"{INIT}.restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always"],
                     id="a sidecar with rules"),
        pytest.param(ALL, {"restartPolicy": "Always", "restartPolicyRules": [RESTART_ALL]}, [], id="a sidecar restarts all"),
    ],
)  # fmt: skip
def test_init_containers(gates: Gates, init: dict[str, Any], expected: list[str]) -> None:
    assert errors(gates, init=init) == expected
