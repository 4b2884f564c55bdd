"""`plimsoll run`: runs one pod in the foreground, without an API server, and reports how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.daemon import notify, stop_signals
from plimsoll.cli.node.machine import live_options, opened
from plimsoll.cli.terminal import Paint, colourful, inert
from plimsoll.errors import PlimsollError
from plimsoll.node.machine import LiveNode
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import epoch_seconds

if TYPE_CHECKING:
    from plimsoll.node.agent import Agent


OOM_KILLED = "OOMKilled"
THROTTLED_PART = 0.05  # of the CPU periods; less is not reported


class Peak(msgspec.Struct, frozen=True):
    """The highest usage of one container."""

    memory_bytes: int = 0
    periods: int = 0
    throttled_periods: int = 0


def exit_code(pod: JsonObject, *, interrupted: bool) -> int:
    """0 if the pod succeeded, else that of the first container that failed; 130 after Ctrl-C, as in a shell."""
    if interrupted:
        return 130
    status = pod.get("status") or {}
    if status.get("phase") == "Succeeded":
        return 0
    for container in _container_statuses(status):
        ended = _ended(container)
        if ended is not None and ended.get("exitCode"):
            return int(ended["exitCode"])
    return 1


def report(pod: JsonObject, peaks: Mapping[str, Peak]) -> Iterator[str]:
    status = pod.get("status") or {}
    line = f"pod {pod['metadata']['name']}: {status.get('phase', 'Pending')}"
    if status.get("reason"):
        line += f" ({status['reason']}: {status.get('message', '')})"
    yield line
    specs = {each["name"]: each for kind in ("initContainers", "containers") for each in pod["spec"].get(kind) or ()}
    for container in _container_statuses(status):
        name = container["name"]
        yield f"  {name}: {_outcome(container)}"
        yield from (f"    {line}" for line in _limits_hit(container, specs.get(name, {}), peaks.get(name)))


def _container_statuses(status: JsonObject) -> list[JsonObject]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _ended(container: JsonObject) -> JsonObject | None:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    terminated: JsonObject | None = state.get("terminated") or last.get("terminated")
    return terminated


def _outcome(container: JsonObject) -> str:
    waiting = (container.get("state") or {}).get("waiting")
    ended = _ended(container)
    restarts = container.get("restartCount", 0)
    parts = []
    if ended is not None:
        parts.append(f"{ended.get('reason', '')}, exit code {ended.get('exitCode', 0)}")
        started, finished = epoch_seconds(ended.get("startedAt")), epoch_seconds(ended.get("finishedAt"))
        if started is not None and finished is not None:
            parts.append(f"after {finished - started:.0f} s")
    elif waiting is not None:
        parts.append(f"did not run ({waiting.get('reason', '')}{_colon(waiting.get('message', ''))})")
    else:
        parts.append("running")
    if restarts:
        parts.append(f"restarted {restarts} times" if restarts > 1 else "restarted once")
    message = (ended or {}).get("message", "").strip()
    return ", ".join(parts) + (f": {message}" if message else "")


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def _limits_hit(container: JsonObject, spec: JsonObject, peak: Peak | None) -> Iterator[str]:
    limits = (spec.get("resources") or {}).get("limits") or {}
    ended = [(container.get(key) or {}).get("terminated") or {} for key in ("state", "lastState")]
    if any(each.get("reason") == OOM_KILLED for each in ended):
        limit = f"its memory limit of {limits['memory']}" if "memory" in limits else "a memory limit of the pod or node"
        yield f"hit {limit}: the kernel killed it"
    if peak is None:
        return
    if peak.periods and peak.throttled_periods / peak.periods >= THROTTLED_PART:
        limit = f"its CPU limit of {limits['cpu']}" if "cpu" in limits else "a CPU limit of the pod or node"
        yield f"hit {limit}: throttled in {100 * peak.throttled_periods / peak.periods:.0f} % of the CPU periods"
    if peak.memory_bytes:
        yield f"used up to {human_bytes(peak.memory_bytes)} of memory"


SAMPLE_S = 0.5
NODE = "run"
PEAKS = ("memory.max_usage_in_bytes", "memory.peak")  # v1, v2 since Linux 5.19


@console.command(short_help="Run one pod in the foreground, without an API server.")
@console.argument("file", metavar="FILE")
@console.option("--events", is_flag=True, help="Also show the events of the pod.")
@live_options
def run(file: str, events: bool, **options: Any) -> int:
    """Run one pod in the foreground with its limits; print its logs, and at the end how it ended and which limits it
    hit.

    \b
    plimsoll run pod.yaml
    plimsoll run pod.yaml --capacity cpu=8,memory=4Gi

    The file may also contain ConfigMaps. Ctrl-C ends the pod with its grace period, a second Ctrl-C at once. The exit
    code is 0 if the pod succeeded, else that of the first container that failed; 130 after Ctrl-C.
    """
    from plimsoll.cgroups.drivers.detect import CgroupsUnusableError
    from plimsoll.linux.files.state_dir import default_state

    pod, objects = _manifest(file)
    home = default_state(options["state_dir"]) / "runs" / secrets.token_hex(6)
    home.mkdir(mode=0o700, parents=True)
    options["state_dir"] = home
    root = "kubelet_flag_cgroupRoot"
    if not options.get(root):
        options[root] = (f"/plimsoll-run-{home.name}",)
    try:
        try:
            live = opened(options)
        except CgroupsUnusableError as error:
            console.echo(f"limits are not enforced: {error}", err=True)
            live = opened({**options, "simulate": True})
        if live.runtime is not None:
            raise console.UsageError(
                "`plimsoll run` supports only the embedded runtime: remove --container-runtime-endpoint"
            )
        for note in live.notes:
            console.echo(Paint(colourful())(f"note: {inert(note)}", "dim"), err=True)
        foreground = _Foreground(live, home, pod, objects, shows_events=events)
        return asyncio.run(foreground.run())
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _manifest(file: str) -> tuple[JsonObject, list[JsonObject]]:
    """The pod of the file, with the defaults of the API server, and the ConfigMaps and RuntimeClasses beside it."""
    import uuid

    from plimsoll.cli.manifests import stored_inputs
    from plimsoll.codec.defaults.objects import with_kind_defaults
    from plimsoll.codec.schema.schema import KINDS
    from plimsoll.rules.model.gates import DEFAULT_GATES
    from plimsoll.rules.timestamps import rfc3339

    inputs = stored_inputs([file], DEFAULT_GATES)
    if len(inputs.pods) != 1:
        raise console.UsageError(f"{file} contains {len(inputs.pods)} pods, expected one")
    given = inputs.pods[0]
    kind = next(each for each in KINDS if each.name == "Pod")
    document = with_kind_defaults(kind, given.found.document)
    metadata = {
        "name": document.get("metadata", {}).get("name") or "pod",
        **document.get("metadata", {}),
        "namespace": document.get("metadata", {}).get("namespace") or "default",
        "uid": str(uuid.uuid4()),
        "creationTimestamp": rfc3339(time.time()),
    }
    pod = {**document, "metadata": metadata, "status": {}}
    pod["spec"] = {**pod["spec"], "nodeName": NODE}
    if given.pod.spec.priority is not None:
        pod["spec"]["priority"] = given.pod.spec.priority
    return pod, _objects(file)


def _objects(file: str) -> list[JsonObject]:
    from plimsoll.codec.yaml.reader import YamlDocument, read
    from plimsoll.node.standalone import KINDS_SERVED

    if file == "-":
        return []
    found = (each.value for each in read(Path(file).read_bytes()) if isinstance(each, YamlDocument))
    return [each for each in found if isinstance(each, dict) and each.get("kind") in KINDS_SERVED]


class _Foreground:
    def __init__(
        self, live: LiveNode, home: Path, pod: JsonObject, objects: list[JsonObject], *, shows_events: bool
    ) -> None:
        self._live, self._home, self._pod, self._objects = live, home, pod, objects
        self._shows_events = shows_events
        self._paint = Paint(colourful())
        self._final = asyncio.Event()
        self._interrupts = 0
        self._shown: set[str] = set()  # containers whose logs are printed
        self._peaks: dict[str, Peak] = {}

    async def run(self) -> int:
        from plimsoll.kube.client import Client
        from plimsoll.linux.cpu_topology import node_topology
        from plimsoll.linux.numa import this_numa
        from plimsoll.node.agent import Agent
        from plimsoll.node.embedded_runtime import embedded_runtime
        from plimsoll.node.standalone import OnePodApi

        live = self._live
        self._api = OnePodApi(self._pod, self._objects, on_status=self._status, on_event=self._event)
        runtime = embedded_runtime(live, self._home)
        agent = Agent(
            live.setting,
            runtime,
            live.driver,
            live.tree,
            Client(self._api),
            self._home,
            NODE,
            unenforced="limits are simulated" if live.driver.simulated else "",
            topology=node_topology(live.setting.machine.cores, simulated=live.driver.simulated),
            numa=None if live.driver.simulated else this_numa(),
        )
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._interrupted)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(agent.run())
                sampling = group.create_task(self._sampled(agent))
                following = group.create_task(self._followed(agent))
                await self._final.wait()
                self._sample(agent)
                sampling.cancel()
                await following
                await agent.end()
        except* PlimsollError as errors:
            raise errors.exceptions[0] from None
        finally:
            with contextlib.suppress(PlimsollError):
                await runtime.open()
                await runtime.shutdown()
        for line in report(self._pod, self._peaks):
            console.echo(inert(line), err=True)
        return exit_code(self._pod, interrupted=self._interrupts > 0)

    # --- reports of the agent ---

    def _status(self, pod: JsonObject) -> None:
        self._pod = pod
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self._final.set()

    def _event(self, event: JsonObject) -> None:
        if self._shows_events or event.get("type") == "Warning":
            line = f"{event.get('reason', '')}: {event.get('message', '')}"
            console.echo(self._paint(inert(line), "yellow" if event.get("type") == "Warning" else "dim"), err=True)

    def _interrupted(self) -> None:
        self._interrupts += 1
        grace_s = int(self._pod["spec"].get("terminationGracePeriodSeconds") or 30)
        if self._interrupts == 1:
            text = f"\nWaiting up to {grace_s} s for the pod to end; press Ctrl-C again to kill it."
            notify(self._paint(text, "dim"))
        self._api.delete(grace_s if self._interrupts == 1 else 1, time.time())

    # --- logs ---

    async def _followed(self, agent: Agent) -> None:
        """Print the logs of all containers and their restarts until the pod has ended and all lines are printed."""
        from plimsoll.node.sources.directory_watch import DirectoryWatch

        watch = DirectoryWatch()
        try:
            async with asyncio.TaskGroup() as group:
                is_over = False
                while not is_over:
                    is_over = self._final.is_set()  # read first: later lines belong to the next pass
                    for container in list(_containers(agent)):
                        if container.id not in self._shown:
                            self._shown.add(container.id)
                            group.create_task(self._print_log(agent, container.id, watch))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await self._final.wait()
        finally:
            watch.close()

    async def _print_log(self, agent: Agent, container_id: str, watch: Any) -> None:
        from plimsoll.node.server.logs import LogOptions, log_chunks

        seen = next(each for each in _containers(agent) if each.id == container_id)

        def is_running() -> bool:
            now = next((each for each in _containers(agent) if each.id == container_id), None)
            return now is not None and now.phase in ("created", "running")

        prefix, rest = self._paint(f"[{seen.name}] ", "cyan"), b""
        async for chunk in log_chunks(agent.runtime.log_file(seen), LogOptions(follow=True), is_running, watch):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                sys.stdout.write(prefix + inert(line.decode(errors="replace")) + "\n")
            sys.stdout.flush()
        if rest:
            sys.stdout.write(prefix + inert(rest.decode(errors="replace")) + "\n")
            sys.stdout.flush()

    # --- usage ---

    async def _sampled(self, agent: Agent) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._sample(agent)

    def _sample(self, agent: Agent) -> None:
        from plimsoll.cgroups.stats.usage import usage

        files = self._live.files
        if files is None:
            return
        paths: Mapping[str, str] = agent.cgroups.paths(self._pod["metadata"]["uid"])
        for name, path in paths.items():
            found = usage(files, path, ("memory", "cpu")) if name else None
            kept = files.read(path, PEAKS) if found is not None else None
            if found is None or kept is None:
                continue
            used = [int(text) for text in kept.files.values()]
            used += [found.memory.usage_bytes] if found.memory is not None else []
            before, cpu = self._peaks.get(name, Peak()), found.cpu
            self._peaks[name] = Peak(
                max(before.memory_bytes, *used) if used else before.memory_bytes,
                max(before.periods, (cpu.periods if cpu is not None else 0) or 0),
                max(before.throttled_periods, (cpu.throttled_periods if cpu is not None else 0) or 0),
            )


def _containers(agent: Agent) -> Iterator[Any]:
    for parts in agent.view.last.values():
        yield from parts.containers
