"""How images are pulled: with the pod's credentials, and so many at one time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.node.pods.image_manager import PodImages, pull_limit
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.lifecycle.events import ContainerEvents
from plimsoll.rules.profile import PROFILE_DOCUMENTS
from plimsoll.runtime.interface import Image, ImageError, RegistryAuth
from tests.unit.node.pods.one_pod_node import PodNode, RecordingRuntime, container
from tests.unit.node.test_agent import Document
from tests.unit.rules.lifecycle.test_registry_auth import secret

IMAGE = "registry.example.com/team/a:1"


class Registry(RecordingRuntime):
    """Of a CRI runtime only this part; nothing is present, and one password is right."""

    makes_cgroups = True
    right = "path"
    tried: list[str]
    now = most = 0

    async def image(self, name: str, *, has_command: bool, pull: bool, auth: RegistryAuth | None = None) -> Image:
        if not pull:
            raise ImageError(name, "not present")
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        user = auth.password if auth is not None else ""
        self.tried.append(user)
        if user != self.right:
            raise ImageError(name, "denied")
        return Image(name)


def made(tmp_path: Path, objects: list[Document], **spec: object) -> tuple[PodNode, Registry]:
    node = PodNode(tmp_path, container("a", image=IMAGE), objects=objects, **spec)
    runtime = Registry(node.kernel)
    runtime.tried = []
    node.agent._services = msgspec.structs.replace(node.agent._services, runtime=runtime)
    return node, runtime


def secret_object(name: str, user: str) -> Document:
    data = secret(**{"registry.example.com": user}).data
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


@pytest.mark.parametrize(
    ("names", "tried"),
    [
        pytest.param(["wrong", "good"], ["wrong", "path"], id="until one succeeds"),
        pytest.param(["good", "wrong"], ["path"], id="in their order"),
        pytest.param(["missing", "good"], ["path"], id="a missing one is left out"),
        pytest.param(["missing"], [""], id="without"),
        pytest.param([], [""], id="none"),
    ],
)
async def test_credentials(tmp_path: Path, names: list[str], tried: list[str]) -> None:
    objects = [secret_object("wrong", "wrong"), secret_object("good", "path")]
    node, runtime = made(tmp_path, objects, imagePullSecrets=[{"name": name} for name in names])

    assert node.api.pod is not None
    pod = run_pod(node.api.pod)
    images = PodImages(node.agent._services)
    ensured = images.ensure(pod, pod.spec.containers[0], ContainerEvents("a", PROFILE_DOCUMENTS))
    if tried[-1] == "path":
        assert (await ensured).ref == IMAGE
    else:
        with pytest.raises(ImageError, match="denied"):
            await ensured
    assert runtime.tried == tried


@pytest.mark.parametrize(
    ("serial", "parallel", "most"), [(True, None, 1), (True, 5, 1), (False, 2, 2), (False, None, 6)]
)
async def test_so_many_pulls_at_one_time(tmp_path: Path, serial: bool, parallel: int | None, most: int) -> None:
    config = msgspec.structs.replace(
        default_config(PROFILE_DOCUMENTS), serialize_image_pulls=serial, max_parallel_image_pulls=parallel
    )
    node, runtime = made(tmp_path, [])
    runtime.right = ""
    services = msgspec.structs.replace(node.agent._services, pulls=pull_limit(config))

    assert node.api.pod is not None
    pod = run_pod(node.api.pod)
    events = ContainerEvents("a", PROFILE_DOCUMENTS)
    await asyncio.gather(*(PodImages(services).ensure(pod, pod.spec.containers[0], events) for _ in range(6)))
    assert (runtime.most, len(runtime.tried)) == (most, 6)
