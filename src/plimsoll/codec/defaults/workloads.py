"""Defaults of the kinds that have a pod template."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.codec.defaults.members import put
from plimsoll.rules.model.json_object import JsonObject

PodSpecDefaults = Callable[[JsonObject], JsonObject]

_MAX_INT32 = 2**31 - 1


def _with_template(document: JsonObject, name: str, defaults: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    spec = put(name, document.get("spec") or {}, defaults)
    return {**document, "spec": {**spec, "template": _template(spec.get("template") or {}, pod_spec)}}


def _template(template: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    return {**template, "spec": pod_spec(template.get("spec") or {})}


def _replica_set(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    return _with_template(document, "apps.ReplicaSetSpec", {"replicas": 1}, pod_spec)


def _with_labels(document: JsonObject) -> JsonObject:
    """An object without labels gets those of its template."""
    labels = _template_labels(document)
    metadata = document.get("metadata") or {}
    if not labels or metadata.get("labels"):
        return document
    return {**document, "metadata": put("meta.ObjectMeta", metadata, {"labels": labels})}


def _template_labels(document: JsonObject) -> dict[str, str]:
    template = document["spec"].get("template") or {}
    return (template.get("metadata") or {}).get("labels") or {}


def _deployment(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    spec = document.get("spec") or {}
    strategy = put("apps.DeploymentStrategy", spec.get("strategy") or {}, {"type": "RollingUpdate"})
    if strategy["type"] == "RollingUpdate":
        rolling = put(
            "apps.RollingUpdateDeployment",
            strategy.get("rollingUpdate") or {},
            {"maxUnavailable": "25%", "maxSurge": "25%"},
        )
        strategy = {**strategy, "rollingUpdate": rolling}
    spec = put("apps.DeploymentSpec", {**spec, "strategy": strategy}, {})
    defaults = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    return _with_template({**document, "spec": spec}, "apps.DeploymentSpec", defaults, pod_spec)


def _job(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    spec = document.get("spec") or {}
    policy = spec.get("podFailurePolicy")
    defaults: JsonObject = {
        "parallelism": 1,
        "backoffLimit": 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "Failed" if policy else "TerminatingOrFailed",
    }
    if spec.get("parallelism") is None and spec.get("completions") is None:
        defaults["completions"] = 1
    if policy:
        rules = [_failure_rule(rule) for rule in policy.get("rules") or ()]
        document = {**document, "spec": {**spec, "podFailurePolicy": {**policy, "rules": rules}}}
    return _with_labels(_with_template(document, "batch.JobSpec", defaults, pod_spec))


def _failure_rule(rule: JsonObject) -> JsonObject:
    patterns = rule.get("onPodConditions")
    if not patterns:
        return rule
    return {**rule, "onPodConditions": [{**each, "status": each.get("status") or "True"} for each in patterns]}


def _cron_job(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    """The job template gets no defaults of a job: its jobs get them when they are created."""
    defaults = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    spec = put("batch.CronJobSpec", document.get("spec") or {}, defaults)
    job = spec.get("jobTemplate") or {}
    job_spec = job.get("spec") or {}
    job_spec = {**job_spec, "template": _template(job_spec.get("template") or {}, pod_spec)}
    return {**document, "spec": {**spec, "jobTemplate": {**job, "spec": job_spec}}}


def _replication_controller(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    if not (document.get("spec") or {}).get("template"):
        spec = put("core.ReplicationControllerSpec", document.get("spec") or {}, {"replicas": 1})
        return {**document, "spec": spec}
    document = _with_labels(_with_template(document, "core.ReplicationControllerSpec", {"replicas": 1}, pod_spec))
    labels = _template_labels(document)
    if labels and not document["spec"].get("selector"):
        spec = put("core.ReplicationControllerSpec", {**document["spec"], "selector": None}, {"selector": labels})
        return {**document, "spec": spec}
    return document


def _daemon_set(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    spec = document.get("spec") or {}
    strategy = put("apps.DaemonSetUpdateStrategy", spec.get("updateStrategy") or {}, {"type": "RollingUpdate"})
    if strategy["type"] == "RollingUpdate":
        defaults = {"maxUnavailable": 1, "maxSurge": 0}
        rolling = put("apps.RollingUpdateDaemonSet", strategy.get("rollingUpdate") or {}, defaults)
        strategy = {**strategy, "rollingUpdate": rolling}
    spec = put("apps.DaemonSetSpec", {**spec, "updateStrategy": strategy}, {})
    document = {**document, "spec": spec}
    return _with_template(document, "apps.DaemonSetSpec", {"revisionHistoryLimit": 10}, pod_spec)


def _stateful_set(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    spec = document.get("spec") or {}
    strategy = put("apps.StatefulSetUpdateStrategy", spec.get("updateStrategy") or {}, {"type": "RollingUpdate"})
    if strategy["type"] == "RollingUpdate":
        rolling = put("apps.RollingUpdateStatefulSetStrategy", strategy.get("rollingUpdate") or {}, {"partition": 0})
        strategy = {**strategy, "rollingUpdate": rolling}
    name, kept = (
        "apps.StatefulSetPersistentVolumeClaimRetentionPolicy",
        {"whenDeleted": "Retain", "whenScaled": "Retain"},
    )
    retention = put(name, spec.get("persistentVolumeClaimRetentionPolicy") or {}, kept)
    changed = {**spec, "updateStrategy": strategy, "persistentVolumeClaimRetentionPolicy": retention}
    defaults = {"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10}
    document = {**document, "spec": put("apps.StatefulSetSpec", changed, {})}
    return _with_template(document, "apps.StatefulSetSpec", defaults, pod_spec)


def _pod_template(document: JsonObject, pod_spec: PodSpecDefaults) -> JsonObject:
    return {**document, "template": _template(document.get("template") or {}, pod_spec)}


WORKLOADS: dict[str, Callable[[JsonObject, PodSpecDefaults], JsonObject]] = {
    "CronJob": _cron_job,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Job": _job,
    "PodTemplate": _pod_template,
    "ReplicaSet": _replica_set,
    "ReplicationController": _replication_controller,
    "StatefulSet": _stateful_set,
}
