"""Structs to protobuf and back: bytes that Google's own library wrote, every value, and bytes that are none."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.protobuf.structs import Unsigned, decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.runtime.cri import messages as m

# Written by protobuf 7.36 from descriptors with these fields.
WRITTEN = [
    (
        "120a636f6e7461696e6572641a0a312e362e32307e64733122027631",
        m.VersionResponse(runtime_name="containerd", runtime_version="1.6.20~ds1", runtime_api_version="v1"),
    ),
    (
        "08a08d0610ffffffffffffffffff0118800820808080808020289bf8ffffffffffffff013203302d3342100a03324d4210818080808080"
        "8080800142050a033147424a120a0b6d656d6f72792e6869676812036d61785005",
        m.LinuxContainerResources(
            cpu_period=100000,
            cpu_quota=-1,
            cpu_shares=1024,
            memory_limit_in_bytes=2**40,
            oom_score_adj=-997,
            cpuset_cpus="0-3",
            hugepage_limits=(
                m.HugepageLimit(page_size="2MB", limit=Unsigned(2**63 + 1)),
                m.HugepageLimit(page_size="1GB"),
            ),
            unified={"memory.high": "max"},
            memory_swap_limit_in_bytes=5,
        ),
    ),
    ("0a02c3bc1201751a016e20ac02", m.PodSandboxMetadata(name="ü", uid="u", namespace="n", attempt=300)),
    (
        "10012a00420e0001ac02ffffffffffffffffff016a022f616a00",
        m.LinuxContainerSecurityContext(
            privileged=True,
            run_as_user=m.Int64Value(value=0),
            supplemental_groups=(0, 1, 300, -1),
            masked_paths=("/a", ""),
        ),
    ),
    (
        "0a050a016310021a0273681a022d631a0032070a014b1202ff006001900117",
        m.ContainerConfig(
            metadata=m.ContainerMetadata(name="c", attempt=2),
            command=("sh", "-c", ""),
            envs=(m.KeyValue(key="K", value=b"\xff\0"),),
            stdin=True,
            stop_signal=23,
        ),
    ),
    ("0a00", m.ContainerConfig(metadata=m.ContainerMetadata())),
    ("", m.ContainerConfig()),
]


@pytest.mark.parametrize(("written", "message"), WRITTEN, ids=lambda case: type(case).__name__)
def test_as_the_reference_library_writes_it(written: str, message: msgspec.Struct) -> None:
    assert encode(message).hex() == written
    assert decode(type(message), bytes.fromhex(written)) == message


class Inner(msgspec.Struct, frozen=True):
    number: Annotated[int, 1] = 0
    text: Annotated[str, 2] = ""


class Everything(msgspec.Struct, frozen=True):
    text: Annotated[str, 1] = ""
    data: Annotated[bytes, 2] = b""
    number: Annotated[int, 3] = 0
    size: Annotated[Unsigned, 4] = Unsigned(0)
    flag: Annotated[bool, 5] = False
    inner: Annotated[Inner | None, 6] = None
    inners: Annotated[tuple[Inner, ...], 7] = ()
    numbers: Annotated[tuple[int, ...], 8] = ()
    words: Annotated[tuple[str, ...], 2000] = ()
    table: Annotated[dict[str, str], 10] = {}


class Part(msgspec.Struct, frozen=True):
    """The same message for a reader who wants less of it, and some of it unread."""

    number: Annotated[int, 3] = 0
    inners: Annotated[tuple[bytes, ...], 7] = ()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
INNER = st.builds(Inner, number=INT64, text=TEXT)
MESSAGES = st.builds(
    Everything,
    text=TEXT,
    data=st.binary(max_size=300),
    number=INT64,
    size=st.integers(0, 2**64 - 1),
    flag=st.booleans(),
    inner=st.none() | INNER,
    inners=st.lists(INNER, max_size=3).map(tuple),
    numbers=st.lists(INT64, max_size=5).map(tuple),
    words=st.lists(TEXT, max_size=3).map(tuple),
    table=st.dictionaries(TEXT, TEXT, max_size=3),
)


@given(message=MESSAGES)
def test_there_and_back(message: Everything) -> None:
    data = encode(message)
    assert decode(Everything, data) == message
    part = decode(Part, data)
    assert part.number == message.number
    assert tuple(decode(Inner, each) for each in part.inners) == message.inners


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        found = decode(Everything, data)
    except ProtobufError:
        return
    assert decode(Everything, encode(found)) == found


def test_numbers_that_are_not_packed_are_read_as_well() -> None:
    assert decode(Everything, bytes.fromhex("40014002")).numbers == (1, 2)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [({"number": int}, "no field number"), ({"number": Annotated[float, 1]}, "no protobuf for")],
)
def test_what_is_no_message(kind: dict[str, Any], complaint: str) -> None:
    made = msgspec.defstruct("Made", [(name, hint, 0) for name, hint in kind.items()])
    with pytest.raises(TypeError, match=complaint):
        encode(made())
