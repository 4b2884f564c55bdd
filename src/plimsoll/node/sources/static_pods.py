"""Static pods: manifests in a directory, a file or at an address, run whether there is an API or not.

The directory is watched, and read again every `fileCheckFrequency` all the same; the address is asked every
`httpCheckFrequency`. What is found is compared with what was found before: new pods come, changed ones are replaced
(another hash is another pod), those whose manifest is gone go. A manifest that cannot be read is reported once and
left aside: nothing new comes from it, and the pod that it was before goes on.

`all_read` is set when every source has answered once. Before that nobody can say which pods are not known here.
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
from plimsoll.rules.timestamps import utc_text

log = logging.getLogger(__name__)

SETTLE_MOST_S = 2.0
QUIET_S = 0.1  # a manifest is read when nobody has written for so long: half a manifest may be a valid one
ASK_S = 10.0
MOST_BYTES = 10 << 20
Found = dict[str, tuple[StaticPod, ...]]  # file or address → its pods


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
        """`take`: who runs them. `report`: what is wrong with a manifest, in a sentence for people."""
        self._config, self._node_name, self._take, self._clock, self._report = config, node_name, take, clock, report
        self._sleep = sleep
        self._path = Path(config.static_pod_path) if config.static_pod_path else None
        self._found: Found = {}
        self._read: dict[str, bytes] = {}  # file or address → what it held when it was read last
        self._told: dict[str, str] = {}  # file or address → what is wrong with it
        self.pods: Mapping[tuple[str, str], StaticPod] = {}  # by namespace and name
        self.changed: Callable[[], None] = lambda: None
        self.all_read = asyncio.Event()
        if not config.static_pod_url:
            self.all_read.set()

    async def begin(self) -> None:
        """What stands on this machine is known before anything else is done."""
        if self._path is not None:
            await _settled(self._path, asyncio.Event())
            self._look_at_files()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._path is not None:
                group.create_task(self._follow_files(self._path))
            if self._config.static_pod_url:
                group.create_task(self._follow_address(self._config.static_pod_url))

    # --- files ---

    async def _follow_files(self, path: Path) -> None:
        watch = DirectoryWatch()
        try:
            while True:
                with watch.stirring(_watched(path)) as stirring:
                    await _settled(path, stirring.happened)
                    self._look_at_files()
                    await stirring.wait(self._config.file_check_s)
        finally:
            watch.close()

    def _look_at_files(self) -> None:
        if self._path is None:
            return
        files = {str(each): each for each in _manifests(self._path)}
        if not files and not self._path.exists():
            self._wrong(str(self._path), f"{self._path} does not exist")
        else:
            self._told.pop(str(self._path), None)
        url = self._config.static_pod_url
        for where in [each for each in self._read if each not in files and each != url]:
            self._forget(where)
        for where, file in files.items():
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                self._forget(where)
            except OSError as error:
                self._wrong(where, f"static pod {where}: {error.strerror}")
            else:
                self._take_in(where, data)
        self._settle()

    def _take_in(self, where: str, data: bytes, *, is_file: bool = True) -> None:
        if self._read.get(where) == data:
            return
        self._read[where] = data
        try:
            found = static_pods(data, where, "file" if is_file else "http", self._node_name, utc_text(self._clock()))
        except StaticPodError as refused:
            self._wrong(where, str(refused))
        else:
            self._told.pop(where, None)
            self._found[where] = found

    def _forget(self, where: str) -> None:
        for each in (self._read, self._found, self._told):
            each.pop(where, None)

    def _wrong(self, where: str, sentence: str) -> None:
        if self._told.get(where) != sentence:
            self._told[where] = sentence
            log.error("%s", sentence)
            self._report(sentence)

    # --- an address ---

    async def _follow_address(self, url: str) -> None:
        while True:
            try:
                data = await asyncio.to_thread(_asked, url, self._config.static_pod_url_header)  # urllib blocks
            except (OSError, ValueError) as error:
                self._wrong(url, f"staticPodURL {url}: {error}")
            else:
                self._take_in(url, data, is_file=False)
                self._settle()
                self.all_read.set()
            await self._sleep(self._config.http_check_s)

    # --- what became of them ---

    def _settle(self) -> None:
        """Tell who came and who went. Of two pods of one name the first counts, by the name of its file."""
        before = {each.uid: each for each in self.pods.values()}
        pods: dict[tuple[str, str], StaticPod] = {}
        for where, found in sorted(self._found.items()):
            for each in found:
                first = pods.setdefault(each.key, each)
                if first is not each:
                    named = f"{each.namespace}/{each.name}"
                    self._wrong(where, f"static pod {where}: {first.where} has a pod {named} already")
        self.pods = pods
        now = {each.uid: each for each in pods.values()}
        gone = [ObjectChange("DELETED", each.key, uid, b"") for uid, each in before.items() if uid not in now]
        came = [ObjectChange("ADDED", each.key, uid, each.body) for uid, each in now.items() if uid not in before]
        if gone or came:
            self._take([*gone, *came])
            self.changed()


async def _settled(path: Path, happened: asyncio.Event) -> None:
    """Nobody seems to write any more, or does not cease to."""
    clock = asyncio.get_running_loop().time
    end = clock() + SETTLE_MOST_S
    while happened.is_set() or _is_fresh(path):
        happened.clear()
        try:
            async with asyncio.timeout(QUIET_S):
                await happened.wait()
        except TimeoutError:
            pass
        if clock() > end:
            return


def _is_fresh(path: Path) -> bool:
    """Whether something was written just now, by the clock of the files."""
    for each in _manifests(path):
        try:
            age_s = time.time() - each.stat().st_mtime
        except OSError:
            continue
        if 0 <= age_s < QUIET_S:
            return True
    return False


def _watched(path: Path) -> Path:
    """A file is watched where its name stands: it may be replaced by another one."""
    return path if path.is_dir() else path.parent


def _manifests(path: Path) -> Iterable[Path]:
    """As a kubelet: every plain file of the directory whose name does not begin with a dot; nothing below it."""
    try:
        if not path.is_dir():
            return [path] if path.exists() else []
        return [each for each in sorted(path.iterdir()) if not each.name.startswith(".") and _is_plain(each)]
    except OSError as error:
        log.warning("staticPodPath %s: %s", path, error.strerror)
        return []


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link to nowhere, or gone meanwhile
        return False


def _asked(url: str, headers: Mapping[str, tuple[str, ...]]) -> bytes:
    """Only here is HTTP spoken with somebody who is no Kubernetes API; so the library's plain client will do."""
    from urllib.request import HTTPHandler, HTTPSHandler, ProxyHandler, Request, build_opener

    asked = Request(url)
    for name, values in headers.items():
        asked.add_header(name, ", ".join(values))
    with build_opener(ProxyHandler({}), HTTPHandler, HTTPSHandler).open(asked, timeout=ASK_S) as answer:
        data: bytes = answer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"the answer is larger than {MOST_BYTES >> 20} MiB")
    if not data.strip():
        raise ValueError("the answer is empty")
    return data
