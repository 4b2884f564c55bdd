"""CustomResourceDefinitions, compared with what kube-apiserver's own code answered (definitions.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.api.api_client import api

ANSWERS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "definitions.json").read_text())
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def test_definitions_that_are_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for answer in ANSWERS:
            body = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": answer["name"]},
                "spec": answer["spec"],
            }
            said = await ask("POST", DEFINITIONS, body)
            assert said.code == 422, body
            causes = sorted(f"{each['field']}: {each['message']}" for each in said.json["details"]["causes"])
            assert causes == answer["errors"]
