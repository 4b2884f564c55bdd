"""libyaml is imported without the rest of PyYAML, and PyYAML still works afterwards."""

import subprocess
import sys

import pytest

ALONE = """
import sys
from plimsoll.codec.yaml import libyaml
assert "yaml.resolver" not in sys.modules, "PyYAML's own loader was imported"
assert "yaml" not in sys.modules, "the package object was left behind"
events = []
parser = libyaml.CParser("a: [1]")
while parser.check_event():
    events.append(type(parser.get_event()))
assert libyaml.ScalarEvent in events and libyaml.SequenceEndEvent in events, events
"""
WHOLE = """
import yaml
assert yaml.safe_load("a: 1") == yaml.load("a: 1", Loader=yaml.CSafeLoader) == {"a": 1}
assert yaml.dump({"a": [1]}, Dumper=yaml.CSafeDumper) == "a:\\n- 1\\n"
try:
    yaml.load("[", Loader=yaml.CSafeLoader)
except yaml.YAMLError:
    pass
else:
    raise AssertionError("no error")
"""
READER = """
from plimsoll.codec.yaml import libyaml
try:
    parser = libyaml.CParser("a: \\x01")
    while parser.check_event():
        parser.get_event()
except libyaml.ReaderError as error:
    assert error.reason == "control characters are not allowed", error.reason
else:
    raise AssertionError("no error")
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(ALONE, id="only libyaml"),
        pytest.param(ALONE + WHOLE, id="PyYAML afterwards"),
        pytest.param(WHOLE + "from plimsoll.codec.yaml import libyaml\nassert libyaml.CParser", id="PyYAML before"),
        pytest.param(READER, id="reader error"),
        pytest.param("import yaml\n" + READER, id="reader error, PyYAML before"),
    ],
)
def test_imports(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
