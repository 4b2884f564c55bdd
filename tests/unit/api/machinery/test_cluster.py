"""What every handler shares: new identities, and policies that are read once until they change."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

from tests.unit.api.api_client import api

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def test_uids_are_random_uuids(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = [ask.app.cluster.new_uid() for _ in range(1000)]
    assert len(set(made)) == 1000
    for text in made:
        read = uuid.UUID(text)
        assert (str(read), read.version, read.variant) == (text, 4, uuid.RFC_4122)
    # Every free bit is both 0 and 1 at some time: 2⁻⁹⁹⁹ that it is not.
    numbers = [uuid.UUID(text).int for text in made]
    together, common = 0, (1 << 128) - 1
    for number in numbers:
        together |= number
        common &= number
    fixed = (0xF << 76) | (0b11 << 62)
    assert together & ~fixed == ((1 << 128) - 1) & ~fixed
    assert common & ~fixed == 0


async def test_policies_follow_every_change(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        cluster = ask.app.cluster

        def found(namespace: str = "default") -> list[str]:
            return [each["metadata"]["name"] for each in cluster.policies("resourcequotas", namespace)]

        assert (found(), found("kube-system")) == ([], [])
        for name in ("b", "a"):
            await ask.ok("POST", QUOTAS, {"metadata": {"name": name}, "spec": {"hard": {"pods": "1"}}})
        assert (found(), found("kube-system")) == (["a", "b"], [])
        assert cluster.policies("resourcequotas", "default") is cluster.policies("resourcequotas", "default")
        await ask.ok("DELETE", f"{QUOTAS}/a")
        assert found() == ["b"]


async def test_generated_names(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = [ask.app.cluster.generated_name("web-") for _ in range(5000)]
        letters = Counter("".join(name.removeprefix("web-") for name in made))
        assert {len(name) for name in made} == {9}
        assert len(set(made)) > 4980
        assert "".join(sorted(letters)) == "2456789bcdfghjklmnpqrstvwxz"
        assert max(letters.values()) < 1.4 * min(letters.values())  # equally likely: 926 each, σ 30
        assert len(ask.app.cluster.generated_name("x" * 100)) == 63
