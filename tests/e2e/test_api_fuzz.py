"""Two thousand odd requests; `./dev prove api_fuzz` sends fifty thousand. PLIMSOLL_FUZZ_SEED sets the seed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.e2e.api_fuzz import Asker as InProcessAsker
from tests.e2e.api_fuzz import fuzz, offers_of, report, running_app, scratch
from tests.e2e.api_fuzz_tls import fuzz_over_tls
from tests.e2e.request_grammar import asked

CASES, CASES_OVER_TLS = 1_700, 300
SEED = int(os.environ.get("PLIMSOLL_FUZZ_SEED", "1"))


def test_odd_requests() -> None:
    with tempfile.TemporaryDirectory(dir=scratch()) as directory:
        outcome = fuzz(SEED, CASES, Path(directory) / "state")
    assert not outcome.failures, "\n" + report(SEED, outcome.failures)
    counts = outcome.counts
    assert counts["requests"] >= CASES
    assert counts["200"] + counts["201"] > CASES // 8, "most requests must not be so wild that only refusals are tested"
    assert all(counts[code] for code in ("400", "401", "403", "404", "405", "406", "409", "415", "422"))


def test_odd_requests_over_tls() -> None:
    with tempfile.TemporaryDirectory(dir=scratch()) as directory:
        outcome = fuzz_over_tls(SEED, CASES_OVER_TLS, Path(directory))
    assert not outcome.failures, "\n" + report(SEED, outcome.failures)
    assert outcome.counts["requests"] > CASES_OVER_TLS * 0.8
    assert outcome.counts["200"]


async def test_requests_can_be_repeated_and_cover_everything_offered(tmp_path: Path) -> None:
    async with running_app(tmp_path, "documents") as app:
        offers = await offers_of(InProcessAsker(app))
    assert {(each.plural, each.subresource, each.verb) for each in offers} >= {
        ("pods", "resize", "patch"),
        ("nodes", "", "deletecollection"),
        ("selfsubjectaccessreviews", "", "create"),
        ("poddisruptionbudgets", "status", "update"),
    }
    assert [asked(3, number, offers) for number in range(50)] == [asked(3, number, offers) for number in range(50)]
    assert asked(3, 1, offers) != asked(4, 1, offers)
