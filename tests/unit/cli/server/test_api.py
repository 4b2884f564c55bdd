"""`plimsoll api token`: what it prints."""

from __future__ import annotations

from pathlib import Path

from plimsoll.api.auth.ca import Authority
from tests.unit.console import run


def test_no_tokens_is_said(tmp_path: Path) -> None:
    done = run("api", "--state-dir", str(tmp_path / "state"), "token", "list")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("no tokens in ") and "plimsoll api token create --user NAME" in done.err


def test_tokens_are_listed_below_a_header(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    Authority(state).prepare(["127.0.0.1"])
    for user in ("ann", "bob"):
        assert run("api", "--state-dir", str(state), "token", "create", "--user", user).code == 0
    assert run("api", "--state-dir", str(state), "token", "list").out == "USER\nann\nbob\n"
