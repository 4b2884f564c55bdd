"""Static pods: manifests in a directory, a file or at a URL, run with or without an API server.

The directory is watched, and also read every `fileCheckFrequency`; the URL is read every `httpCheckFrequency`. The
result is compared with the one before: new pods are added, changed ones replaced (another hash is another pod), and
pods whose manifest is gone are removed. A manifest that cannot be read is reported once and ignored; the pod that it
described before continues.

`all_read` is set when every source was read once. Before that it is unknown which pods on the node are orphans.
"""

from __future__ import annotations

import asyncio
import logging
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from plimsoll.codec.manifests.static_pods import StaticPod, StaticPodError, static_pods
from plimsoll.kube.reflector import ObjectChange
from plimsoll.node.sources.directory_watch import DirectoryWatch
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.timestamps import rfc3339

log = logging.getLogger(__name__)

SETTLE_MAX_S = 2.0
QUIET_S = 0.1  # how long a manifest must be unchanged before it is read: half a manifest may be valid
FETCH_TIMEOUT_S = 10.0
MAX_BYTES = 10 << 20
PodsBySource = dict[str, tuple[StaticPod, ...]]  # file or URL → its pods


class StaticPods:
    def __init__(
        self,
        config: KubeletConfig,
        node_name: str,
        take: Callable[[list[ObjectChange]], None],
        clock: Callable[[], float],
        report: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`take`: receives the changes. `report`: gets the error of a manifest, once."""
        self._config, self._node_name, self._take, self._clock, self._report = config, node_name, take, clock, report
        self._sleep = sleep
        self._path = Path(config.static_pod_path) if config.static_pod_path else None
        self._sources: PodsBySource = {}
        self._read: dict[str, bytes] = {}  # file or URL → its content when last read
        self._errors: dict[str, str] = {}  # file or URL → its error
        self.pods: Mapping[tuple[str, str], StaticPod] = {}  # by namespace and name
        self.changed: Callable[[], None] = lambda: None
        self.all_read = asyncio.Event()
        if not config.static_pod_url:
            self.all_read.set()

    async def begin(self) -> None:
        """Read the files before the agent starts."""
        if self._path is not None:
            await _settle(self._path, asyncio.Event())
            self._read_files()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._path is not None:
                group.create_task(self._follow_files(self._path))
            if self._config.static_pod_url:
                group.create_task(self._follow_url(self._config.static_pod_url))

    # --- files ---

    async def _follow_files(self, path: Path) -> None:
        watch = DirectoryWatch()
        try:
            while True:
                with watch.watch(_watched(path)) as waiter:
                    await _settle(path, waiter.changed)
                    self._read_files()
                    await waiter.wait(self._config.file_check_s)
        finally:
            watch.close()

    def _read_files(self) -> None:
        if self._path is None:
            return
        files = {str(file): file for file in _manifests(self._path)}
        if not files and not self._path.exists():
            self._fail(str(self._path), f"{self._path} does not exist")
        else:
            self._errors.pop(str(self._path), None)
        url = self._config.static_pod_url
        for where in [source for source in self._read if source not in files and source != url]:
            self._forget(where)
        for where, file in files.items():
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                self._forget(where)
            except OSError as error:
                self._fail(where, f"static pod {where}: {error.strerror}")
            else:
                self._parse(where, data)
        self._publish()

    def _parse(self, where: str, data: bytes, *, is_file: bool = True) -> None:
        if self._read.get(where) == data:
            return
        self._read[where] = data
        try:
            pods = static_pods(data, where, "file" if is_file else "http", self._node_name, rfc3339(self._clock()))
        except StaticPodError as error:
            self._fail(where, str(error))
        else:
            self._errors.pop(where, None)
            self._sources[where] = pods

    def _forget(self, where: str) -> None:
        for by_source in (self._read, self._sources, self._errors):
            by_source.pop(where, None)

    def _fail(self, source: str, error: str) -> None:
        if self._errors.get(source) != error:
            self._errors[source] = error
            log.error("%s", error)
            self._report(error)

    # --- a URL ---

    async def _follow_url(self, url: str) -> None:
        while True:
            try:
                data = await asyncio.to_thread(_fetch, url, self._config.static_pod_url_header)  # urllib blocks
            except (OSError, ValueError) as error:
                self._fail(url, f"staticPodURL {url}: {error}")
            else:
                self._parse(url, data, is_file=False)
                self._publish()
                self.all_read.set()
            await self._sleep(self._config.http_check_s)

    # --- changes ---

    def _publish(self) -> None:
        """Report added and removed pods. Of two pods with one name the first is used, in the order of file names."""
        before = {pod.uid: pod for pod in self.pods.values()}
        pods: dict[tuple[str, str], StaticPod] = {}
        for source, found in sorted(self._sources.items()):
            for pod in found:
                first = pods.setdefault(pod.key, pod)
                if first is not pod:
                    title = f"{pod.namespace}/{pod.name}"
                    self._fail(source, f"static pod {source}: {first.where} already has a pod {title}")
        self.pods = pods
        now = {pod.uid: pod for pod in pods.values()}
        removed = [ObjectChange("DELETED", pod.key, uid, b"") for uid, pod in before.items() if uid not in now]
        added = [ObjectChange("ADDED", pod.key, uid, pod.body) for uid, pod in now.items() if uid not in before]
        if removed or added:
            self._take([*removed, *added])
            self.changed()


async def _settle(path: Path, changed: asyncio.Event) -> None:
    """Wait until the files are no longer written, at most `SETTLE_MAX_S`."""
    clock = asyncio.get_running_loop().time
    end = clock() + SETTLE_MAX_S
    while changed.is_set() or _is_fresh(path):
        changed.clear()
        try:
            async with asyncio.timeout(QUIET_S):
                await changed.wait()
        except TimeoutError:
            pass
        if clock() > end:
            return


def _is_fresh(path: Path) -> bool:
    """Whether a file was just written, by its modification time."""
    for file in _manifests(path):
        try:
            age_s = time.time() - file.stat().st_mtime
        except OSError:
            continue
        if 0 <= age_s < QUIET_S:
            return True
    return False


def _watched(path: Path) -> Path:
    """A single file is watched through its directory: it may be replaced."""
    return path if path.is_dir() else path.parent


def _manifests(path: Path) -> Iterable[Path]:
    """As the kubelet: the regular files of the directory whose name does not start with a dot, not recursively."""
    try:
        if not path.is_dir():
            return [path] if path.exists() else []
        return [file for file in sorted(path.iterdir()) if not file.name.startswith(".") and _is_plain(file)]
    except OSError as error:
        log.warning("staticPodPath %s: %s", path, error.strerror)
        return []


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a dangling link, or removed meanwhile
        return False


def _fetch(url: str, headers: Mapping[str, tuple[str, ...]]) -> bytes:
    """The only HTTP request to a server that is not Kubernetes: the standard library is enough."""
    from urllib.request import HTTPHandler, HTTPSHandler, ProxyHandler, Request, build_opener

    http_request = Request(url)
    for name, values in headers.items():
        http_request.add_header(name, ", ".join(values))
    with build_opener(ProxyHandler({}), HTTPHandler, HTTPSHandler).open(http_request, timeout=FETCH_TIMEOUT_S) as reply:
        data: bytes = reply.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"the response is larger than {MAX_BYTES >> 20} MiB")
    if not data.strip():
        raise ValueError("the response is empty")
    return data
