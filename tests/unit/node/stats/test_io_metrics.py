"""Block I/O of pods in /metrics, from the kernel's texts of both versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.node.metrics import IoMeters
from plimsoll.node.stats.io_metrics import PodPaths, see_io
from plimsoll.rules.blockio.policy import IoDevice, IoPolicy, on_v1
from plimsoll.rules.cgroups.steps import ObservedCgroup
from plimsoll.rules.model.kernel import CgroupVersion

POLICY = IoPolicy((IoDevice("/dev/vda", "254:0"),))


class Texts(SimulatedKernel):
    def __init__(self, version: CgroupVersion, texts: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(version)
        self._texts = texts

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        return ObservedCgroup({file: self._texts[path][file] for file in files if file in self._texts.get(path, {})})


def page(version: CgroupVersion, texts: Mapping[str, Mapping[str, str]], *containers: str) -> list[str]:
    meters = IoMeters()
    pods = [PodPaths("shop", "web", "/p", containers)]
    for _ in range(2):  # a second scrape adds nothing
        see_io(meters, pods, Texts(version, texts), POLICY if version == 2 else on_v1(POLICY))
    return [line.strip() for metric in meters.all() for line in metric.lines()]


def test_v2() -> None:
    texts = {
        "io.weight": "default 500",
        "io.max": "254:0 rbps=max wbps=5 riops=max wiops=max\n7:0 rbps=1 wbps=1 riops=max wiops=max",
        "io.latency": "254:0 target=7",
        "io.stat": "7:0 rbytes=1 wbytes=1\n254:0 rbytes=10 wbytes=20 rios=3 wios=4 dbytes=0 dios=0",
    }
    own = 'namespace="shop",pod="web"'
    assert page(2, {"/p": texts}) == [
        f'plimsoll_pod_io_limit{{{own},device="/dev/vda",limit="wbps"}} 5',
        f'plimsoll_pod_io_limit{{{own},device="/dev/vda",limit="target_us"}} 7',
        f"plimsoll_pod_io_weight{{{own}}} 500",
        f'plimsoll_pod_io_bytes_total{{{own},device="/dev/vda",operation="read"}} 10',
        f'plimsoll_pod_io_bytes_total{{{own},device="/dev/vda",operation="write"}} 20',
        f'plimsoll_pod_io_operations_total{{{own},device="/dev/vda",operation="read"}} 3',
        f'plimsoll_pod_io_operations_total{{{own},device="/dev/vda",operation="write"}} 4',
    ]


def test_v1_adds_up_the_parts_of_the_containers() -> None:
    part = {"blkio.throttle.write_bps_device": "254:0 5"}
    stat = {"blkio.throttle.io_service_bytes_recursive": "254:0 Read 10\n254:0 Write 20\n254:0 Total 30\nTotal 30"}
    own = 'namespace="shop",pod="web",device="/dev/vda"'
    assert page(1, {"/p": stat, "/p/a": part, "/p/b": part}, "/p/a", "/p/b") == [
        f'plimsoll_pod_io_limit{{{own},limit="wbps"}} 10',
        f'plimsoll_pod_io_bytes_total{{{own},operation="read"}} 10',
        f'plimsoll_pod_io_bytes_total{{{own},operation="write"}} 20',
    ]


def test_a_pod_that_is_gone() -> None:
    assert page(2, {}) == []
