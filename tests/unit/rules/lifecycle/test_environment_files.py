"""Files of variables (`fileKeyRef`): the syntax of the kubelet's parser, and what a pod sees of its errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import ContainerConfigError
from plimsoll.rules.lifecycle.api_objects import PodObjects
from plimsoll.rules.lifecycle.environment import Surroundings, environment
from plimsoll.rules.lifecycle.environment_files import EnvironmentFile, variable

AT = "invalid environment variable format at line"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("A='1'", "1", id="no last newline"),
        pytest.param("B='2'\nA='1'\n", "1", id="a later line"),
        pytest.param("A='1'\nA='2'\n", "1", id="the first of two"),
        pytest.param("\n \t\n# A='0'\n  \tA='1' # why\n", "1", id="blank lines, comments, indentation"),
        pytest.param("A='1'\t\r\nB='2'\r\n", "1", id="lines of Windows"),
        pytest.param("A='one\ntwo\n\n three'\n", "one\ntwo\n\n three", id="several lines"),
        pytest.param("B='A=\\'\nA='x'", "x", id="a backslash is an ordinary letter"),
        pytest.param("A='$HOME `id` \"q\" # no comment'", '$HOME `id` "q" # no comment', id="literal"),
        pytest.param("A= '1'\n", "", id="a blank after the equals sign: nothing assigned"),
        pytest.param("A=''\n", "", id="empty"),
        pytest.param("B='1'\n", "", id="another name"),
        pytest.param("A='1'\nnonsense", "1", id="nothing after the name is looked at"),
        pytest.param("", "", id="an empty file"),
        pytest.param("A B='x'\nA='1'", "1", id="a name with a blank in it"),
        pytest.param("A='x=y'", "x=y", id="an equals sign in the value"),
    ],
)
def test_values(text: str, value: str) -> None:
    assert variable(text, "A") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense\nA='1'", f"{AT} 1: missing '='"),
        ("\n='1'", f"{AT} 2: empty variable name"),
        ("A ='1'", f"{AT} 1: whitespace before '=' is not allowed"),
        ("B=1\nA='1'", f"{AT} 1: value must be enclosed in single quotes"),
        ('A="1"', f"{AT} 1: value must be enclosed in single quotes"),
        ("A=", f"{AT} 1: value must be enclosed in single quotes"),
        ("B='1\n2' x\nA='1'", f"{AT} 2: unexpected content after closing quote"),
        ("A='1''2'", f"{AT} 1: unexpected content after closing quote"),
        ("\nA='1\n2", "invalid environment variable format starting at line 2: unclosed single quote"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError) as found:
        variable(text, "A")
    assert str(found.value) == message


@given(
    st.dictionaries(st.from_regex(r"[A-Z]{1,3}", fullmatch=True), st.text(st.characters(exclude_characters="'\r\0")))
)
def test_what_is_written_is_read(values: dict[str, str]) -> None:
    text = "".join(f"{name}='{value}'\n" for name, value in values.items())
    assert {name: variable(text, name) for name in values} == values


FILES = {
    ("v", "env"): EnvironmentFile("/vol/env", "A='1'\n"),
    ("v", "none"): EnvironmentFile("/vol/none", problem="none: No such file or directory"),
    ("v", "bad"): EnvironmentFile("/vol/bad", "A"),
}


def _taken(volume: str, path: str, key: str, optional: bool = False, gate: bool = True) -> dict[str, str]:
    source = {"volumeName": volume, "path": path, "key": key, "optional": optional}
    container = {"name": "c", "env": [{"name": "X", "valueFrom": {"fileKeyRef": source}}]}
    pod = run_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    files = FILES if gate else None
    return environment(pod, pod.spec.containers[0], PodObjects(), Surroundings(), files=files).variables


def test_variables() -> None:
    assert _taken("v", "env", "A") == {"X": "1"}
    assert _taken("v", "env", "B", optional=True) == {}


@pytest.mark.parametrize(
    ("volume", "path", "key", "optional", "gate", "message"),
    [
        ("v", "env", "B", False, True, 'environment variable key "B" not found in file "/vol/env"'),
        ("w", "env", "A", True, True, 'cannot find the volume "w" referenced by FileKeyRef'),
        ("v", "none", "A", True, True, "couldn't parse env file: none: No such file or directory"),
        ("v", "bad", "A", True, True, f"couldn't parse env file: {AT} 1: missing '='"),
        ("v", "env", "A", False, False, 'environment variable "X": valueFrom supports fieldRef, resourceFieldRef, '
         "configMapKeyRef and secretKeyRef"),
    ],
)  # fmt: skip
def test_refusals(volume: str, path: str, key: str, optional: bool, gate: bool, message: str) -> None:
    with pytest.raises(ContainerConfigError) as found:
        _taken(volume, path, key, optional, gate)
    assert str(found.value) == message
