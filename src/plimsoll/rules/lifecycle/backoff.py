"""Crash back-off of containers and pull back-off of images (04 §11).

An entry has a delay and the time when it was set. A container waits while there is an entry that has not expired, and
less than its delay has passed since the container *finished*. Otherwise it starts immediately and the entry advances:
10 s the first time, then doubled up to the maximum. So the first restart is immediate and the next one waits 10 s. An
entry expires if the container finished more than twice the maximum after the entry was set: it ran that long.

Pull back-off counts from the last failed pull instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.errors import quoted
from plimsoll.rules.lifecycle.events import duration_text, pod_reference
from plimsoll.rules.model.objects import Container, Metadata, ResourceList
from plimsoll.rules.model.observed import Backoff
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile

CRASH_LOOP, IMAGE_PULL_BACKOFF, ERR_IMAGE_PULL = "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull"


class BackoffLimits(msgspec.Struct, frozen=True):
    initial_s: float = 10.0
    max_s: float = 300.0


DEFAULT_LIMITS = BackoffLimits()
REDUCED_LIMITS = BackoffLimits(1.0, 60.0)  # gate ReduceDefaultCrashLoopBackOffDecay


def crash_limits(gates: Mapping[str, bool], max_s: float) -> BackoffLimits:
    """By the feature gates; `max_s`: `crashLoopBackOff.maxContainerRestartPeriod`, whose default follows them, too."""
    limits = REDUCED_LIMITS if gates["ReduceDefaultCrashLoopBackOffDecay"] else DEFAULT_LIMITS
    if not gates["KubeletCrashLoopBackOffMax"] or max_s == DEFAULT_LIMITS.max_s:
        return limits
    return BackoffLimits(min(limits.initial_s, max_s), max_s)


def backoff_key(container: Container) -> str:
    """Another image or other resources have an entry of their own: an accepted resize ends a back-off (03 §10)."""
    requests, limits = _list_text(container.resources.requests), _list_text(container.resources.limits)
    return f"{container.name}_{container.image}_{requests};{limits}"


def _list_text(amounts: ResourceList | None) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted((amounts or {}).items()))


def waits_until_s(entry: Backoff | None, finished_s: float, limits: BackoffLimits = DEFAULT_LIMITS) -> float:
    """When a container that finished at `finished_s` may be started."""
    if entry is None or _has_expired(entry, finished_s, limits):
        return finished_s
    return finished_s + entry.delay_s


def next_backoff(
    entry: Backoff | None, finished_s: float, now_s: float, limits: BackoffLimits = DEFAULT_LIMITS
) -> Backoff:
    """The entry after a restart at `now_s`."""
    if entry is None or _has_expired(entry, finished_s, limits):
        return Backoff(limits.initial_s, now_s)
    return Backoff(min(entry.delay_s * 2, limits.max_s), now_s)


def pull_waits_until_s(entry: Backoff | None, now_s: float, limits: BackoffLimits = DEFAULT_LIMITS) -> float:
    """When the image may be pulled; a time that has passed means immediately."""
    if entry is None or _has_expired(entry, now_s, limits):
        return now_s
    return entry.updated_s + entry.delay_s


def next_pull_backoff(entry: Backoff | None, now_s: float, limits: BackoffLimits = DEFAULT_LIMITS) -> Backoff:
    """The entry after a failed pull."""
    return next_backoff(entry, now_s, now_s, limits)


def _has_expired(entry: Backoff, event_s: float, limits: BackoffLimits) -> bool:
    return event_s - entry.updated_s > 2 * limits.max_s


def crash_message(container: str, pod: Metadata, delay_s: float) -> str:
    return f"back-off {duration_text(delay_s)} restarting failed container={container} pod={pod_reference(pod)}"


def pull_message(image: str, last_error: str = "", profile: Profile = DEFAULT_PROFILE) -> str:
    """`last_error` includes its reason, `ErrImagePull: no such image`; only newer kubelets repeat it."""
    message = f"Back-off pulling image {quoted(image)}"
    return f"{message}: {last_error}" if last_error and profile.pull_backoff_says_why else message
