"""Reports at the end of a run what it has really exercised, and what it has skipped.

A test that drives a real kernel, container runtime or browser says so: `exercised("kernel", "Linux 6.18, cgroup v1")`.
The closing lines then list each of these once, and every reason for a skip, so that a green run on a small machine is
not taken for a full one. Under xdist each worker sends its list to the controller when it ends, and a run of what failed
in the last one (`--once-more`) goes on with its list.
"""

from __future__ import annotations

import gc
import signal
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.unit")  # so that shared helpers fail with full messages

_EXERCISED = pytest.StashKey[set[tuple[str, str]]]()
_KEPT = "plimsoll/exercised"
_COUNTS = "plimsoll/counts"  # ./dev reads it for its last line


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--once-more", action="store_true", help="some tests of the last run again: keep what it exercised"
    )


def pytest_configure(config: pytest.Config) -> None:
    cache = getattr(config, "cache", None)  # absent with `-p no:cacheprovider`
    kept = cache.get(_KEPT, []) if cache is not None and config.getoption("once_more") else []
    config.stash[_EXERCISED] = {(kind, name) for kind, name in kept}
    if getattr(config.option, "loadgroup", False):  # in a worker
        from tests.scheduling import be_nice

        be_nice(config.workerinput["workerid"], config.workerinput["workercount"])  # type: ignore[attr-defined]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts background jobs
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else the Ctrl-C that a test sends would be ignored


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thirteen thousand tests are made and kept: Python need not look for garbage among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that share a fixture of their module stay in one worker of pytest-xdist, which makes it once: it may be a
    server, a node or a container runtime. So do unit tests of one module; passing on each of twelve thousand alone costs
    more than most of them."""
    if item.get_closest_marker("xdist_group") is None and (item.nodeid.startswith("tests/unit/") or _shares(item)):
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    definitions = (item._fixtureinfo.name2fixturedefs.get(name, ()) for name in item.fixturenames)
    return any(each[-1].scope == "module" for each in definitions if each)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a module leaves unclosed, such as connections, is reported there, and not by a later test, during which Python
    happens to collect it. The rest is frozen, so that the next collection is short."""
    if nextitem is None or nextitem.nodeid.partition("::")[0] != item.nodeid.partition("::")[0]:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduling import Scheduling

    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first: those of kernels and of whole clusters. See also tests/scheduling.py.

    A worker of pytest-xdist writes the group of a test behind its name, into an attribute that pytest has read up to
    9.1. Without this, tests of one group are spread over all workers, and each worker makes what they share."""
    items.sort(key=lambda item: ("kernel/" not in item.nodeid, "e2e/" not in item.nodeid))
    for item in items:
        with_group = getattr(item, "_nodeid", item.nodeid)
        if with_group != item.nodeid:
            item._id = type(item._id).parse(with_group)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def exercised(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """Call it with a kind (`kernel`, `runtime`, `browser`, …) and a name once the real thing has done its part."""

    def note(kind: str, name: str) -> None:
        pytestconfig.stash[_EXERCISED].add((kind, name))

    return note


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # only an xdist worker has it; execnet carries lists of lists, not sets
        output["exercised"] = [list(pair) for pair in session.config.stash[_EXERCISED]]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # A worker that crashed has sent nothing: then its tests have failed, and nothing of it is claimed.
    pairs = getattr(node, "workeroutput", {}).get("exercised", [])
    node.config.stash[_EXERCISED].update((kind, name) for kind, name in pairs)


# Outermost, so that these lines are below pytest's own summary and right above its counts.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    yield
    if getattr(config, "cache", None) is not None:
        config.cache.set(_KEPT, sorted(config.stash[_EXERCISED]))
        outcomes = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
        counts = {outcome: len(terminalreporter.stats.get(outcome, ())) for outcome in outcomes}
        config.cache.set(_COUNTS, {outcome: count for outcome, count in counts.items() if count})
    reasons = Counter(_skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped: {count} × {reason}")
    for kind, name in sorted(config.stash[_EXERCISED]):
        terminalreporter.write_line(f"exercised: {kind}: {name}")
    if not config.stash[_EXERCISED]:
        terminalreporter.write_line("exercised: nothing beyond pure Python")


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ") or "no reason given"
    return str(report.longrepr or "no reason given")
