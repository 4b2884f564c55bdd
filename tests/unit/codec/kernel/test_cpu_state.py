"""The CPU manager's state file: byte for byte what a kubelet takes and writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.kernel.cpu_state import CpuState, cpu_state_from_json, cpu_state_json
from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError

# Checksums that real kubelets have written for these contents.
REAL = [
    pytest.param("none", "", {}, 1353318690, id="policy none"),
    pytest.param("none", "4-6", {}, 354655845, id="a default set"),
    pytest.param("none", "1-3", {"pod": {"container1": "4-6", "container2": "1-3"}}, 3610638499, id="entries"),
]


@pytest.mark.parametrize(("policy", "default", "entries", "checksum"), REAL)
def test_as_a_kubelet_writes_it(policy: str, default: str, entries: dict[str, dict[str, str]], checksum: int) -> None:
    file = {"policyName": policy, "defaultCpuSet": default, "entries": entries, "checksum": checksum}
    state = cpu_state_from_json(json.dumps(file).encode())
    assert json.loads(cpu_state_json(state)) == {key: value for key, value in file.items() if value != {}}


BROKEN = [
    pytest.param(b"{", "Input data was truncated", id="half"),
    pytest.param(b"", "Input data was truncated", id="empty"),
    pytest.param(b'{"policyName":"none","defaultCpuSet":"4-6","checksum":1337}', "checkpoint is corrupted", id="checksum"),
    pytest.param(
        b'{"policyName":"none","defaultCpuSet":"1.3","checksum":3021697696}',
        'could not parse default cpu set "1.3": strconv.Atoi: parsing "1.3": invalid syntax',
        id="no list",
    ),
    pytest.param(
        b'{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"asd"}},"checksum":962272150}',
        'could not parse cpuset "asd" for container "container2" in pod "pod": strconv.Atoi: parsing "asd": invalid syntax',
        id="no list of a container",
    ),
    pytest.param(b'{"policyName":"none","defaultCpuSet":"0,3-1","checksum":0}', 'invalid range "3-1" (3 > 1)', id="backwards"),
    pytest.param(b'{"policyName":"none","defaultCpuSet":"0,","checksum":0}', 'strconv.Atoi: parsing "": invalid', id="comma"),
    pytest.param(b'{"policyName":"none","defaultCpuSet":"0-2-4","checksum":0}', 'strconv.Atoi: parsing "2-4": invalid', id="three"),
    pytest.param(b'{"policyName":"none","defaultCpuSet":"0-70000","checksum":0}', '"0-70000" names CPUs above 65535', id="large"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "words"), BROKEN)
def test_what_cannot_be_read(data: bytes, words: str) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        cpu_state_from_json(data)
    assert words in str(caught.value)


cpu_sets = st.frozensets(st.integers(0, 300), max_size=20)
names = st.text("abcdef-0123456789", min_size=1, max_size=12)


@given(cpu_sets, st.dictionaries(names, st.dictionaries(names, cpu_sets, min_size=1), max_size=4))
def test_there_and_back(shared: frozenset[int], owned: dict[str, dict[str, frozenset[int]]]) -> None:
    state = CpuState("static", shared, owned)
    assert cpu_state_from_json(cpu_state_json(state)) == state
