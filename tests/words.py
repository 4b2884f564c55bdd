"""`python -m tests.words`, a part of `./dev lint`: the words that docs/glossary.md rejects are nowhere in the project.

The table `| not | say |` rejects words and phrases in pages, comments, strings, the dashboard's files and as parts of
identifiers, the table `| not in names | say |` only as parts of identifiers. Forms in -s, -es and -ed count as the word. A word that is the
whole of a code span or a string (the user `nobody`) is a literal and allowed; so is everything that docs/semantics
quotes from Kubernetes.
"""

from __future__ import annotations

import hashlib
import re
import sys
from functools import cache
from pathlib import Path

from tests import project_files
from tests.project_files import ROOT, names, pages, prose, python_files, web_files

GLOSSARY, OWN_TEST = ROOT / "docs" / "glossary.md", ROOT / "tests" / "unit" / "test_words.py"
CLEAN = ROOT / ".cache" / "words"
ENFORCED, IN_NAMES = "not", "not in names"
ROW = re.compile(r"\| `([^`]+)` \| (.*?) \|$")
QUOTED = re.compile(r"`[^`]*`|“[^”]*”|\"[^\"]*\"|'[^']*'")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
WORD = re.compile(r"\w+")


def rejected(page: str, table: str) -> dict[str, str]:
    """The rows of one table of the glossary: the word to avoid → what to say."""
    words: dict[str, str] = {}
    header = ""
    for line in page.splitlines():
        if not line.startswith("|"):
            header = ""
        elif not header:
            header = line.strip("| ").partition(" | ")[0]
        elif header == table and (row := ROW.match(line)):
            words[row[1]] = row[2]
    return words


class Rejected:
    """Words to avoid → what to say, as patterns."""

    def __init__(self, say: dict[str, str]) -> None:
        self.say = say
        words = "|".join(map(re.escape, say))
        self._word = re.compile(rf"\b({words})(?:e?s|e?d)?\b", re.IGNORECASE)
        self._literal = re.compile(rf"([`'\"])({words})\1")
        self._names: dict[str, list[str]] = {}

    def in_prose(self, line: str) -> list[str]:
        found = [match[1].lower() for match in self._word.finditer(line)]
        return found and [match[1].lower() for match in self._word.finditer(self._literal.sub("", line))]

    def in_name(self, name: str) -> list[str]:
        if name not in self._names:
            self._names[name] = self.in_prose(" ".join(PARTS.findall(name)))
        return self._names[name]


def may_have(text: str, everywhere: Rejected, in_names: Rejected) -> bool:
    """Whether a file needs to be read token by token, which takes most of the time: few files do."""
    return bool(everywhere.in_prose(text)) or any(map(in_names.in_name, set(WORD.findall(text))))


def problems(path: Path, everywhere: Rejected, in_names: Rejected) -> list[str]:
    if not may_have(path.read_text(encoding="utf-8"), everywhere, in_names):
        return []
    found: list[tuple[int, str]] = []
    quotes = path.parent.name == "semantics"
    for number, line in prose(path):
        found += [(number, word) for word in everywhere.in_prose(QUOTED.sub("", line) if quotes else line)]
    for number, name in names(path):
        found += [(number, word) for word in in_names.in_name(name)]
    say = everywhere.say | in_names.say
    return [f"{path.relative_to(ROOT)}:{number}: not {word!r}; say: {say[word]}" for number, word in sorted(set(found))]


def main() -> int:
    page = GLOSSARY.read_text(encoding="utf-8")
    everywhere, in_names = rejected(page, ENFORCED), rejected(page, IN_NAMES)
    if not everywhere or not in_names:
        print(f"{GLOSSARY}: the tables of rejected words are missing")
        return 1
    patterns = Rejected(everywhere), Rejected(everywhere | in_names)
    files = [path for path in [*pages(), *python_files(), *web_files()] if path not in (GLOSSARY, OWN_TEST)]
    known = _clean_before()
    sums = {path: _sum(path, GLOSSARY, Path(__file__), Path(project_files.__file__)) for path in files}
    found = [problem for path in files if sums[path] not in known for problem in problems(path, *patterns)]
    if not found:
        CLEAN.parent.mkdir(exist_ok=True)
        CLEAN.write_text("\n".join(sums.values()))
    print("\n".join(found))
    return 1 if found else 0


def _clean_before() -> frozenset[str]:
    """What was read and found clean in the last run: most files have not changed since."""
    try:
        return frozenset(CLEAN.read_text().split())
    except FileNotFoundError:
        return frozenset()


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


def _sum(path: Path, *rules: Path) -> str:
    """Of the file, where it is, and the files that hold the rules."""
    parts = [str(path.relative_to(ROOT)).encode(), _content(path), *map(_content, rules)]
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
