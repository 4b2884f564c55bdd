"""The messages of events, in both profiles."""

from __future__ import annotations

import pytest

from plimsoll.rules.lifecycle.events import (
    ContainerEvents,
    deadline_exceeded,
    duration_text,
    exceeded_grace,
    sandbox_failed,
    sandbox_replaced,
    sync_failed,
)
from plimsoll.rules.model.objects import Metadata
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.profile import profile_named

OLD, NEW = (ContainerEvents("c", profile_named(name)) for name in ("documents", "1.36"))
INIT = ContainerEvents("c", profile_named("1.36"), "initContainers")
POD = Metadata(name="p", namespace="ns", uid="u")

TABLE = [
    (OLD.pulling("nginx"), "Normal", "Pulling", 'Pulling image "nginx"'),
    (OLD.pulled("nginx", 1.2, 1.25), "Normal", "Pulled", 'Successfully pulled image "nginx" in 1.2s (1.25s including waiting)'),
    (
        NEW.pulled("nginx", 0.85, 61.5, 12), "Normal", "Pulled",
        'Successfully pulled image "nginx" in 850ms (1m1.5s including waiting). Image size: 12 bytes.',
    ),
    (OLD.present("nginx"), "Normal", "Pulled", 'Container image "nginx" already present on machine'),
    (
        NEW.present("nginx"), "Normal", "Pulled",
        'Container image "nginx" already present on machine and can be accessed by the pod',
    ),
    (OLD.pull_failed("x", "not found"), "Warning", "Failed", 'Failed to pull image "x": not found'),
    (
        OLD.never_pulled("x"), "Warning", "ErrImageNeverPull",
        'Container image "x" is not present with pull policy of Never',
    ),
    (OLD.pull_back_off("x"), "Normal", "BackOff", 'Back-off pulling image "x"'),
    (OLD.start_failed("ErrImagePull"), "Warning", "Failed", "Error: ErrImagePull"),
    (OLD.created(), "Normal", "Created", "Created container c"),
    (NEW.created(), "Normal", "Created", "Container created"),
    (OLD.started(), "Normal", "Started", "Started container c"),
    (NEW.started(), "Normal", "Started", "Container started"),
    (OLD.killing(), "Normal", "Killing", "Stopping container c"),
    (OLD.killing("FailedPostStartHook"), "Normal", "Killing", "FailedPostStartHook"),
    (OLD.back_off(POD), "Warning", "BackOff", "Back-off restarting failed container c in pod p_ns(u)"),
    (OLD.post_start_failed(), "Warning", "FailedPostStartHook", "PostStartHook failed"),
    (OLD.pre_stop_failed(), "Warning", "FailedPreStopHook", "PreStopHook failed"),
    (sandbox_failed("no room"), "Warning", "FailedCreatePodSandBox", "Failed to create pod sandbox: no room"),
    (sandbox_replaced(), "Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created."),
    (sync_failed("no"), "Warning", "FailedSync", "Error: no"),
    (
        deadline_exceeded(), "Normal", "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
    ),
    (
        exceeded_grace(), "Warning", "ExceededGracePeriod",
        "Container runtime did not kill the pod within specified grace period.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("event", "kind", "reason", "message"), TABLE, ids=[message for *_, message in TABLE])
def test_event_messages(event: LifecycleEvent, kind: str, reason: str, message: str) -> None:
    assert (event.type, event.reason, event.message) == (kind, reason, message)


def test_involved_containers() -> None:
    assert OLD.created().field_path == "spec.containers{c}"
    assert INIT.created().field_path == "spec.initContainers{c}"
    assert sandbox_replaced().field_path == ""


DURATIONS = [
    (0, "0s"), (0.85, "850ms"), (0.0015, "1.5ms"), (1, "1s"), (10, "10s"), (59.25, "59.25s"), (60, "1m0s"), (80, "1m20s"),
    (300, "5m0s"), (3600, "1h0m0s"), (3725.5, "1h2m5.5s"),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "words"), DURATIONS, ids=[words for _, words in DURATIONS])
def test_durations(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words
