"""What kinds a server has, in both forms of discovery, and what words mean."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.kube.discovery import (
    ROOTS,
    DiscoveredKind,
    UnknownKindError,
    further,
    kind_named,
    kind_of_object,
    kinds_in,
    kinds_meant,
)
from plimsoll.kube.request import Request
from tests.unit.api.api_client import ApiClient, api


async def _all(client: ApiClient, accept: str | None) -> list[DiscoveredKind]:
    """As the command line requests it; `accept` in place of the aggregated form."""

    async def asked(request: Request) -> list[DiscoveredKind]:
        document = await client.ok("GET", request.path, accept=accept or request.accept)
        found = kinds_in(document)
        for each in further(document):
            found += await asked(each)
        return found

    return [kind for root in ROOTS for kind in await asked(root)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[DiscoveredKind], list[DiscoveredKind]]:
    async def run(path: Path) -> tuple[list[DiscoveredKind], list[DiscoveredKind]]:
        async with api(path) as client:
            return await _all(client, None), await _all(client, "application/json")

    return asyncio.run(run(tmp_path_factory.mktemp("api")))


def test_both_forms_are_equivalent(both: tuple[list[DiscoveredKind], list[DiscoveredKind]]) -> None:
    aggregated, legacy = both
    assert {each.plural: each for each in aggregated} == {each.plural: each for each in legacy}
    assert "resize" in kind_named(aggregated, "pods").subresources


WORDS = [
    ("plural", "pods", "Pod"),
    ("singular", "pod", "Pod"),
    ("short", "po", "Pod"),
    ("kind", "Pod", "Pod"),
    ("another case", "DEPLOYMENTS", "Deployment"),
    ("with its group", "deployments.apps", "Deployment"),
    ("with version and group", "deployments.v1.apps", "Deployment"),
    ("events are the core group's", "events", "Event"),
]


@pytest.mark.parametrize(("word", "kind"), [row[1:] for row in WORDS], ids=[row[0] for row in WORDS])
def test_names_resolve_to_kinds(both: tuple[list[DiscoveredKind], list[DiscoveredKind]], word: str, kind: str) -> None:
    found = kind_named(both[0], word)
    assert found.kind == kind
    assert word != "events" or found.group == ""


def test_unknown_names(both: tuple[list[DiscoveredKind], list[DiscoveredKind]]) -> None:
    with pytest.raises(UnknownKindError, match=r'resource type "pads"; did you mean pods\?'):
        kind_named(both[0], "pads")
    with pytest.raises(UnknownKindError, match=r'resource type "xyz"; it has: .*pods'):
        kind_named(both[0], "xyz")
    with pytest.raises(UnknownKindError):
        kind_named(both[0], "pods.apps")
    with pytest.raises(UnknownKindError, match="'Pod' in 'apps/v1'"):
        kind_of_object(both[0], "apps/v1", "Pod")


def test_several_and_categories(both: tuple[list[DiscoveredKind], list[DiscoveredKind]]) -> None:
    assert [each.plural for each in kinds_meant(both[0], "pods,no,pods")] == ["pods", "nodes"]
    assert {"pods", "deployments"} <= {each.plural for each in kinds_meant(both[0], "all")}


def test_titles_and_paths(both: tuple[list[DiscoveredKind], list[DiscoveredKind]]) -> None:
    deployment, pod = kind_of_object(both[0], "apps/v1", "Deployment"), kind_of_object(both[0], "v1", "Pod")
    assert (deployment.title, pod.title) == ("deployment.apps", "pod")
    assert deployment.resource.path("shop", "web") == "/apis/apps/v1/namespaces/shop/deployments/web"
