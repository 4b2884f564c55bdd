"""`python -m tests.words`, a part of `./dev lint`: the words that docs/glossary.md rejects are nowhere in the project.

The table `| not | say |` rejects words and phrases in pages, comments, strings and as parts of identifiers, the table
`| not in names | say |` only as parts of identifiers. Forms in -s, -es and -ed count as the word. A word that is the
whole of a code span or a string (the user `nobody`) is a literal and allowed; so is everything that docs/semantics
quotes from Kubernetes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.project_files import ROOT, names, pages, prose, python_files

GLOSSARY = ROOT / "docs" / "glossary.md"
ENFORCED, IN_NAMES = "not", "not in names"
ROW = re.compile(r"\| `([^`]+)` \| (.*?) \|$")
QUOTED = re.compile(r"`[^`]*`|“[^”]*”|\"[^\"]*\"|'[^']*'")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


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


def pattern(words: dict[str, str]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(map(re.escape, words))})(?:e?s|e?d)?\b", re.IGNORECASE)


def in_prose(line: str, words: dict[str, str]) -> list[str]:
    literals = "|".join(map(re.escape, words))
    text = re.sub(rf"([`'\"])({literals})\1", "", line)
    return [match[1].lower() for match in pattern(words).finditer(text)]


def in_name(name: str, words: dict[str, str]) -> list[str]:
    return in_prose(" ".join(PARTS.findall(name)), words)


def problems(path: Path, words: dict[str, str], only_in_names: dict[str, str]) -> list[str]:
    say = words | only_in_names
    found: list[tuple[int, str]] = []
    for number, line in prose(path):
        quotes = path.parent.name == "semantics"
        found += [(number, word) for word in in_prose(QUOTED.sub("", line) if quotes else line, words)]
    for number, name in names(path):
        found += [(number, word) for word in in_name(name, say)]
    return [f"{path.relative_to(ROOT)}:{number}: not {word!r}; say: {say[word]}" for number, word in sorted(set(found))]


def main() -> int:
    page = GLOSSARY.read_text(encoding="utf-8")
    words, only_in_names = rejected(page, ENFORCED), rejected(page, IN_NAMES)
    if not words or not only_in_names:
        print(f"{GLOSSARY}: the tables of rejected words are missing")
        return 1
    files = [
        path
        for path in [*pages(), *python_files()]
        if path not in (GLOSSARY, Path(__file__).with_name("unit") / "test_words.py")
    ]
    found = [problem for path in files for problem in problems(path, words, only_in_names)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
