"""Parts of pods as articles print them: the pod around them, and what was assumed."""

from __future__ import annotations

from plimsoll.codec.manifests.fragments import fragment


def test_names_and_images_are_those_that_are_said_to_be_assumed() -> None:
    completed = fragment({"containers": [{"resources": {"limits": {"cpu": "1"}}}]})
    assert completed is not None
    pod = completed.found.document
    (container,) = pod["spec"]["containers"]
    assert (pod["kind"], pod["metadata"]["name"], container["name"]) == ("Pod", "pod", "container-1")
    assert container["image"]
    assert completed.assumed == ("kind Pod", "name pod", "name container-1", "an image for container-1")
