"""Starts the guests in which nodes are brought under pressure; each test inside is a subtest here."""

from __future__ import annotations

import pytest

from tests.kernel.conftest import InGuest
from tests.kernel.guest import PYTHON
from tests.kernel.kinds import inner_tests, pytest_argv

IN_GUEST = "tests/kernel/in_guest"


@pytest.mark.long
def test_pressure_on_v2(in_guest: InGuest, subtests: pytest.Subtests) -> None:
    argv = pytest_argv("-s", f"{IN_GUEST}/test_pressure.py")
    done = in_guest("uml-v2", argv, 900.0, memory_mib=900)
    tests = inner_tests(done)
    for test in tests:
        with subtests.test(msg=f"uml-v2: {test.name}"):
            if test.outcome == "failed":
                pytest.fail(f"{test.name}\n{test.text}", pytrace=False)
            elif test.outcome == "skipped":
                pytest.skip(f"uml-v2: {test.text}")
    assert tests, done.report()
    assert done.status in (0, 1), done.report()


@pytest.mark.long
def test_pressure_with_stall_information_and_two_cpus(in_guest: InGuest) -> None:
    done = in_guest("qemu-v2", [PYTHON, f"{IN_GUEST}/pressure_psi.py"], 600.0)
    assert done.status == 0, done.report()
    assert done.stdout.endswith("all seen\n"), done.report()
