"""/metrics of the API server, read back by Prometheus' own parser."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.api.server.metrics import metrics_service
from tests.unit.api.api_client import PODS, api


async def test_requests_and_writes_are_counted(tmp_path: Path) -> None:
    async with api(tmp_path) as ask, metrics_service(ask.app):
        await ask("GET", f"{PODS}/missing")
        await ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
        page = await ask("GET", "/metrics")
        families = {each.name: each for each in text_string_to_metric_families(page.body.decode())}
        counts = {
            (sample.labels["verb"], sample.labels["resource"], sample.labels["code"]): sample.value
            for sample in families["apiserver_request"].samples
        }
        assert counts["get", "pods", "404"] == 1
        assert counts["create", "configmaps", "201"] == 1
        (taken,) = (
            sample.value
            for sample in families["apiserver_request_duration_seconds"].samples
            if sample.name.endswith("_count") and sample.labels["verb"] == "create"
        )
        assert taken == 1
        changes = families["plimsoll_store_changes"].samples[0].value
        assert changes == ask.app.cluster.store.meter.committed_changes >= 1
        assert families["plimsoll_store_objects"].samples[0].value == ask.app.cluster.store.count()
    assert "/metrics" not in ask.app.pages.added


async def test_health_checks_are_counted(tmp_path: Path) -> None:
    async with api(tmp_path) as ask, metrics_service(ask.app):
        page = (await ask("GET", "/metrics/slis")).body.decode()
        assert [each.name for each in text_string_to_metric_families(page) if each.samples] == [
            "process_start_time_seconds"
        ]
        ask.app.start_hooks["wait"] = "not finished"
        for path in ("/readyz", "/readyz", "/readyz?exclude=poststarthook/wait", "/livez"):
            await ask("GET", path)
        page = (await ask("GET", "/metrics/slis")).body.decode()
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for each in text_string_to_metric_families(page)
            for sample in each.samples
        }
    total, last, hook = "kubernetes_healthchecks_total", "kubernetes_healthcheck", "poststarthook/wait"
    assert samples[total, "ping", "readyz", "success"] == 3
    assert samples[total, hook, "readyz", "error"] == 2
    assert samples[total, hook, "livez", "error"] == 1
    assert (samples[last, "ping", "livez"], samples[last, hook, "livez"]) == (1, 0)
