"""Policies, CEL rules, certificates and claims with real kubectl."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from plimsoll.kube.signing_request import generate
from tests.e2e.kubectl import Kubectl
from tests.e2e.waiting import until

KUBECTL_PAIRS = (("1.36", "package"),)  # what the server does is the same for every kubectl


def _applied(kubectl: Kubectl, document: dict[str, Any]) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(document))


def test_a_policy_denies(kubectl: Kubectl) -> None:
    name = f"p-{kubectl.namespace}"
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
        "validations": [{"expression": "object.data.size() < 2", "messageExpression": "'too much in ' + request.name"}],
    }
    group = "admissionregistration.k8s.io/v1"
    policy = {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound}
    try:
        _applied(kubectl, policy)
        _applied(kubectl, binding)
        kubectl("create", "configmap", "small", "--from-literal=a=1")
        said = kubectl.refused("create", "configmap", "large", "--from-literal=a=1", "--from-literal=b=2")
        assert f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: too much in large" in said
        row = kubectl("get", "validatingadmissionpolicies", name).table[0]
        assert row[:3] == [name, "1", "<unset>"]
    finally:
        kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)


def test_certificates_are_approved_and_denied(kubectl: Kubectl) -> None:
    usages = ["digital signature", "client auth"]
    for verb, shown in (("approve", "Approved,Issued"), ("deny", "Denied")):
        name = f"{verb}-{kubectl.namespace}"
        request = base64.b64encode(generate("jane", "people").request).decode()
        spec = {"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": usages}
        document = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": spec,
        }
        try:
            _applied(kubectl, document)
            assert kubectl("get", "csr", name).table[0][-1] == "Pending"
            kubectl("certificate", verb, name)
            assert kubectl("get", "csr", name).table[0][-1] == shown
            issued = kubectl("get", "csr", name, "-o", "jsonpath={.status.certificate}").out
            assert bool(issued) is (verb == "approve")
        finally:
            kubectl("delete", "csr", name)


def test_a_claim_is_bound(kubectl: Kubectl, tmp_path: Path) -> None:
    name = f"v-{kubectl.namespace}"
    about = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {**about, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(tmp_path)}},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {**about, "resources": {"requests": {"storage": "1Gi"}}},
    }
    try:
        _applied(kubectl, volume)
        _applied(kubectl, claim)
        until(lambda: kubectl("get", "pvc", "data").table[0][1] == "Bound")
        assert kubectl("get", "pvc", "data").table[0][2:5] == [name, "1Gi", "RWO"]
        assert f"{kubectl.namespace}/data" in kubectl("get", "pv", name).out
        assert "kubernetes.io/pvc-protection" in kubectl("describe", "pvc", "data").out
        kubectl("delete", "pvc", "data")
        until(lambda: "Released" in kubectl("get", "pv", name).out)
    finally:
        kubectl("delete", "pv", name)


def test_rules_of_a_definition(kubectl: Kubectl) -> None:
    group = f"{kubectl.namespace}.example.com"
    rules = [{"rule": "self.least <= self.most", "message": "least may not be above most"}]
    fields = {"least": {"type": "integer"}, "most": {"type": "integer"}}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": rules}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "ranges", "kind": "Range"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"ranges.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    made = {"apiVersion": f"{group}/v1", "kind": "Range", "metadata": {"name": "r"}}
    try:
        _applied(kubectl, definition)
        kubectl("wait", "crd", f"ranges.{group}", "--for=condition=Established", "--timeout=60s")
        _applied(kubectl, {**made, "spec": {"least": 1, "most": 2}})
        said = kubectl.refused("apply", "-f", "-", stdin=json.dumps({**made, "spec": {"least": 3, "most": 2}}))
        assert 'spec: Invalid value: "object": least may not be above most' in said
    finally:
        kubectl("delete", "crd", f"ranges.{group}")
