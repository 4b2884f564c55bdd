"""Service accounts: what a namespace begins with, TokenRequest, TokenReview, and requests with such tokens."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.machinery.users import AUTHENTICATED, NODES, Tokens, User
from plimsoll.api.server.services import controllers
from tests.unit.api.api_client import MERGE, START_S, ApiClient, api, pod

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
TOKEN = f"{ACCOUNTS}/default/token"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
ISSUER = "https://kubernetes.default.svc.cluster.local"
NODE = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))


def claims_of(token: str) -> Any:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


async def token_of(ask: ApiClient, path: str = TOKEN, **spec: Any) -> str:
    text: str = (await ask.ok("POST", path, {"spec": spec}))["status"]["token"]
    return text


async def code_with(ask: ApiClient, token: str) -> int:
    ask.token = token
    try:
        return (await ask("POST", WHO, {})).code
    finally:
        ask.token = ""


async def bound_pod(ask: ApiClient, name: str = "p", node: str = "n1", **spec: Any) -> Any:
    await ask.ok("POST", "/api/v1/namespaces/default/pods", pod(name, nodeName=node, **spec))
    return await ask.ok("GET", f"/api/v1/namespaces/default/pods/{name}")


async def test_a_new_namespace_begins_with_an_account_and_the_ca(tmp_path: Path) -> None:
    async with api(tmp_path, root_ca="-----CA-----\n", services=[controllers]) as ask:
        await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        for namespace in ("default", "kube-system", "team"):
            place = f"/api/v1/namespaces/{namespace}"
            account = await ask.ok("GET", f"{place}/serviceaccounts/default")
            assert account["metadata"]["namespace"] == namespace and account["metadata"]["uid"]
            bundle = await ask.ok("GET", f"{place}/configmaps/kube-root-ca.crt")
            assert bundle["data"] == {"ca.crt": "-----CA-----\n"}
        place = "/api/v1/namespaces/team"
        bundle = f"{place}/configmaps/kube-root-ca.crt"
        async with ask.watching(f"{place}/serviceaccounts?watch=1&resourceVersion=0") as watched:
            assert await watched.shown(1) == [("ADDED", "default")]
            await ask.ok("DELETE", f"{place}/serviceaccounts/default")
            assert await watched.shown(2) == [("DELETED", "default"), ("ADDED", "default")]
        async with ask.watching(f"{place}/configmaps?watch=1&resourceVersion=0") as watched:
            await ask.ok("PATCH", bundle, {"data": {"ca.crt": "x", "y": "z"}}, MERGE)
            _, changed, repaired = await watched.events(3)
            assert changed["object"]["data"] == {"ca.crt": "x", "y": "z"}
            assert repaired["object"]["data"] == {"ca.crt": "-----CA-----\n"}


async def test_a_token_names_its_account_and_is_accepted(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        account = await ask.ok("GET", f"{ACCOUNTS}/default")
        said = await ask.ok("POST", TOKEN, {"spec": {"expirationSeconds": 900}})
        assert said["status"]["expirationTimestamp"] == "2026-11-16T00:15:00Z"
        token = said["status"]["token"]
        claims = claims_of(token)
        jti = claims.pop("jti")
        assert claims == {
            "aud": [ISSUER],
            "exp": int(START_S) + 900,
            "iat": int(START_S),
            "iss": ISSUER,
            "kubernetes.io": {
                "namespace": "default",
                "serviceaccount": {"name": "default", "uid": account["metadata"]["uid"]},
            },
            "nbf": int(START_S),
            "sub": "system:serviceaccount:default:default",
        }
        ask.token = token
        user = (await ask.ok("POST", WHO, {}))["status"]["userInfo"]
        assert user == {
            "username": "system:serviceaccount:default:default",
            "uid": account["metadata"]["uid"],
            "groups": ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:default"],
            "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={jti}"]},
        }


async def test_the_published_key_checks_a_token(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    async with api(tmp_path) as ask:
        token = await token_of(ask)
        (key,) = (await ask.ok("GET", "/openid/v1/jwks"))["keys"]
        found = await ask.ok("GET", "/.well-known/openid-configuration")
        assert (found["issuer"], found["jwks_uri"]) == (ISSUER, "https://127.0.0.1:6443/openid/v1/jwks")

    def number(text: str) -> int:
        return int.from_bytes(base64.urlsafe_b64decode(text + "=="), "big")

    signed, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    public = ec.EllipticCurvePublicNumbers(number(key["x"]), number(key["y"]), ec.SECP256R1()).public_key()
    parts = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public.verify(parts, signed.encode(), ec.ECDSA(hashes.SHA256()))
    head = signed.partition(".")[0]
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "ES256", "kid": key["kid"]}
    assert (tmp_path / "pki/sa.key").stat().st_mode & 0o777 == 0o600


async def test_a_token_ends_with_its_time_and_with_its_objects(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        token = await token_of(ask, expirationSeconds=600)
        assert await code_with(ask, token) == 201
        ask.now_s += 600 + 59
        assert await code_with(ask, token) == 201  # a minute for clocks that differ
        ask.now_s += 2
        assert await code_with(ask, token) == 401
        document = await bound_pod(ask)
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": document["metadata"]["uid"]}
        bound, plain = await token_of(ask, boundObjectRef=reference), await token_of(ask)
        assert claims_of(bound)["kubernetes.io"]["pod"] == {"name": "p", "uid": reference["uid"]}
        assert claims_of(bound)["kubernetes.io"]["node"] == {"name": "n1"}
        assert await code_with(ask, bound) == 201
        await ask.ok("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
        assert (await code_with(ask, bound), await code_with(ask, plain)) == (401, 201)
        await bound_pod(ask)  # another pod of the same name
        assert await code_with(ask, bound) == 401
        await ask.ok("DELETE", f"{ACCOUNTS}/default")
        assert await code_with(ask, plain) == 401
        await ask.ok("POST", ACCOUNTS, {"metadata": {"name": "default"}})
        assert await code_with(ask, plain) == 401


async def test_a_changed_token_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        token = await token_of(ask)
        head, body, signature = token.split(".")
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        other = json.dumps({**claims_of(token), "sub": "system:serviceaccount:kube-system:default"}).encode()
        forged = base64.urlsafe_b64encode(other).rstrip(b"=").decode()
        for bad in (f"{none}.{body}.", f"{head}.{forged}.{signature}", f"{head}.{body}.{signature[:-4]}AAAA", "a.b.c"):
            assert await code_with(ask, bad) == 401, bad


async def test_a_token_for_others_is_not_for_the_api(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        token = await token_of(ask, audiences=["vault"])
        assert await code_with(ask, token) == 401
        said = await ask.ok("POST", REVIEW, {"spec": {"token": token, "audiences": ["vault", "other"]}})
        assert (said["status"]["authenticated"], said["status"]["audiences"]) == (True, ["vault"])
        assert said["status"]["user"]["username"] == "system:serviceaccount:default:default"
        said = await ask.ok("POST", REVIEW, {"spec": {"token": token}})
        assert said["status"] == {"user": {}, "error": "the token is for other audiences"}
        said = await ask.ok("POST", REVIEW, {"spec": {"token": "nonsense"}})
        assert said["status"] == {"user": {}, "error": "invalid bearer token"}


async def test_the_token_of_a_mounted_volume_lasts_a_year(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        document = await bound_pod(ask)
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": document["metadata"]["uid"]}
        said = await ask.ok("POST", TOKEN, {"spec": {"expirationSeconds": 3607, "boundObjectRef": reference}})
        claims = claims_of(said["status"]["token"])
        assert claims["exp"] - claims["iat"] == 365 * 86400
        assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
        assert said["status"]["expirationTimestamp"] == "2026-11-16T01:00:07Z"


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "no"}}, 404, 'pods "no" not found'),
        (
            {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "c"}},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "other"}},
            400,
            'cannot bind token for serviceaccount "default" to pod running with different serviceaccount name.',
        ),
        (
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"}},
            409,
            "The object might have been deleted and then recreated",
        ),
    ],
)
async def test_a_token_request_is_checked(tmp_path: Path, spec: Any, code: int, message: str) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", ACCOUNTS, {"metadata": {"name": "builder"}})
        await bound_pod(ask)
        await bound_pod(ask, "other", serviceAccountName="builder")
        refused = await ask("POST", TOKEN, {"spec": spec})
        assert refused.code == code and message in refused.message


async def test_a_node_requests_tokens_only_for_its_pods(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        volume = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}
        own = await bound_pod(ask, "own", volumes=[volume])
        far = await bound_pod(ask, "far", node="n2")
        await ask.ok("POST", ACCOUNTS, {"metadata": {"name": "builder"}})
        ask.user = NODE

        def spec(document: Any, **more: Any) -> Any:
            metadata = document["metadata"]
            reference = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
            return {"spec": {"audiences": ["vault"], "boundObjectRef": reference, **more}}

        assert (await ask("POST", TOKEN, spec(own))).code == 201
        for body, why in (
            (spec(far), "node requested token bound to a pod scheduled on a different node"),
            ({"spec": {}}, "node requested token not bound to a pod"),
            (spec(own, audiences=["other"]), 'audience "other" not found in pod spec volume'),
        ):
            refused = await ask("POST", TOKEN, body)
            assert refused.code == 403 and refused.message.endswith(why), refused.message
        refused = await ask("POST", f"{ACCOUNTS}/builder/token", spec(own))
        assert refused.code == 403 and "no relationship found between node 'n1' and this object" in refused.message


async def test_a_pod_gets_its_account_and_the_token_volume(tmp_path: Path) -> None:
    async with api(tmp_path, root_ca="CA") as ask:
        made = await ask.ok(
            "POST", "/api/v1/namespaces/default/pods", pod(initContainers=[{"name": "i", "image": "x"}])
        )
        spec = made["spec"]
        (volume,) = spec["volumes"]
        assert volume["name"].startswith("kube-api-access-") and len(volume["name"]) == len("kube-api-access-") + 5
        assert volume["projected"] == {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [
                            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                        ]
                    }
                },
            ],
            "defaultMode": 420,
        }
        mount = {"name": volume["name"], "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        assert [each["volumeMounts"] for each in (*spec["initContainers"], *spec["containers"])] == [[mount], [mount]]
        assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"


async def test_accounts_and_pods_choose_the_token_and_pull_secrets(tmp_path: Path) -> None:
    async with api(tmp_path, root_ca="CA") as ask:
        quiet = {
            "metadata": {"name": "quiet"},
            "automountServiceAccountToken": False,
            "imagePullSecrets": [{"name": "registry"}],
        }
        await ask.ok("POST", ACCOUNTS, quiet)
        document = await bound_pod(ask, "a", serviceAccountName="quiet")
        assert "volumes" not in document["spec"]
        assert document["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        document = await bound_pod(ask, "b", serviceAccountName="quiet", automountServiceAccountToken=True)
        assert "volumes" in document["spec"]
        document = await bound_pod(ask, "c", automountServiceAccountToken=False, imagePullSecrets=[{"name": "own"}])
        assert "volumes" not in document["spec"] and document["spec"]["imagePullSecrets"] == [{"name": "own"}]
        body = pod("d")
        own = {"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        body["spec"]["containers"][0]["volumeMounts"] = [own]
        body["spec"]["volumes"] = [{"name": "own", "emptyDir": {}}]
        made = await ask.ok("POST", "/api/v1/namespaces/default/pods", body)
        assert [volume["name"] for volume in made["spec"]["volumes"]] == ["own"]


async def test_an_unknown_account_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        refused = await ask("POST", "/api/v1/namespaces/default/pods", pod(serviceAccountName="no"))
        assert refused.code == 403 and refused.message == (
            'pods "demo" is forbidden: error looking up service account default/no: serviceaccount "no" not found'
        )


async def test_an_account_can_limit_its_pods_to_its_secrets(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        metadata = {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
        await ask.ok("POST", ACCOUNTS, {"metadata": metadata, "secrets": [{"name": "own"}]})
        volumes = [{"name": "v", "secret": {"secretName": "other"}}]
        refused = await ask(
            "POST", "/api/v1/namespaces/default/pods", pod(serviceAccountName="strict", volumes=volumes)
        )
        assert refused.code == 403 and refused.message.endswith(
            'volume with secret.secretName="other" is not allowed because service account strict does not reference '
            "that secret"
        )
        volumes[0]["secret"] = {"secretName": "own"}
        await ask.ok("POST", "/api/v1/namespaces/default/pods", pod(serviceAccountName="strict", volumes=volumes))


async def test_a_token_of_a_user_is_for_this_server_alone(tmp_path: Path) -> None:
    """Another service, which asks for its own audience, must not take it for one that was made for it."""
    async with api(tmp_path) as ask:
        token = Tokens(tmp_path).create("eve", ())
        review = {"spec": {"token": token, "audiences": ["vault"]}}
        status = (await ask.ok("POST", REVIEW, review))["status"]
        assert status == {"user": {}, "error": "the token is for other audiences"}
        review = {"spec": {"token": token, "audiences": ["vault", ISSUER]}}
        assert (await ask.ok("POST", REVIEW, review))["status"]["audiences"] == [ISSUER]
