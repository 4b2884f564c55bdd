"""The pods of this node from the kubelet's PodsAPI socket (Kubernetes 1.37, v1alpha1): no API server is needed.

Each pod is the protobuf form of a Kubernetes Pod.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from plimsoll.codec.protobuf.kube import object_from_protobuf
from plimsoll.codec.protobuf.structs import decode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.errors import PlimsollError
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import GrpcError
from plimsoll.rules.model.json_object import JsonObject

SOCKET = "/var/lib/kubelet/pods-api/pods-api.sock"
LIST_PODS = "/v1alpha1.Pods/ListPods"
DEADLINE_S = 10.0


class ListPodsResponse(msgspec.Struct, frozen=True):
    pods: Annotated[tuple[bytes, ...], 1] = ()


class PodsSocketError(PlimsollError):
    """The socket does not answer, or not with pods."""


def listed_pods(socket: str = SOCKET) -> list[JsonObject]:
    """Raises PodsSocketError."""
    return asyncio.run(_listed(socket))


async def _listed(socket: str) -> list[JsonObject]:
    client = GrpcClient(socket)
    try:
        answer = await client.unary(LIST_PODS, b"", DEADLINE_S)
        return [object_from_protobuf("v1", "Pod", each) for each in decode(ListPodsResponse, answer).pods]
    except GrpcError as error:
        raise PodsSocketError(f"{socket}: {error}; it needs kubelet 1.37 with the feature gate PodsAPI") from None
    except ProtobufError as error:
        raise PodsSocketError(f"{socket}: {error}") from None
    finally:
        client.close()
