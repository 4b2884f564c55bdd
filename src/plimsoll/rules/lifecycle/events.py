"""The kubelet's events in the life of a pod, one function for each (04 §10–§12, 05 B8).

Some messages differ between releases; `profile` selects them. Every function returns the event as a value; the agent's
recorder aggregates repetitions and sends them.
"""

from __future__ import annotations

from plimsoll.errors import quoted
from plimsoll.rules.model.objects import Metadata
from plimsoll.rules.model.observed import ContainerKind, LifecycleEvent
from plimsoll.rules.profile import Profile

NORMAL, WARNING = "Normal", "Warning"


def pod_reference(metadata: Metadata) -> str:
    """`name_namespace(uid)`, as the kubelet's messages name a pod."""
    return f"{metadata.name}_{metadata.namespace}({metadata.uid})"


def duration_text(seconds: float) -> str:
    """As Go prints a duration of a tenth of a second and more: `10s`, `1m20s`, `5m0s`, `1.5s`, `850ms`."""
    if 0 < seconds < 1:
        return f"{_decimals(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{_decimals(rest)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _decimals(number: float) -> str:
    return f"{round(number, 3):.3f}".rstrip("0").rstrip(".")


class ContainerEvents:
    """Events about one container."""

    def __init__(self, container: str, profile: Profile, kind: ContainerKind = "containers") -> None:
        self.container, self.profile, self.kind = container, profile, kind

    def _normal(self, reason: str, message: str) -> LifecycleEvent:
        return LifecycleEvent(reason, message, "Normal", self.container, self.kind)

    def _warning(self, reason: str, message: str) -> LifecycleEvent:
        return LifecycleEvent(reason, message, "Warning", self.container, self.kind)

    def pulling(self, image: str) -> LifecycleEvent:
        return self._normal("Pulling", f"Pulling image {quoted(image)}")

    def pulled(self, image: str, pull_s: float, total_s: float, size_bytes: int = 0) -> LifecycleEvent:
        took = f"in {duration_text(pull_s)} ({duration_text(total_s)} including waiting)"
        size = f". Image size: {size_bytes} bytes." if self.profile.pull_event_says_size else ""
        return self._normal("Pulled", f"Successfully pulled image {quoted(image)} {took}{size}")

    def present(self, image: str) -> LifecycleEvent:
        may = " and can be accessed by the pod" if self.profile.image_event_says_accessible else ""
        return self._normal("Pulled", f"Container image {quoted(image)} already present on machine{may}")

    def pull_failed(self, image: str, error: str) -> LifecycleEvent:
        return self._warning("Failed", f"Failed to pull image {quoted(image)}: {error}")

    def never_pulled(self, image: str) -> LifecycleEvent:
        return self._warning("ErrImageNeverPull", never_pull_message(image))

    def pull_back_off(self, image: str) -> LifecycleEvent:
        return self._normal("BackOff", f"Back-off pulling image {quoted(image)}")

    def start_failed(self, error: str) -> LifecycleEvent:
        """`error`: the runtime's message, or the reason if an image is missing."""
        return self._warning("Failed", f"Error: {error}")

    def created(self) -> LifecycleEvent:
        names = self.profile.start_event_names_container
        return self._normal("Created", f"Created container {self.container}" if names else "Container created")

    def started(self) -> LifecycleEvent:
        names = self.profile.start_event_names_container
        return self._normal("Started", f"Started container {self.container}" if names else "Container started")

    def killing(self, message: str = "") -> LifecycleEvent:
        return self._normal("Killing", message or f"Stopping container {self.container}")

    def back_off(self, pod: Metadata) -> LifecycleEvent:
        message = f"Back-off restarting failed container {self.container} in pod {pod_reference(pod)}"
        return self._warning("BackOff", message)

    def unhealthy(self, kind: str, output: str) -> LifecycleEvent:
        return self._warning("Unhealthy", f"{kind} probe failed: {output}")

    def probe_errored(self, kind: str, error: str) -> LifecycleEvent:
        state = " and resulted in unknown state" if self.profile.probe_error_says_state else ""
        return self._warning("Unhealthy", f"{kind} probe errored{state}: {error}")

    def probe_warning(self, kind: str, output: str) -> LifecycleEvent:
        return self._warning("ProbeWarning", f"{kind} probe warning: {output}")

    def post_start_failed(self) -> LifecycleEvent:
        """Without the hook's output: it may contain secrets."""
        return self._warning("FailedPostStartHook", "PostStartHook failed")

    def pre_stop_failed(self) -> LifecycleEvent:
        return self._warning("FailedPreStopHook", "PreStopHook failed")


def never_pull_message(image: str) -> str:
    return f"Container image {quoted(image)} is not present with pull policy of Never"


def sandbox_failed(error: str) -> LifecycleEvent:
    return LifecycleEvent("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}", "Warning")


def sandbox_replaced() -> LifecycleEvent:
    return LifecycleEvent("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")


def hook_without_tls(address: str) -> LifecycleEvent:
    message = f"request to HTTPS lifecycle hook {address} got HTTP response, retry with HTTP succeeded"
    return LifecycleEvent("LifecycleHTTPFallback", message, "Warning")


def sync_failed(error: str) -> LifecycleEvent:
    return LifecycleEvent("FailedSync", f"Error: {error}", "Warning")


def deadline_exceeded() -> LifecycleEvent:
    return LifecycleEvent("DeadlineExceeded", DEADLINE_MESSAGE)


def exceeded_grace() -> LifecycleEvent:
    """An eviction could not stop the pod in time (04 §7)."""
    return LifecycleEvent(
        "ExceededGracePeriod", "Container runtime did not kill the pod within specified grace period.", "Warning"
    )


DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
