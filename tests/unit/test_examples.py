"""The number of examples and the absence of a deadline hold for every property, in whatever order modules are imported."""

from __future__ import annotations

import subprocess
import sys

from tests.project_files import ROOT

# As pytest does for `tests`: those of e2e come first.
SCRIPT = """
import tests.e2e.conftest, tests.e2e.request_bodies
from tests.unit.codec.protobuf.test_kube import test_damaged_bodies_are_read_or_refused as read_before
import tests.unit.conftest
print(read_before._hypothesis_internal_use_settings.deadline)
"""


def test_properties_of_modules_that_other_tests_import() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("None\n", "")
