"""Shared by the tests of `plimsoll explain`: manifests and one run of the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.console import Ran, run
from tests.unit.strategies import Json

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


NODE = ("--capacity", "cpu=4,memory=8Gi")


def pod(name: str = "p", block: Json | None = None, **metadata: Any) -> Json:
    containers = [{"name": "c", "image": "i", "resources": block or {}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": containers},
    }


GOOD = pod("good", {"limits": {"cpu": "1", "memory": "1Gi"}})


def stream(*documents: Json) -> str:
    """JSON values one after the other, as kubectl reads them (Y4)."""
    return "\n".join(map(json.dumps, documents))


def explain(*words: str, **options: Any) -> Ran:
    return run("explain", *words, *NODE, **options)


def titles(ran: Ran) -> list[str]:
    return [each["name"] for each in json.loads(ran.out)["pods"]]


# --- invalid input ---

SEVERAL = """\
apiVersion: v1
kind: Pod
metadata:
  name: first
spec:
  containers:
  - name: app
    image: nginx
    resources:
      limits:
        cpu: lots
        memory: 1K
---
apiVersion: v1
kind: Pod
metadata:
  name: good
spec:
  containers:
  - name: app
    image: nginx
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: third
spec:
  template:
    spec:
      containers:
      - name: app
        image: nginx
        resources:
          requests: {cpu: 2}
          limits:
            cpu: 1
      - name: App
        image: nginx
---
a: [
---
kind: Pod
"""
