"""What the API server refuses in a pod's security settings, mounts and exact host name, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.admission.pod_spec.spec import spec_errors

AT = "spec.containers[0]"


def spec(context: Any = None, mount: Any = None, own: Any = None, **others: Any) -> dict[str, Any]:
    container = {"name": "c", "securityContext": own or {}}
    if mount is not None:
        container["volumeMounts"] = [{"name": "v", "mountPath": "/v", **mount}]
    return {"containers": [container], "volumes": [{"name": "v"}], "securityContext": context or {}, **others}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (spec(), []),
        (spec({"runAsUser": -1}), ["spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"]),
        (spec({"supplementalGroups": [1, 2**31]}), ["spec.securityContext.supplementalGroups[1]: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive"]),
        (spec({"sysctls": [{"name": "a.b"}, {"name": "a.b"}]}), ['spec.securityContext.sysctls[1].name: Duplicate value: "a.b"']),
        (spec({"sysctls": [{"name": "a..b"}]}), ['spec.securityContext.sysctls[0].name: Invalid value: "a..b": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$']),
        (spec({"sysctls": [{"name": "net/ipv4/tcp_syncookies"}]}), []),
        (spec({"supplementalGroupsPolicy": "None"}), ['spec.securityContext.supplementalGroupsPolicy: Unsupported value: "None": supported values: "Merge", "Strict"']),
        (spec({"fsGroupChangePolicy": "Never"}), ['spec.securityContext.fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", "OnRootMismatch"']),
        (spec({"seccompProfile": {"type": "Localhost"}}), ["spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"]),
        (spec(own={"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}), [f'{AT}.securityContext.appArmorProfile.localhostProfile: Invalid value: "x": can only be set when AppArmor type is Localhost']),
        (spec(own={"procMount": "Unmasked"}), [f'{AT}.securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`']),
        (spec(own={"procMount": "Unmasked"}, hostUsers=False), []),
        (spec(own={"privileged": True, "allowPrivilegeEscalation": False}), [f'{AT}.securityContext: Invalid value: "": cannot set `allowPrivilegeEscalation` to false and `privileged` to true']),
        (spec(hostUsers=False, hostPID=True), ["spec.HostPID: Forbidden: when `hostUsers` is false"]),
        (spec(mount={"name": "w"}), [f'{AT}.volumeMounts[0].name: Not found: "w"']),
        (spec(mount={"mountPropagation": "Bidirectional"}), [f"{AT}.volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"]),
        (spec(mount={"mountPropagation": "Bidirectional"}, own={"privileged": True}), []),
        (spec(mount={"recursiveReadOnly": "Enabled"}), [f"{AT}.volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"]),
        (spec(mount={"subPath": "../x"}), [f"{AT}.volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'"]),
        (spec(mount={"subPath": "x", "subPathExpr": "$(A)"}), [f'{AT}.volumeMounts[0].subPathExpr: Invalid value: "$(A)": subPathExpr and subPath are mutually exclusive']),
        (spec(hostnameOverride="a.b"), []),
        (spec(hostnameOverride="a.b", hostNetwork=True), ["spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true"]),
        (spec(hostnameOverride="a" * 65), ["spec.hostnameOverride: Too long: may not be more than 64 bytes"]),
    ],
)  # fmt: skip
def test_errors(given: dict[str, Any], expected: list[str]) -> None:
    assert [str(error) for error in spec_errors(given)] == expected


def test_a_host_name_that_is_none() -> None:
    (error,) = spec_errors(spec(hostnameOverride="A_B"))
    assert str(error).startswith('spec.hostnameOverride: Invalid value: "A_B": a lowercase RFC 1123 subdomain')
