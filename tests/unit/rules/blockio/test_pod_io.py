"""What a pod gets: annotations, ceilings, and the kernel's files."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.blockio.entries import LIMIT_KEYS, latency_entries, limit_entries
from plimsoll.rules.blockio.files import (
    class_files,
    container_files,
    kept_lines,
    kubepods_files,
    lines_of,
    pod_files,
    writes,
)
from plimsoll.rules.blockio.policy import (
    IO_LATENCY,
    IO_MAX,
    NO_IO,
    IoCeiling,
    IoDevice,
    IoPolicy,
    IoWeights,
    PodIo,
    io_errors,
    on_v1,
    pod_io,
)
from plimsoll.rules.model.objects import Container, Metadata, Pod, PodSpec

POLICY = IoPolicy(
    (IoDevice("/dev/vda", "254:0"), IoDevice("/dev/vdb", "254:16")),
    ceilings={
        "*": IoCeiling(limit_entries("wbps=50Mi")),
        "payments": IoCeiling(limit_entries("rbps=1000; /dev/vdb rbps=10"), latency_entries("target=10ms")),
    },
)


def pod(io_max: str | None = None, latency: str | None = None, namespace: str = "default", containers: int = 1) -> Pod:
    annotations = {name: text for name, text in ((IO_MAX, io_max), (IO_LATENCY, latency)) if text is not None}
    return Pod(
        metadata=Metadata(name="p", namespace=namespace, annotations=annotations or None),
        spec=PodSpec(containers=tuple(Container(name=f"c{index}") for index in range(containers))),
    )


def both(amount: int, key: str = "wbps") -> dict[str, dict[str, int]]:
    return {"/dev/vda": {key: amount}, "/dev/vdb": {key: amount}}


FINE = [
    ("the ceiling of all others", pod(), PodIo(both(50 << 20))),
    ("less than the ceiling", pod("wbps=1Mi"), PodIo(both(1 << 20))),
    ("as much as the ceiling", pod("wbps=50Mi"), PodIo(both(50 << 20))),
    ("another key", pod("/dev/vdb riops=7"),
     PodIo({"/dev/vda": {"wbps": 50 << 20}, "/dev/vdb": {"wbps": 50 << 20, "riops": 7}})),
    ("a ceiling of its own", pod(namespace="payments"), PodIo({"/dev/vda": {"rbps": 1000}, "/dev/vdb": {"rbps": 10}})),
    ("a target", pod(latency="/dev/vda target=20ms", namespace="payments"),
     PodIo({"/dev/vda": {"rbps": 1000}, "/dev/vdb": {"rbps": 10}}, {"/dev/vda": 20_000})),
    ("the smallest target", pod(latency="/dev/vdb target=10ms", namespace="payments"),
     PodIo({"/dev/vda": {"rbps": 1000}, "/dev/vdb": {"rbps": 10}}, {"/dev/vdb": 10_000})),
    ("no target", pod(latency="target=max"), PodIo(both(50 << 20))),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "wanted"), [row[1:] for row in FINE], ids=[row[0] for row in FINE])
def test_what_a_pod_gets(asked: Pod, wanted: PodIo) -> None:
    assert (pod_io(asked, POLICY, 2), io_errors(asked, POLICY, 2)) == (wanted, [])


WRONG = [
    ("text", pod("wbps=lots"), IO_MAX, "'lots' is not a number of bytes per second", PodIo(both(50 << 20))),
    ("above", pod("wbps=51Mi"), IO_MAX, "wbps of /dev/vda is 53477376, more than 52428800 (ioControl.ceilings[*].max", PodIo(both(50 << 20))),
    ("no limit", pod("wbps=max"), IO_MAX, "wbps of /dev/vda is no limit, more than", PodIo(both(50 << 20))),
    ("another device", pod("/dev/vdc wbps=1"), IO_MAX, "/dev/vdc is not a device that this node controls", PodIo(both(50 << 20))),
    ("a target without a ceiling", pod(latency="target=1s"), IO_LATENCY, "namespace default may not set a target on /dev/vda: ioControl.ceilings[*].latency", PodIo(both(50 << 20))),
    ("too small a target", pod(latency="/dev/vda target=9999us", namespace="payments"), IO_LATENCY, "target of /dev/vda is 9999 µs, less than 10000 µs (ioControl.ceilings[payments].latency",
     PodIo({"/dev/vda": {"rbps": 1000}, "/dev/vdb": {"rbps": 10}}, {"/dev/vda": 10_000})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "annotation", "reason", "enforced"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_what_is_refused(asked: Pod, annotation: str, reason: str, enforced: PodIo) -> None:
    errors = io_errors(asked, POLICY, 2)
    assert {error.field for error in errors} == {f"metadata.annotations[{annotation}]"}
    assert reason in str(errors[0]), errors
    assert pod_io(asked, POLICY, 2) == enforced  # never more than the ceiling


def test_latency_on_v1_is_refused() -> None:
    (error,) = io_errors(pod(latency="target=20ms", namespace="payments"), POLICY, 1)
    assert "cgroup v1 has no io.latency" in str(error)


def test_nothing_is_checked_while_io_is_not_controlled() -> None:
    assert io_errors(pod("nonsense"), None, 2) == []


@given(
    st.dictionaries(st.sampled_from(LIMIT_KEYS), st.integers(1, 99)),
    st.dictionaries(st.sampled_from(LIMIT_KEYS), st.integers(1, 99)),
)
def test_no_pod_gets_more_than_its_ceiling(asked: dict[str, int], ceiling: dict[str, int]) -> None:
    def text(amounts: dict[str, int]) -> str:
        return " ".join(f"{key}={amount}" for key, amount in amounts.items())

    entries = limit_entries(text(ceiling)) if ceiling else ()
    policy = IoPolicy((IoDevice("/dev/vda"),), ceilings={"*": IoCeiling(entries)})
    given_pod = pod(text(asked) if asked else None)
    got = pod_io(given_pod, policy, 2).limits.get("/dev/vda", {})
    for key, most in ceiling.items():
        assert got[key] <= most
    exceeds = {key for key in asked if key in ceiling and asked[key] > ceiling[key]}
    assert len(io_errors(given_pod, policy, 2)) == len(exceeds)
    assert all(got[key] == asked[key] for key in asked if key not in exceeds)


# --- files ---


def test_files_of_v2() -> None:
    io = PodIo({"/dev/vdb": {"wbps": 5}}, {"/dev/vda": 700})
    assert pod_files(POLICY, "Guaranteed", io, 2) == {
        "io.weight": "500",
        "io.max": "254:16 rbps=max wbps=5 riops=max wiops=max",
        "io.latency": "254:0 target=700",
    }
    assert pod_files(POLICY, "Burstable", NO_IO, 2) == {}
    assert class_files(POLICY, "BestEffort", []) == {"io.weight": "10"}
    others = [PodIo({}, {"/dev/vda": 300, "/dev/vdb": 9}), io, NO_IO]
    assert kubepods_files(POLICY, others) == {"io.weight": "500", "io.latency": "254:0 target=300\n254:16 target=9"}
    assert container_files(POLICY, io, pod().spec, 2) == {}


@pytest.mark.parametrize("weight", [1, 99, 100, 101, 500, 1000])
def test_systemd_converts_the_weight_back(weight: int) -> None:
    policy = msgspec.structs.replace(
        POLICY, weight_files=("io.weight", "io.bfq.weight"), bfq_by_systemd=True, weights=IoWeights(kubepods=weight)
    )
    files = kubepods_files(policy, [])
    set_in_systemd = int(files["io.weight"])
    assert 1 <= set_in_systemd <= 10_000
    above = 100 + (set_in_systemd - 100) * (1000 - 100) // (10_000 - 100)  # BFQ_WEIGHT of systemd's cgroup.h
    assert int(files["io.bfq.weight"]) == weight == (set_in_systemd if set_in_systemd <= 100 else above)


def test_files_of_v1_divide_the_limits_among_the_containers() -> None:
    io, policy = PodIo({"/dev/vda": {"wbps": 11, "riops": 1}}), on_v1(POLICY)
    assert pod_files(policy, "Guaranteed", io, 1) == {"blkio.bfq.weight": "500"}
    sidecar, init = Container(name="s", restart_policy="Always"), Container(name="i")
    spec = PodSpec(containers=(Container(name="c"),), init_containers=(sidecar, init))
    assert container_files(policy, io, spec, 1) == {
        "blkio.throttle.write_bps_device": "254:0 5",
        "blkio.throttle.read_iops_device": "254:0 1",
    }


LINES = [
    ("nothing", "io.max", "", "", []),
    ("the same, in other words", "io.max", "254:0 wbps=5", "254:0 rbps=max wbps=5 riops=max wiops=max", []),
    ("new", "io.max", "254:0 wbps=5", "", ["254:0 rbps=max wbps=5 riops=max wiops=max"]),
    ("reset", "io.max", "", "254:0 rbps=1 wbps=5 riops=max wiops=max", ["254:0 rbps=max wbps=max riops=max wiops=max"]),
    ("another device", "io.latency", "254:0 target=7", "254:16 target=9", ["254:16 target=max", "254:0 target=7"]),
    ("v1", "blkio.throttle.write_bps_device", "254:0 7", "254:0 8\n254:16 9", ["254:0 7", "254:16 0"]),
    ("v1's default", "blkio.throttle.write_bps_device", "", "254:0 0", []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "wanted", "found", "texts"), [row[1:] for row in LINES], ids=[row[0] for row in LINES]
)
def test_writes(file: str, wanted: str, found: str, texts: list[str]) -> None:
    assert sorted(writes(file, wanted, found)) == sorted(texts)
    assert (kept_lines(file, wanted) == kept_lines(file, found)) == (not texts)


@given(
    st.dictionaries(st.sampled_from(["1:0", "8:16"]), st.dictionaries(st.sampled_from(LIMIT_KEYS), st.integers(1, 9)))
)
def test_lines_are_read_as_they_are_written(limits: dict[str, dict[str, int]]) -> None:
    io = PodIo({device: values for device, values in limits.items() if values})
    policy = IoPolicy((IoDevice("1:0"), IoDevice("8:16")))
    text = pod_files(policy, "Burstable", io, 2).get("io.max", "")
    assert lines_of("io.max", text) == {
        device: {key: str(amount) for key, amount in values.items()} for device, values in io.limits.items()
    }
