"""RE2's syntax and matches. Expected texts are Go's; matches are compared with Python's engine where both agree."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.re2.matcher import RegexBudgetError, compiled
from plimsoll.rules.re2.syntax import RegexError

MATCHES = [
    ("^[a-z]+$", "abc", True),
    ("^[a-z]+$", "abc\n", False),  # `$` is only the end of the text
    ("^[a-z]+$", "aBc", False),
    ("(?i)^abc$", "aBC", True),
    ("(?s)a.b", "a\nb", True),
    ("a.b", "a\nb", False),
    ("(?m)^b$", "a\nb\nc", True),
    (r"\bfoo\b", "a foo b", True),
    (r"\bfoo\b", "afoob", False),
    (r"^\d{3}-\d{4}$", "555-1234", True),
    (r"^\pL+$", "Größe", True),
    (r"^[[:alpha:]]+\z", "abc", True),
    (r"^[^\d]+$", "ab1", False),
    (r"\Q.+\E", "a.+b", True),
    ("^(?:a|b){2,3}$", "abab", False),
    (r"^\x41\x{42}$", "AB", True),
    ("x{,3}", "x{,3}", True),  # no repetition: the text itself
    ("", "anything", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), MATCHES, ids=lambda each: repr(each)[:20])
def test_search(pattern: str, text: str, expected: bool) -> None:
    assert compiled(pattern).search(text) is expected
    assert (compiled(pattern).find(text) is not None) is expected


REFUSED = [
    ("[a", "error parsing regexp: missing closing ]: `[a`"),
    ("a**", "error parsing regexp: invalid nested repetition operator: `**`"),
    ("(a", "error parsing regexp: missing closing ): `(a`"),
    ("a)", "error parsing regexp: unexpected ): `a)`"),
    ("a{1001}", "error parsing regexp: invalid repeat count: `{1001}`"),
    ("*a", "error parsing regexp: missing argument to repetition operator: `*`"),
    ("[b-a]", "error parsing regexp: invalid character class range: `b-a`"),
    (r"\y", r"error parsing regexp: invalid escape sequence: `\y`"),
    ("(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
    (r"(a)\1", r"error parsing regexp: invalid escape sequence: `\1`"),
]


@pytest.mark.parametrize(("pattern", "message"), REFUSED, ids=[each[0] for each in REFUSED])
def test_patterns_that_go_refuses(pattern: str, message: str) -> None:
    with pytest.raises(RegexError) as found:
        compiled(pattern)
    assert str(found.value) == message


ATOMS = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", "a*", "b+", "(a|b)", "(ab|a)", "a?", "b{2}", "(a*)b", r"\b", "^", ".", "a{1,3}?", "b*?"]
)


@given(st.lists(ATOMS, min_size=1, max_size=5).map("".join), st.text("abc_ ", max_size=9))
def test_the_leftmost_match_is_perl_s(pattern: str, text: str) -> None:
    expected = re.search(pattern, text)
    assert compiled(pattern).search(text) is (expected is not None)
    assert compiled(pattern).find(text) == (None if expected is None else expected.span())


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(a*)*b$", "(x+x+)+y"])
def test_no_pattern_backtracks(pattern: str) -> None:
    """Python's own engine would take longer than the universe has existed."""
    assert not compiled(pattern).search("a" * 20_000 + "!")


def test_a_search_that_takes_too_many_steps_is_refused() -> None:
    text = "".join(random.Random(1).choices("ab", k=5_000))
    with pytest.raises(RegexBudgetError):
        compiled("(a|b)*a(a|b){900}c").search(text)
    with pytest.raises(RegexError, match="expression too large"):
        compiled("((a{100}){100}){100}")


def test_find_all() -> None:
    assert compiled("[0-9]+").find_all("a1b22c333") == ["1", "22", "333"]
    assert compiled("[0-9]+").find_all("a1b22c333", 2) == ["1", "22"]
    assert compiled("a*").find_all("baab") == ["", "aa", ""]
