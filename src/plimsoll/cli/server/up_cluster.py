"""The cluster of `plimsoll up`: starts two child processes and three pods, prints a report, and ends everything.

Any event (Ctrl-C during the start, the end of a child, an error) leads to the same shutdown: the node agent terminates
its pods and removes what it created, the API server ends, then this process removes what is left. A second Ctrl-C kills
both children and runs only the last step.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.daemon import DaemonFailedError, DaemonProcess, host_and_port, notify, stop_signals
from plimsoll.cli.node.machine import configures, driver_of, node_name, opened
from plimsoll.cli.server.lock import taken
from plimsoll.cli.server.up_demo import is_elsewhere, is_over, is_ready, manifests, problems
from plimsoll.cli.terminal import Paint, inert
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.state_dir import state_home
from plimsoll.linux.listeners import listen_problem, listening_process
from plimsoll.node.embedded_runtime import embedded_runtime, remove_leftovers
from plimsoll.node.machine import LiveNode
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.cli.server.up_containerd import UpContainerd
    from plimsoll.kube.client import Client

START_S = 20.0  # to wait for the pods; then report those that do not run
END_S = 4.0  # of the five seconds that a shutdown may take; the rest is for the cleanup
API_LISTEN, NODE_LISTEN = "127.0.0.1:6443", "127.0.0.1:10250"
POLL_S = 0.1
POD_PIDS = 4096  # processes in one pod
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


class UpOptions(msgspec.Struct, frozen=True):
    state_dir: Path | None = None
    listen: str | None = None
    profile: str = "documents"
    feature_gates: str = ""
    capacity: str | None = None
    config_file: str | None = None
    cgroup_root: str | None = None
    name: str | None = None
    simulate: bool = False
    demo: Path | None = None
    with_containerd: bool = False
    fresh: bool = False  # begin with an empty store
    log_level: str | None = None
    verbosity: int | None = None

    def log_arguments(self) -> list[str]:
        """For the API server and the node agent."""
        if self.verbosity is not None:
            return ["-v", str(self.verbosity)]
        return ["--log-level", self.log_level] if self.log_level is not None else []

    def node_arguments(self, state: Path, *, simulate: bool, endpoint: str = "") -> list[str]:
        """The arguments of `plimsoll node`. `endpoint`: of a container runtime that is not embedded."""
        options = {
            "--profile": self.profile,
            "--feature-gates": self.feature_gates,
            "--capacity": self.capacity,
            "--config": self.config_file,
            "--cgroup-root": self.cgroup_root,
            "--state-dir": str(state),
            "--container-runtime-endpoint": endpoint,
        }
        arguments = [word for option, value in options.items() if value for word in (option, value)]
        if endpoint:
            arguments.append("--keep-images")
        return [*arguments, "--simulate"] if simulate else arguments


async def run(options: UpOptions, paint: Paint) -> int:
    """Run until a signal ends it, or until a part fails. The exit code is 0 if the cluster was up, else the shell's
    for that signal: 130 after Ctrl-C."""
    stop, force = asyncio.Event(), asyncio.Event()
    received: list[signal.Signals] = []

    def pressed(number: signal.Signals) -> None:
        received.append(number)
        (force if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, pressed, number)
    cluster = LocalCluster(options, paint)
    serving = asyncio.create_task(cluster.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stop.set()  # from now on a signal means a forced shutdown
    if not serving.done():
        notify(paint("\nShutting down; press Ctrl-C again to kill at once.", "dim"))
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    elif cluster.has_started:
        notify(paint("Shutting down.", "dim"))
    await _ended(cluster, force)
    stopping.cancel()
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error
    return 0 if cluster.is_up else 128 + received[0]


async def _ended(cluster: LocalCluster, force: asyncio.Event) -> None:
    ending, forcing = asyncio.create_task(cluster.end()), asyncio.create_task(force.wait())
    await asyncio.wait({ending, forcing}, return_when=asyncio.FIRST_COMPLETED)
    forcing.cancel()
    if not ending.done():
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending
        await cluster.kill()
    await cluster.sweep()


class LocalCluster:
    def __init__(self, options: UpOptions, paint: Paint) -> None:
        self._options, self._paint = options, paint
        self._name = node_name(options.name)
        self._live: LiveNode | None = None
        self._state = Path()
        self._lock: int | None = None
        self.has_started = False  # something that the end must remove
        self.is_up = False
        self._api: DaemonProcess | None = None
        self._node: DaemonProcess | None = None
        self._containerd: UpContainerd | None = None

    async def serve(self) -> None:
        """Start everything, print the report, and wait until a child ends."""
        from plimsoll.linux.files.state_dir import default_state

        started_s = time.monotonic()
        self._state = default_state(self._options.state_dir)
        self._lock = taken(self._state)
        listen, note = _free(self._options.listen or API_LISTEN, chosen=self._options.listen is not None)
        if note:
            console.echo(self._paint(note, "yellow"))
        if self._options.with_containerd:
            from plimsoll.cli.server.up_containerd import UpContainerd

            self._containerd = UpContainerd(self._state, self._paint, driver_of(self.node_parameters()))
            self.has_started = True
            await self._containerd.start()
        self._live, simulate = await self._opened()
        self.has_started = True
        if self._options.fresh:
            await self._empty()
        url, kubeconfig = await self._start_api(listen)
        await self._start_node(url, simulate)
        running = asyncio.create_task(self._shown(url, kubeconfig, started_s))
        assert self._api is not None and self._node is not None
        tasks = {running, asyncio.create_task(self._api.ended()), asyncio.create_task(self._node.ended())}
        if self._containerd is not None:
            tasks.add(asyncio.create_task(self._containerd.ended()))
        try:
            await _until_one_fails(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _shown(self, url: str, kubeconfig: Path, started_s: float) -> None:
        async with _client(kubeconfig) as client:
            pods, missing = await self._demo(client, started_s + START_S)
        containers, limitations = await self._containers()
        self._announce(url, pods, missing, containers, time.monotonic() - started_s)
        assert self._live is not None
        for note in (*limitations, *(() if self._live.driver.simulated else self._live.notes)):
            console.echo(self._paint(f"   note: {inert(note)}", "dim"))
        steps = [f"   {self._paint(line, 'cyan')}" for line in self._next_steps(kubeconfig, missing)]
        console.echo("\n".join([self._paint("\nTry:", "bold"), *steps]))  # in one write, for programs that wait for it
        self.is_up = True

    async def _containers(self) -> tuple[dict[str, int], tuple[str, ...]]:
        """The process of each container by its id, and what this machine does not allow, from the embedded runtime."""
        assert self._live is not None
        if self._live.runtime is not None:
            return {}, ()
        runtime = embedded_runtime(self._live, self._state)
        try:
            await runtime.open(as_found=True)
            seen = await runtime.seen()
        finally:
            await runtime.close()
        return {each.id: each.pid for each in seen.containers if each.pid}, runtime.limitations

    async def _empty(self) -> None:
        """Remove the objects of earlier runs, and what their pods have left."""
        assert self._live is not None
        await remove_leftovers(self._live, self._state)
        if not self._live.driver.simulated:
            await self._live.tree.setup()
        shutil.rmtree(self._state / "store", ignore_errors=True)

    # --- start ---

    async def _opened(self) -> tuple[LiveNode, bool]:
        """Set up the cgroups of the node, on a simulated kernel if those of this machine cannot be used.

        It is done before the agent starts, so that missing permissions and cgroups of another owner are found first.
        """
        from plimsoll.cgroups.drivers.detect import CgroupsUnusableError
        from plimsoll.cgroups.drivers.interface import CgroupError
        from plimsoll.cgroups.engine.executor import StepError

        if not self._options.simulate:
            try:
                live = self._live = self._open(simulate=False)
                await live.tree.setup()
                return live, False
            except CgroupsUnusableError as error:
                if self._containerd is not None:
                    raise
                reason = str(error)
            except StepError as error:
                not_allowed = isinstance(error.cause, CgroupError) and error.cause.errno in NOT_ALLOWED
                if error.left or not not_allowed or self._containerd is not None:
                    raise
                reason = str(error.cause)
            sentence = f"limits are simulated and not enforced ({reason}); processes, logs and exec are real"
            console.echo(self._paint(sentence, "yellow"))
        return self._open(simulate=True), True

    def _endpoint(self) -> str:
        return self._containerd.endpoint if self._containerd is not None else ""

    def node_parameters(self, *, simulate: bool = False) -> dict[str, Any]:
        """The options of `plimsoll node`, parsed."""
        return _parsed(self._node_arguments(simulate=simulate))

    def _node_arguments(self, *, simulate: bool) -> list[str]:
        """With a limit on the processes of a pod, if the user's configuration sets none: a kubelet has no such limit by
        default, but here a fork bomb would stop the user's own machine."""
        arguments = self._options.node_arguments(self._state, simulate=simulate, endpoint=self._endpoint())
        if configures(_parsed(arguments), "podPidsLimit"):
            return arguments
        return [*arguments, "--pod-max-pids", str(POD_PIDS)]

    def _open(self, *, simulate: bool) -> LiveNode:
        live = opened(self.node_parameters(simulate=simulate))
        if live.setting.config.system_cgroups:
            raise PlimsollError("systemCgroups is not supported by `up`, which does not move processes of this machine")
        return live

    async def _start_api(self, listen: str) -> tuple[str, Path]:
        arguments = ["api", "--state-dir", str(self._state), "--listen", listen, "--profile", self._options.profile]
        if self._options.feature_gates:
            arguments += ["--feature-gates", self._options.feature_gates]
        arguments += self._options.log_arguments()
        self._api = DaemonProcess("API server", arguments, self._state / "api.log")
        await self._api.start()
        url = await self._api.line()
        kubeconfig = (await self._api.line()).removeprefix("KUBECONFIG=")
        return url, Path(kubeconfig)

    async def _start_node(self, url: str, simulate: bool) -> None:
        from plimsoll.api.auth.ca import Authority, node_kubeconfig
        from plimsoll.linux.files.state_dir import write_private

        file = self._state / "node.kubeconfig"
        write_private(file, node_kubeconfig(Authority(self._state), url, self._name))
        arguments = ["node", "--kubeconfig", str(file), "--name", self._name, "--listen", NODE_LISTEN, "--end-pods"]
        arguments += self._node_arguments(simulate=simulate)
        arguments += self._options.log_arguments()
        self._node = DaemonProcess("node agent", arguments, self._state / "node.log")
        await self._node.start()
        ready = await self._node.line()
        if not ready.startswith("ready"):
            raise DaemonFailedError(f"unexpected output of the node agent: {ready!r}; see {self._node.log}")

    async def _demo(self, client: Client, until_s: float) -> tuple[list[JsonObject], set[str]]:
        """Create the demo pods; the ready pods of this node when the demo pods run, or when the time is over, and the
        names of those that do not run."""
        from plimsoll.kube import request
        from plimsoll.kube.request import ApiError

        names = set()
        for document in manifests(self._options.demo):
            names.add(document["metadata"]["name"])
            try:
                await client.ask(request.create(request.PODS, document, "default"))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
        listing = request.listing(request.PODS, fields=f"spec.nodeName={self._name}")
        everywhere = request.listing(request.PODS, namespace="default")
        while True:
            listed = await client.ask(listing)
            pods = [pod for pod in listed.get("items") or () if not is_over(pod)]
            running = {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
            if names <= running or time.monotonic() > until_s:
                break
            everyone = (await client.ask(everywhere)).get("items") or ()
            if any(is_elsewhere(pod, self._name) for pod in everyone if pod["metadata"]["name"] in names):
                break
            await asyncio.sleep(POLL_S)
        missing = names - running
        if missing:
            found = (await client.ask(everywhere)).get("items") or ()
            for line in problems([pod for pod in found if pod["metadata"]["name"] in missing], self._name):
                console.echo(self._paint(line, "red"))
        return [pod for pod in pods if is_ready(pod)], missing

    # --- report ---

    def _announce(
        self, url: str, pods: list[JsonObject], missing: set[str], containers: Mapping[str, int], took_s: float
    ) -> None:
        from plimsoll.cli.server.up_report import node_report, printed

        assert self._live is not None
        paint, live = self._paint, self._live
        setting = live.setting
        kernel = (
            "limits are not enforced" if live.driver.simulated else f"cgroup v{live.driver.version}, {setting.driver}"
        )
        size = f"{setting.machine.cores} CPU, {setting.capacity['memory']} memory"
        state = "is up" if not missing else f"runs, but not the pods {', '.join(sorted(missing))}"
        head = f"Kubernetes {state} (profile {setting.profile.name}), {took_s:.1f} s: node {self._name}"
        console.echo(paint(f"{head} ({size}; {kernel})", "bold"))
        console.echo(f"   {url}   (Ctrl-C removes everything except the objects in {self._state})\n")
        for line in printed(node_report(live, pods, containers), live.driver.simulated, paint) if pods else ():
            console.echo(f"   {line}")

    def _next_steps(self, kubeconfig: Path, missing: set[str]) -> Iterator[str]:
        command = Path(sys.executable).with_name("plimsoll")
        if command.exists() and shutil.which("plimsoll") != str(command):
            yield f"export PATH={shlex.quote(str(command.parent))}:$PATH"
        yield f"export KUBECONFIG={shlex.quote(str(kubeconfig))}"
        client = "kubectl" if shutil.which("kubectl") else "plimsoll"
        yield f"{client} get pods -o wide"
        yield f"{client} describe node {self._name}"
        if missing:
            yield f"{client} describe pod {min(missing)}"
        elif self._options.demo is not None:
            yield f"{client} exec gold -- cat /proc/self/cgroup /proc/self/oom_score_adj"
            yield f"{client} top pods"
            yield "plimsoll resize silver --cpu 100m --wait"
        if not (self._live is not None and self._live.driver.simulated):
            root = self._options.cgroup_root
            yield f"plimsoll tree{f' {shlex.quote(root)}' if root else ''}{self._state_option()}"

    def _state_option(self) -> str:
        """For other commands of the user, unless they find the state directory themselves."""
        usual = state_home(dict(os.environ), os.geteuid())
        return "" if usual == self._state else f" --state-dir {shlex.quote(str(self._state))}"

    # --- end ---

    async def end(self) -> None:
        """End both at once: the node need not report its pods, which the next `up` starts again."""
        both = [child for child in (self._node, self._api) if child is not None]
        in_time = await asyncio.gather(*(child.end(END_S) for child in both))
        for child in (child for child, ended in zip(both, in_time, strict=True) if not ended):
            notify(self._paint(f"the {child.name} did not end in time and was killed", "yellow"))

    async def kill(self) -> None:
        for child in (self._node, self._api):
            if child is not None:
                await child.kill()

    async def sweep(self) -> None:
        """Remove what the node agent has not removed itself because it was killed or did not start."""
        try:
            await self._swept()
        finally:
            if self._lock is not None:
                os.close(self._lock)

    async def _swept(self) -> None:
        for problem in await self._containerd.end() if self._containerd is not None else ():
            notify(self._paint(f"not removed: {inert(problem)}", "red"))
        if self._live is None or self._live.driver.simulated:
            return
        for problem in await remove_leftovers(self._live, self._state):
            notify(self._paint(f"not removed: {inert(problem)}", "red"))


async def _until_one_fails(tasks: set[asyncio.Task[Any]]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


@contextlib.asynccontextmanager
async def _client(file: Path) -> AsyncIterator[Client]:
    from plimsoll.kube.client import Client
    from plimsoll.kube.http import HttpTransport
    from plimsoll.kube.kubeconfig import load

    transport = HttpTransport(load(file))
    try:
        yield Client(transport)
    finally:
        await transport.close()


def _free(listen: str, *, chosen: bool) -> tuple[str, str]:
    """The address to listen on: the chosen one, or the usual port, or any free port if that is in use; and a note."""
    host, port = host_and_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or chosen:
                raise PlimsollError(listen_problem(host, port, error)) from error
            used_by = listening_process(port)
            who = f" by process {used_by[0]} ({used_by[1]})" if used_by is not None else ""
            return f"{host}:0", f"port {port} is in use{who}: using another one"
    return listen, ""


def _parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of `plimsoll node`."""
    from plimsoll.cli.node.command import node

    asked = console.get_current_context()
    try:
        return node.make_context("node", arguments, parent=asked).params
    except console.UsageError as error:
        error.ctx = asked  # the user has typed `up`
        raise
