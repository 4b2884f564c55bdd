"""The images that are made here: complete, under the documents' names, and each with something to run."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from plimsoll.runtime.cri.private_containerd.images import BUSYBOX, IMAGES, write_images

pytestmark = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("images") / "images.tar"
    write_images(made)
    return made


def test_every_name_is_an_image_of_its_own(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        file = opened.extractfile("manifest.json")
        assert file is not None
        manifest = json.load(file)
        configs = [json.loads(_read(opened, each["Config"])) for each in manifest]
    names = [name for each in manifest for name in each["RepoTags"]]
    assert names == [name for image in IMAGES for name in image.names]
    assert len({each["Config"] for each in manifest}) == len(names)
    assert {"docker.io/library/nginx:latest", "docker.io/library/ubuntu:18.04", "registry.k8s.io/pause:3.9"} <= {*names}
    assert all(each["config"].get("Entrypoint") or each["config"].get("Cmd") for each in configs)


def test_what_they_run_is_in_the_layer(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        (layer,) = [each for each in opened.getnames() if each.endswith("/layer.tar")]
        with tarfile.open(fileobj=io.BytesIO(_read(opened, layer))) as files:
            there = {f"/{name}" for name in files.getnames()}
    assert {(image.entrypoint or image.command)[0] for image in IMAGES} | {"/bin/bash", "/bin/sleep"} <= there


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()
