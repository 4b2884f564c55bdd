"""The sentences a kubelet writes into events while a pod lives, one function for each (04 §10–§12, 05 B8).

Two releases word some of them differently; `profile` says which. Every function returns the event as a value; the
agent's recorder counts repetitions and sends them.
"""

from __future__ import annotations

from plimsoll.rules.gotext import quoted
from plimsoll.rules.model.objects import Metadata
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.profile import Profile

NORMAL, WARNING = "Normal", "Warning"


def pod_words(metadata: Metadata) -> str:
    """`name_namespace(uid)`, as the kubelet's sentences name a pod."""
    return f"{metadata.name}_{metadata.namespace}({metadata.uid})"


def duration_words(seconds: float) -> str:
    """As Go prints a duration of a tenth of a second and more: `10s`, `1m20s`, `5m0s`, `1.5s`, `850ms`."""
    if 0 < seconds < 1:
        return f"{_decimals(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    words = f"{_decimals(rest)}s"
    if hours or minutes:
        words = f"{minutes}m{words}"
    return f"{hours}h{words}" if hours else words


def _decimals(number: float) -> str:
    return f"{round(number, 3):.3f}".rstrip("0").rstrip(".")


class ContainerEvents:
    """Events about one container."""

    def __init__(self, container: str, profile: Profile, *, is_init: bool = False) -> None:
        self.container, self.profile, self.is_init = container, profile, is_init

    def _normal(self, reason: str, message: str) -> LifecycleEvent:
        return LifecycleEvent(reason, message, "Normal", self.container, self.is_init)

    def _warning(self, reason: str, message: str) -> LifecycleEvent:
        return LifecycleEvent(reason, message, "Warning", self.container, self.is_init)

    def pulling(self, image: str) -> LifecycleEvent:
        return self._normal("Pulling", f"Pulling image {quoted(image)}")

    def pulled(self, image: str, pull_s: float, total_s: float, size_bytes: int = 0) -> LifecycleEvent:
        took = f"in {duration_words(pull_s)} ({duration_words(total_s)} including waiting)"
        size = f". Image size: {size_bytes} bytes." if self.profile.pull_event_says_size else ""
        return self._normal("Pulled", f"Successfully pulled image {quoted(image)} {took}{size}")

    def present(self, image: str) -> LifecycleEvent:
        may = " and can be accessed by the pod" if self.profile.image_event_says_accessible else ""
        return self._normal("Pulled", f"Container image {quoted(image)} already present on machine{may}")

    def pull_failed(self, image: str, why: str) -> LifecycleEvent:
        return self._warning("Failed", f"Failed to pull image {quoted(image)}: {why}")

    def never_pulled(self, image: str) -> LifecycleEvent:
        return self._warning("ErrImageNeverPull", never_pull_message(image))

    def pull_back_off(self, image: str) -> LifecycleEvent:
        return self._normal("BackOff", f"Back-off pulling image {quoted(image)}")

    def start_failed(self, why: str) -> LifecycleEvent:
        """`why`: the runtime's sentence, or the reason's name where an image is missing."""
        return self._warning("Failed", f"Error: {why}")

    def created(self) -> LifecycleEvent:
        names = self.profile.start_event_names_container
        return self._normal("Created", f"Created container {self.container}" if names else "Container created")

    def started(self) -> LifecycleEvent:
        names = self.profile.start_event_names_container
        return self._normal("Started", f"Started container {self.container}" if names else "Container started")

    def killing(self, message: str = "") -> LifecycleEvent:
        return self._normal("Killing", message or f"Stopping container {self.container}")

    def back_off(self, pod: Metadata) -> LifecycleEvent:
        sentence = f"Back-off restarting failed container {self.container} in pod {pod_words(pod)}"
        return self._warning("BackOff", sentence)

    def unhealthy(self, kind: str, output: str) -> LifecycleEvent:
        return self._warning("Unhealthy", f"{kind} probe failed: {output}")

    def probe_errored(self, kind: str, error: str) -> LifecycleEvent:
        state = " and resulted in unknown state" if self.profile.probe_error_says_state else ""
        return self._warning("Unhealthy", f"{kind} probe errored{state}: {error}")

    def probe_warning(self, kind: str, output: str) -> LifecycleEvent:
        return self._warning("ProbeWarning", f"{kind} probe warning: {output}")

    def post_start_failed(self) -> LifecycleEvent:
        """Without the hook's output: it may hold secrets."""
        return self._warning("FailedPostStartHook", "PostStartHook failed")

    def pre_stop_failed(self) -> LifecycleEvent:
        return self._warning("FailedPreStopHook", "PreStopHook failed")


def never_pull_message(image: str) -> str:
    return f"Container image {quoted(image)} is not present with pull policy of Never"


def sandbox_failed(why: str) -> LifecycleEvent:
    return LifecycleEvent("FailedCreatePodSandBox", f"Failed to create pod sandbox: {why}", "Warning")


def sandbox_changed() -> LifecycleEvent:
    return LifecycleEvent("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")


def sync_failed(why: str) -> LifecycleEvent:
    return LifecycleEvent("FailedSync", f"Error: {why}", "Warning")


def kill_failed(why: str) -> LifecycleEvent:
    return LifecycleEvent("FailedKillPod", f"error killing pod: {why}", "Warning")


def deadline_exceeded() -> LifecycleEvent:
    return LifecycleEvent("DeadlineExceeded", DEADLINE_MESSAGE)


def rejected(reason: str, message: str) -> LifecycleEvent:
    return LifecycleEvent(reason, message, "Warning")


def exceeded_grace() -> LifecycleEvent:
    """A pod that an eviction could not stop in time (04 §7)."""
    return LifecycleEvent(
        "ExceededGracePeriod", "Container runtime did not kill the pod within specified grace period.", "Warning"
    )


DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
